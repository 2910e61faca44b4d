"""Running a job, batch after batch, each of them one commit of the target.

1. read the newest note of the job in the target: where it has come to;
2. ask the source what comes next;
3. read and transform it; rows that are bad are collected, the others go to memory or local disk;
4. look whether the source has changed meanwhile; if so, leave that out and begin again;
5. write the bad rows to the quarantine table, under keys of their places;
6. write the others to the target; the commit carries the next note, and goes through only if the
   newest note is still the one of step 1.

Dies before 5: nothing has happened. Between 5 and 6: the next run reads the same rows and writes
the bad ones over themselves. In 6: the write is rolled back by whoever comes next, or complete.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import pyarrow as pa

from headwater.config.registry import check_options
from headwater.engine.arrow_input import opened_arrow_rows
from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptTableError,
    ErrorKind,
    FencedError,
    HeadwaterError,
    InvalidInputError,
    Retry,
    StorageError,
)
from headwater.ingest.bad_rows import BadRows
from headwater.ingest.checkpoint import Note, check_still_newest, load_notes
from headwater.ingest.folder import Folder
from headwater.ingest.job import FolderSource, Job, KafkaSource, TableSource
from headwater.ingest.quarantine import open_quarantine, write_bad_rows
from headwater.ingest.rows import made
from headwater.ingest.source import Batch, OpenedSource
from headwater.ingest.table_changes import TableChanges
from headwater.ingest.transform import Transform, compile_transform
from headwater.ingest.writer_options import writer_options
from headwater.model.instant import InstantTime
from headwater.model.operation import Operation
from headwater.operations.request import WriteRequest, check_deciding_columns
from headwater.operations.retry import write_with_retries
from headwater.seams.open_storage import open_storage
from headwater.table import Table, open_table

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What one batch did."""

    number: int
    source: str
    instant: str
    read: int
    written: int
    bad: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a job would do next."""

    batches: int
    """How many it has done."""
    columns: pa.Schema
    """What it writes."""
    next: str


@dataclass(slots=True)
class _Counts:
    good: int = 0
    """Rows of the source that are not bad, those that WHERE leaves out among them."""
    written: int = 0


@dataclass(slots=True)
class Ingestion:
    """A job with its source and target opened."""

    job: Job
    target: Table
    source: OpenedSource
    _quarantine: Table | None = field(default=None, repr=False)
    _without_notes: InstantTime | None = None
    """A completion time up to which the target has no note of the job, so that a long history is
    searched once."""

    def look(self) -> Outlook:
        """Say what would be done, and do nothing.

        Raises: see `run_batch`.
        """
        newest, batch = self._next()
        schema = self.source.load_schema() if batch is None else batch.schema
        return Outlook(
            batches=0 if newest is None else newest.number,
            columns=self._transform(schema).columns,
            next="nothing new" if batch is None else batch.summary,
        )

    def run_batch(self) -> BatchReport | None:
        """Do the next batch; None if nothing is new.

        Raises:
            InvalidInputError: kind BAD_ROWS: more rows are bad than the job allows; otherwise the
                source, the SELECT and the target do not fit together.
            ConflictError: kind ALREADY_RUNNING: another process runs the same job.
            Others: see `operations.write.run_write` and `headwater.open_table`.
        """
        self.target = self.target.reload()
        while True:
            newest, batch = self._next()
            if batch is None:
                return None
            report = self._run_unless_changed(newest, batch)
            if report is not None:
                return report
            log.info("source changed while it was read job=%s", self.job.name)

    def _next(self) -> tuple[Note | None, Batch | None]:
        """Return the newest note, and what comes after it."""
        context = self.target.context
        done = [i.completion_time for i in context.load_timeline().completed if i.completion_time]
        notes = load_notes(context, self.job.name, self._without_notes)
        newest = next(notes, None)
        if newest is None:
            self._without_notes = max(done, default=None)
            return None, self.source.next_batch(iter(()))
        return newest, self.source.next_batch(chain([newest], notes))

    def _transform(self, schema: pa.Schema) -> Transform:
        config = self.target.config
        transform = compile_transform(
            self.job.select,
            schema,
            self.target.schema,
            config,
            self.job.zone,
            self.target.context.moment(),
        )
        if self.job.target.operation is not Operation.DELETE:  # A delete needs the keys alone.
            check_deciding_columns(config, transform.columns)
        return transform

    def _run_unless_changed(self, newest: Note | None, batch: Batch) -> BatchReport | None:
        """Write a batch; None if its source changed meanwhile.

        That may make good rows bad, and take away the files that are being read.
        """
        try:
            return self._run(newest, batch)
        except InvalidInputError as error:
            if error.kind is not ErrorKind.BAD_ROWS or batch.is_unchanged():
                raise
            return None
        except CorruptTableError as error:
            if error.kind is not ErrorKind.MISSING_DATA_FILE or not batch.is_overtaken():
                raise
            return None

    def _run(self, newest: Note | None, batch: Batch) -> BatchReport | None:
        number = 1 if newest is None else newest.number + 1
        context, target = self.target.context, self.job.target
        bad, counts = BadRows(self.job.name, self.job.quarantine), _Counts()
        transform = self._transform(batch.schema)
        reader = pa.RecordBatchReader.from_batches(
            transform.columns, _good_rows(batch, transform, bad, counts)
        )
        note = Note(self.job.name, number, batch.content)
        with opened_arrow_rows(reader, context.file_config.inline_bytes) as rows:
            if not batch.is_unchanged():
                return None
            read = counts.good + len(bad.rows)
            bad.check_share(read)
            self._put_aside(number, bad)
            request = WriteRequest(
                operation=target.operation,
                columns=rows.schema,
                is_partial=target.is_partial,
                extra_metadata=note.to_metadata(),
                precondition=partial(
                    check_still_newest, context, self.job.name, newest, self._without_notes
                ),
            )
            commit = write_with_retries(context, request, rows)
        self.target.services.run_after_write()
        return BatchReport(
            number=number,
            source=batch.summary,
            instant=commit.instant,
            read=read,
            written=counts.written,
            bad=len(bad.rows),
        )

    def _put_aside(self, number: int, bad: BadRows) -> None:
        if not bad.rows or self.job.quarantine is None:
            return
        if self._quarantine is None:
            self._quarantine = open_quarantine(self.job.quarantine)
        self._quarantine = self._quarantine.reload()
        now = self.target.context.moment()
        write_bad_rows(self._quarantine, self.job.name, number, bad.rows, now)

    def close(self) -> None:
        self.target.close()
        if self._quarantine is not None:
            self._quarantine.close()


@contextmanager
def opened_job(job: Job) -> Iterator[Ingestion]:
    """Open source and target of a job for as long as the block runs.

    Raises:
        NotFoundError: a table is not there.
        InvalidInputError: an option is wrong.
        Others: see `headwater.open_table`.
    """
    with ExitStack() as stack:
        given = job.target
        options = writer_options(given.path, given.options, given.mode)
        target = stack.enter_context(open_table(given.path, options))
        ingestion = Ingestion(job, target, _opened_source(job, target, stack))
        stack.callback(ingestion.close)
        yield ingestion


def _opened_source(job: Job, target: Table, stack: ExitStack) -> OpenedSource:
    match job.source:
        case FolderSource() as source:
            return Folder(
                source=source,
                storage=open_storage(source.path, check_options(source.options).known),
                clock=target.context.clock,
                columns=source.columns or target.schema,
                zone=job.zone,
            )
        case TableSource() as source:
            table = stack.enter_context(open_table(source.path, source.options))
            return TableChanges(source, table.context)
        case KafkaSource() as source:
            from headwater.ingest.kafka import KafkaTopic  # With Spark, which only this one needs.

            return KafkaTopic(source, source.columns or target.schema, job.zone)


def is_passing(error: HeadwaterError) -> bool:
    """Whether a job that runs for ever goes on after an error: the next try may succeed."""
    if isinstance(error, CommitUnknownError):
        return error.is_over  # Otherwise it may still land, beside what would be written next.
    if isinstance(error, StorageError):
        return error.retry is not Retry.NEVER
    # A commit that somebody rolls back is not there any more when it is to be read.
    is_gone = error.kind is ErrorKind.INSTANT_NOT_FOUND
    return is_gone or isinstance(error, ConflictError | FencedError)


def _good_rows(
    batch: Batch, transform: Transform, bad: BadRows, counts: _Counts
) -> Iterator[pa.RecordBatch]:
    """Give the rows of a batch as the target takes them."""
    for rows in batch.read(bad):
        found = made(rows, transform.run, bad)
        if found is not None:
            part, result = found
            counts.good += part.rows.num_rows
            counts.written += result.num_rows
            yield result
