"""Printing what commands return: tables for people, JSON or CSV for programs.

Answers go to standard output. What is said besides, such as errors and how far something is, goes
to standard error, so that the output of a command can be piped.
"""

from __future__ import annotations

import csv
import json
import sys
from enum import StrEnum, unique
from typing import TYPE_CHECKING, Any, Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    import pyarrow as pa


@unique
class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    CSV = "csv"


class Output(Protocol):
    def show_rows(self, rows: pa.Table, *, nothing: str) -> None:
        """Print a table; `nothing` is what to say instead of no rows."""
        ...

    def show_fields(self, fields: dict[str, Any]) -> None:
        """Print one thing."""
        ...

    def show_error(self, error: HeadwaterError) -> None:
        """Print why a command failed."""
        ...


class TextOutput:
    """For people."""

    def __init__(self) -> None:
        self._out = answers()
        self._err = Console(stderr=True, soft_wrap=True, highlight=False)

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
        self._err.print(Text.assemble(("error", "bold red"), f" ({error.kind}): {error}"))


class JsonOutput:
    """For programs: one JSON document."""

    def show_rows(self, rows: pa.Table, *, nothing: str) -> None:
        _print_json(rows.to_pylist())

    def show_fields(self, fields: dict[str, Any]) -> None:
        _print_json(fields)

    def show_error(self, error: HeadwaterError) -> None:
        document = {"error": str(error), "kind": str(error.kind), "retry": str(error.retry)}
        Console(stderr=True, soft_wrap=True).print_json(json.dumps(document))


class CsvOutput:
    """For spreadsheets and shell scripts: a header, then one line a row."""

    def show_rows(self, rows: pa.Table, *, nothing: str) -> None:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(rows.column_names)
        for batch in rows.to_batches():
            for row in batch.to_pylist():
                writer.writerow([_csv_value(value) for value in row.values()])

    def show_fields(self, fields: dict[str, Any]) -> None:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(fields)
        writer.writerow([_csv_value(value) for value in fields.values()])

    def show_error(self, error: HeadwaterError) -> None:
        TextOutput().show_error(error)


def output_of(kind: Format) -> Output:
    match kind:
        case Format.TEXT:
            return TextOutput()
        case Format.JSON:
            return JsonOutput()
        case Format.CSV:
            return CsvOutput()


def text_table(rows: pa.Table, title: str | None = None) -> TextTable:
    """Return rows as a terminal shows them."""
    shown = TextTable(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for field in rows.schema:
        is_number = str(field.type).startswith(("int", "uint", "float", "double", "decimal"))
        shown.add_column(field.name, justify="right" if is_number else "left", overflow="fold")
    for row in rows.to_pylist():
        shown.add_row(*(Text(_text(value)) for value in row.values()))
    return shown


def answers() -> Console:
    """Return where answers go."""
    screen = Console(soft_wrap=True, highlight=False)
    if screen.is_terminal:
        return screen
    # Long paths are for copying, so lines are not broken where nobody looks at them.
    return Console(soft_wrap=True, highlight=False, width=_WIDTH_OF_PIPES)


def say(text: str) -> None:
    """Print what is not the answer."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(Text(text))


_WIDTH_OF_PIPES = 10_000


def _print_json(document: Any) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(Text(json.dumps(document, indent=2, default=str, ensure_ascii=False)))


def _csv_value(value: Any) -> Any:
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, default=str, ensure_ascii=False)
    return value


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case list() | tuple() | set() | frozenset():
            return ", ".join(_text(each) for each in sorted(value, key=str))
        case _:
            return str(value)
