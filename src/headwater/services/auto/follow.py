"""Following a piece of advice: which service it calls, and what became of it.

Clusterings are cancellable here, so that no writer ever waits for one or fails because of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique
from typing import TYPE_CHECKING, assert_never

from headwater.errors import ConflictError, FencedError, InvalidInputError
from headwater.metadata.indexes import Indexes
from headwater.metadata.services import metadata_services, run_metadata_services
from headwater.model.files import FileGroupId
from headwater.model.instant import Action
from headwater.model.plan_flags import PlanFlags
from headwater.services.advice.advice import Advice, Need
from headwater.services.advice.load import load_written
from headwater.services.advice.settings import RewriteSettings
from headwater.services.clustering.run import cluster_only
from headwater.services.compaction import compact_only
from headwater.services.log_compaction import compact_logs_only
from headwater.services.rewrite import Rewritten
from headwater.services.table_services import is_final

if TYPE_CHECKING:
    from headwater.context import TableContext
    from headwater.services import Services


@unique
class Outcome(StrEnum):
    """What became of a piece of advice."""

    DONE = "done"
    CANCELLED = "cancelled"
    """Writers came in between."""
    NOTHING = "nothing"
    """There was nothing to do after all, or it has to wait for others."""
    LEFT = "left"
    """Another process is at it."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    outcome: Outcome
    blamed: tuple[FileGroupId, ...] = ()
    """Of a rewrite that was cancelled the file groups that were written meanwhile."""


def follow(
    piece: Advice, table: TableContext, services: Services, settings: RewriteSettings
) -> Followed:
    """Do what a piece of advice says.

    Raises:
        HeadwaterError: as the service that is called, but for what another process is at.
    """
    try:
        return _follow(piece, table, services, settings)
    except (ConflictError, FencedError) as error:
        if is_final(error):
            raise
        return Followed(outcome=Outcome.LEFT)


def _follow(
    piece: Advice, table: TableContext, services: Services, settings: RewriteSettings
) -> Followed:
    match piece.need:
        case Need.LOGS:
            done = compact_only(table, settings.compaction, piece.file_groups)
            return _rewritten(piece, table, done)
        case Need.MANY_LOGS:
            done = compact_logs_only(table, settings.compaction, piece.file_groups)
            return _rewritten(piece, table, done)
        case Need.SMALL_FILES | Need.UNSORTED:
            flags = PlanFlags(is_cancellable=True)
            done = cluster_only(table, settings.clustering, flags, piece.file_groups)
            return _rewritten(piece, table, done)
        case Need.WAITING_PLAN:
            return _rewritten(piece, table, _execute(piece, services))
        case Need.CANCELLED_PLAN:
            assert piece.instant is not None
            services.execute_abort(piece.instant)
            return Followed(outcome=Outcome.DONE)
        case Need.FAILED_WRITES:
            return _did(bool(services.rollback_failed_writes()))
        case Need.OBSOLETE_FILES | Need.UNFINISHED_CLEAN:
            return _did(bool(services.clean()))
        case Need.LONG_TIMELINE:
            return _did(bool(services.archive().archived))
        case Need.METADATA_LOGS:
            return _did(run_metadata_services(metadata_services(table)) is not None)
        case Need.UNFINISHED_INDEX:
            before = table.load_config().metadata_partitions_inflight
            built = Indexes(table).run()
            return _did(bool(built) or table.load_config().metadata_partitions_inflight != before)
        case Need.DROPPED_INDEX:
            before = table.load_config().indexes_to_rebuild
            services.clean()
            return _did(table.load_config().indexes_to_rebuild != before)
        case Need.MISSING_INDEX:
            Indexes(table).create(piece.indexes)
            return _did(True)
        case Need.EXPIRED_LOCK:
            return Followed(outcome=Outcome.NOTHING)
        case _:
            assert_never(piece.need)


def _execute(piece: Advice, services: Services) -> Rewritten | None:
    match piece.action:
        case Action.COMPACTION:
            return services.compact(piece.instant)
        case Action.LOG_COMPACTION:
            return services.log_compact(piece.instant)
        case Action.CLUSTERING:
            return services.cluster(piece.instant)
        case _:
            raise InvalidInputError(f"Nobody executes a plan of {piece.action}")


def _rewritten(piece: Advice, table: TableContext, done: Rewritten | None) -> Followed:
    if done is None:
        return Followed(outcome=Outcome.NOTHING)
    if done.is_cancelled:
        written = load_written(table, done.instant, piece.file_groups)
        return Followed(
            outcome=Outcome.CANCELLED, blamed=tuple(written) or tuple(piece.file_groups)
        )
    if not done.is_executed_here:
        return Followed(outcome=Outcome.LEFT)
    run_metadata_services(metadata_services(table))
    return Followed(outcome=Outcome.DONE)


def _did(has_worked: bool) -> Followed:
    return Followed(outcome=Outcome.DONE if has_worked else Outcome.NOTHING)
