"""`t.indexes`: building indexes while everybody goes on, and taking them away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from headwater.context import TableContext
from headwater.errors import (
    AlreadyExistsError,
    CorruptTableError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
)
from headwater.kernel.index_definitions import load_index_definitions
from headwater.kernel.journal.storage import find_journal
from headwater.kernel.txn.index_plan import PlannedIndex, pending_indexings
from headwater.kernel.txn.indexing_steps import index_outdated
from headwater.kernel.txn.locks.select import chosen_provider
from headwater.kernel.view.table_view import TableView, load_listed_view
from headwater.metadata.index_content import TableIndexes
from headwater.metadata.index_request import Columns, plan_indexes
from headwater.metadata.indexing import IndexedPlan, Indexing, IndexProgress, Report, log_progress
from headwater.metadata.listing import list_indexes
from headwater.metadata.outdated import is_outdated
from headwater.metadata.services import metadata_services, run_metadata_services
from headwater.model.instant import InstantTime, parse_instant_time
from headwater.observed import observed_build, observed_service

_LISTED = ("index", "state", "columns", "file_groups", "plan", "owner")

_RECORD_BYTES = 64
"""What a record comes to in a base file, about, when file groups are counted: it is better to have
too many of them than too few."""


class Indexes:
    """The indexes of one table.

    Names are `files`, `column_stats`, `partition_stats`, `bloom_filters`, `record_index` and
    `secondary_index_<name>`.
    """

    def __init__(self, table: TableContext, *, needs_chosen_lock: bool = True) -> None:
        """`needs_chosen_lock` refuses to plan and build where the options choose no lock.

        A fenced table needs none.
        """
        self._table = table
        self._needs_chosen_lock = needs_chosen_lock

    @observed_service("schedule_indexing")
    def schedule(self, names: str | Sequence[str], *, columns: Columns = None) -> str | None:
        """Plan indexes, for `run` to build. Returns the instant of the plan.

        Indexes that the table has are passed over; None if it has all of them.

        Args:
            names: one index or several.
            columns: the columns of `column_stats` or of a secondary index, or a mapping from index
                to columns if several have them.

        Raises:
            InvalidInputError: kind NO_LOCK_PROVIDER; kind INVALID_INDEX, there is no such index or
                column, or another index is needed first.
            AlreadyExistsError: kind INDEX_EXISTS; one is being built, or is on other columns.
            UnsupportedError: Hudi has this index, this release has not.
            ConflictError: the lock was not to be had in time.
        """
        self._check_buildable()
        # Or an index that is there on other columns would be taken for the one asked for (N-145).
        self.finish()
        plan = self._indexing(log_progress).schedule(self._plan(names, columns))
        return None if plan is None else plan.requested_time

    @observed_service("indexing")
    def run(
        self, instant: str | None = None, *, progress: Report = log_progress
    ) -> list[IndexedPlan]:
        """Build what was planned: one plan, or all that wait; return what became of each.

        A build that died is taken up again. Others write, clean and compact meanwhile.

        Args:
            progress: is told how far the build is, now and then.

        Raises: see `indexing.Indexing.run`; InvalidInputError of kind NO_LOCK_PROVIDER.
        """
        self._check_buildable()
        self._indexing(progress).finish()
        if instant is not None:
            plans = [parse_instant_time(instant)]
        else:
            pending = pending_indexings(self._table.load_timeline())
            plans = [plan.requested_time for plan in pending]
        with observed_build(self._table) as behind:

            def report(made: IndexProgress) -> None:
                behind(made.lag)
                progress(made)

            indexing = self._indexing(report)
            done = [self._run(indexing, plan) for plan in plans]
        if any(one.told for one in done):
            self._fold()
        return done

    def _run(self, indexing: Indexing, plan: InstantTime) -> IndexedPlan:
        try:
            return indexing.run(plan)
        except (NotFoundError, CorruptTableError) as error:
            if not is_outdated(self._table, error):
                raise
            raise index_outdated(plan) from error

    def create(
        self,
        names: str | Sequence[str],
        *,
        columns: Columns = None,
        progress: Report = log_progress,
    ) -> IndexedPlan | None:
        """Plan indexes and build them at once; None if the table has all of them.

        A pending plan for the same indexes is taken up, so that a build that failed is tried again
        by the same call.

        Raises: see `schedule` and `run`.
        """
        try:
            plan = self.schedule(names, columns=columns)
        except AlreadyExistsError:
            plan = self._indexing(progress).pending_plan(self._plan(names, columns))
            if plan is None:
                raise
        return None if plan is None else self.run(plan, progress=progress)[0]

    @observed_service("cancel_indexing")
    def cancel(self, instant: str) -> None:
        """Give up a plan, whoever is building it; what it has built so far goes.

        Raises:
            InvalidInputError: kind INVALID_STATE; it has completed. Kind NO_LOCK_PROVIDER.
            NotFoundError: there is no such plan.
        """
        self._check_buildable()
        self._indexing(log_progress).cancel(parse_instant_time(instant))

    def finish(self) -> frozenset[str]:
        """Bring table config up to builds that completed just before their process died.

        Returns the indexes that can be used since. `run` and `clean` do the same.
        """
        return self._indexing(log_progress).finish()

    @observed_service("drop_index")
    def drop(self, name: str) -> None:
        """Take an index away, or what an unfinished one has left over.

        Raises:
            NotFoundError: kind INDEX_NOT_FOUND.
            InvalidInputError: kind INVALID_INDEX; another index needs it. Kind NO_LOCK_PROVIDER.
            ConflictError: it is being built; cancel the plan instead.
        """
        self._check_buildable()
        self._indexing(log_progress).drop(name)

    def list(self) -> pa.Table:
        """The indexes of the table and the state of each; `t.inspect.indexes()` tells more."""
        return list_indexes(self._table.storage, self._table.clock).select(_LISTED)

    def _plan(self, names: str | Sequence[str], columns: Columns) -> Sequence[PlannedIndex]:
        storage, config = self._table.storage, self._table.load_config()
        view = load_listed_view(storage, config)
        return plan_indexes(
            names,
            columns,
            config=config,
            schema=view.schema(),
            metadata=self._table.metadata_config,
            definitions=load_index_definitions(storage, config),
            record_count=_estimate_records(view),
        )

    def _indexing(self, report: Report) -> Indexing:
        table = self._table
        return Indexing(
            components=table.components,
            txn=table.txn,
            layout=table.layout,
            content=TableIndexes(table),
            roll_back=table.rollbacks.roll_back,
            is_dead_elsewhere=table.rollbacks.is_left,
            interval_ms=table.write_config.heartbeat_interval_ms,
            tolerable_misses=table.write_config.heartbeat_tolerable_misses,
            timeout_ms=table.metadata_config.index_timeout_ms,
            report=report,
        )

    def _fold(self) -> None:
        """Fold what builds caught up with since their plans, or the next writer has to."""
        run_metadata_services(replace(metadata_services(self._table.reload()), commits=0))

    def _check_buildable(self) -> None:
        table = self._table
        table.config.check_writable(table.storage.uri)
        if not self._needs_chosen_lock or find_journal(table.storage)[0] is not None:
            return
        if chosen_provider(table.lock_config, table.storage) is None:
            raise InvalidInputError(
                "Indexes are built beside writers, so all of them need a lock that they have "
                f"chosen, and table {self._table.config.name} is opened without one. Set "
                "hoodie.write.lock.provider (in_process for threads of one process; filesystem, "
                "storage or zookeeper otherwise), and hoodie.write.concurrency.mode to "
                "optimistic_concurrency_control if there are several writers",
                kind=ErrorKind.NO_LOCK_PROVIDER,
            )


def _estimate_records(view: TableView) -> int:
    return sum(one.size_bytes for one in view.slices()) // _RECORD_BYTES
