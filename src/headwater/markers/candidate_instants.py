"""Candidates: the writers that may be ahead of a write, and whether they are alive.

Times are issued in order, so whoever goes first was pending when the write took its snapshot. The
driver finds them once, and the plan takes them to the tasks. A candidate counts only while its
heartbeat is active (INV-70): what a dead writer announced must stop nobody.

A heartbeat is dead when it has not changed for its time of expiry. A job that has just started has
seen nothing of it, so the driver asks the store how long before this write's own heartbeat the
candidate's was written: both times are by the store's clock, and no process's. From then on each
process waits for the rest of the time by its own monotonic clock.

All of this may err: it decides whether a write stops early, never whether it may commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from headwater.errors import CorruptTableError, NotFoundError, StorageError, UnsupportedError
from headwater.kernel.layout import ATTEMPTS, HEARTBEATS, heartbeat_path
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import (
    Attempt,
    decode_attempt,
    list_attempts,
    load_attempt,
    load_newest_number,
    newest_number,
)
from headwater.kernel.view.commits import COMMIT_ACTIONS
from headwater.markers.early_conflict import is_ahead
from headwater.model.instant import Action, Instant, InstantTime
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A writer that was at work when another one began, as the other saw it."""

    instant: Instant
    attempt: Attempt | None
    """Who it is; None for another engine, which has a plain heartbeat file only."""
    beaten_ms: int
    """When its heartbeat was written, by the store's clock."""
    expiry_ms: int
    remaining_ms: int
    """How much longer it counts as alive if its heartbeat does not change."""

    @property
    def time(self) -> InstantTime:
        return self.instant.requested_time

    @property
    def owner(self) -> str | None:
        return None if self.attempt is None else str(self.attempt.owner)


def load_candidates(
    storage: Storage, ids: Ids, mine: Attempt, timeline: Timeline
) -> tuple[Candidate, ...]:
    """Return who may be ahead of a write, given the timeline of its snapshot.

    No call to storage if there is none; three, whatever their number, if there are some.
    """
    pending = [
        instant
        for instant in timeline.pending
        if is_ahead(instant.requested_time, mine.instant)
        and instant.requested_time != mine.instant
        and instant.action.completed_name in COMMIT_ACTIONS
        # What a clustering replaces is in its plan, and whether it gives way to writes is too. Its
        # markers announce groups that nobody else knows.
        and instant.action is not Action.CLUSTERING
    ]
    if not pending:
        return ()
    try:
        return tuple(_load_candidates(storage, ids, mine, pending))
    except (NotFoundError, StorageError, CorruptTableError, UnsupportedError) as error:
        log.warning("candidates not found, conflicts show at the commit error=%s", error)
        return ()


def _load_candidates(
    storage: Storage, ids: Ids, mine: Attempt, pending: list[Instant]
) -> Iterable[Candidate]:
    beaten_ms = {info.path: info.modified_ms for info in list_attempts(storage)}
    now_ms = beaten_ms.get(mine.path)
    paths = [_newest_path(beaten_ms, instant.requested_time) for instant in pending]
    found = iter(storage.read_many(path for path in paths if path is not None))
    for instant, path in zip(pending, paths, strict=True):
        data = None if path is None else next(found)
        if path is None or data is None:
            continue
        attempt = decode_attempt(data, path=path)
        if attempt.is_released or ids.is_gone(attempt.owner):
            continue
        yield from _candidate_if_alive(instant, attempt, beaten_ms[path], now_ms, attempt.expiry_ms)
    if None in paths:
        plain = {info.path: info.modified_ms for info in storage.list_tree(HEARTBEATS)}
        for instant, path in zip(pending, paths, strict=True):
            beat = plain.get(heartbeat_path(instant.requested_time))
            if path is None and beat is not None:
                # Another engine's. All writers of a table should agree on the time of expiry.
                yield from _candidate_if_alive(instant, None, beat, now_ms, mine.expiry_ms)


def _newest_path(paths: Iterable[str], time: InstantTime) -> str | None:
    folder = f"{ATTEMPTS}/{time}/"
    names = [path.removeprefix(folder) for path in paths if path.startswith(folder)]
    number = newest_number(names)
    return f"{folder}{number:05d}.json" if number else None


def _candidate_if_alive(
    instant: Instant, attempt: Attempt | None, beaten_ms: int, now_ms: int | None, expiry_ms: int
) -> Iterable[Candidate]:
    age_ms = 0 if now_ms is None else max(0, now_ms - beaten_ms)
    if age_ms < expiry_ms:
        yield Candidate(
            instant=instant,
            attempt=attempt,
            beaten_ms=beaten_ms,
            expiry_ms=expiry_ms,
            remaining_ms=expiry_ms - age_ms,
        )


class CandidateWatch:
    """What one process sees of candidates' heartbeats, from when it got to know them."""

    def __init__(self, storage: Storage, clock: Clock, ids: Ids) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._began_ms = clock.monotonic_ms()
        self._seen: dict[InstantTime, tuple[int, int]] = {}

    def is_active(self, candidate: Candidate) -> bool:
        """Whether a candidate's heartbeat is active: there, its own, and changed not too long ago.

        Raises:
            StorageError: storage failed.
            CorruptTableError: the heartbeat is unreadable.
        """
        beat = self._load_beat(candidate)
        if beat is None:
            return False
        now_ms = self._clock.monotonic_ms()
        first = candidate.beaten_ms if candidate.attempt is None else candidate.attempt.beat
        until_ms = self._began_ms + candidate.remaining_ms
        last, until_ms = self._seen.get(candidate.time, (first, until_ms))
        if beat != last:
            until_ms = now_ms + candidate.expiry_ms
            self._seen[candidate.time] = (beat, until_ms)
        return now_ms < until_ms

    def _load_beat(self, candidate: Candidate) -> int | None:
        """Return what changes with each beat; None if the candidate has ended or was taken over."""
        attempt = candidate.attempt
        if attempt is None:
            try:
                return self._storage.info(heartbeat_path(candidate.time)).modified_ms
            except NotFoundError:
                return None
        if load_newest_number(self._storage, candidate.time) != attempt.attempt:
            return None
        found = load_attempt(self._storage, candidate.time, attempt.attempt)
        if found is None or not attempt.is_alive_in(found) or self._ids.is_gone(found.owner):
            return None
        return found.beat
