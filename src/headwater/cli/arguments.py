"""What most commands take: the table, its options and how to print."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import Format
from headwater.errors import ErrorKind, InvalidInputError

if TYPE_CHECKING:
    from headwater.table import Table

TablePath = Annotated[
    str, typer.Argument(metavar="PATH", help="The table: a local path or s3://bucket/table.")
]
TableOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="KEY=VALUE", help="An option such as hoodie.*; may be repeated."
    ),
]
OutputFormat = Annotated[
    Format, typer.Option("--output", help="Tables for people; JSON or CSV for programs.")
]
Columns = Annotated[str | None, typer.Option("--columns", metavar="A,B", help="Which columns.")]
Confirmed = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def open_given_table(path: str, options: list[str] | None) -> Table:
    """Open the table that the command line names.

    Raises: see `headwater.open_table`; InvalidInputError for an option that is not KEY=VALUE.
    """
    # Imported when a command needs a table: help and completion are to start at once.
    from headwater.table import open_table

    return open_table(path, parse_options(options))


def parse_options(options: list[str] | None) -> dict[str, str]:
    """Return the options of a command line.

    Raises:
        InvalidInputError: one is not KEY=VALUE.
    """
    given: dict[str, str] = {}
    for option in options or ():
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise InvalidInputError(
                f"--option takes KEY=VALUE, got {option!r}", kind=ErrorKind.INVALID_OPTION
            )
        given[key] = value
    return given


def split_columns(given: str | None) -> list[str] | None:
    """Return the names of a list with commas."""
    return None if given is None else [name.strip() for name in given.split(",")]


def confirm(what: str, *, is_confirmed: bool) -> None:
    """Ask before what cannot be taken back.

    Raises:
        InvalidInputError: the answer is no, or there is nobody to ask.
    """
    if is_confirmed or (sys.stdin.isatty() and typer.confirm(what, err=True)):
        return
    raise InvalidInputError("Nothing was done. Give --yes to do it without a question")
