"""`headwater top`: a table at work, as it is now and again every second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from headwater.cli.arguments import TableOptions, TablePath, open_given_table
from headwater.cli.output import answers, text_table

if TYPE_CHECKING:
    from headwater.table import Table

_INSTANTS = 12


def top(
    path: TablePath,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    looks: Annotated[
        int | None, typer.Option(min=1, help="Leave after so many looks; never unless given.")
    ] = None,
    options: TableOptions = None,
) -> None:
    """Watch a table: its newest instants, who is at work, plans and the lock. Ctrl-C leaves."""
    console = answers()
    with open_given_table(path, options) as table:
        clock = table.context.clock
        with Live(_look(table), console=console, auto_refresh=False) as live:
            seen = 1
            while looks is None or seen < looks:
                try:
                    clock.sleep_ms(int(every * 1000))
                except KeyboardInterrupt:
                    return
                live.update(_look(table), refresh=True)
                seen += 1


def _look(table: Table) -> Group:
    inspect = table.inspect
    instants = inspect.timeline()
    parts: list[RenderableType] = [
        Text(f"{table.name}  {table.uri}", style="bold"),
        text_table(instants.slice(max(0, instants.num_rows - _INSTANTS)), "newest instants"),
    ]
    for title, rows in (
        ("at work", inspect.heartbeats().select(["instant", "purpose", "host", "pid", "age_ms"])),
        ("plans", inspect.plans()),
        ("lock", inspect.locks().select(["owner", "acquired", "expires"])),
    ):
        if rows.num_rows:
            parts.append(text_table(rows, title))
    return Group(*parts)
