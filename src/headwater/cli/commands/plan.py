"""`headwater plan`: what was planned, by whom it is executed, and taking it back."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.arguments import (
    Confirmed,
    OutputFormat,
    TableOptions,
    TablePath,
    confirm,
    open_given_table,
)
from headwater.cli.output import Format, output_of, say

app = typer.Typer(no_args_is_help=True, help="Plans of table services and indexes.")

PlanInstant = Annotated[str, typer.Argument(metavar="INSTANT", help="The plan's instant.")]


@app.command("list")
def list_plans(
    path: TablePath, options: TableOptions = None, output: OutputFormat = Format.TEXT
) -> None:
    """Show the plans that have not ended, and who works on each."""
    with open_given_table(path, options) as table:
        rows = table.inspect.plans()
    output_of(output).show_rows(rows, nothing="No plan waits.")


@app.command()
def show(
    path: TablePath,
    instant: PlanInstant,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show what a plan is to do: its file groups and files."""
    with open_given_table(path, options) as table:
        rows = table.inspect.plan(instant)
    output_of(output).show_rows(rows, nothing="The plan names no file group.")


@app.command()
def cancel(
    path: TablePath,
    instant: PlanInstant,
    reason: Annotated[
        str, typer.Option(help="Why, for those who look later.")
    ] = "asked for by hand",
    yes: Confirmed = False,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Cancel a cancellable plan for good; whoever executes it stops and aborts it."""
    confirm(f"Cancel {instant} for good?", is_confirmed=yes)
    with open_given_table(path, options) as table:
        table.services.request_cancel(instant, reason=reason)
    say(f"`headwater plan abort` ends {instant} if nobody executes it.")
    output_of(output).show_fields({"cancelled": instant})


@app.command()
def abort(
    path: TablePath,
    instant: PlanInstant,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Delete what a cancelled plan left behind, and end it."""
    with open_given_table(path, options) as table:
        table.services.execute_abort(instant)
    output_of(output).show_fields({"aborted": instant})
