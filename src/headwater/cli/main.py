"""The entry point: it finds the command, and turns errors into messages and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise

import typer

from headwater.cli.commands import fsck, index, table, timeline
from headwater.cli.exit_codes import exit_code_of
from headwater.cli.output import Format, output_of
from headwater.errors import HeadwaterError

app = typer.Typer(
    name="headwater",
    help="Tables of Apache Hudi's format: look at them, check them, index them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(fsck.fsck)
app.add_typer(table.app, name="table")
app.add_typer(timeline.app, name="timeline")
app.add_typer(index.app, name="index")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(given, standalone_mode=True)
    except HeadwaterError as error:
        output_of(_format_of(given)).show_error(error)
        return exit_code_of(error)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _format_of(arguments: Sequence[str]) -> Format:
    """Return how to print an error of a command that may not have come to read its options."""
    is_json = "--output=json" in arguments or any(
        one == "--output" and other == "json" for one, other in pairwise(arguments)
    )
    return Format.JSON if is_json else Format.TEXT


if __name__ == "__main__":
    sys.exit(main())
