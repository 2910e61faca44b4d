"""`headwater service`: what keeps a table in order. Each may run beside writers and itself."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from enum import StrEnum, unique
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.arguments import (
    Confirmed,
    OutputFormat,
    TableOptions,
    TablePath,
    confirm,
    open_given_table,
    split_columns,
)
from headwater.cli.exit_codes import PROBLEMS_FOUND
from headwater.cli.observing import MetricsPort, observe
from headwater.cli.output import Format, Output, output_of, say
from headwater.cli.progress import shown_while, with_progress
from headwater.cli.stopping import Stop, stopped_by_signals
from headwater.errors import HeadwaterError, InvalidInputError
from headwater.model.summary import summary_of

if TYPE_CHECKING:
    from headwater.services import Services
    from headwater.services.advice.advice import Advice
    from headwater.services.auto.run import AutoReport
    from headwater.services.rewrite import Rewritten
    from headwater.services.table_services import TableServicesReport

_USUAL = "compaction,clean,archive"

app = typer.Typer(no_args_is_help=True, help="Services that keep a table in order.")

PlanTime = Annotated[
    str | None,
    typer.Option("--instant", help="The plan to execute; by default the oldest that waits."),
]
SortBy = Annotated[
    str | None, typer.Option(metavar="A,B", help="The columns that queries filter on.")
]
OnlyPlan = Annotated[
    bool, typer.Option("--plan", help="Only plan it, for anybody to execute later.")
]


@unique
class Order(StrEnum):
    """How clustering sorts by several columns."""

    LINEAR = "linear"
    ZORDER = "zorder"
    HILBERT = "hilbert"


@app.command()
def compact(
    path: TablePath,
    plan: OnlyPlan = False,
    instant: PlanTime = None,
    if_due: Annotated[
        bool, typer.Option("--if-due", help="Only if enough was written since the last one.")
    ] = False,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Merge log files into base files."""
    _check_one_wish(plan, instant)
    with open_given_table(path, options) as table, shown_while("compacting") as report:
        services = with_progress(table, report).services
        if plan:
            done: Any = _planned(services.schedule_compaction(only_if_due=if_due))
        else:
            done = services.compact(instant, only_if_due=if_due)
    _show(output_of(output), done, "There is nothing to compact.")


@app.command()
def log_compact(
    path: TablePath,
    plan: OnlyPlan = False,
    instant: PlanTime = None,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Merge the log files of each file group into one."""
    _check_one_wish(plan, instant)
    with open_given_table(path, options) as table, shown_while("compacting logs") as report:
        services = with_progress(table, report).services
        if plan:
            done: Any = _planned(services.schedule_log_compaction())
        else:
            done = services.log_compact(instant)
    _show(output_of(output), done, "No file group has enough log files.")


@app.command()
def cluster(
    path: TablePath,
    sort_by: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns to sort the rows by.")
    ] = None,
    order: Annotated[Order | None, typer.Option(help="How to sort by several columns.")] = None,
    partition: Annotated[
        list[str] | None, typer.Option(help="A partition such as city=sf; may be repeated.")
    ] = None,
    cancellable: Annotated[
        bool, typer.Option(help="Writes to the same file groups cancel it instead of waiting.")
    ] = False,
    plan: OnlyPlan = False,
    instant: PlanTime = None,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Rewrite rows into larger files, sorted by what queries filter on."""
    _check_one_wish(plan, instant)
    chosen = cancellable or (sort_by, order, partition) != (None, None, None)
    if instant is not None and chosen:
        raise InvalidInputError(
            f"The plan {instant} says how and what it clusters; give --instant by itself, or "
            "plan anew without it"
        )
    nothing = "There is nothing to gain by clustering."
    with open_given_table(path, options) as table, shown_while("clustering") as report:
        services = with_progress(table, report).services
        if plan or chosen:
            nothing = (
                "There is nothing to gain by clustering what no plan has already; "
                "`headwater plan list` shows those that wait."
            )
            planned = services.schedule_clustering(
                split_columns(sort_by),
                order=None if order is None else order.value,
                partitions=partition,
                cancellable=cancellable,
                # One that is executed at once and fails is to be in nobody's way, and a
                # cancellable one never is.
                removable=not (plan or cancellable),
            )
            done: Any = _planned(planned)
            if not plan and planned is not None:
                done = _clustered(services, planned)
        else:
            done = _clustered(services, instant)
    _show(output_of(output), done, nothing)


@app.command()
def clean(
    path: TablePath, options: TableOptions = None, output: OutputFormat = Format.TEXT
) -> None:
    """Delete files that no reader within retention needs, and what failed jobs left."""
    with open_given_table(path, options) as table, shown_while("cleaning") as report:
        done = with_progress(table, report).services.clean()
    _show(output_of(output), done, "There is nothing to clean.")


@app.command()
def archive(
    path: TablePath, options: TableOptions = None, output: OutputFormat = Format.TEXT
) -> None:
    """Move the oldest instants to the archived timeline."""
    with open_given_table(path, options) as table, shown_while("archiving"):
        done = table.services.archive()
    archived = [str(instant.requested_time) for instant in done.archived]
    output_of(output).show_fields(
        {"archived": len(archived), "first": archived[:1], "last": archived[-1:]}
    )


@app.command()
def savepoint(
    path: TablePath,
    instant: Annotated[
        str | None, typer.Option(help="The commit to protect; the last one unless given.")
    ] = None,
    comment: Annotated[str, typer.Option(help="Why.")] = "",
    delete: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="Protect this commit no longer.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show the savepoints there are.")] = False,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Protect a commit from cleaning and archival, so that it can be restored."""
    if delete is not None and show:
        raise InvalidInputError("--list shows savepoints, and --delete ends one; give one of them")
    with open_given_table(path, options) as table:
        if delete is not None:
            table.services.delete_savepoint(delete)
            output_of(output).show_fields({"deleted": delete})
            return
        done: Any = (
            table.services.savepoints()
            if show
            else table.services.savepoint(instant, comment=comment)
        )
    _show(output_of(output), done, "The table has no savepoints.")


@app.command()
def restore(
    path: TablePath,
    instant: Annotated[str, typer.Argument(help="The commit of the savepoint to return to.")],
    yes: Confirmed = False,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Undo everything that completed after a savepoint's commit."""
    confirm(f"Undo everything that completed after {instant}?", is_confirmed=yes)
    with open_given_table(path, options) as table, shown_while("restoring"):
        done = table.services.restore(instant)
    _show(output_of(output), done, "")


@app.command()
def rollback(
    path: TablePath,
    instant: Annotated[
        str | None,
        typer.Argument(help="A failed write or the last commit; all failed writes unless given."),
    ] = None,
    wait: Annotated[
        bool, typer.Option(help="Watch writers that may be dead until that is certain.")
    ] = False,
    yes: Confirmed = False,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Roll back failed writes, or the last commit to complete."""
    if instant is not None:
        confirm(f"Roll back {instant}?", is_confirmed=yes)
    with open_given_table(path, options) as table, shown_while("rolling back"):
        done: Any = (
            table.services.rollback_failed_writes(wait=wait)
            if instant is None
            else table.services.rollback(instant, wait=wait)
        )
    _show(output_of(output), done, "No failed write is there to roll back.")


@app.command()
def advise(
    path: TablePath,
    sort_by: SortBy = None,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Say what the table needs next and why, the best first."""
    import pyarrow as pa

    with open_given_table(path, options) as table, shown_while("looking"):
        found = table.services.advise(sort_by=split_columns(sort_by))
    rows = pa.Table.from_pylist([_advice_row(one) for one in found])
    output_of(output).show_rows(rows, nothing="The table needs nothing.")


@app.command()
def run(
    context: typer.Context,
    path: TablePath,
    services: Annotated[
        str,
        typer.Option(
            "--run",
            metavar="A,B",
            help="Of compaction, log_compaction, clustering, clean and archive.",
        ),
    ] = _USUAL,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two rounds.")] = 60.0,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Stop after this many rounds, with exit code 1 if a service failed; never unless "
            "given.",
        ),
    ] = None,
    auto: Annotated[
        bool, typer.Option("--auto", help="Do what `advise` says, whatever service it is.")
    ] = False,
    budget_seconds: Annotated[
        float | None,
        typer.Option(min=0, help="With --auto: begin nothing new after so long in a round."),
    ] = None,
    budget_bytes: Annotated[
        int | None,
        typer.Option(min=1, help="With --auto: read and write so many bytes a round, about."),
    ] = None,
    sort_by: SortBy = None,
    metrics_port: MetricsPort = None,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Run services in a loop until Ctrl-C or SIGTERM; safe on several machines at once."""
    if not auto and (budget_seconds, budget_bytes, sort_by) != (None, None, None):
        raise InvalidInputError("Only --auto has a budget and columns to sort by")
    if auto and services != _USUAL:
        raise InvalidInputError("--auto chooses services by itself; give either it or --run")
    observe(context, metrics_port=metrics_port)
    with open_given_table(path, options) as table:
        stop = Stop(table.context.clock, rounds)
        with stopped_by_signals(stop, "Services end after this one."):
            say("Services run until Ctrl-C." if rounds is None else f"{rounds} rounds of services.")
            report: TableServicesReport | AutoReport
            if auto:
                report = table.services.run_auto(
                    stop,
                    pause_s=every,
                    budget_s=budget_seconds,
                    budget_bytes=budget_bytes,
                    sort_by=split_columns(sort_by),
                )
            else:
                report = table.services.run_forever(
                    stop, run=split_columns(services) or (), pause_s=every
                )
    output_of(output).show_fields(_report_fields(report))
    # Who lets it run for ever looks at metrics; of a few rounds the exit code is all there is.
    if rounds is not None and report.has_failures:
        raise typer.Exit(PROBLEMS_FOUND)


def _report_fields(report: TableServicesReport | AutoReport) -> dict[str, int]:
    """Return numbers as they are, and of each thing that is counted by name how often."""
    found: dict[str, int] = {}
    for field in fields(report):
        value = getattr(report, field.name)
        if isinstance(value, int):
            found[field.name] = value
        else:
            found |= {f"{name} {field.name}": count for name, count in sorted(value.items())}
    return found


def _advice_row(advice: Advice) -> dict[str, Any]:
    return {
        "need": str(advice.need),
        "why": advice.why,
        "call": advice.call,
        "gain_bytes": advice.gain_bytes,
        "cost_bytes": advice.cost_bytes,
        "score": round(advice.score, 3),
        "times_cancelled": advice.times_cancelled,
        "file_groups": len(advice.file_groups),
    }


def _clustered(services: Services, instant: str | None) -> Rewritten | None:
    """Execute a clustering; one that fails or is stopped takes its removable plan with it."""
    try:
        return services.cluster(instant)
    except BaseException:  # Ctrl-C too: the plan would keep others from writing until a clean.
        with suppress(HeadwaterError):
            services.rollback_failed_writes()
        raise


def _check_one_wish(plan: bool, instant: str | None) -> None:
    if plan and instant is not None:
        raise InvalidInputError(
            f"--plan makes a new plan, and --instant executes the plan {instant}; give one of them"
        )


def _planned(instant: str | None) -> dict[str, str] | None:
    return None if instant is None else {"instant": instant}


def _show(output: Output, done: Any, nothing: str) -> None:
    """Print results of services; a plan that was only made is a dictionary."""
    import pyarrow as pa

    if isinstance(done, list):
        output.show_rows(pa.Table.from_pylist([summary_of(one) for one in done]), nothing=nothing)
    elif done is None:
        output.show_rows(pa.table({}), nothing=nothing)
    else:
        output.show_fields(done if isinstance(done, dict) else summary_of(done))
