"""The entry point: it finds the command, and turns errors into messages and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Annotated

import typer

from headwater.cli.commands import (
    conflict,
    console,
    doctor,
    explain,
    fsck,
    heartbeat,
    index,
    ingest,
    lock,
    plan,
    service,
    sql,
    table,
    timeline,
    top,
)
from headwater.cli.exit_codes import INTERRUPTED, TERMINATED, exit_code_of
from headwater.cli.observing import LogLines, MetricsFile, MetricsPort, observe
from headwater.cli.output import Format, output_of, say
from headwater.cli.stopping import given_up_on_sigterm
from headwater.errors import HeadwaterError

app = typer.Typer(
    name="headwater",
    help="Apache Hudi tables: write, read, maintain, inspect and check them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Plain help, which starts in half the time.
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(table.app, name="table")
app.add_typer(service.app, name="service")
app.add_typer(plan.app, name="plan")
app.add_typer(index.app, name="index")
app.add_typer(timeline.app, name="timeline")
app.add_typer(lock.app, name="lock")
app.add_typer(heartbeat.app, name="heartbeat")
app.add_typer(conflict.app, name="conflict")
app.command()(fsck.fsck)
app.command()(doctor.doctor)
app.command()(explain.explain)
app.command()(top.top)
app.command()(console.console)
app.command()(sql.sql)
app.command()(ingest.ingest)


def _show_version(wanted: bool) -> None:
    if wanted:
        from headwater import __version__

        typer.echo(f"headwater {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    log_format: LogLines = None,
    metrics_port: MetricsPort = None,
    metrics_file: MetricsFile = None,
) -> None:
    observe(context, log_format=log_format, metrics_port=metrics_port, metrics_file=metrics_file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with given_up_on_sigterm() as is_terminated:
        code = _run(given)
        return TERMINATED if code == INTERRUPTED and is_terminated() else code


def _run(given: list[str]) -> int:
    try:
        _commands()(given, prog_name="headwater", standalone_mode=True)
    except HeadwaterError as error:
        output_of(_format_of(given)).show_error(error)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return _interrupted()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # The parser has caught Ctrl-C.
            return _interrupted()
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


@cache
def _commands() -> Callable[..., object]:
    """Return all commands as one that takes arguments; who runs several makes them once."""
    return typer.main.get_command(app)


def _interrupted() -> int:
    say(
        "Stopped. What was being written is not visible. `headwater service clean` removes what a "
        "write left; plans wait to be taken up, and `headwater plan list` shows them."
    )
    return INTERRUPTED


def _format_of(arguments: Sequence[str]) -> Format:
    """Return how to print an error of a command that may not have come to read its options."""
    is_json = "--output=json" in arguments or any(
        one == "--output" and other == "json" for one, other in pairwise(arguments)
    )
    return Format.JSON if is_json else Format.TEXT


if __name__ == "__main__":
    sys.exit(main())
