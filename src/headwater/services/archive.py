"""Archiving: keeping the active timeline short.

When more than `hoodie.keep.max.commits` commits are on the active timeline, the oldest instants of
any action move to the archived one until `hoodie.keep.min.commits` commits are left. What moves is
a prefix of the timeline by requested time: other engines take an instant that is older than the
first active one for completed, and one in a gap for failed. So the first instant that must stay
ends it. These stay (INV-37):

- a pending instant, and whatever completed after the first pending one was requested: the conflict
  check of that one may still ask for it;
- the last commit before the first pending instant: to other engines that list files, what is older
  than the first commit of the timeline is completed, and they would show what is being written
  (N-190);
- the last instant to complete: readers take its completion time for the present (N-13);
- an instant with a savepoint, and whatever completed after it: a restore takes that back;
- an aborted instant with a `.cancel` entry: its abort is not finished;
- the clean that says how far back the table can be read;
- a replace commit as long as a file of what it replaced is there: only the commit hides it;
- a rollback as long as a file of what it rolled back is there;
- what a clean by hours has to count, and what a pending index build still has to catch up.

Files of a rolled back instant that came into being after its rollback are deleted here: nothing
lists them, and without the rollback on the active timeline other engines would show them.

1. Choose, without the lock; look at the files that speak against.
2. In a transaction choose again, at most what was chosen before; write the archived timeline. From
   here on these instants count as archived: no savepoint is made of one.
3. Delete from the active timeline, oldest first. An aborted instant has no row in the archived one;
   its markers, heartbeat and attempts go before it does (INV-38).
4. Merge files of the archived timeline.

Any number of processes may archive at once. What a crash leaves behind is listed in
`kernel.timeline.history.write` and `.compact`; the next archival repairs all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from headwater.config.archive import ArchiveConfig
from headwater.config.clean import CleanConfig, CleanPolicy
from headwater.context import TableContext
from headwater.format.timeline.records import decode_record
from headwater.kernel.timeline.active import Timeline, instant_path
from headwater.kernel.timeline.history.compact import compact_history
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.history.write import (
    check_archivable,
    delete_archived,
    load_cancelled_among,
)
from headwater.kernel.txn.events import Archived
from headwater.kernel.txn.leftovers import forget_instant
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.transaction import Decision
from headwater.kernel.view.commits import CommitReader
from headwater.kernel.view.file_index import ListingFileIndex
from headwater.kernel.view.retention import completed_commits, earliest_to_retain, load_floors
from headwater.metadata.services import unfolded_since
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import IndexPlan
from headwater.model.service_metadata import RollbackMetadata

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the timeline alone does not tell about where archival has to end."""

    earliest_retained: InstantTime | None = None
    """The first instant by requested time that cleaning has to count; None: it says nothing."""
    indexed_up_to: InstantTime | None = None
    """Up to where pending index builds have read the table; None: there is none."""
    staying: frozenset[InstantTime] = frozenset()
    """Instants that stay for reasons of their own."""
    unfolded_since: InstantTime | None = None
    """The completion time of the first instant whose entries lie in logs of the metadata table: as
    long as they do, the timeline has to say that they count. None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveResult:
    """What left the active timeline, oldest first."""

    archived: tuple[Instant, ...]
    deleted_orphans: tuple[str, ...]
    """Files of rolled back instants that were found, relative to the table's base."""


def plan_archive(
    timeline: Timeline, bounds: Bounds, cancelled: Collection[InstantTime], config: ArchiveConfig
) -> list[Instant]:
    """Return the instants to archive, oldest first: a prefix of the timeline."""
    commits = sorted(completed_commits(timeline))
    if len(commits) <= config.commits_max:
        return []
    first_to_keep = commits[len(commits) - config.commits_min].requested_time
    anchor = _last_before_pending(commits, timeline)
    chosen = []
    for instant in timeline.instants:
        if instant.requested_time >= first_to_keep:
            break
        reason = _reason_to_stay(instant, timeline, bounds, cancelled)
        if instant == anchor:
            reason = f"other engines would take {timeline.pending[0]} for completed without it"
        if reason is not None:
            log.info("archival ends before %s: %s", instant, reason)
            break
        chosen.append(instant)
    return chosen


def _last_before_pending(commits: Iterable[Instant], timeline: Timeline) -> Instant | None:
    if not timeline.pending:
        return None
    first = timeline.pending[0].requested_time
    return max((commit for commit in commits if commit.requested_time < first), default=None)


def _reason_to_stay(
    instant: Instant, timeline: Timeline, bounds: Bounds, cancelled: Collection[InstantTime]
) -> str | None:
    time, done = instant.requested_time, instant.completion_time
    if instant.is_pending:
        return "it is pending"
    if time in cancelled:
        return "its abort is not finished"
    if time in bounds.staying:
        return "files in storage, table config or time travel depend on it"
    if bounds.earliest_retained is not None and time >= bounds.earliest_retained:
        return "cleaning has to count it"
    if done is None:
        return None
    if timeline.pending and done > timeline.pending[0].requested_time:
        return f"{timeline.pending[0]} may have been planned before it completed"
    if done == timeline.completed[-1].completion_time:
        return "it was the last to complete"
    if bounds.indexed_up_to is not None and done > bounds.indexed_up_to:
        return "an index build has to catch up with it"
    if bounds.unfolded_since is not None and done >= bounds.unfolded_since:
        return "the metadata table is not compacted yet up to it"
    for point in timeline.savepoints:
        saved = timeline.find(point.requested_time)
        if time == point.requested_time or (
            saved is not None and done > (saved.completion_time or time)
        ):
            return f"a restore to savepoint {point.requested_time} needs it"
    return None


@dataclass(frozen=True, slots=True)
class ArchiveOldest:
    """Write instants to the archived timeline: those that may still go, of those that were chosen.

    Chosen again on the timeline of the moment, so that a savepoint that was made since is respected
    (N-27). `allowed` are those whose files were looked at before.

    What a crash leaves behind is listed in `kernel.timeline.history.write`: the instants are on
    both timelines, and the next archival takes them off the active one.
    """

    allowed: frozenset[Instant]
    bounds: Bounds
    config: ArchiveConfig

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(cancels=True)

    def decide(self, prefix: Prefix) -> Decision[tuple[Instant, ...]]:
        now = plan_archive(prefix.timeline, self.bounds, prefix.cancelled, self.config)
        chosen = tuple(takewhile(self.allowed.__contains__, now))
        check_archivable(prefix.timeline, chosen, prefix.cancelled)
        completed = tuple(instant for instant in chosen if instant.is_completed)
        return Decision((Archived(completed),) if completed else (), chosen)


def run_archive(
    table: TableContext, config: ArchiveConfig, clean_config: CleanConfig
) -> ArchiveResult:
    """Move the oldest instants to the archived timeline.

    Raises:
        ConflictError: the lock was not to be had in time, or other processes kept changing the
            archived timeline.
        CorruptTableError: the timeline or a record on it breaks the format.
    """
    storage, layout = table.storage, table.layout
    timeline = table.load_timeline()
    bounds = _load_bounds(table, timeline, clean_config)
    wanted = plan_archive(timeline, bounds, _cancelled(table, timeline), config)
    held, orphans = _load_held(table, timeline, wanted)
    for path in orphans:
        storage.delete(path)
    allowed = set(_before_first(wanted, held))
    if not allowed:
        return ArchiveResult(archived=(), deleted_orphans=tuple(orphans))
    chosen = table.txn.run(ArchiveOldest(frozenset(allowed), bounds, config)).result
    for instant in chosen:
        if instant.state is State.ABORTED:
            forget_instant(storage, instant.requested_time)
    # Loaded anew: only what the newest manifest shows counts as archived.
    delete_archived(storage, layout, chosen, HistoryTimeline(storage, layout.history))
    compact_history(storage, layout.history, batch_size=config.merge_batch_size)
    return ArchiveResult(archived=chosen, deleted_orphans=tuple(orphans))


def load_archivable(
    table: TableContext, timeline: Timeline, config: ArchiveConfig, clean_config: CleanConfig
) -> list[Instant]:
    """Return what an archival would take, oldest first, unless files in storage speak against it.

    Raises:
        CorruptTableError: the timeline or a record on it breaks the format.
    """
    if len(completed_commits(timeline)) <= config.commits_max:
        return []
    bounds = _load_bounds(table, timeline, clean_config)
    return plan_archive(timeline, bounds, _cancelled(table, timeline), config)


def _cancelled(table: TableContext, timeline: Timeline) -> frozenset[InstantTime]:
    return load_cancelled_among(table.storage, timeline.instants)


def _before_first(chosen: list[Instant], held: Collection[InstantTime]) -> Iterator[Instant]:
    for instant in chosen:
        if instant.requested_time in held:
            log.info("archival ends before %s: files in storage depend on it", instant)
            return
        yield instant


def _load_bounds(table: TableContext, timeline: Timeline, clean: CleanConfig) -> Bounds:
    commits = table.commit_reader()
    floors = load_floors(timeline, commits)
    staying = {max(floors, key=lambda clean: (floors[clean], clean))} if floors else set()
    retained = None
    if clean.policy is CleanPolicy.KEEP_LATEST_BY_HOURS:
        retained = earliest_to_retain(timeline, clean, table.now())
    indexings = [i for i in timeline.pending if i.action is Action.INDEXING]
    config = table.load_config()
    if config.metadata_partitions_inflight:
        # Table config is not up to a build that has completed; its instant tells what to do.
        staying |= {i.requested_time for i in timeline.completed if i.action is Action.INDEXING}
    return Bounds(
        earliest_retained=retained.requested_time if retained is not None else None,
        indexed_up_to=min(_indexed_up_to(table, commits, indexings), default=None),
        staying=frozenset(staying),
        unfolded_since=unfolded_since(table.storage, config, timeline),
    )


def _indexed_up_to(
    table: TableContext, commits: CommitReader, indexings: Iterable[Instant]
) -> Iterator[InstantTime]:
    for indexing in indexings:
        (data,) = commits.load_contents([indexing], State.REQUESTED)
        path = instant_path(table.layout.timeline, indexing, State.REQUESTED)
        for partition in decode_record(IndexPlan, data, path=path).index_partition_infos or ():
            yield InstantTime(partition.index_upto_instant or "")


def _load_held(
    table: TableContext, timeline: Timeline, chosen: list[Instant]
) -> tuple[set[InstantTime], list[str]]:
    """Return the instants that files in storage depend on, and files that nothing depends on."""
    commits = table.commit_reader()
    completed = [i for i in chosen if i.is_completed]
    replaces = [i for i in completed if i.action.completed_name is Action.REPLACE_COMMIT]
    replaced = {commit.instant: set(commit.replaced_groups()) for commit in commits.load(replaces)}
    rolled_back = _load_rolled_back(table, timeline, commits, completed)
    partitions = {group.partition for groups in replaced.values() for group in groups}
    partitions |= {partition for _, names in rolled_back.values() for partition in names}
    if not partitions:
        return set(), []
    files = ListingFileIndex(table.storage).list_data_files(partitions)
    held = {
        instant.requested_time
        for instant, groups in replaced.items()
        # A group whose id is used again has younger files too.
        if any(f.group in groups and f.instant_time < instant.requested_time for f in files)
    }
    gone = {time for times, _ in rolled_back.values() for time in times}
    return held, [file.path for file in files if file.instant_time in gone]


def _load_rolled_back(
    table: TableContext, timeline: Timeline, commits: CommitReader, chosen: list[Instant]
) -> dict[Instant, tuple[set[InstantTime], set[str]]]:
    """Return what each rollback took back for good, and the partitions in which it did.

    An instant that is on a timeline in spite of a rollback is a plan that was executed again.
    """
    rollbacks = [instant for instant in chosen if instant.action is Action.ROLLBACK]
    found = {}
    for rollback, data in zip(rollbacks, commits.load_contents(rollbacks), strict=True):
        path = instant_path(table.layout.timeline, rollback)
        record = decode_record(RollbackMetadata, data, path=path)
        times = {InstantTime(time) for time in record.commits_rollback}
        times -= {time for time in times if timeline.find(time) is not None}
        times -= commits.history.find_all(times).keys()
        found[rollback] = (times, set(record.partition_metadata))
    return found
