"""`headwater top`: a table at work, as it is now and again every second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import OutputFormat, TableOptions, TablePath, open_given_table
from headwater.cli.output import Format, output_of
from headwater.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Group

    from headwater.table import Table

_INSTANTS = 12


def top(
    path: TablePath,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    looks: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many looks; never unless given.")
    ] = None,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Watch a table: new instants, work, plans and the lock. Ctrl-C quits."""
    if output is Format.CSV:
        raise InvalidInputError("top shows several tables; choose --output text or json")
    with open_given_table(path, options) as table, suppress(KeyboardInterrupt):
        if output is Format.JSON:
            for seen in _looks(table, every, looks):
                output_of(output).show_fields(
                    {name: rows.to_pylist() for name, rows in seen.items()}
                )
            return
        from rich.live import Live

        from headwater.cli.terminal import answers

        with Live(console=answers(), auto_refresh=False) as live:
            for seen in _looks(table, every, looks):
                live.update(_picture(table, seen), refresh=True)


def _looks(table: Table, every_s: float, looks: int | None) -> Iterator[dict[str, pa.Table]]:
    """Give what is to be seen, with a pause between two looks."""
    for number in count() if looks is None else range(looks):
        if number:
            table.context.clock.sleep_ms(int(every_s * 1000))
        inspect = table.inspect
        instants = inspect.timeline()
        yield {
            "newest instants": instants.slice(max(0, instants.num_rows - _INSTANTS)),
            "at work": inspect.heartbeats().select(["instant", "purpose", "host", "pid", "age_ms"]),
            "plans": inspect.plans(),
            "lock": inspect.locks().select(["owner", "acquired", "expires"]),
        }


def _picture(table: Table, seen: Mapping[str, pa.Table]) -> Group:
    from rich.console import Group
    from rich.text import Text

    from headwater.cli.terminal import text_table

    tables = [text_table(rows, title) for title, rows in seen.items() if rows.num_rows]
    return Group(Text(f"{table.name}  {table.uri}", style="bold"), *tables)
