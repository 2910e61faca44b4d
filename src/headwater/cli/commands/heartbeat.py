"""`headwater heartbeat`: who is at work on a table."""

from __future__ import annotations

import typer

from headwater.cli.arguments import OutputFormat, TableOptions, TablePath, open_given_table
from headwater.cli.output import Format, output_of

app = typer.Typer(no_args_is_help=True, help="Writers and services at work on a table.")


@app.command("list")
def list_heartbeats(
    path: TablePath, options: TableOptions = None, output: OutputFormat = Format.TEXT
) -> None:
    """Show who is at work, and when each was last heard of."""
    with open_given_table(path, options) as table:
        rows = table.inspect.heartbeats()
    output_of(output).show_rows(rows, nothing="Nobody is at work.")
