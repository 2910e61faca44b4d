"""A scan: which rows of a table, as of one moment, in whatever form the reader wants them.

The moment is when the scan is first used, and every use after it sees the same rows. Nothing here
imports Spark, Polars, DuckDB or pandas before they are asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.config.spark import SparkConfig
from headwater.context import TableContext
from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError, NotFoundError, Retry
from headwater.metadata.outdated import is_outdated
from headwater.metadata.view import IndexedView, view_of
from headwater.queries.count import count_rows
from headwater.queries.predicate import Predicate
from headwater.queries.slice_query import read_slices
from headwater.queries.snapshot import ReadRequest, SnapshotPlan, find_as_of, plan_snapshot
from headwater.seams.cached import cached_property

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_AGAIN_MAX = 4


@dataclass(frozen=True)
class Scan:
    """Rows of a table that are about to be read; see `Table.scan`.

    It is an Arrow stream itself: `pyarrow.table(scan)`, `polars.DataFrame(scan)` and all that take
    `__arrow_c_stream__` read it.
    """

    context: TableContext
    request: ReadRequest

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._plan.query.result_schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches: one file slice is in memory at a time.

        Raises: see `queries.snapshot.plan_snapshot`; errors of reading come with the batches.
            NotFoundError of kind OUTSIDE_RETENTION: what it reads was taken back or cleaned
            meanwhile; a new scan reads what there is now.
        """
        return self._reader(self._plan)

    def to_arrow(self) -> pa.Table:
        """Return the rows as a table in memory.

        Raises: as `to_reader`.
        """
        with closing(self._batches(self._plan)) as batches:
            return pa.Table.from_batches(batches, self.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.LazyFrame:
        """Return the rows as a lazy frame of Polars.

        Columns that a query does not need are not read, and files that its filters rule out are
        skipped, by the table's indexes too.
        """
        # Polars need not be there.
        from headwater.polars_source import lazy_frame_of

        return lazy_frame_of(self)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> Any:
        """Return the rows as a relation of DuckDB, which reads them anew with each query.

        DuckDB does not tell a stream its filters: give them to the scan.

        Args:
            connection: where the relation is used; DuckDB's default one unless given.
        """
        try:
            import duckdb
        except ModuleNotFoundError as error:
            raise InvalidInputError("to_duckdb() needs DuckDB: pip install duckdb") from error
        where = duckdb.default_connection() if connection is None else connection
        return where.from_arrow(self)

    def to_spark(self, spark: SparkSession | None = None) -> DataFrame:
        """Return the rows as a Spark DataFrame, read by the session's tasks.

        Args:
            spark: the session to use; the active one unless given.
        """
        # Spark is loaded by who asks for it.
        from headwater.spark.read import read_snapshot
        from headwater.spark.session import session_of

        if not isinstance(self.request.where, str | None):
            raise InvalidInputError(
                "Spark takes the condition of a scan as SQL, not as an expression of pyarrow"
            )
        config = SparkConfig.from_options(self.context.options)
        return read_snapshot(session_of(spark), self._plan, self.request.where, config)

    def count(self) -> int:
        """Return how many rows there are; without a filter footers of files tell most of it."""
        plan = self._plan
        with self._told_if_gone():
            return count_rows(plan)

    def narrowed(self, columns: tuple[str, ...] | None, known: Predicate) -> pa.RecordBatchReader:
        """Return the rows of the same moment with some of the columns.

        Args:
            known: what else is known of the rows that are wanted. Others may be left out.
        """
        request = replace(
            self.request, columns=self._plan.query.columns if columns is None else columns
        )
        return self._reader(self._planned(replace(request, known=known)))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        request = self.request
        parts = [
            "" if request.columns is None else f"columns={list(request.columns)}",
            "" if request.where is None else f"where={str(request.where)!r}",
            "" if request.as_of is None else f"as_of={str(request.as_of)!r}",
        ]
        given = ", ".join(part for part in parts if part)
        return f"Scan of {self.context.config.name}({given})"

    @cached_property
    def _view(self) -> IndexedView:
        given = self.request.as_of
        view = view_of(
            self.context, as_of=None if given is None else find_as_of(self.context, given)
        )
        view.load_ahead()
        return view

    @cached_property
    def _plan(self) -> SnapshotPlan:
        return self._planned(self.request)

    def _planned(self, request: ReadRequest) -> SnapshotPlan:
        with self._told_if_gone():
            return plan_snapshot(self.context, request, self._view)

    def _reader(self, plan: SnapshotPlan) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(plan.query.result_schema, self._batches(plan))

    def _batches(self, plan: SnapshotPlan) -> Generator[pa.RecordBatch, None, None]:
        with self._told_if_gone(), closing(read_slices(plan.query, list(plan.slices))) as batches:
            yield from batches

    @contextmanager
    def _told_if_gone(self) -> Iterator[None]:
        """Tell a moment that is gone from a table that has lost a file."""
        try:
            yield
        except CorruptTableError as error:
            if self.request.as_of is not None or not is_outdated(self.context, error):
                raise
            raise NotFoundError(
                "What this scan reads is gone: a restore or rollback took it back, or a clean has "
                f"deleted it since. Scan the table again ({error})",
                kind=ErrorKind.OUTSIDE_RETENTION,
                retry=Retry.FRESH_VIEW,
                table=self.context.storage.uri,
            ) from error


def read_until_whole(scan: Callable[[], Scan]) -> pa.Table:
    """Read a new scan, and another one each time that the moment of one is gone meanwhile.

    Raises: as `Scan.to_arrow`, of the last of some.
    """
    for _ in range(_AGAIN_MAX):
        try:
            return scan().to_arrow()
        except NotFoundError as gone:
            if gone.retry is not Retry.FRESH_VIEW:
                raise
            log.info("read again, for what was read is gone: %s", gone)
    return scan().to_arrow()
