"""`headwater conflict`: which work met which, and what became of it."""

from __future__ import annotations

import typer

from headwater.cli.arguments import OutputFormat, TableOptions, TablePath, open_given_table
from headwater.cli.output import Format, output_of

app = typer.Typer(
    no_args_is_help=True, help="Work that collided with other work on the same file groups."
)


@app.command("list")
def list_conflicts(
    path: TablePath, options: TableOptions = None, output: OutputFormat = Format.TEXT
) -> None:
    """Show cancelled plans, writes that were redone, and writes that were rolled back."""
    with open_given_table(path, options) as table:
        rows = table.inspect.conflicts()
    output_of(output).show_rows(rows, nothing="The active timeline knows of no conflict.")
