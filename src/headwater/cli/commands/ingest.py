"""`headwater ingest`: rows from files, another table or Kafka into a table, by a job file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import OutputFormat
from headwater.cli.output import Format, Output, output_of, say
from headwater.cli.progress import shown_while
from headwater.cli.stopping import Stop, stopped_by_signals
from headwater.errors import ErrorKind, HeadwaterError, InvalidInputError

if TYPE_CHECKING:
    from headwater.ingest.run import BatchReport, Ingestion


def ingest(
    job_file: Annotated[Path, typer.Argument(metavar="JOB", help="The job: a TOML file.")],
    once: Annotated[
        bool, typer.Option("--once", help="Take what is there and end; the default.")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Look again after this time, such as 10s; for ever."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say what would be done, and whether it can be.")
    ] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Write what is new in a source to a table, each file, change or record exactly once."""
    from headwater.ingest.job_file import load_job
    from headwater.ingest.run import opened_job

    if sum((once, every is not None, check)) > 1:
        raise InvalidInputError("--once, --every and --check do not go together")
    pause_ms = None if every is None else _duration_ms(every)
    with opened_job(load_job(job_file)) as ingestion:
        if check:
            _show_outlook(ingestion, output_of(output))
            return
        totals = _Totals()
        stop = Stop(ingestion.target.context.clock)
        with stopped_by_signals(stop, "The job ends after this batch."):
            if pause_ms is None:
                _run_all(ingestion, totals, stop)
            else:
                say(f"The job {ingestion.job.name} runs until Ctrl-C.")
                _run_for_ever(ingestion, totals, stop, pause_ms)
        totals.show(ingestion, output_of(output))


@dataclass(slots=True)
class _Totals:
    """What all batches together did."""

    batches: int = 0
    read: int = 0
    written: int = 0
    bad: int = 0
    failed: int = 0
    said: set[str] = field(default_factory=set)

    def add(self, report: BatchReport) -> None:
        self.batches += 1
        self.read += report.read
        self.written += report.written
        self.bad += report.bad
        bad = f", {report.bad} bad" if report.bad else ""
        say(
            f"batch {report.number}: {report.source}; {report.written} rows{bad}; "
            f"instant {report.instant}"
        )

    def warn(self, ingestion: Ingestion) -> None:
        """Say each thing once."""
        for warning in ingestion.source.warnings:
            if warning not in self.said:
                self.said.add(warning)
                say(f"warning: {warning}")

    def show(self, ingestion: Ingestion, output: Output) -> None:
        output.show_fields(
            {
                "job": ingestion.job.name,
                "target": ingestion.target.uri,
                "batches": self.batches,
                "rows_read": self.read,
                "rows_written": self.written,
                "rows_bad": self.bad,
                "failed": self.failed,
            }
        )


def _run_all(ingestion: Ingestion, totals: _Totals, stop: Stop) -> None:
    """Do batches until nothing is new, or somebody wants an end; the one at work is finished."""
    with shown_while(f"ingesting {ingestion.job.name}"):
        while not stop.is_set():
            report = ingestion.run_batch()
            totals.warn(ingestion)
            if report is None:
                return
            totals.add(report)


def _run_for_ever(ingestion: Ingestion, totals: _Totals, stop: Stop, pause_ms: int) -> None:
    from headwater.ingest.run import is_passing

    while not stop.is_set():
        try:
            _run_all(ingestion, totals, stop)
        except HeadwaterError as error:
            if not is_passing(error):
                raise
            totals.failed += 1
            say(f"warning ({error.kind}): {error}. The job goes on.")
        stop.wait(pause_ms / 1000)


def _show_outlook(ingestion: Ingestion, output: Output) -> None:
    outlook, job = ingestion.look(), ingestion.job
    _Totals().warn(ingestion)
    output.show_fields(
        {
            "job": job.name,
            "source": type(job.source).__name__.removesuffix("Source").lower(),
            "target": ingestion.target.uri,
            "operation": str(job.target.operation).lower(),
            "mode": str(job.target.mode),
            "columns": outlook.columns.names,
            "quarantine": None if job.quarantine is None else job.quarantine.path,
            "batches_done": outlook.batches,
            "next": outlook.next,
        }
    )


def _duration_ms(text: str) -> int:
    from headwater.ingest.units import parse_duration_ms

    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise InvalidInputError(f"--every: {error}", kind=ErrorKind.INVALID_OPTION) from error
