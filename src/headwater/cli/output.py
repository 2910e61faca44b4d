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

import typer

from headwater.cli.row_values import values_of
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


class JsonOutput:
    """For programs: one JSON document."""

    def show_rows(self, rows: pa.Table, *, nothing: str) -> None:
        _print_json(values_of(rows))

    def show_fields(self, fields: dict[str, Any]) -> None:
        _print_json(fields)

    def show_error(self, error: HeadwaterError) -> None:
        document = {"error": str(error), "kind": str(error.kind), "retry": str(error.retry)}
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False), err=True)


class CsvOutput:
    """For spreadsheets and shell scripts: a header, then one line a row."""

    def show_rows(self, rows: pa.Table, *, nothing: str) -> None:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(rows.column_names)
        for batch in rows.to_batches():
            for row in values_of(batch):
                writer.writerow([_csv_value(value) for value in row.values()])

    def show_fields(self, fields: dict[str, Any]) -> None:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(fields)
        writer.writerow([_csv_value(value) for value in fields.values()])

    def show_error(self, error: HeadwaterError) -> None:
        show_error_to_people(error)


def output_of(kind: Format) -> Output:
    match kind:
        case Format.TEXT:
            # Imported for people only: programs, help and errors do without what draws tables.
            from headwater.cli.terminal import TextOutput

            return TextOutput()
        case Format.JSON:
            return JsonOutput()
        case Format.CSV:
            return CsvOutput()


def say(text: str) -> None:
    """Print what is not the answer."""
    typer.echo(text, err=True)


def show_error_to_people(error: HeadwaterError) -> None:
    """Print why a command failed, as people read it."""
    title = typer.style("error", fg=typer.colors.RED, bold=True)
    typer.echo(f"{title} ({error.kind}): {error}", err=True)


def _print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2, default=str, ensure_ascii=False))


def _csv_value(value: Any) -> Any:
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, default=str, ensure_ascii=False)
    return value
