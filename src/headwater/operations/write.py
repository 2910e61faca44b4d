"""One write from its rows to its commit, the same for every operation and engine.

1. transaction: request the instant and go inflight; the heartbeat begins;
2. load the view: the snapshot that rows are routed and merged against;
3. plan: the columns after this write, and which slice each row may go to;
4. tasks: rows to data files, each announced by a marker;
5. delete files that tasks left behind but no stat lists, and cancel the plans in the way of the
   write that give way to writes, if there are any: one more transaction then;
6. transaction: the completed file, with all stats, makes the write visible as one;
7. forget markers and heartbeat.

`run_write` does all of it. `start_write` does 1 to 3 and gives a `RunningWrite`, whose `commit`
does 5 to 7, for an engine that runs the tasks by itself. Such a write may even go on in another
process: `hand_over` makes a value of it, and `resume_write` a running write of that.

A crash before 6 leaves a pending instant whose files nobody sees; others roll it back. A failure is
rolled back by the writer itself, at once. After an unknown outcome of 6 nothing is touched: the
timeline will tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import cast

import pyarrow as pa

from headwater.arrow.keys import KeyGenerator
from headwater.arrow.merge_rule import check_meaningful, merge_rule_of
from headwater.config.write import ConcurrencyMode, FailedWritesPolicy
from headwater.context import TableContext
from headwater.engine.engine import Rows
from headwater.engine.inline import InlineRows
from headwater.errors import CommitUnknownError, ConflictError, ErrorKind, check
from headwater.format.timeline.records import encode_record
from headwater.kernel.journal.storage import one_moment
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.cancel_overlapped import cancel_overlapped
from headwater.kernel.txn.changes import change_of, load_changes
from headwater.kernel.txn.conflicts import ConflictCheck, Snapshot
from headwater.kernel.txn.key_conflicts import KeyCheck
from headwater.kernel.txn.rollback import rollback_own_write
from headwater.kernel.txn.writes import (
    CommittedWrite,
    InflightWrite,
    resume_inflight_write,
    start_inflight_write,
)
from headwater.kernel.view.commits import CompletedCommit as Completed
from headwater.markers.batches import load_every_marker
from headwater.markers.running import RunningMarkerService
from headwater.metadata.table_change import Inputs, LateInputs
from headwater.metadata.update import MetadataUpdate
from headwater.metadata.view import IndexedView, load_view, view_of
from headwater.metadata.writer import MetadataWriter, SeenTable
from headwater.model.commit import Commit
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata, WriteStat
from headwater.model.files import BaseFile
from headwater.model.instant import Action, Instant, State
from headwater.observed import (
    meter_redone,
    note_attempt,
    observed_commit,
    observed_stage,
    observed_write,
)
from headwater.operations.committing import PlannedWrite, commit_metadata, commit_of
from headwater.operations.concurrency import check_partial_write
from headwater.operations.inferred_index import with_inferred_index
from headwater.operations.key_comparison import compare_keys
from headwater.operations.losses import Losses
from headwater.operations.plan import Announcing, Operation, WritePlan, action_of
from headwater.operations.preparing import (
    HeldRows,
    plan_detection_of,
    prepare_write,
    replaceable_groups,
)
from headwater.operations.redo import Redo, part_to_redo, split_stats
from headwater.operations.request import (
    RowsOfTable,
    WriteRequest,
    check_features,
    check_request,
)
from headwater.operations.routing.route import group_route
from headwater.operations.tasks.execute import execute_write
from headwater.operations.view_ahead import ViewAhead
from headwater.operations.write_markers import WriteMarkers, start_service
from headwater.operations.writers_elsewhere import check_nobody_else_writes
from headwater.seams.storage import both_at_once

_COMPARED_BEFORE_LOCK = 2
"""How often keys that others brought meanwhile are compared before the lock is kept for it."""


def run_write(
    table: TableContext,
    request: WriteRequest,
    rows: Rows | RowsOfTable | None,
    losses: Losses | None = None,
) -> Commit:
    """Write and commit as one instant, whose lost parts are written again as `losses` allow.

    Without `losses` the first is the last. After many the lock is held from beginning to end.

    Raises:
        InvalidInputError: rows, columns or keys do not fit the table; nothing was committed.
        UnsupportedError: the table or the operation needs what this release does not have.
        ConflictError: another writer is at work, or won.
        FencedError: this process stalled and was taken over; nothing was committed.
        CommitUnknownError: storage did not say whether the commit landed.
        CorruptTableError, StorageError: a file is damaged, or storage failed.
    """
    losses = losses or Losses(table.write_config, losses_max=0)
    given = None if isinstance(rows, RowsOfTable) else rows
    holds_lock = losses.holds_lock
    with (
        observed_write(table, request.operation),
        table.txn.hold() if holds_lock else nullcontext(),
    ):
        # Who holds the table lock cannot lose, so it must not stop for others who wait for it.
        running = start_write(
            table,
            request,
            detects=not holds_lock,
            redoes=losses.allows_redo,
            host=None if given is None else given.driver_host,
            held=None if given is None else given.held(),
        )
        stats: list[WriteStat] = []
        try:
            note_attempt(running.attempt)
            made = rows.make(running.view) if isinstance(rows, RowsOfTable) else rows
            if made is not None:
                stats = running.run_tasks(made)
            # After a loss, rows that were made of the table's are made anew, by another write.
            return _commit_or_redo(table, running, given, stats, losses)
        except CommitUnknownError:
            raise
        except (Exception, KeyboardInterrupt, SystemExit):
            losses.note_discarded(stats)
            meter_redone(table, stats)
            running.abandon()
            raise


def _commit_or_redo(
    table: TableContext,
    running: RunningWrite,
    rows: Rows | None,
    stats: list[WriteStat],
    losses: Losses,
) -> Commit:
    """Commit; after a loss write the lost part again and commit that, until it stands.

    Raises:
        ConflictError: it lost too often, or all of it has to begin anew.
        Others: see `run_write`.
    """
    lost: ConflictError | None = None
    while True:
        try:
            with table.txn.hold() if losses.holds_lock else nullcontext():
                if lost is not None and lost.kind is not ErrorKind.LOCK_TIMEOUT:
                    redone = None if rows is None else running.redo(rows, stats)
                    if redone is None:
                        raise lost
                    losses.note_discarded(redone.discarded)
                    meter_redone(table, redone.discarded)
                    stats[:] = redone.stats
                done = running.commit(stats, losses.redone.to_metadata())
                return replace(done, redone=losses.redone)
        except ConflictError as conflict:
            if conflict is lost:
                raise
            losses.note(conflict)
            lost = conflict


def start_write(
    table: TableContext,
    request: WriteRequest,
    *,
    detects: bool = True,
    redoes: bool = False,
    host: str | None = None,
    held: Sequence[pa.RecordBatch] | None = None,
) -> RunningWrite:
    """Begin a write and plan it.

    Args:
        detects: whether it stops for another write that is ahead of it.
        redoes: whether it is written again after a loss. Then logs that would be written again as
            they are count as such, and neither lose nor stop for anybody else's.
        host: where tasks reach this process for as long as they run; None if they may not.
        held: the rows, if this process has them; then only their partitions are looked at.

    Raises: see `run_write`.
    """
    with observed_stage(table, "plan"):
        return _start_write(table, request, detects, redoes, host, held)


def _start_write(
    table: TableContext,
    request: WriteRequest,
    detects: bool,
    redoes: bool,
    host: str | None,
    held: Sequence[pa.RecordBatch] | None,
) -> RunningWrite:
    table.config.check_writable(table.storage.uri)
    check_features(table.config)
    if request.operation.is_replacing:
        check_nobody_else_writes(table)
    if request.columns is not None:
        table = with_inferred_index(table)
    config, components = table.config, table.components
    check_request(config, request, table.file_config)
    rule = merge_rule_of(config, custom=table.merge_function)
    check_meaningful(rule)
    if request.is_partial:
        check_partial_write(config, rule, table.write_config)
    ahead = ViewAhead(table)
    action = action_of(config, request.operation)
    inflight = start_inflight_write(
        components,
        table.txn,
        action,
        table.claim(),
        _inflight_content(action, request.operation),
        is_single_writer=table.write_config.concurrency_mode is ConcurrencyMode.SINGLE_WRITER,
        on_dead=ahead.roll_back,
        beside=ahead.load,
    )
    service: RunningMarkerService | None = None
    try:
        note_attempt(inflight.attempt)
        if table.write_config.failed_writes_policy is FailedWritesPolicy.EAGER:
            ahead.roll_back_failed(inflight.instant_time)
        view = ahead.view or view_of(table)
        plan, rows, touched = prepare_write(table, request, inflight, view, held)
        # Rows that were made of the table's must not be appended to what they have not seen.
        is_rebased = redoes and plan.appends_blindly and not request.reads_table
        detects = detects and not is_rebased
        detection = plan_detection_of(table, plan, inflight.attempt, view) if detects else None
        replaceable = replaceable_groups(request, view, touched)
        service = start_service(
            components,
            plan.instant_time,
            table.marker_config,
            detection,
            table.detection_config,
            host=host,
        )
        if service is None and detection is not None:
            detection = detection.without_service()
        address = None if service is None else service.address
        plan = replace(plan, announcing=Announcing(marker_service=address, detection=detection))
        planned = PlannedWrite(
            request=request,
            plan=plan,
            attempt=inflight.attempt,
            replaceable=replaceable,
            snapshot=Snapshot.of(view.timeline),
            table_schema=view.avro_schema(),
            is_rebased=is_rebased,
            is_by_values=rule.merges_by_ordering
            and not rule.combines_records
            and request.operation is not Operation.DELETE,
        )
        markers = WriteMarkers(
            components.storage,
            inflight.instant_time,
            has_detection=detection is not None,
            service=service,
        )
        return RunningWrite(table, planned, inflight, markers, rows, view)
    except (Exception, KeyboardInterrupt, SystemExit):
        if service is not None:
            service.stop(waits=False)
        _give_up(table, inflight)
        raise


def resume_write(table: TableContext, planned: PlannedWrite) -> RunningWrite:
    """Go on with a write that another process handed over.

    Raises:
        FencedError: the write was taken over meanwhile; nothing was written.
    """
    inflight = resume_inflight_write(table.components, table.txn, planned.attempt)
    markers = WriteMarkers(
        table.components.storage,
        inflight.instant_time,
        has_detection=planned.plan.announcing.detection is not None,
    )
    return RunningWrite(table, planned, inflight, markers)


def abandon_write(table: TableContext, attempt: Attempt) -> None:
    """Give up a write that was handed over, of which nothing but its attempt is known.

    Raises:
        FencedError: the write has ended already, or was taken over.
    """
    _give_up(table, resume_inflight_write(table.components, table.txn, attempt))


class RunningWrite:
    """A write between its start and its end: commit it, abandon it or hand it over, once."""

    def __init__(
        self,
        table: TableContext,
        planned: PlannedWrite,
        inflight: InflightWrite,
        markers: WriteMarkers,
        held: HeldRows | None = None,
        view: IndexedView | None = None,
    ) -> None:
        self._table = table
        self._planned = planned
        self._inflight = inflight
        self._markers = markers
        self._held = held
        self._view = view
        self._checked: ConflictCheck | None = None
        self._update: MetadataUpdate | None = None
        self._ahead: MetadataUpdate | None = None

    @property
    def plan(self) -> WritePlan:
        return self._planned.plan

    @property
    def attempt(self) -> Attempt:
        return self._planned.attempt

    @property
    def view(self) -> IndexedView:
        """The snapshot that the write was planned on, in the process that started it."""
        check(self._view is not None, "A write that was handed over has no view")
        return cast(IndexedView, self._view)

    def run_tasks(self, rows: Rows) -> list[WriteStat]:
        """Bring rows to tasks that write them; return what they wrote."""
        keys, located = KeyGenerator.from_config(self._table.config), None
        if isinstance(rows, InlineRows) and self._held is not None:
            rows, located = rows.holding(self._held.batches), self._held.located
        with observed_stage(self._table, "tasks", self.attempt):
            route = group_route(self.plan, keys, located)
            run = partial(rows.run, route, partial(execute_write, self.plan))
            catch_up = self._table.txn.catch_up
            if isinstance(rows, InlineRows):
                return both_at_once(self._table.storage, catch_up, run)[1]
            catch_up()  # Jobs of Spark belong to the thread that was asked for them.
            return run()

    def commit(
        self, stats: list[WriteStat], extra_metadata: Mapping[str, str] | None = None
    ) -> Commit:
        """Make what `stats` list visible, as one; files of tasks that they lack are deleted.

        Raises: see `run_write`.
        """
        with observed_commit(self._table, self.plan.operation, self.attempt, stats):
            return self._commit(stats, extra_metadata or {})

    def _commit(self, stats: list[WriteStat], extra_metadata: Mapping[str, str]) -> Commit:
        if self.plan.operation.is_replacing:
            check_nobody_else_writes(self._table)  # Who began after us does not notice either.
        metadata = commit_metadata(self._planned, stats, extra_metadata)
        self._settle(metadata, {stat.path for stat in stats if stat.path is not None})
        try:
            done = self._complete_with(stats, extra_metadata)
        except CommitUnknownError:
            self._markers.close()
            raise
        self._markers.close()
        seen = None if self._view is None else self._view.metadata_timeline
        self._table.seen_metadata.note(seen)
        return commit_of(done, stats)

    def _settle(self, metadata: CommitMetadata, listed: Collection[str]) -> None:
        """Delete the files of tasks that are not listed; tell the indexes meanwhile if it pays."""
        storage = self._table.storage
        settle = partial(self._markers.settle, listed)
        if self._planned.request.columns is None:
            return
        if storage.is_distant and self._seen_table() is not None:
            update = self._index_update(metadata)
            both_at_once(storage, settle, update.prepare_ahead)
            self._ahead = update
        else:
            settle()

    def _seen_table(self) -> SeenTable | None:
        """What the view of this write says of the table, for a first try to tell its indexes."""
        config = None if self._view is None else self._view.config_of_now
        return None if config is None else SeenTable(self.view.timeline, config)

    def redo(self, rows: Rows | None, stats: Sequence[WriteStat]) -> Redo | None:
        """Write again what was lost in, on the table as it is now; see `redo`.

        Without `rows`, which a write that was handed over lacks, it can but take on new columns.
        Returns None if the write has to begin anew, under another instant.

        Raises: see `run_write`.
        """
        if self._checked is None:
            return None
        table, storage, check = self._table, self._table.components.storage, self._checked
        view = view_of(table)
        unread, vanished = check.unread(view.timeline), check.snapshot.vanished(view.timeline)
        read = load_changes(storage, table.layout, unread, vanished)
        others = check.others(view.timeline, read)
        _, key_conflicts = compare_keys(storage, check, others)
        part = part_to_redo(self.plan, check, others, key_conflicts)
        if part is None:
            return None
        request, held = self._planned.request, None if rows is None else rows.held()
        plan, self._held, _ = prepare_write(table, request, self._inflight, view, held)
        # Markers of their own: the service takes none any more, and there is nothing to detect.
        self._planned = replace(
            self._planned,
            plan=replace(plan, redo=part, is_handed_over=self.plan.is_handed_over),
            snapshot=Snapshot.of(view.timeline),
            table_schema=view.avro_schema(),
        )
        kept, discarded = split_stats(part, plan, stats)
        written = [] if rows is None or part.is_empty else self.run_tasks(rows)
        return Redo([*kept, *written], discarded)

    def _complete_with(
        self, stats: Sequence[WriteStat], extra_metadata: Mapping[str, str]
    ) -> CommittedWrite:
        """Commit; a write that was handed over takes on columns that others brought meanwhile.

        It ends: each turn but the last one finds that somebody has changed the columns.
        """
        while True:
            try:
                return self._complete(commit_metadata(self._planned, stats, extra_metadata))
            except ConflictError as conflict:
                if conflict.kind is not ErrorKind.WRITE_CONFLICT or not self.plan.is_handed_over:
                    raise
                if self.redo(None, stats) is None:
                    raise

    def _complete(self, metadata: CommitMetadata) -> CommittedWrite:
        """Commit, once all new keys were compared with those that others brought meanwhile."""
        tried = 0
        while True:
            tried += 1
            with self._table.txn.hold() if tried > _COMPARED_BEFORE_LOCK else nullcontext():
                check = self._conflict_check(metadata)
                update, self._ahead = self._ahead or self._index_update(metadata), None
                try:
                    with self._precondition_held():
                        return self._inflight.commit(
                            encode_record(metadata), check, update, self._markers.forget
                        )
                except ConflictError as conflict:
                    if conflict.kind is not ErrorKind.KEYS_NOT_COMPARED:
                        raise

    @contextmanager
    def _precondition_held(self) -> Iterator[None]:
        """Keep true what the request depends on for as long as the block runs."""
        precondition = self._planned.request.precondition
        if precondition is None:
            yield
            return
        with self._table.txn.hold():
            precondition()
            yield

    def _index_update(self, metadata: CommitMetadata) -> MetadataUpdate:
        action = action_of(self._table.config, self.plan.operation)
        written = Completed(Instant(self.plan.instant_time, action, State.INFLIGHT), metadata)
        update = MetadataWriter(self._table).of_commit(
            self._planned.attempt,
            action,
            metadata,
            LateInputs(partial(self._inputs, written)),
            seen=self._seen_table() if self._update is None else None,
        )
        if self._update is not None:
            update.take_over(self._update)
        self._update = update
        return update

    def _inputs(self, written: Completed) -> Inputs:
        """Return the file groups that the write rewrote or replaced, with what they held."""
        groups = {file.group for file in written.files if isinstance(file, BaseFile)}
        planned = (
            one for by_number in self.plan.groups.slices.values() for one in by_number.values()
        )
        found = {one.group: tuple(one.files()) for one in planned if one.group in groups}
        replaced = set(written.replaced_groups()) - found.keys()
        if replaced:
            # A replaced group has not changed since the write was planned: that is a conflict.
            view = load_view(self._table.components.storage, self._table.config)
            partitions = {group.partition for group in replaced}
            slices = (one for one in view.slices(partitions) if one.group in replaced)
            found |= {one.group: tuple(one.files()) for one in slices}
        return found

    def _conflict_check(self, metadata: CommitMetadata) -> ConflictCheck:
        """Say what the write did, and read what others did before the lock is taken.

        All markers of the write are there by now. So a plan that is in its way and gives way to
        writes either is found and cancelled here, or finds the markers before it completes (H-09).
        Where there should be no others, it is not worth a look.
        """
        storage, config = self._table.components.storage, self._table.config
        layout = table_layout(config)
        instant = Instant(
            self.plan.instant_time,
            action_of(config, self.plan.operation),
            State.INFLIGHT,
        )
        mine = change_of(Completed(instant, metadata))
        check = self._checked = ConflictCheck(
            mine=mine,
            snapshot=self._planned.snapshot,
            is_bucketed=self.plan.is_bucketed,
            # Rows that were made of older ones must not hide what came in between.
            is_non_blocking=self.plan.is_non_blocking and not self._planned.request.reads_table,
            is_rebased=self._planned.is_rebased,
            is_by_values=self._planned.is_by_values,
            planned_schema=self._planned.table_schema or "",
            starts_groups=not mine.touches.keys() <= self.plan.known_groups(),
            keys=None if (scope := self.plan.key_scope) is None else KeyCheck(scope),
        )
        if self._table.write_config.concurrency_mode is ConcurrencyMode.SINGLE_WRITER:
            return check
        with one_moment(storage, is_for_decision=True):
            others = check.unread(load_active(storage, layout.timeline))
            done = [instant for instant in others if instant.is_completed]
            check = self._checked = replace(check, known=load_changes(storage, layout, done))
        completed = list(check.known.values())
        plans = [instant for instant in others if instant.is_pending]
        check = self._checked = cancel_overlapped(self._inflight, storage, layout, check, plans)
        lost = check.find(completed)
        if lost is not None:
            raise lost  # The lock would not change it.
        check, lost_keys = compare_keys(storage, check, completed)
        self._checked = check
        if lost_keys:
            raise lost_keys[0]
        return check

    def abandon(self) -> None:
        """Give up: nothing becomes visible, and what was written is taken away again.

        What cannot be taken away now is left for others to roll back, at once if they like.
        """
        self._markers.close()
        _give_up(self._table, self._inflight)

    def hand_over(self) -> PlannedWrite:
        """Let another process go on with this write; see `InflightWrite.hand_over`."""
        self._inflight.hand_over()
        return replace(self._planned, plan=replace(self.plan, is_handed_over=True))


def _inflight_content(action: Action, operation: Operation) -> bytes:
    """Return what a restore of Hudi's reads when it takes a pending write back (N-188)."""
    of_action = ReplaceCommitMetadata if action is Action.REPLACE_COMMIT else CommitMetadata
    return encode_record(of_action(operation_type=operation))


def _give_up(table: TableContext, inflight: InflightWrite) -> None:
    layout = table_layout(table.config)
    rollback_own_write(table.components, layout, load_every_marker, inflight)
