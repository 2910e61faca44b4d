"""`t.indexes`: building indexes while everybody goes on, and taking them away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from headwater.config.files import FileConfig
from headwater.config.metadata import MetadataConfig
from headwater.config.table import TableConfig
from headwater.config.write import WriteConfig
from headwater.engine.inline import EngineFor, inline_engine
from headwater.errors import ErrorKind, InvalidInputError
from headwater.indexes.build import TableIndexes
from headwater.indexes.indexing import IndexedPlan, Indexing, Report, log_progress
from headwater.indexes.listing import list_indexes
from headwater.indexes.upkeep import MetadataUpkeep, run_metadata_upkeep
from headwater.indexes.wishes import Columns, plan_indexes
from headwater.kernel.index.definitions import load_index_definitions
from headwater.kernel.index.index_plan import PlannedIndex, pending_indexings
from headwater.kernel.index.partition_kinds import FILES, RECORD_INDEX, PartitionKind, kind_of
from headwater.kernel.table_config import load_table_config, table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.metadata_commit import load_planned
from headwater.kernel.txn.rollback import Rollbacks
from headwater.kernel.txn.transaction import LockTransaction
from headwater.kernel.view.table_view import TableView, load_listed_view
from headwater.markers.batches import load_every_marker
from headwater.model.instant import parse_instant_time
from headwater.seams.components import Components

_LISTED = ("index", "state", "columns", "file_groups", "plan", "owner")

_RECORD_BYTES = 64
"""What a record comes to in a base file, about, when file groups are counted: it is better to have
too many of them than too few."""


class Indexes:
    """The indexes of one table.

    Names are `files`, `column_stats`, `partition_stats`, `bloom_filters`, `record_index` and
    `secondary_index_<name>`.
    """

    def __init__(
        self,
        components: Components,
        config: TableConfig,
        write_config: WriteConfig,
        *,
        lock_timeout_ms: int,
        has_lock_provider: bool,
        options: Mapping[str, str] | None = None,
        engine_for: EngineFor = inline_engine,
    ) -> None:
        self._components = components
        self._config = config
        self._write_config = write_config
        self._lock_timeout_ms = lock_timeout_ms
        self._has_lock_provider = has_lock_provider
        self._options = options or {}
        self._metadata = MetadataConfig.from_options(self._options)
        self._engine_for = engine_for

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
        self._check_lock_provider()
        plan = self._indexing(log_progress).schedule(self._plan(names, columns))
        return None if plan is None else plan.requested_time

    def run(
        self, instant: str | None = None, *, progress: Report = log_progress
    ) -> list[IndexedPlan]:
        """Build what was planned: one plan, or all that wait; return what became of each.

        A build that died is taken up again. Others write, clean and compact meanwhile.

        Args:
            progress: is told how far the build is, now and then.

        Raises: see `indexing.Indexing.run`; InvalidInputError of kind NO_LOCK_PROVIDER.
        """
        self._check_lock_provider()
        indexing = self._indexing(progress)
        indexing.finish()
        if instant is not None:
            plans = [parse_instant_time(instant)]
        else:
            layout = table_layout(self._config)
            pending = pending_indexings(load_active(self._components.storage, layout.timeline))
            plans = [plan.requested_time for plan in pending]
        done = [indexing.run(plan) for plan in plans]
        if any(one.told for one in done):
            self._fold(indexing)
        return done

    def create(
        self,
        names: str | Sequence[str],
        *,
        columns: Columns = None,
        progress: Report = log_progress,
    ) -> IndexedPlan | None:
        """Plan indexes and build them at once; None if the table has all of them.

        Raises: see `schedule` and `run`.
        """
        plan = self.schedule(names, columns=columns)
        return None if plan is None else self.run(plan, progress=progress)[0]

    def cancel(self, instant: str) -> None:
        """Give up a plan, whoever is building it; what it has built so far goes.

        Raises:
            InvalidInputError: kind INVALID_STATE; it has completed. Kind NO_LOCK_PROVIDER.
            NotFoundError: there is no such plan.
        """
        self._check_lock_provider()
        self._indexing(log_progress).cancel(parse_instant_time(instant))

    def finish(self) -> frozenset[str]:
        """Bring table config up to builds that completed just before their process died.

        Returns the indexes that can be used since. `run` and `clean` do the same.
        """
        return self._indexing(log_progress).finish()

    def drop(self, name: str) -> None:
        """Take an index away, or what an unfinished one has left over.

        Raises:
            NotFoundError: kind INDEX_NOT_FOUND.
            InvalidInputError: kind INVALID_INDEX; another index needs it. Kind NO_LOCK_PROVIDER.
            ConflictError: it is being built; cancel the plan instead.
        """
        self._check_lock_provider()
        storage, layout = self._components.storage, table_layout(self._config)
        config = load_table_config(storage, self._components.clock)
        planned = load_planned(storage, layout, load_active(storage, layout.timeline))
        known = {*config.metadata_partitions, *config.metadata_partitions_inflight, *planned}
        others = known - {name}
        secondary = [n for n in others if kind_of(n) is PartitionKind.SECONDARY_INDEX]
        needing = secondary if name == RECORD_INDEX else others if name == FILES else ()
        if needing and name not in planned:
            raise InvalidInputError(
                f"{', '.join(sorted(needing))} need the index {name}; drop them "
                "first, or cancel the plan that builds them",
                kind=ErrorKind.INVALID_INDEX,
            )
        self._indexing(log_progress).drop(name)

    def list(self) -> pa.Table:
        """The indexes of the table and the state of each; `t.inspect.indexes()` tells more."""
        return list_indexes(self._components.storage, self._components.clock).select(_LISTED)

    def _plan(self, names: str | Sequence[str], columns: Columns) -> Sequence[PlannedIndex]:
        storage = self._components.storage
        config = load_table_config(storage, self._components.clock)
        view = load_listed_view(storage, config)
        return plan_indexes(
            names,
            columns,
            config=config,
            schema=view.schema(),
            metadata=self._metadata,
            definitions=load_index_definitions(storage, config),
            record_count=_estimate_records(view),
        )

    def _indexing(self, report: Report) -> Indexing:
        layout = table_layout(self._config)
        txn = LockTransaction(
            self._components,
            layout,
            lock_timeout_ms=self._lock_timeout_ms,
            load_markers=load_every_marker,
        )
        interval_ms = self._write_config.heartbeat_interval_ms
        tolerable_misses = self._write_config.heartbeat_tolerable_misses
        rollbacks = Rollbacks(
            components=self._components,
            txn=txn,
            layout=layout,
            load_markers=load_every_marker,
            interval_ms=interval_ms,
            tolerable_misses=tolerable_misses,
            has_indexes=True,
        )
        return Indexing(
            components=self._components,
            txn=txn,
            layout=layout,
            content=TableIndexes(
                storage=self._components.storage,
                config=self._config,
                engine_for=self._engine_for,
                storage_options=self._options,
                merge_function=FileConfig.from_options(self._options).merge_function,
            ),
            roll_back=rollbacks.roll_back,
            interval_ms=interval_ms,
            tolerable_misses=tolerable_misses,
            timeout_ms=self._metadata.index_timeout_ms,
            report=report,
        )

    def _fold(self, indexing: Indexing) -> None:
        """Fold what builds were told since their plans, or the next writer has to."""
        components = self._components
        run_metadata_upkeep(
            MetadataUpkeep(
                components=components,
                config=load_table_config(components.storage, components.clock),
                commits=0,
                claim=indexing.claim,
                lock_timeout_ms=self._lock_timeout_ms,
            )
        )

    def _check_lock_provider(self) -> None:
        if not self._has_lock_provider:
            raise InvalidInputError(
                "Indexes are built beside writers, so all of them need a lock that they have "
                f"chosen, and table {self._config.name} is opened without one. Set "
                "hoodie.write.lock.provider (in_process for threads of one process; filesystem, "
                "storage or zookeeper otherwise), and hoodie.write.concurrency.mode to "
                "optimistic_concurrency_control if there are several writers",
                kind=ErrorKind.NO_LOCK_PROVIDER,
            )


def _estimate_records(view: TableView) -> int:
    return sum(one.size_bytes for one in view.slices()) // _RECORD_BYTES
