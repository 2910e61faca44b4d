"""Gathering the statistics of a table: its view, timeline, plans and config. No row is read.

Each part is looked at as far as it must be. The bounds of columns are asked for only if rows are to
be sorted (`column_bounds`). What a clean would delete is planned on the view that is there anyway,
and how far the metadata table is behind is told by the timeline that was listed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headwater.arrow.curves import check_sortable
from headwater.config.advice import AdviceConfig
from headwater.config.archive import ArchiveConfig
from headwater.config.clean import CleanConfig
from headwater.config.clustering import ClusteringConfig
from headwater.config.compaction import CompactionConfig
from headwater.context import TableContext
from headwater.errors import InvalidInputError, UnsupportedError
from headwater.kernel.layout import METADATA
from headwater.kernel.txn.attempts import load_attempt, load_newest_number
from headwater.kernel.txn.index_plan import load_pending_plans
from headwater.kernel.txn.prefix import load_cancelled
from headwater.kernel.view.commits import CompletedCommit
from headwater.metadata.compaction import commits_ahead_of_hudi, commits_since_compaction
from headwater.metadata.initialize import wanted_indexes
from headwater.metadata.services import load_held_back
from headwater.metadata.view import IndexedView, view_of
from headwater.model.files import FileGroupId
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.services.advice.column_bounds import load_overlaps
from headwater.services.advice.settings import RewriteSettings
from headwater.services.advice.statistics import (
    IndexState,
    MetadataTableStatistics,
    TableStatistics,
    WaitingPlan,
)
from headwater.services.archive import load_archivable
from headwater.services.clean import listed_files, plan_next_clean
from headwater.services.clustering.plan import CLUSTER
from headwater.services.clustering.run import is_bucketed, orders_of
from headwater.services.removable import removable_plans
from headwater.services.rewrite import check_rewritable
from headwater.services.rollback import failed_writes

_REWRITES = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)
_FINISHED_BY_CLEAN = (Action.CLEAN, Action.RESTORE)


def rewrite_settings(table: TableContext, sort_by: Sequence[str] | None = None) -> RewriteSettings:
    """Return how this process's options configure services; `sort_by` is instead of theirs."""
    clustering = ClusteringConfig.from_options(table.options)
    if sort_by is not None:
        clustering = replace(clustering, sort_columns=tuple(sort_by))
    return RewriteSettings(
        compaction=CompactionConfig.from_options(table.options),
        clustering=clustering,
        reads_max=AdviceConfig.from_options(table.options).reads_max,
    )


def check_sort_columns(table: TableContext, settings: RewriteSettings) -> None:
    """Raise if rows cannot be sorted as the settings say.

    Raises:
        InvalidInputError: they cannot.
        Others: as `load_statistics`.
    """
    clustering = settings.clustering
    if clustering.sort_columns:
        schema = view_of(table.reload()).schema()
        check_sortable(schema, clustering.sort_columns, clustering.order)


def load_statistics(table: TableContext, settings: RewriteSettings) -> TableStatistics:
    """Return what there is to know of a table, as of now.

    Raises:
        InvalidInputError: rows cannot be sorted by the columns of the settings.
        NotFoundError: kind INSTANT_NOT_FOUND; cleaning and archival were faster. Try again.
        CorruptTableError, StorageError: the table cannot be read.
    """
    watch = table.txn.watch  # Before the config is read anew: it is kept from call to call.
    table = table.reload()
    view = view_of(table)
    clean_config = CleanConfig.from_options(table.options)
    archive_config = ArchiveConfig.from_options(table.options)
    writes = [one for one in view.commits if not one.is_table_service]
    watched = _Watched(table, view)
    obsolete_files, obsolete_bytes = _obsolete(table, clean_config, view)
    return TableStatistics(
        slices=tuple(view.slices()),
        closed=frozenset(view.pending_rewrites),
        written=_written(writes),
        writes=tuple(one.requested_time for one in writes),
        is_rewritable=_is_rewritable(table),
        is_bucketed=_is_bucketed(table),
        base_uri=table.storage.uri,
        sorted_by=orders_of(view),
        overlaps=tuple(load_overlaps(table, view, settings.clustering)),
        cancelled_clusterings=_cancelled_since_last(view),
        instant_count=len(view.timeline),
        archivable=len(load_archivable(table, view.timeline, archive_config, clean_config)),
        obsolete_files=obsolete_files,
        obsolete_bytes=obsolete_bytes,
        failed_writes=tuple(failed_writes(table.rollbacks, watch, view.timeline)),
        failed_plans=watched.failed_plans,
        unfinished=watched.unfinished,
        waiting_plans=watched.waiting_plans,
        metadata_table=_metadata_table(table, view),
        indexes=_indexes(table, view, watched),
        expired_lock=_expired_lock(table),
    )


class _Watched:
    """The pending instants that nobody works on, as far as this process can tell."""

    def __init__(self, table: TableContext, view: IndexedView) -> None:
        self._table = table
        timeline = view.timeline
        idle = [one for one in timeline.pending if self._is_idle(one)]
        removable = set(removable_plans(table.rollbacks, timeline)) if idle else set()
        self.failed_plans = tuple(
            one.requested_time
            for one in idle
            if one.requested_time in removable and one.state is State.INFLIGHT
        )
        self.unfinished = tuple(
            one.requested_time for one in idle if one.action in _FINISHED_BY_CLEAN
        )
        self.indexings = [one.requested_time for one in idle if one.action is Action.INDEXING]
        cancelled = load_cancelled(table.storage) if idle else frozenset()
        self.waiting_plans = tuple(
            WaitingPlan(
                instant=one.requested_time,
                action=one.action,
                is_cancelled=one.requested_time in cancelled,
                file_groups=tuple(
                    group for group, plan in view.pending_rewrites.items() if plan == one
                ),
            )
            for one in idle
            if one.action in _REWRITES and one.requested_time not in self.failed_plans
        )

    def _is_idle(self, pending: Instant) -> bool:
        """Whether a pending instant, which is no write, is ours and nobody is at work on it."""
        if pending.action.is_ingestion or pending.action is Action.ROLLBACK:
            return False
        number = load_newest_number(self._table.storage, pending.requested_time)
        if not number:
            # Another engine's. One that it scheduled and did not begin is anybody's in the end.
            is_planned = pending.action in _REWRITES and pending.state is State.REQUESTED
            return is_planned and not self._table.load_left_ms(pending)
        attempt = load_attempt(self._table.storage, pending.requested_time, number)
        return attempt is not None and not self._table.txn.watch.is_active(attempt)


def load_written(
    table: TableContext, since: InstantTime, groups: Sequence[FileGroupId]
) -> list[FileGroupId]:
    """Return those of some file groups that a write requested or completed since then wrote to."""
    writes = [
        one
        for one in view_of(table).commits
        if not one.is_table_service and one.completion_time > since
    ]
    written = _written(writes)
    return [group for group in groups if group in written]


def _written(writes: Sequence[CompletedCommit]) -> dict[FileGroupId, InstantTime]:
    return {file.group: one.requested_time for one in writes for file in one.files}


def _is_rewritable(table: TableContext) -> bool:
    try:
        check_rewritable(table.config, table.storage.uri)
    except UnsupportedError:
        return False
    return True


def _is_bucketed(table: TableContext) -> bool | None:
    try:
        return is_bucketed(table.config)
    except InvalidInputError:
        return None


def _cancelled_since_last(view: IndexedView) -> int:
    """Return how many clusterings were aborted since the last one that completed."""
    done = [
        one.requested_time
        for one in view.commits
        if one.instant.action is Action.CLUSTERING or one.metadata.operation_type == CLUSTER
    ]
    since = max(done, default=InstantTime(""))
    return sum(
        one.state is State.ABORTED
        and one.action is Action.CLUSTERING
        and one.requested_time > since
        for one in view.timeline.instants
    )


def _obsolete(table: TableContext, config: CleanConfig, view: IndexedView) -> tuple[int, int]:
    plan = plan_next_clean(table, config, view)
    if plan is None:
        return 0, 0
    paths = {file.path for file in listed_files(plan, path="the plan of a clean")}
    sizes = (
        file.size_bytes
        for history in view.histories()
        for file in history.files
        if file.path in paths
    )
    return len(paths), sum(sizes)


def _metadata_table(table: TableContext, view: IndexedView) -> MetadataTableStatistics | None:
    view.slices()  # Which opens the metadata table, if there is one.
    own = view.metadata_timeline
    if own is None:
        return None
    found = MetadataTableStatistics(
        commits=commits_since_compaction(own),
        commits_max=commits_ahead_of_hudi(table.metadata_config.compaction_commits),
    )
    if not found.is_due:
        return found
    files = table.storage.list_tree(METADATA)
    return replace(
        found,
        size_bytes=sum(info.size_bytes for info in files),
        waits_for=load_held_back(table.storage, table.layout, view.timeline, own),
    )


def _indexes(table: TableContext, view: IndexedView, watched: _Watched) -> dict[str, IndexState]:
    config = table.config
    plans = load_pending_plans(table.storage, table.layout.timeline, view.timeline)
    planned = {each.partition: time for time, some in plans.items() for each in some}
    inflight = config.metadata_partitions_inflight
    found = {
        name: IndexState.MISSING
        for name in wanted_indexes(config, table.metadata_config)
        if name not in (*config.metadata_partitions, *inflight, *planned)
    }
    found |= {
        name: IndexState.UNFINISHED for name, time in planned.items() if time in watched.indexings
    }
    # Complete, and table config does not say so: whoever asks `t.indexes` next finishes it.
    found |= {name: IndexState.UNFINISHED for name in inflight if name not in planned}
    found |= dict.fromkeys(config.indexes_to_rebuild, IndexState.DROPPED)
    return found


def _expired_lock(table: TableContext) -> str | None:
    held = table.components.locks.inspect()
    return held.owner if held is not None and held.is_expired else None
