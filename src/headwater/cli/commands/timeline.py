"""`headwater timeline`: what happened to a table."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.arguments import OutputFormat, TableOptions, TablePath, open_given_table
from headwater.cli.output import Format, output_of

app = typer.Typer(no_args_is_help=True, help="The timeline of a table.")


@app.command()
def show(
    path: TablePath,
    last: Annotated[int, typer.Option(min=1, help="How many instants, the newest ones.")] = 20,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show the newest instants of the active timeline, oldest first."""
    with open_given_table(path, options) as table:
        rows = table.inspect.timeline(operations=True)
    newest = rows.slice(max(0, rows.num_rows - last))
    output_of(output).show_rows(newest, nothing="Nothing has happened yet.")
