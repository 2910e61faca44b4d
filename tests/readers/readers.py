"""Every reader there is of our tables, behind one face.

`ArrowReader` and `SparkReader` are ours, `HudiRsReader` is hudi-rs, `HudiReader` Apache Hudi. All
answer with the same rows, meta columns included. Where one cannot, the step of the history in
question says so by a `Limit`, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from tests.support.hudi_peer import HudiPeer
from tests.support.hudi_rs import location_for_hudi_rs
from tests.support.two_readers import META, NO_METADATA_TABLE, read_with_meta_columns

from headwater.metadata.view import load_view
from headwater.table import Table

FileSlices = set[tuple[str, str, tuple[str, ...]]]
"""Partition, file id and names of log files."""


class Snapshot(NamedTuple):
    """Rows as they are, or were."""

    as_of: str | None = None
    is_read_optimized: bool = False


class Changes(NamedTuple):
    """Rows that changed in a window of completion times, of which the first is not in it."""

    after: str
    until: str


Question = Snapshot | Changes


class Refuses(NamedTuple):
    """A reader fails, with such a message."""

    match: str
    why: str


class Omits(NamedTuple):
    """A reader has other values in some columns, or not the same columns."""

    columns: tuple[str, ...]
    why: str


class Answers(NamedTuple):
    """A reader has other rows: those with such values in a column."""

    column: str
    values: tuple[Any, ...]
    why: str


class Untried(NamedTuple):
    """A reader is not asked."""

    why: str


Limit = Refuses | Omits | Answers | Untried

LOG_FILES = "log files"
"""What a reader omits, as if it were a column, if it lists other log files than ours."""


class Reader(Protocol):
    name: str
    is_quick: bool
    """Whether it is asked after every step, not only after the milestones."""

    def ask(self, table: Table, question: Question) -> pa.Table:
        """Return rows: with meta columns, unless they are changes."""
        ...

    def slices(self, table: Table) -> FileSlices | None:
        """Return the file slices that it would read, if it tells."""
        ...


class ArrowReader:
    """Ours, without Spark."""

    name = "arrow"
    is_quick = False  # Who writes a history down asks it after every step.

    def ask(self, table: Table, question: Question) -> pa.Table:
        if isinstance(question, Changes):
            return table.changes_arrow(question.after, question.until)
        return read_with_meta_columns(
            table, as_of=question.as_of, read_optimized=question.is_read_optimized
        )

    def slices(self, table: Table) -> FileSlices:
        found = load_view(table.storage, table.config).slices()
        return {(*one.group, tuple(sorted(log.name for log in one.logs))) for one in found}


class SparkReader:
    """Ours, into DataFrames of the session that runs."""

    name = "spark"
    is_quick = False

    def ask(self, table: Table, question: Question) -> pa.Table:
        if isinstance(question, Changes):
            return table.changes(question.after, question.until).toArrow()
        how: dict[str, Any] = {
            "as_of": question.as_of,
            "read_optimized": question.is_read_optimized,
        }
        return table.read([*META, *table.read(**how).columns], **how).toArrow()

    def slices(self, table: Table) -> None:
        return None


class HudiRsReader:
    """hudi-rs, which reads by the metadata table where there is one."""

    name = "hudi-rs"
    is_quick = True

    def ask(self, table: Table, question: Question) -> pa.Table:
        import hudi

        options = hudi.HudiReadOptions()
        match question:
            case Changes(after, until):
                options = (
                    options.with_query_type(hudi.HudiQueryType.Incremental)
                    .with_start_timestamp(after)
                    .with_end_timestamp(until)
                )
            case Snapshot(str(as_of)):
                options = options.with_as_of_timestamp(as_of)
        return _table(self._open(table).read(options))

    def slices(self, table: Table) -> FileSlices:
        found = self._open(table).get_file_slices()
        return {
            (one.partition_path, one.file_id, tuple(sorted(one.log_file_names))) for one in found
        }

    def _open(self, table: Table) -> Any:
        import hudi

        return hudi.HudiTableBuilder.from_base_uri(location_for_hudi_rs(table)).build()


class HudiReader:
    """Apache Hudi on a Spark of its own; it lists files."""

    name = "hudi"
    is_quick = False

    def __init__(self, hudi: HudiPeer) -> None:
        self._hudi = hudi

    def ask(self, table: Table, question: Question) -> pa.Table:
        options = dict(NO_METADATA_TABLE)
        match question:
            case Changes(after, until):
                options["hoodie.datasource.query.type"] = "incremental"
                options["hoodie.datasource.read.begin.instanttime"] = after
                options["hoodie.datasource.read.end.instanttime"] = until
            case Snapshot(as_of, is_read_optimized):
                if is_read_optimized:
                    options["hoodie.datasource.query.type"] = "read_optimized"
                if as_of is not None:
                    options["as.of.instant"] = as_of
        return self._hudi.read(table.uri, options)

    def slices(self, table: Table) -> None:
        return None


def _table(batches: Iterable[Any]) -> pa.Table:
    found = [pa.record_batch(batch) for batch in batches]
    return pa.Table.from_batches(found) if found else pa.table({})
