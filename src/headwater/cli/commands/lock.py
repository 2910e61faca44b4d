"""`headwater lock`: who holds the table lock, and breaking one whose holder is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from headwater.cli.arguments import OutputFormat, TableOptions, TablePath, open_given_table
from headwater.cli.output import Format, output_of

if TYPE_CHECKING:
    from headwater.table import Table

app = typer.Typer(no_args_is_help=True, help="The lock of a table.")


@app.command()
def show(path: TablePath, options: TableOptions = None, output: OutputFormat = Format.TEXT) -> None:
    """Show who holds the table lock, since when and until when."""
    with open_given_table(path, options) as table:
        rows, nobody = table.inspect.locks(), _nobody(table)
    output_of(output).show_rows(rows, nothing=nobody)


@app.command("break")
def break_lock(
    path: TablePath, options: TableOptions = None, output: OutputFormat = Format.TEXT
) -> None:
    """Remove a lock whose lease has run out; one that is held is left alone (exit code 5)."""
    import pyarrow as pa

    with open_given_table(path, options) as table:
        broken, nobody = table.context.components.locks.break_expired(), _nobody(table)
    rows = pa.table({"removed": pa.array([] if broken is None else [broken.owner], pa.string())})
    output_of(output).show_rows(rows, nothing=nobody)


def _nobody(table: Table) -> str:
    """Say that the lock is free; where there is a journal, it would be a queue and no more."""
    free = "Nobody holds the lock."
    return f"This table needs no lock, it has a journal. {free}" if table.config.is_fenced else free
