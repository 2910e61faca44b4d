"""Upkeep of the metadata table: its logs are folded, old files deleted, its timeline kept short.

Whoever commits to the data table calls `run_metadata_services` afterwards. It costs one listing of
the metadata table's timeline until there is something to do:

1. a compaction that was planned is executed, unless somebody is at it; otherwise one is planned
   once there are almost as many delta commits as Hudi's own jobs compact after
   (`hoodie.metadata.compact.max.delta.commits`, see `commits_ahead_of_hudi`), under the table
   lock, on the timelines as they are then. `metadata.compaction` says under which time, and what
   it waits for;
2. file groups are folded one by one, each into a new base file, and these are written together;
   the compaction completes;
3. files that only readers from before the last `SLICES_KEPT` compactions can need are deleted;
4. instants whose files are gone move to the metadata table's archived timeline.

Plan, attempts and heartbeats lie in the metadata table's own `.hoodie`; the lock is the data
table's, and there is no other. What a crash leaves behind, by the last write that landed:

    after                  who repairs
    attempt of the plan    nobody needs to: the time is used up; the next commit gives a later one
    request                the next upkeep executes the plan, once the attempt's heartbeat lapsed
    inflight, base files   the same; it deletes the base files of attempts before its own first
    the completed file     nothing to repair; the next compaction deletes and archives for two
    some deletions         the next compaction deletes the rest
    archived timeline      as in `kernel.timeline.history.write`

Nothing here is needed for a commit to count, so failures are logged and the commit stands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from headwater.config.table import TableConfig
from headwater.context import TableContext
from headwater.errors import ConflictError, ErrorKind, HeadwaterError
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.journal.storage import one_moment
from headwater.kernel.layout import METADATA, TableLayout
from headwater.kernel.table_config import load_table_config, table_layout
from headwater.kernel.timeline.active import Timeline, instant_path, load_active
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.timeline.history.compact import compact_history
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.history.write import archive_instants
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.events import AttemptStarted, Requested
from headwater.kernel.txn.fenced import transaction_on
from headwater.kernel.txn.guard import Executed, run_guarded, run_started
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.index_plan import pending_indexings
from headwater.kernel.txn.leftovers import forget_instant
from headwater.kernel.txn.metadata_commit import delete_metadata_logs
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.steps import Claim, Started
from headwater.kernel.txn.transaction import CheckMode, Decision, Transaction
from headwater.metadata.compaction import (
    commits_ahead_of_hudi,
    commits_since_compaction,
    compaction_time,
    fold,
    held_back_by,
    input_names,
    obsolete_files,
    plan_metadata_compaction,
    unaccounted,
)
from headwater.metadata.earlier_plans import wipe_earlier_plans
from headwater.metadata.partition_files import COMPACT, encode_metadata_commit, is_own
from headwater.metadata.table import (
    METADATA_TABLE_HISTORY,
    METADATA_TABLE_TIMELINE,
    SLICES_KEPT,
    MetadataTable,
    list_own_files,
    load_metadata_table,
)
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import DataFile
from headwater.model.instant import Action, Instant, InstantTime, State, instant_time_at
from headwater.model.plans import CompactionPlan
from headwater.seams.batched_puts import BatchedPuts
from headwater.seams.components import Components
from headwater.seams.storage import Storage
from headwater.seams.sub_storage import SubStorage

log = logging.getLogger(__name__)

COMMITS_KEPT = 30
"""How many delta commits stay on the metadata table's timeline at least. As many as data tables
keep by default, so that each commit of the data table still finds its counterpart there."""
ARCHIVED_AT_ONCE_MIN = 10
"""Archiving writes several files, so it waits until it is worth it."""

METADATA_LAYOUT = TableLayout(timeline=METADATA_TABLE_TIMELINE, history=METADATA_TABLE_HISTORY)

_LEFT_TO_ITS_MAKER_MS = 30_000
_OVERDUE_TIMES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataServices:
    """The metadata table of one data table, as one process keeps it up."""

    components: Components
    """The data table's: its storage, and the one lock that there is."""
    config: TableConfig
    commits: int
    """After how many delta commits logs are folded."""
    claim: Callable[[], Claim]
    lock_timeout_ms: int = 60_000
    check_mode: CheckMode | None = None

    @property
    def own(self) -> Components:
        """The same process at work inside the metadata table."""
        return replace(self.components, storage=SubStorage(self.components.storage, METADATA))

    @property
    def layout(self) -> TableLayout:
        return replace(METADATA_LAYOUT, is_utc=self.config.is_utc)

    def transaction(self) -> Transaction:
        """Return transactions on the metadata table's timeline, one with the data table's."""
        return transaction_on(
            self.own,
            self.layout,
            lock_timeout_ms=self.lock_timeout_ms,
            check_mode=self.check_mode,
        )


def metadata_services(table: TableContext) -> MetadataServices:
    """Return how this process keeps the metadata table of a table up."""
    return MetadataServices(
        components=table.components,
        config=table.config,
        commits=commits_ahead_of_hudi(table.metadata_config.compaction_commits),
        claim=table.claim,
        lock_timeout_ms=table.lock_config.acquire_timeout_ms,
        check_mode=table.check_mode,
    )


def run_metadata_services(upkeep: MetadataServices, seen: Timeline | None = None) -> Instant | None:
    """Do what is due; return the compaction that this call completed, if it did.

    `seen` is the metadata table's timeline as it was before the one commit that this call is for.
    If nothing is due by it, nothing more is looked at: who commits meanwhile looks as well.

    Never raises for what it could not do: that is logged, and done by a later call.
    """
    if seen is not None and (
        not _is_due(upkeep, seen, commits_since=1) or _is_left_to_its_maker(upkeep, seen)
    ):
        return None
    try:
        return _run(upkeep, is_after_commit=seen is not None)
    except HeadwaterError as error:
        # Who had planned it may have archived it by now.
        is_left = isinstance(error, ConflictError) or error.kind is ErrorKind.INSTANT_NOT_FOUND
        name = upkeep.config.name
        if is_left:
            log.info("metadata table is left to others table=%s reason=%s", name, error)
        else:
            log.warning("metadata table was not kept up table=%s error=%s", name, error)
    return None


def compact_metadata_table(upkeep: MetadataServices) -> Instant | None:
    """Fold all logs that can be folded now, whether it is due or not; None if there are none.

    Raises:
        ConflictError: kind ALREADY_RUNNING, another process is at it; or the lock was not to be had
            in time.
        CorruptTableError: kind CORRUPT_METADATA_TABLE; a file is missing or damaged.
    """
    return _run(replace(upkeep, commits=0))


def _is_due(upkeep: MetadataServices, own: Timeline, commits_since: int) -> bool:
    if _pending_compactions(own):
        return True
    return commits_since_compaction(own) + commits_since >= max(upkeep.commits, 1)


def _is_left_to_its_maker(upkeep: MetadataServices, own: Timeline) -> bool:
    """Whether a compaction was planned just now: who planned it is at it.

    Every writer that commits meanwhile would otherwise ask who has claimed it, only to be refused.
    """
    now_ms, is_utc = upkeep.components.clock.now_ms(), upkeep.config.is_utc
    since = instant_time_at(now_ms - _LEFT_TO_ITS_MAKER_MS, is_utc=is_utc)
    # Of a table whose times are ahead of this clock nobody can tell; its plans are not left for so
    # long as it is.
    until = instant_time_at(now_ms + _LEFT_TO_ITS_MAKER_MS, is_utc=is_utc)
    return any(since < i.requested_time < until for i in _pending_compactions(own))


def _run(upkeep: MetadataServices, *, is_after_commit: bool = False) -> Instant | None:
    with one_moment(upkeep.components.storage, is_for_decision=True):
        own = load_active(upkeep.own.storage, upkeep.layout.timeline)
    if is_after_commit and _is_left_to_its_maker(upkeep, own):
        return None
    txn = upkeep.transaction()
    plan: Started | InstantTime | None = None
    if pending := _pending_compactions(own):
        plan = pending[0].requested_time
    elif commits_since_compaction(own) >= max(upkeep.commits, 1):
        plan = _schedule(upkeep, txn, yields=is_after_commit)
    return None if plan is None else execute_plan(upkeep, txn, plan)


def _pending_compactions(own: Timeline) -> Sequence[Instant]:
    return [instant for instant in own.pending if instant.action is Action.COMPACTION]


def execute_plan(
    upkeep: MetadataServices, txn: Transaction, plan: Started | InstantTime
) -> Instant | None:
    """Execute a compaction, and delete and archive what is not needed any more.

    Returns None if somebody else had completed it.

    Raises:
        ConflictError: kind ALREADY_RUNNING, another process is at it.
        CorruptTableError: kind CORRUPT_METADATA_TABLE; a file is missing or damaged.
    """
    work = _Fold(upkeep.own.storage, upkeep.components.storage)
    if isinstance(plan, Started):
        done = run_started(upkeep.own, txn, plan, work)
    else:
        executed = run_guarded(upkeep.own, txn, plan, upkeep.claim(), work)
        if not isinstance(executed, Executed):
            return None
        done = executed
    _tidy(upkeep)
    return done.instant


# Compaction ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestAt:
    """Request a compaction of the metadata table under a time that was chosen for it."""

    time: InstantTime
    content: bytes
    claim: Claim

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[Started]:
        attempt = self.claim.attempt(self.time, 1, Purpose.EXECUTE, prefix.now_ms)
        requested = Instant(self.time, Action.COMPACTION, State.REQUESTED)
        return Decision(
            (AttemptStarted(attempt), Requested(self.time, Action.COMPACTION, self.content)),
            Started(attempt, requested, prefix.monotonic_ms),
        )


def _schedule(
    upkeep: MetadataServices, txn: Transaction, *, yields: bool = False
) -> Started | None:
    """Plan a compaction; None if it has to wait, or there is nothing to do.

    Args:
        yields: whether to leave it to who decides something else meanwhile, unless it is overdue:
            they come to their own upkeep, and the last of them is alone.
    """
    storage = upkeep.components.storage
    tries = count()

    def plan_it() -> Started | None:
        is_disturbed = next(tries) > 0
        config = load_table_config(storage, upkeep.components.clock)
        layout = table_layout(config)
        timeline = load_active(storage, layout.timeline)
        table = load_metadata_table(storage, config, timeline)
        if _pending_compactions(table.timeline):
            return None
        behind = commits_since_compaction(table.timeline)
        if behind < max(upkeep.commits, 1):
            return None
        if yields and is_disturbed and behind < _OVERDUE_TIMES * upkeep.commits:
            return None
        time = compaction_time(timeline, table.timeline)
        if time is None:
            return None
        waits_for = load_held_back(storage, layout, timeline, table.timeline)
        if waits_for:
            log.info(
                "compaction of the metadata table waits table=%s for=%s",
                config.name,
                ",".join(waits_for),
            )
            return None
        plan = plan_metadata_compaction(
            {name: table.slices(name, below=time) for name in sorted(table.usable)}
        )
        if plan is None:
            return None
        return txn.run(RequestAt(time, encode_record(plan), upkeep.claim())).result

    # The plan is made of both timelines and of the slices of every index, at one moment: its time
    # is that of the last completion on the data table (N-38).
    return txn.undisturbed(plan_it)


def load_held_back(
    storage: Storage, layout: TableLayout, timeline: Timeline, own: Timeline
) -> tuple[InstantTime, ...]:
    """Return the instants whose end the metadata table's compaction waits for.

    `storage`, `layout` and `timeline` are the data table's. Their entries are complete and they are
    not: a process died between the two files. Rolling them back, or executing the plan, ends it.
    """
    open_ended = unaccounted(timeline, own)
    absent = [time for time in open_ended if timeline.find(time) is None]
    archived = HistoryTimeline(storage, layout.history).find_all(absent) if absent else {}
    return held_back_by(timeline, own, archived)


@dataclass(frozen=True, slots=True)
class _Fold:
    """The work of a compaction, between going inflight and completing."""

    storage: Storage
    data_storage: Storage

    def undo_before(self, attempt: Attempt) -> None:
        """Delete the base files of attempts with smaller numbers."""
        delete_metadata_logs(self.data_storage, attempt.instant, before_attempt=attempt.attempt)

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        time = attempt.instant
        operations = self._load_plan(time).operations or ()
        names = {
            partition: frozenset(self.storage.list_names(partition))
            for partition in sorted({operation.partition_path or "" for operation in operations})
        }
        stats: list[WriteStat] = []
        puts = BatchedPuts(self.storage)
        for task, operation in enumerate(operations):
            heartbeat.check()
            if not names[operation.partition_path or ""].issuperset(input_names(operation)):
                # The index was dropped since, or the table taken back to before; its logs, if it
                # has any, are the next compaction's.
                log.info("file group is not folded: its files are gone group=%s", operation.file_id)
                continue
            path, data, stat = fold(self.storage, operation, time, attempt.attempt, task)
            # A file under this name is one of the same attempt, whose reply got lost.
            puts.add(path, data)
            stats.append(stat)
        puts.flush()
        return encode_metadata_commit(stats, COMPACT)

    def _load_plan(self, time: InstantTime) -> CompactionPlan:
        requested = Instant(time, Action.COMPACTION, State.REQUESTED)
        (data,) = load_contents(self.storage, METADATA_TABLE_TIMELINE, [requested])
        path = instant_path(METADATA_TABLE_TIMELINE, requested)
        return decode_record(CompactionPlan, data, path=path)


# What is not needed any more -------------------------------------------------------------------


def _tidy(upkeep: MetadataServices) -> None:
    """Delete old files, and archive the instants that have none left."""
    storage = upkeep.components.storage
    with one_moment(storage):
        timeline = load_active(storage, table_layout(upkeep.config).timeline)
        table = load_metadata_table(storage, upkeep.config, timeline)
    files = list_own_files(storage)
    late = wipe_earlier_plans(upkeep.components, files)
    files = [file for file in files if file.path not in late]
    deleted = _delete_obsolete(upkeep, table, files)
    left = {file.instant_time for file in files if file.path not in deleted}
    _archive(upkeep, timeline, table.timeline, left)


def _delete_obsolete(
    upkeep: MetadataServices, table: MetadataTable, files: Sequence[DataFile]
) -> frozenset[str]:
    done = [i for i in table.timeline.completed if i.action.completed_name is Action.COMMIT]
    times = sorted(instant.requested_time for instant in done)
    if len(times) <= SLICES_KEPT:
        return frozenset()
    retained = times[-1 - SLICES_KEPT]
    found = obsolete_files(files, table.completion_times(files), retained)
    paths = [file.path for file in found]
    table.storage.delete_many(paths)
    return frozenset(paths)


def _archive(
    upkeep: MetadataServices, timeline: Timeline, own: Timeline, left: Iterable[InstantTime]
) -> None:
    """Archive delta commits in the order of their completion, and compactions, without files."""
    inside, layout = upkeep.own.storage, upkeep.layout
    building = [instant.requested_time for instant in pending_indexings(timeline)]
    chosen = plan_metadata_archive(own, frozenset(left), min(building, default=None))
    if len(chosen) < ARCHIVED_AT_ONCE_MIN:
        return
    archive_instants(inside, layout, chosen, have_files=False)
    for instant in chosen:
        if instant.action.completed_name is Action.COMMIT:
            forget_instant(inside, instant.requested_time)
    compact_history(inside, layout.history)


def plan_metadata_archive(
    own: Timeline, left: frozenset[InstantTime], building_since: InstantTime | None
) -> list[Instant]:
    """Return the instants of the metadata table's timeline that can be archived.

    Bootstrap instants stay, and so does whatever an index build has to ask for coverage. Delta
    commits go in the order of their completion, so that the first one that is left tells from when
    on every instant of the data table must have one.

    Args:
        left: the instants that have files in the metadata table.
        building_since: the time of the oldest pending index plan.
    """
    told = [i for i in own.completed if not is_own(i)]
    chosen: list[Instant] = []
    for instant in told[: max(len(told) - COMMITS_KEPT, 0)]:
        done = instant.completion_time or ""
        if instant.requested_time in left or (building_since and done > building_since):
            break
        chosen.append(instant)
    if not chosen:
        return []
    bound = chosen[-1].completion_time or ""
    compactions = [
        instant
        for instant in own.completed
        if instant.action.completed_name is Action.COMMIT
        and instant.requested_time not in left
        and instant.requested_time < bound
    ]
    return sorted([*chosen, *compactions])


def unfolded_since(storage: Storage, config: TableConfig, timeline: Timeline) -> InstantTime | None:
    """Return the earliest completion time of an instant whose entries lie in logs; None without.

    Archival of the data table stops there: what a log says counts only as long as the data
    table's timeline says that its instant is completed, and it should not have to ask the archived
    one for it. `storage`, `config` and `timeline` are the data table's.

    Raises:
        CorruptTableError: kind CORRUPT_METADATA_TABLE.
    """
    if not (config.metadata_partitions or config.metadata_partitions_inflight):
        return None
    table = load_metadata_table(storage, config, timeline)
    names = {*table.usable, *table.planned, *config.metadata_partitions_inflight}
    return min(
        (time for name in names for time in table.unfolded_completion_times(name)), default=None
    )
