"""How far back a table can be read, and how far back a clean shall leave it readable.

A clean deletes the files that only older views need, and says which: everything from the instant
`earliestCommitToRetain` on stays readable. A clean that keeps a number of file versions names no
such instant; it keeps the newest view there was when it was planned. Older views raise, they never
return less (INV-52), except those that a savepoint protects.

The floor is the completion time from which on views are whole. Cleaning asks the same functions for
it that readers ask, and deletes nothing that a view above it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headwater.config.clean import CleanConfig, CleanPolicy
from headwater.errors import ErrorKind, NotFoundError
from headwater.format.timeline.records import decode_record
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.view.commits import COMMIT_ACTIONS, CommitReader
from headwater.model.instant import Action, Instant, InstantTime, State, instant_time_after
from headwater.model.plans import CleanerPlan
from headwater.model.service_metadata import CleanMetadata

# A delta commit writes logs, or base files of new file groups: none supersedes what lay before.
_SUPERSEDING_ACTIONS = (Action.COMMIT, Action.REPLACE_COMMIT)

_HOUR_MS = 3_600_000


def check_readable(
    timeline: Timeline, commits: CommitReader, as_of: InstantTime, *, table: str
) -> None:
    """Check that the table can be read as of a completion time.

    Raises:
        NotFoundError: kind BEFORE_FIRST_INSTANT or OUTSIDE_RETENTION.
    """
    _check_not_before_first(timeline, commits, as_of, table)
    check_all_retained(timeline, commits, (as_of,), table=table)


def check_all_retained(
    timeline: Timeline, commits: CommitReader, times: Iterable[InstantTime], *, table: str
) -> None:
    """Check that cleaning has left what the table held at some completion times, the oldest first.

    Raises:
        NotFoundError: kind OUTSIDE_RETENTION.
    """
    changes = (
        instant.completion_time
        for instant in reversed(timeline.completed)
        if instant.action.completed_name in COMMIT_ACTIONS
    )
    newest = next(changes, None)
    floor: InstantTime | None = None
    for as_of in times:
        # From the last commit on it is what everybody reads. That commit may be older than what a
        # clean retained, if those after it were taken back.
        if newest is not None and as_of >= newest:
            return
        if _is_savepointed(timeline, as_of):
            continue
        floor = floor or load_floor(timeline, commits)
        if floor is None or as_of >= floor:
            return
        raise NotFoundError(
            f"Table {table} cannot be read as of {as_of}: cleaning deleted files that were "
            f"current then. The earliest time it can be read at is {floor}; retain more commits, "
            "or create savepoints, to read further back",
            kind=ErrorKind.OUTSIDE_RETENTION,
            table=table,
            as_of=as_of,
            earliest=floor,
        )


def _check_not_before_first(
    timeline: Timeline, commits: CommitReader, as_of: InstantTime, table: str
) -> None:
    first = _first_completion(timeline.completed)
    if first is None or as_of < first:
        archived = _first_completion(commits.history.instants())
        first = min(filter(None, (first, archived)), default=None)
    if first is None:
        raise NotFoundError(
            f"Table {table} cannot be read as of {as_of}: no commit has completed yet",
            kind=ErrorKind.BEFORE_FIRST_INSTANT,
            table=table,
            as_of=as_of,
        )
    if as_of < first:
        raise NotFoundError(
            f"Table {table} cannot be read as of {as_of}: its first commit completed at {first}. "
            "Ask for that time or a later one",
            kind=ErrorKind.BEFORE_FIRST_INSTANT,
            table=table,
            as_of=as_of,
            earliest=first,
        )


def _first_completion(instants: Iterable[Instant]) -> InstantTime | None:
    return min(
        (
            instant.completion_time
            for instant in instants
            if instant.completion_time is not None
            and instant.action.completed_name in COMMIT_ACTIONS
        ),
        default=None,
    )


def _is_savepointed(timeline: Timeline, as_of: InstantTime) -> bool:
    """Whether the newest commit as of that time is one that a savepoint protects."""
    protected = {point.requested_time for point in timeline.savepoints if point.is_completed}
    visible = [
        instant
        for instant in timeline.completed_within_open_closed(None, as_of)
        if instant.action.completed_name in COMMIT_ACTIONS
    ]
    return bool(visible) and visible[-1].requested_time in protected


def load_floor(timeline: Timeline, commits: CommitReader) -> InstantTime | None:
    """Return the earliest completion time at which cleaning leaves everything in place.

    None if nothing was ever cleaned. The plan of a pending clean counts like a completed clean, for
    it may have begun to delete.
    """
    floors = load_floors(timeline, commits)
    return max(floors.values(), default=None)


def load_floors(timeline: Timeline, commits: CommitReader) -> dict[InstantTime, InstantTime]:
    """Return the floor of each clean of the active timeline that has one, by requested time.

    If it has no clean, the last archived one counts.
    """
    cleans = [instant for instant in timeline.instants if instant.action is Action.CLEAN]
    if not cleans:
        archived = commits.history.instants()
        cleans = [instant for instant in archived if instant.action is Action.CLEAN][-1:]
    floors = {}
    for clean, (earliest, last_completed) in _load_cleans(commits, cleans):
        if earliest:
            # A clean knows what had completed before it; that alone it takes for superseded.
            floors[clean.requested_time] = retained_from(
                earliest, timeline, commits, known_at=clean.requested_time
            )
        elif last_completed is not None:
            last = timeline.find(last_completed) or commits.history.find(last_completed)
            floor = (last and last.completion_time) or clean.requested_time
            floors[clean.requested_time] = floor
    return floors


def _load_cleans(
    commits: CommitReader, cleans: Sequence[Instant]
) -> Iterator[tuple[Instant, tuple[str, InstantTime | None]]]:
    """Give each clean with what `_retained` and `_planned` say of it, those that are done first."""
    done = [clean for clean in cleans if clean.is_completed]
    pending = [clean for clean in cleans if not clean.is_completed]
    for clean, data in zip(done, commits.load_contents(done), strict=True):
        yield clean, _retained(clean, data)
    for clean, data in zip(pending, commits.load_contents(pending, State.REQUESTED), strict=True):
        yield clean, _planned(clean, data)


def _retained(clean: Instant, data: bytes) -> tuple[str, InstantTime | None]:
    """Return the earliest instant to retain, "" for none, and the last that a clean knew of.

    The latter is None for a clean that deleted nothing.
    """
    done = decode_record(CleanMetadata, data, path=str(clean))
    last = InstantTime(done.last_completed_commit_timestamp)
    return done.earliest_commit_to_retain, last if done.total_files_deleted else None


def _planned(clean: Instant, data: bytes) -> tuple[str, InstantTime | None]:
    """Return the same of a plan."""
    plan = decode_record(CleanerPlan, data, path=str(clean))
    earliest = plan.earliest_instant_to_retain
    return earliest.timestamp if earliest else "", InstantTime(plan.last_completed_commit_timestamp)


def earliest_to_retain(timeline: Timeline, config: CleanConfig, now: InstantTime) -> Instant | None:
    """Return the first instant by requested time that a clean by commits or hours retains.

    The commits that are retained are the last to *complete*, so that the table stays readable as
    of each of them, however early it was requested. What a pending write may have read is retained
    as well, as Hudi does it: the last commit before the write. None if nothing is to be cleaned.
    """
    commits = completed_commits(timeline)
    if config.policy is CleanPolicy.KEEP_LATEST_BY_HOURS:
        since = instant_time_after(now, -config.hours_retained * _HOUR_MS)
        retained = [commit for commit in commits if (commit.completion_time or "") >= since]
    elif len(commits) > config.commits_retained:
        retained = commits[-config.commits_retained :]
    else:
        retained = []
    pending = first_pending_write(timeline)
    if not retained:
        return None
    earliest = min(retained)
    if pending is None or earliest.requested_time <= pending:
        return earliest
    return max((commit for commit in commits if commit.requested_time < pending), default=None)


def completed_commits(timeline: Timeline) -> list[Instant]:
    """Return the completed commits of the active timeline by completion time."""
    return [i for i in timeline.completed if i.action.completed_name in COMMIT_ACTIONS]


def first_pending_write(timeline: Timeline) -> InstantTime | None:
    """Return when the oldest pending write was requested; it has read views since then."""
    writes = (i.requested_time for i in timeline.pending if i.action.is_ingestion)
    return min(writes, default=None)


def retained_from(
    earliest: str,
    timeline: Timeline,
    commits: CommitReader,
    *,
    known_at: InstantTime | None = None,
) -> InstantTime:
    """Return the completion time from which on views are whole, given what a clean retained.

    Cleaning looks at requested times. Of what a group had before `earliest` it keeps only the
    newest base file, even one that completed late: until then readers needed the one before.

    Args:
        known_at: leave out what completed then or later.
    """
    # Of a long timeline what completed late is little, and the rest is most.
    after = InstantTime(earliest)
    archived = commits.history.completed_within_open_closed(after, known_at)
    late = (
        instant.completion_time
        for instant in (*archived, *timeline.completed_within_open_closed(after, known_at))
        if instant.completion_time is not None
        and instant.requested_time < earliest
        and instant.action.completed_name in _SUPERSEDING_ACTIONS
        and instant.completion_time != known_at
    )
    return max([after, *late])
