"""What keeps a table in order. Every service may run beside writers, readers and itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.config.archive import ArchiveConfig
from headwater.config.clean import CleanConfig
from headwater.config.clustering import ClusteringConfig
from headwater.config.compaction import CompactionConfig
from headwater.config.table_services import TableServicesConfig
from headwater.context import TableContext
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.cancel import AbortedPlan
from headwater.kernel.txn.rollback import RolledBackWrite
from headwater.markers.batches import load_every_marker
from headwater.metadata.indexes import Indexes
from headwater.metadata.services import (
    compact_metadata_table,
    metadata_services,
    run_metadata_services,
)
from headwater.model.instant import parse_instant_time
from headwater.model.plan_flags import PlanFlags, parse_cancellation_policy
from headwater.observed import observed_service
from headwater.services.archive import ArchiveResult, run_archive
from headwater.services.cancel_by_policy import cancel_and_abort_by_policy
from headwater.services.clean import CleanResult, run_clean
from headwater.services.clustering.plan import parse_order
from headwater.services.clustering.run import run_clustering, schedule_clustering
from headwater.services.compaction import run_compaction, schedule_compaction
from headwater.services.log_compaction import run_log_compaction, schedule_log_compaction
from headwater.services.rebuild import rebuild_indexes
from headwater.services.removable import rollback_removable_plans
from headwater.services.restore import RestoreResult, finish_restores, run_restore
from headwater.services.rewrite import Rewritten
from headwater.services.rollback import rollback_failed_writes, rollback_write
from headwater.services.savepoint import (
    Savepoint,
    create_savepoint,
    delete_savepoint,
    drop_unfinished_savepoints,
    list_savepoints,
)
from headwater.services.sweep import sweep_leftovers
from headwater.services.table_services import (
    Calls,
    Service,
    StopSignal,
    TableServicesReport,
    due_after_write,
    parse_services,
    run_once,
    run_until,
)
from headwater.services.undo import rollback_commit

if TYPE_CHECKING:
    from headwater.services.advice.advice import Advice
    from headwater.services.auto.run import AutoReport

# What gives advice is imported by whoever asks for it: it reads as queries do, and writers come by
# here with every write.


class Services:
    """`table.services`: one method per service.

    It remembers which heartbeats it has seen, so that of two calls in one process the second knows
    more about who is dead.
    """

    def __init__(self, table: TableContext) -> None:
        self._table = table
        # Services share one lock by default; only people have to choose it for an index.
        self._indexes = Indexes(table, needs_chosen_lock=False)

    @observed_service("schedule_compaction")
    def schedule_compaction(self, *, only_if_due: bool = False) -> str | None:
        """Plan a compaction of log files into base files, for anybody to execute.

        Which file groups it takes is up to `hoodie.compaction.*`. One that another pending plan
        names is left out.

        Args:
            only_if_due: whether enough must have been written since the last one, by
                `hoodie.compact.inline.*`.

        Returns:
            The instant time of the plan, None if there is nothing to compact.

        Raises: see `services.rewrite.schedule`.
        """
        config = CompactionConfig.from_options(self._table.options)
        started = schedule_compaction(self._table, config, only_if_due=only_if_due)
        return None if started is None else started.instant.requested_time

    @observed_service("compaction")
    def compact(self, instant: str | None = None, *, only_if_due: bool = False) -> Rewritten | None:
        """Execute a planned compaction, or else plan one and execute it.

        Args:
            instant: the plan to execute. Otherwise the oldest one that is pending and that nobody
                works on, or a new one if there is none.
            only_if_due: see `schedule_compaction`; only for a new plan.

        Returns:
            What was done, by this call or before it; None if there is nothing to compact.

        Raises: see `services.rewrite.run_next`.
        """
        config = CompactionConfig.from_options(self._table.options)
        time = None if instant is None else parse_instant_time(instant)
        return self._kept_up(run_compaction(self._table, config, time, only_if_due=only_if_due))

    @observed_service("schedule_log_compaction")
    def schedule_log_compaction(self, *, removable: bool = False) -> str | None:
        """Plan to put the logs of file groups into one log file each, for anybody to execute.

        Args:
            removable: whether an execution that fails takes the plan with it: clean rolls it back.

        Returns:
            The instant time of the plan, None if no file group has enough logs by
            `hoodie.log.compaction.*`.

        Raises: see `services.rewrite.schedule`.
        """
        config = CompactionConfig.from_options(self._table.options)
        flags = PlanFlags(is_removable=removable)
        started = schedule_log_compaction(self._table, config, flags)
        return None if started is None else started.instant.requested_time

    @observed_service("log_compaction")
    def log_compact(self, instant: str | None = None) -> Rewritten | None:
        """Execute a planned log compaction, or else plan one and execute it.

        Args:
            instant: the plan to execute. Otherwise the oldest one that is pending and that nobody
                works on, or a new one if there is none.

        Returns:
            What was done, by this call or before it; None if no file group has enough logs.

        Raises: see `services.rewrite.run_next`.
        """
        config = CompactionConfig.from_options(self._table.options)
        time = None if instant is None else parse_instant_time(instant)
        return self._kept_up(run_log_compaction(self._table, config, time))

    @observed_service("schedule_clustering")
    def schedule_clustering(
        self,
        sort_by: str | Sequence[str] | None = None,
        *,
        order: str | None = None,
        partitions: Sequence[str] | None = None,
        cancellable: bool = False,
        cancellation_policy: str | None = None,
        removable: bool = False,
        target_file_bytes: int | None = None,
        small_file_bytes: int | None = None,
    ) -> str | None:
        """Plan a clustering, for anybody to execute.

        What is not given here is up to `hoodie.clustering.*`.

        Args:
            sort_by: columns to sort the rows by.
            order: how to sort by several columns: `linear`, `zorder` or `hilbert`.
            partitions: partition paths such as `city=sf`.
            cancellable: whether a write to the same file groups cancels the plan. Otherwise the
                plan keeps such writes from completing.
            cancellation_policy: when a cancellable plan is cancelled by itself, such as `24 hours`
                or `10 instants` after it was scheduled.
            removable: whether an execution that fails takes the plan with it: clean rolls it back.
                A plan is not both cancellable and removable.
            target_file_bytes: the size of new files.
            small_file_bytes: base files that are as large as this are left alone.

        Returns:
            The instant time of the plan, None if there is nothing to gain.

        Raises: see `services.clustering.run.schedule_clustering`.
        """
        config = ClusteringConfig.from_options(self._table.options)
        config = replace(
            config,
            sort_columns=config.sort_columns if sort_by is None else _columns(sort_by),
            order=config.order if order is None else parse_order(order),
            partitions=config.partitions if partitions is None else tuple(partitions),
            file_bytes=config.file_bytes if target_file_bytes is None else target_file_bytes,
            small_file_limit=(
                config.small_file_limit if small_file_bytes is None else small_file_bytes
            ),
        )
        policy = cancellation_policy
        flags = PlanFlags(
            is_cancellable=cancellable,
            policy=None if policy is None else parse_cancellation_policy(policy),
            is_removable=removable,
        )
        started = schedule_clustering(self._table, config, flags)
        return None if started is None else started.instant.requested_time

    @observed_service("clustering")
    def cluster(self, instant: str | None = None) -> Rewritten | None:
        """Execute a planned clustering, or else plan one by `hoodie.clustering.*` and execute it.

        One that was cancelled is aborted instead: the result says so (`is_cancelled`). A plan that
        this call makes is removable: it keeps nobody from writing once the call has failed.

        Args:
            instant: the plan to execute. Otherwise the oldest one that is pending and that nobody
                works on, or a new one if there is none.

        Returns:
            What was done, by this call or before it; None if there is nothing to gain.

        Raises: see `services.rewrite.run_next`.
        """
        config = ClusteringConfig.from_options(self._table.options)
        time = None if instant is None else parse_instant_time(instant)
        return self._kept_up(run_clustering(self._table, config, time))

    @observed_service("cancel")
    def request_cancel(self, instant: str, *, reason: str = "asked for by hand") -> None:
        """Cancel a pending cancellable plan, given its requested time, for good.

        Whoever executes it stops and aborts it; so does the next clean, or `execute_abort`. A plan
        that is aborted already is left as it is.

        Raises:
            NotFoundError: kind INSTANT_NOT_FOUND; it is not on the active timeline.
            InvalidInputError: kind INVALID_STATE, it has completed; kind NOT_CANCELLABLE; kind
                INVALID_INSTANT_TIME. Nothing was changed.
            Others: see `kernel.txn.cancel.Cancellations.request`.
        """
        self._check_writable()
        self._table.cancellations.request(parse_instant_time(instant), reason)

    @observed_service("abort")
    def execute_abort(self, instant: str) -> AbortedPlan:
        """Delete what a cancelled plan left behind and end it, given its requested time.

        Raises:
            ConflictError: kind ALREADY_RUNNING; somebody is at work on it and will find that it is
                cancelled. Nothing was changed.
            InvalidInputError: kind NOT_CANCELLED, and as `request_cancel`. Nothing was changed.
            Others: see `kernel.txn.cancel.Cancellations.abort`.
        """
        self._check_writable()
        return self._table.cancellations.abort(parse_instant_time(instant))

    @observed_service("clean")
    def clean(self) -> list[CleanResult]:
        """Delete the data files that no view within retention needs, and what failed jobs left.

        Restores and rollbacks that other processes left are finished first. Failed writes and
        plans are rolled back, as Hudi's lazy policy does it, savepoints that were begun and never
        made are deleted, and plans are cancelled that are due by their cancellation policy, and
        aborted. Then cleans that other processes left are finished and a new one is made, by
        `hoodie.clean.policy`; at last the leftovers of instants that have ended are swept.

        Returns:
            The cleans that were done; none if there was nothing to delete.

        Raises: see `services.clean.run_clean`, and `rollback_failed_writes`.
        """
        self._check_writable()
        config = CleanConfig.from_options(self._table.options)
        # One look for all of them. Whatever one of them does, the others find out under the lock.
        timeline, rollbacks = self._table.load_timeline(), self._table.rollbacks
        finish_restores(self._table, timeline)
        rollback_failed_writes(rollbacks, self._table.txn.watch, timeline=timeline)
        rollback_removable_plans(rollbacks, timeline)
        drop_unfinished_savepoints(self._table, timeline)
        cancel_and_abort_by_policy(self._table.cancellations, timeline)
        done = run_clean(self._table, config)
        sweep_leftovers(self._table, load_every_marker)
        found = self._table.load_config()
        if found.metadata_partitions_inflight:
            self._indexes.finish()
        if found.indexes_to_rebuild:
            rebuild_indexes(self._table, self._indexes)
        self._keep_metadata_table()
        return done

    @observed_service("archive")
    def archive(self) -> ArchiveResult:
        """Move the oldest instants to the archived timeline, by `hoodie.keep.*.commits`.

        Failed writes, which it would stop at, are rolled back first.

        Raises: see `services.archive.run_archive`, and `rollback_failed_writes`.
        """
        self._check_writable()
        timeline = self._table.load_timeline()
        if any(instant.action.is_ingestion for instant in timeline.pending):
            # Nothing that completed after a pending write leaves the active timeline.
            rollbacks = self._table.rollbacks
            rollback_failed_writes(rollbacks, self._table.txn.watch, timeline=timeline)
        self._keep_metadata_table()
        return run_archive(
            self._table,
            ArchiveConfig.from_options(self._table.options),
            CleanConfig.from_options(self._table.options),
        )

    def compact_metadata_table(self) -> str | None:
        """Fold the logs of the metadata table into base files, whether that is due or not.

        Every write does so by itself when it is due.

        Returns:
            The instant of the compaction; None if there is nothing to fold, or what has to end
            first has not.

        Raises: see `metadata.services.compact_metadata_table`.
        """
        self._check_writable()
        if not self._table.load_config().metadata_partitions:
            return None
        done = compact_metadata_table(metadata_services(self._table))
        return None if done is None else done.requested_time

    @observed_service("rollback")
    def rollback_failed_writes(self, *, wait: bool = False) -> list[RolledBackWrite]:
        """Roll back writes that failed and whose writers have given up or are dead.

        So are removable plans whose execution failed, or that waited too long for one.

        Args:
            wait: whether to watch the heartbeats of writers that may be dead until they move or
                run out, which takes up to two minutes unless writers chose otherwise. Without it,
                only those are dead that said so, whose process on this machine has ended, or whose
                heartbeat earlier calls of this process saw as well.

        Returns:
            What was rolled back, oldest first.

        Raises: see `kernel.txn.rollback.Rollbacks.roll_back`.
        """
        self._check_writable()
        done = rollback_failed_writes(self._table.rollbacks, self._table.txn.watch, wait=wait)
        return done + rollback_removable_plans(self._table.rollbacks)

    @observed_service("rollback")
    def rollback(self, instant: str, *, wait: bool = False) -> RolledBackWrite:
        """Roll back a write that failed, or the last commit to complete, by its requested time.

        Args:
            wait: see `rollback_failed_writes`.

        Raises:
            UnsupportedError: the instant is a plan, or one that is left to another engine.
            ConflictError: kind ALREADY_RUNNING; its writer or another rollback is at work.
            InvalidInputError: kind INVALID_INSTANT_TIME.
            Others: see `services.undo.rollback_commit`, `kernel.txn.rollback.Rollbacks.roll_back`.
        """
        self._check_writable()
        target = parse_instant_time(instant)
        done = rollback_write(self._table.rollbacks, self._table.txn.watch, target, wait=wait)
        if isinstance(done, RolledBackWrite):
            return done
        undone = rollback_commit(self._table, target)
        rebuild_indexes(self._table, self._indexes)
        return undone

    @observed_service("savepoint")
    def savepoint(
        self, instant: str | None = None, *, comment: str = "", user: str | None = None
    ) -> Savepoint:
        """Protect a commit from cleaning and archival, by default the last one to complete.

        Args:
            instant: the requested time of the commit.
            user: who protects it; this process unless given.

        Raises: see `services.savepoint.create_savepoint`.
        """
        self._check_writable()
        time = None if instant is None else parse_instant_time(instant)
        return create_savepoint(self._table, time, comment=comment, user=user)

    @observed_service("delete_savepoint")
    def delete_savepoint(self, instant: str) -> None:
        """Protect a commit no longer.

        Raises: see `services.savepoint.delete_savepoint`.
        """
        self._check_writable()
        delete_savepoint(self._table, parse_instant_time(instant))

    def savepoints(self) -> list[Savepoint]:
        """Return the savepoints of the table, oldest commit first.

        Raises: see `services.savepoint.list_savepoints`.
        """
        return list_savepoints(self._table)

    @observed_service("restore")
    def restore(self, instant: str) -> RestoreResult:
        """Take back all that completed after the commit of a savepoint.

        Args:
            instant: the requested time of the commit that has the savepoint.

        Raises: see `services.restore.run_restore`.
        """
        self._check_writable()
        done = run_restore(self._table, parse_instant_time(instant))
        rebuild_indexes(self._table, self._indexes)
        return done

    def advise(self, *, sort_by: str | Sequence[str] | None = None) -> list[Advice]:
        """Say what the table needs next and why, by gain over cost, the best first.

        No row is read: what is known comes from the timeline, the metadata table, and footers.

        Args:
            sort_by: the columns that filters use; those of `hoodie.clustering.*` unless given.

        Returns:
            Advice, each with what is wrong, what to call, why, what each read is spared and what
            it costs once, both in bytes. An empty list if the table is in order.

        Raises: see `services.advice.load.load_statistics`.
        """
        from headwater.services.advice.decide import advise
        from headwater.services.advice.load import load_statistics, rewrite_settings

        self._check_writable()
        settings = rewrite_settings(self._table, None if sort_by is None else _columns(sort_by))
        return advise(load_statistics(self._table, settings), settings)

    def run_auto(
        self,
        stop: StopSignal,
        *,
        pause_s: float = 60.0,
        budget_s: float | None = None,
        budget_bytes: int | None = None,
        sort_by: str | Sequence[str] | None = None,
    ) -> AutoReport:
        """Follow advice over and over until a signal comes; safe on several machines at once.

        Clusterings are cancellable and begin with file groups that were not written for long.
        What writers cancel is left alone for a while, each time twice as long. What had to stand
        back in three rounds goes first in the next.

        Args:
            stop: a `threading.Event`, or what has its `is_set` and `wait`.
            pause_s: how long to wait after each round.
            budget_s: after how many seconds of a round nothing new is begun.
            budget_bytes: how many bytes a round reads and writes, about.
            sort_by: see `advise`.

        Returns:
            What was done how often, and what was cancelled or failed.

        Raises:
            InvalidInputError: rows cannot be sorted by these columns.
            ConflictError: kind TABLE_SWITCHED; the table has to be opened again.
            NotFoundError: kind NOT_A_TABLE; it was deleted.
        """
        from headwater.services.advice.load import check_sort_columns, rewrite_settings
        from headwater.services.auto.agenda import Agenda, Budget
        from headwater.services.auto.run import run_auto

        self._check_writable()
        settings = rewrite_settings(self._table, None if sort_by is None else _columns(sort_by))
        # Every round would fail for it, and say so in the log alone.
        check_sort_columns(self._table, settings)
        return run_auto(
            self._table,
            self,
            settings,
            Agenda(Budget(seconds=budget_s, bytes=budget_bytes)),
            stop,
            pause_s=pause_s,
        )

    def run_forever(
        self,
        stop: StopSignal,
        *,
        run: Sequence[str] = ("compaction", "clean", "archive"),
        pause_s: float = 60.0,
    ) -> TableServicesReport:
        """Run services over and over until a signal comes; safe on several machines at once.

        A service that another process is at work on is left to it. One that fails is logged and
        comes again in the next round.

        Args:
            stop: a `threading.Event`, or what has its `is_set` and `wait`.
            run: of `compaction`, `log_compaction`, `clustering`, `clean` and `archive`, which ones.
            pause_s: how long to wait after each round.

        Returns:
            How often each service found something to do and did it, and how often it failed.

        Raises:
            InvalidInputError: a service has no such name.
            ConflictError: kind TABLE_SWITCHED; the table has to be opened again.
            NotFoundError: kind NOT_A_TABLE; it was deleted.
        """
        self._check_writable()
        return run_until(self._calls(), parse_services(run), stop, pause_s=pause_s)

    def run_after_write(self) -> None:
        """Run what this process's options want after a write of its own, if it is due.

        The metadata table is kept up whatever they say. What fails is logged: the write stands.
        """
        self._keep_metadata_table(self._table.seen_metadata.take())
        config = TableServicesConfig.from_options(self._table.options)
        if config.is_idle:
            return
        due = due_after_write(self._table.load_timeline(), config, self._table.config.table_type)
        run_once(self._calls(), due)

    def _kept_up(self, done: Rewritten | None) -> Rewritten | None:
        """Return what was done, once the metadata table, which was told of it, is kept up."""
        if done is not None and done.is_executed_here:
            self._keep_metadata_table()
        return done

    def _keep_metadata_table(self, seen: Timeline | None = None) -> None:
        """Compact, clean and archive the metadata table, as far as it is due.

        `seen` is its timeline as the one write saw it that this is called after.
        """
        if not self._table.config.metadata_partitions:
            return
        run_metadata_services(metadata_services(self._table), seen)

    def _check_writable(self) -> None:
        self._table.config.check_writable(self._table.storage.uri)

    def _calls(self) -> Calls:
        return {
            Service.COMPACTION: lambda: _did_work(self.compact(only_if_due=True)),
            Service.LOG_COMPACTION: lambda: _did_work(self.log_compact()),
            Service.CLUSTERING: lambda: _did_work(self.cluster()),
            Service.CLEAN: lambda: _did_work(self.clean()),
            Service.ARCHIVE: lambda: _did_work(self.archive()),
        }


def _did_work(result: Rewritten | Sequence[CleanResult] | ArchiveResult | None) -> bool:
    match result:
        case Rewritten():
            return result.is_executed_here and not result.is_cancelled
        case ArchiveResult():
            return bool(result.archived or result.deleted_orphans)
        case _:
            return bool(result)


def _columns(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
