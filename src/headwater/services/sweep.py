"""Sweeping: what instants that have ended left behind beside the timeline.

A finished writer or service removes its markers, heartbeat and attempts itself. One that died after
its instant had reached its end leaves them; so does a process that died right after it claimed a
time, before its instant existed. Swept are, for

- a completed instant of ours: the files that its markers announce and its commit does not list,
  then markers, heartbeat and attempts;
- an instant on neither timeline, whose owner is dead: the same; every file that bears its time is
  an orphan. It was rolled back, or never came to be. A transaction decides that
  (`kernel.txn.sweep_steps`), for a writer claims its time first and requests the instant
  afterwards.

Pending and aborted instants are left alone, and what a pending rollback takes back: whoever
executes, rolls back, aborts or archives them needs what is there. So is what another engine left of
its own instants.

So are objects that were sent in parts and never got their name, a day later.

Nothing is deleted that any process needs: of an instant that has ended no attempt can write to the
timeline any more, with its attempt file or without. Everything may be interrupted and repeated;
markers go after the files that they announce, and attempts last, in a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from headwater.context import TableContext
from headwater.errors import HeadwaterError
from headwater.kernel.layout import heartbeat_path
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import load_attempt, load_newest_number
from headwater.kernel.txn.changes import WRITER_KEY, load_changes
from headwater.kernel.txn.leftovers import load_leftovers
from headwater.kernel.txn.markers import LoadMarkers, delete_markers
from headwater.kernel.txn.rollback_plan import pending_undoing
from headwater.kernel.txn.sweep_steps import FindGone, ForgetAttempts
from headwater.kernel.view.commits import COMMIT_ACTIONS, CommitReader, CompletedCommit
from headwater.model.files import parse_data_file
from headwater.model.instant import Instant, InstantTime
from headwater.seams.new_object import UPLOADS
from headwater.seams.storage import ObjectInfo, Storage, both_at_once

log = logging.getLogger(__name__)

# No object takes that long between its last part and its name, however wrong a clock is.
_UPLOAD_MS_MAX = 24 * 60 * 60 * 1000


def sweep_leftovers(table: TableContext, load_markers: LoadMarkers) -> list[InstantTime]:
    """Sweep what instants that have ended left behind; return those instants.

    What cannot be swept now is logged and left for the next time.

    Raises:
        ConflictError: kind LOCK_TIMEOUT.
        CorruptTableError: the timeline breaks the format.
    """
    storage = table.storage
    left, uploads = both_at_once(
        storage, lambda: load_leftovers(storage), lambda: storage.list_tree(UPLOADS)
    )
    # Listed afterwards: an instant whose claim was seen is on this timeline, or has ended, or its
    # owner is between the two.
    timeline = table.load_timeline()
    commits = table.commit_reader()
    # Whoever finishes a rollback needs what is there of its target.
    undoing = load_changes(storage, table.layout, pending_undoing(timeline)).values()
    left = {
        time: paths for time, paths in left.items() if all(time not in c.undone for c in undoing)
    }
    ended, absent = _sort(left, timeline, commits)
    swept = [
        instant.requested_time
        for instant in ended
        if _sweep_completed(storage, instant, left, timeline, commits, load_markers)
    ]
    _sweep_uploads(table, uploads)
    dead = tuple(time for time in absent if not _is_claimed(table, timeline, time))
    gone = table.txn.run(FindGone(dead)).result if dead else ()
    swept += [time for time in gone if _sweep_files(storage, time, set(), load_markers)]
    if not swept:
        return []
    return list(table.txn.run(ForgetAttempts({t: tuple(left[t]) for t in swept})).result)


def _sweep_uploads(table: TableContext, found: Iterable[ObjectInfo]) -> None:
    """Delete what processes that died left of objects that they sent in parts."""
    old_ms = table.clock.now_ms() - _UPLOAD_MS_MAX
    table.storage.delete_many([info.path for info in found if info.modified_ms < old_ms])


def _sort(
    named: Iterable[InstantTime], timeline: Timeline, commits: CommitReader
) -> tuple[list[Instant], list[InstantTime]]:
    """Return the instants that have completed, and the times of those on neither timeline."""
    found = {time: timeline.find(time) for time in named}
    unknown = [time for time, instant in found.items() if instant is None]
    archived = commits.history.find_all(unknown) if unknown else {}
    ended = [instant for instant in found.values() if instant is not None and instant.is_completed]
    return (
        sorted([*ended, *archived.values()]),
        sorted(time for time in unknown if time not in archived),
    )


def _is_claimed(table: TableContext, timeline: Timeline, time: InstantTime) -> bool:
    """Whether a process may be about to request an instant under this time.

    Times above the largest one known are left alone: the claim keeps them from being issued again.
    """
    if timeline.largest_time is None or time >= timeline.largest_time:
        return True
    number = load_newest_number(table.storage, time)
    attempt = load_attempt(table.storage, time, number) if number else None
    return attempt is not None and table.txn.watch.is_active(attempt)


def _sweep_completed(
    storage: Storage,
    instant: Instant,
    left: Mapping[InstantTime, list[str]],
    timeline: Timeline,
    commits: CommitReader,
    load_markers: LoadMarkers,
) -> bool:
    time = instant.requested_time
    try:
        commit = None
        if instant.action.completed_name in COMMIT_ACTIONS:
            is_active = timeline.find(time) is not None
            (commit,) = commits.load([instant]) if is_active else commits.load_archived([time])
        if not left[time] and not _says_ours(commit):
            return False
    except HeadwaterError as error:
        log.warning("leftovers remain instant=%s error=%s", time, error)
        return False
    # What no commit lists goes; an instant that lists no files, a clean for one, announces none.
    listed = None if commit is None else {file.path for file in commit.files}
    return _sweep_files(storage, time, listed, load_markers)


def _sweep_files(
    storage: Storage, time: InstantTime, listed: set[str] | None, load_markers: LoadMarkers
) -> bool:
    """Delete what an instant announced and nothing lists, then its markers and heartbeat."""
    try:
        if listed is not None:
            _delete_announced(storage, time, listed, load_markers)
        delete_markers(storage, time)
        storage.delete(heartbeat_path(time))
    except HeadwaterError as error:
        log.warning("leftovers remain instant=%s error=%s", time, error)
        return False
    return True


def _says_ours(commit: CompletedCommit | None) -> bool:
    """Whether a commit says that Headwater wrote it. Attempts that are left would say so, too."""
    extra = (commit.metadata.extra_metadata if commit is not None else None) or {}
    return WRITER_KEY in extra


def _delete_announced(
    storage: Storage, time: InstantTime, listed: set[str], load_markers: LoadMarkers
) -> None:
    for marker in load_markers(storage, time):
        file = parse_data_file(marker.data_path)
        if file is not None and file.instant_time == time and file.path not in listed:
            storage.delete(file.path)
