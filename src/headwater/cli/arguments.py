"""What most commands take: the table, its options and how to print."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.output import Format
from headwater.errors import ErrorKind, InvalidInputError
from headwater.table import Table, open_table

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
    Format, typer.Option("--output", help="Tables for people, or JSON for programs.")
]


def open_given_table(path: str, options: list[str] | None) -> Table:
    """Open the table that the command line names.

    Raises: see `headwater.open_table`; InvalidInputError for an option that is not KEY=VALUE.
    """
    given: dict[str, str] = {}
    for option in options or ():
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise InvalidInputError(
                f"--option takes KEY=VALUE, got {option!r}", kind=ErrorKind.INVALID_OPTION
            )
        given[key] = value
    return open_table(path, given)
