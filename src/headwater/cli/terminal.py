"""What people see in a terminal: tables, and fields of one thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

from headwater.cli.output import show_error_to_people
from headwater.cli.row_values import values_of
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    import pyarrow as pa

_WIDTH_OF_PIPES = 10_000


class TextOutput:
    """For people."""

    def __init__(self) -> None:
        self._out = answers()

    def show_rows(self, rows: pa.Table, *, nothing: str) -> None:
        if not rows.num_rows:
            self._out.print(Text(nothing))
            return
        self._out.print(text_table(rows), crop=False)

    def show_fields(self, fields: dict[str, Any]) -> None:
        shown = TextTable(box=None, show_header=False, pad_edge=False)
        for name, value in fields.items():
            shown.add_row(Text(name, style="bold"), Text(_text(value)))
        self._out.print(shown)

    def show_error(self, error: HeadwaterError) -> None:
        show_error_to_people(error)


def text_table(rows: pa.Table, title: str | None = None) -> TextTable:
    """Return rows as a terminal shows them."""
    shown = TextTable(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for field in rows.schema:
        is_number = str(field.type).startswith(("int", "uint", "float", "double", "decimal"))
        shown.add_column(field.name, justify="right" if is_number else "left", overflow="fold")
    for row in values_of(rows):
        shown.add_row(*(Text(_text(value)) for value in row.values()))
    return shown


def answers() -> Console:
    """Return where answers go."""
    screen = Console(soft_wrap=True, highlight=False)
    if screen.is_terminal:
        return screen
    # Long paths are for copying, so lines are not broken where nobody looks at them.
    return Console(soft_wrap=True, highlight=False, width=_WIDTH_OF_PIPES)


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case list() | tuple() | set() | frozenset():
            return ", ".join(_text(each) for each in sorted(value, key=str))
        case _:
            return str(value)
