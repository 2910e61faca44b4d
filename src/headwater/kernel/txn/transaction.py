"""Transactions: every change of the timeline is one pure decision, made on one moment's prefix.

A protocol step is a `Step`: it says what it must see and decides, as a pure function, which events
to append. The transaction owns everything else. This module holds the lock-trusting
implementation:

1. take the table lock;
2. reload the timeline, and what else the step asked for; from a distant store together with what
   it would have asked for on the timeline that was seen last;
3. issue the next instant time: max(clock, largest time known + 1 ms), unless the clock is wrong;
4. let the step decide;
5. write each event's object with put-if-absent, asking the lock's home right before each write
   whether we still hold it; an unknown outcome is read back, never taken for a failure. What
   counts for nothing alone is written at once (`events.Together`);
6. release the lock, and do meanwhile what does not need it.

It is safe as long as the lock never expires while its holder still acts (A1). A fenced
implementation can replace it without any step knowing: it reads the prefix, lets the step decide
and appends at the next slot, deciding again when the slot was taken.

A process that dies between two writes of one decision leaves a prefix of them, and of those that go
out at once any (N-90). Each step lists its events so that every such state is one that somebody
repairs, and says who.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypedDict, TypeVar, assert_never

import pyarrow as pa

from headwater.config.table import TableConfig
from headwater.errors import CommitUnknownError, HeadwaterError, NotFoundError, StorageError
from headwater.kernel.layout import CANCEL_COUNT, CANCELS, TableLayout
from headwater.kernel.table_config import load_table_config, update_table_config_in_lock
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.timeline.history.write import write_history
from headwater.kernel.timeline.names import is_instant_time
from headwater.kernel.timeline.times import check_clock, is_doubtful, issue_time
from headwater.kernel.txn.attempts import Attempt, load_attempt, load_newest_number
from headwater.kernel.txn.changes import Change, load_changes
from headwater.kernel.txn.events import (
    ChangeConfig,
    Completed,
    Delete,
    Ensure,
    Event,
    Put,
    PutOnce,
    Together,
    Write,
    WriteHistory,
    writes_of,
)
from headwater.kernel.txn.foreign import Silence, load_silence
from headwater.kernel.txn.heartbeat import HeartbeatWatch
from headwater.kernel.txn.key_conflicts import LoadKeys
from headwater.kernel.txn.markers import LoadMarkers, Marker, load_markers
from headwater.kernel.txn.metadata_commit import load_index_partitions_of, load_metadata_names
from headwater.kernel.txn.metering import meter_decision, meter_ensured, meter_refusal
from headwater.kernel.txn.store_age import load_store_times
from headwater.kernel.view.commits import CommitReader, CompletedCommit
from headwater.kernel.view.retention import check_readable
from headwater.kernel.view.table_view import load_pending_rewrites
from headwater.kernel.write_once import put_if_missing, put_once, put_surely
from headwater.model.files import DataFile, FileGroupId
from headwater.model.instant import Instant, InstantTime, State
from headwater.seams.components import Components
from headwater.seams.lock import HeldLock
from headwater.seams.metered_lock import acquire_metered
from headwater.seams.mutex import PerThread
from headwater.seams.storage import Storage, both_at_once

log = logging.getLogger(__name__)

LoadHolding = Callable[[Storage, TableConfig, Timeline], frozenset[str]]
"""Return the indexes that hold something for good; the room that knows indexes is above this."""

R = TypeVar("R")

FilesOfChanges = Callable[[Timeline, Mapping[InstantTime, Change]], Sequence[DataFile]]
"""Names the files whose keys a step must see, given the changes that were read for it."""
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a step must see beside the timeline. Every entry costs storage calls under the lock."""

    attempt_numbers: tuple[InstantTime, ...] = ()  # One listing each.
    attempts: tuple[InstantTime, ...] = ()  # One listing and one read each.
    silence: tuple[Instant, ...] = ()  # A few calls for each that has no attempt.
    requests: tuple[Instant, ...] = ()  # One read each, all at once.
    markers: tuple[InstantTime, ...] = ()  # One listing each, or more.
    cancels: bool = False  # One listing.
    cancel_count: bool = False  # One read.
    changes: tuple[Instant, ...] = ()  # One read each, all at once.
    archived: tuple[
        InstantTime, ...
    ] = ()  # The archived timeline's manifest and some of its files.
    indexes: bool = False  # One read.
    metadata_names: tuple[InstantTime, ...] = ()  # One listing each.
    config: bool = False  # One read, or two.
    history: bool = False  # The archived timeline's manifest and all of its files.
    in_history: tuple[InstantTime, ...] = ()  # The manifest and some of its files.
    commits: tuple[Instant, ...] = ()  # One read each, all at once.
    rewrites: bool = False  # One read for each pending compaction or clustering.
    readable: tuple[InstantTime, ...] = ()  # The cleans of the timeline, and perhaps the archived.
    holding: LoadHolding | None = None  # A listing for each index.
    key_files: FilesOfChanges | None = None  # One read each, all at once.


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAttempt:
    """The newest attempt of an instant, and whether this process takes its owner for alive."""

    attempt: Attempt
    is_active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """One moment of the table: all that a decision may look at."""

    timeline: Timeline
    next_time: InstantTime
    now_ms: int
    monotonic_ms: int
    """When the prefix was complete, on this process's own clock: before anything is written."""
    newest_attempt_numbers: Mapping[InstantTime, int] = field(default_factory=dict)
    newest_attempts: Mapping[InstantTime, SeenAttempt] = field(default_factory=dict)
    silence: Mapping[InstantTime, Silence] = field(default_factory=dict)
    """Since when nothing was heard of writes of other engines."""
    requests: Mapping[InstantTime, bytes] = field(default_factory=dict)
    """What the requested files of plans say."""
    cancelled: frozenset[InstantTime] = frozenset()
    """The instants that have an entry in `.cancel`."""
    cancel_count: bytes | None = None
    changes: Mapping[InstantTime, Change] = field(default_factory=dict)
    """What instants did: those of the active timeline that the step asked for, and those of the
    archived ones it asked for that exist."""
    index_partitions: frozenset[str] = frozenset()
    """The partitions of the metadata table that a commit must write to."""
    metadata_names: Mapping[InstantTime, tuple[str, ...]] = field(default_factory=dict)
    """The files of instants on the metadata table's timeline."""
    markers: Mapping[InstantTime, tuple[Marker, ...]] = field(default_factory=dict)
    """What instants have announced."""
    config: TableConfig | None = None
    history: tuple[Instant, ...] = ()
    """All archived instants."""
    in_history: Mapping[InstantTime, Instant] = field(default_factory=dict)
    """Those of some instants that are archived."""
    commits: Mapping[InstantTime, CompletedCommit] = field(default_factory=dict)
    rewrites: Mapping[FileGroupId, Instant] = field(default_factory=dict)
    """The file groups that pending plans take in."""
    unreadable: Mapping[InstantTime, NotFoundError] = field(default_factory=dict)
    """Why the table cannot be read as of some completion times, those of which it can left out."""
    holding: frozenset[str] = frozenset()
    """The indexes that cannot forget what the step is about to take back."""

    def announced(self, time: InstantTime) -> frozenset[FileGroupId]:
        """The file groups that a pending instant has announced by its markers."""
        return frozenset(marker.group for marker in self.markers[time])

    keys: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)
    """The record keys of data files, by path."""


@dataclass(frozen=True, slots=True)
class Decision(Generic[R_co]):
    """Append these events, in this order, and answer the caller."""

    events: tuple[Event, ...]
    result: R_co


@dataclass(frozen=True, slots=True)
class Refusal:
    """Change nothing and raise this."""

    error: HeadwaterError


class Step(Protocol[R_co]):
    def needs(self, timeline: Timeline) -> Needs:
        """Say what it must see beside this timeline, which may be one that is outdated."""
        ...

    def decide(self, prefix: Prefix) -> Decision[R_co] | Refusal:
        """Pure: the same prefix gives the same decision."""
        ...


@dataclass(frozen=True, slots=True)
class Decided(Generic[R]):
    """What a transaction came to."""

    result: R
    lock_held_ms: int
    timeline: Timeline
    """The one that it was decided on, without what was decided."""


Beside = Callable[[Decided[R]], object]
"""What goes on while the lock is given back, because nothing of it needs the lock."""


class Transaction(Protocol):
    def hold(self) -> AbstractContextManager[HeldLock]:
        """Keep others from committing for the whole block."""
        ...

    def run(self, step: Step[R], beside: Beside[R] | None = None) -> Decided[R]:
        """Decide and write as one; then do what goes on `beside` the lock's release.

        Raises:
            ConflictError: the lock was not to be had in time, or another writer took a name.
            FencedError: the lock was lost; nothing was written after that.
            CommitUnknownError: a write may or may not have landed.
            HeadwaterError: whatever the step refused with; nothing was written.
        """
        ...


class LockTransaction:
    """Transactions that trust the table lock (mode L)."""

    def __init__(
        self,
        components: Components,
        layout: TableLayout,
        *,
        lock_timeout_ms: int = 60_000,
        load_markers: LoadMarkers = load_markers,
        clock_ahead_ms_max: int = 0,
        load_keys: LoadKeys | None = None,
        age_ms: Callable[[Attempt], int] = lambda _: 0,
    ) -> None:
        """`age_ms` tells how old the attempt of another process is when it is first seen."""
        self._components = components
        self._layout = layout
        self._table = components.storage.uri
        self._lock_timeout_ms = lock_timeout_ms
        self._load_markers = load_markers
        self._clock_ahead_ms_max = clock_ahead_ms_max
        self._load_keys = load_keys
        ids = components.ids
        self._watch = HeartbeatWatch(components.clock, ids.is_gone, age_ms, ids.given_up)
        self._last_issued: InstantTime | None = None
        self._seen: Timeline | None = None
        self._held: PerThread[HeldLock] = PerThread()

    @property
    def watch(self) -> HeartbeatWatch:
        """What this process has seen of other processes' heartbeats."""
        return self._watch

    def run(self, step: Step[R], beside: Beside[R] | None = None) -> Decided[R]:
        held = self._held.value or self._acquire()
        is_kept = held is self._held.value
        try:
            try:
                decided = self._decide(step, held)
            except (StorageError, CommitUnknownError) as error:
                self._give_up_claim(step, error)
                raise
            if beside is not None:
                afterwards: list[Callable[[], object]] = [partial(beside, decided)]
                if not is_kept:
                    afterwards.insert(0, partial(_release, held))
                self._components.storage.at_once(lambda call: call(), afterwards)
        finally:
            if not is_kept:
                _release(held)  # Which does nothing if it is released.
        return decided

    def _give_up_claim(self, step: Step[R], error: StorageError | CommitUnknownError) -> None:
        """Note that nobody beats for the attempt that a step claimed, if nothing lands later."""
        claim = getattr(step, "claim", None)
        is_over = error.is_final if isinstance(error, StorageError) else error.is_over
        if claim is not None and is_over:
            self._components.ids.given_up.note(claim.token)

    def _decide(self, step: Step[R], held: HeldLock) -> Decided[R]:
        clock = self._components.clock
        began_ms = clock.monotonic_ms()
        prefix = self._load_prefix(step)
        decision = step.decide(prefix)
        if isinstance(decision, Refusal):
            meter_refusal(self._table, decision.error)
            raise decision.error
        for write in writes_of(decision.events, self._layout):
            self._apply(write, held)
        ended = {event.time for event in decision.events if isinstance(event, Completed)}
        self._seen = _without(prefix.timeline, ended)
        meter_decision(self._table, prefix, decision.events, self._seen)
        return Decided(decision.result, clock.monotonic_ms() - began_ms, prefix.timeline)

    @contextmanager
    def hold(self) -> Iterator[HeldLock]:
        """Keep the table lock for the whole block: no other process commits meanwhile.

        For a writer that lost too often (LIV-07), and for what must happen together with a
        decision. Others wait, or give up after their time-out. A block inside another one of the
        same thread has the lock already.
        """
        if self._held.value is not None:
            yield self._held.value
            return
        held = self._held.value = self._acquire()
        try:
            yield held
        finally:
            self._held.value = None
            _release(held)

    def _acquire(self) -> HeldLock:
        acquire = partial(self._components.locks.acquire, timeout_ms=self._lock_timeout_ms)
        return acquire_metered(self._table, acquire)

    def _load_prefix(self, step: Step[R]) -> Prefix:
        storage = self._components.storage
        timeline, ahead = self._load_ahead(step)
        needs = step.needs(timeline)
        claimed = (*needs.attempt_numbers, *needs.attempts)
        late = [time for time in claimed if time not in ahead.numbers]
        numbers = dict(zip(late, self._load_numbers(late), strict=True))
        numbers |= {time: ahead.numbers[time] for time in claimed if time in ahead.numbers}
        indexes: frozenset[str] = frozenset()
        if needs.indexes:
            config = ahead.config or load_table_config(storage, self._components.clock)
            indexes = load_index_partitions_of(storage, config, self._layout, timeline)
        seen = {}
        for time in needs.attempts:
            attempt = load_attempt(storage, time, numbers[time]) if numbers[time] else None
            if attempt is not None:
                seen[time] = SeenAttempt(attempt=attempt, is_active=self._watch.is_active(attempt))
        changes = load_changes(storage, self._layout, needs.changes, needs.archived)
        keys = self._keys_of([] if needs.key_files is None else needs.key_files(timeline, changes))
        now_ms = self._components.clock.now_ms()
        known = self._largest_known(timeline)
        self._check_clock(now_ms, known)
        self._last_issued = issue_time(now_ms, known, is_utc=self._layout.is_utc)
        return Prefix(
            timeline=timeline,
            next_time=self._last_issued,
            now_ms=now_ms,
            monotonic_ms=self._components.clock.monotonic_ms(),
            newest_attempt_numbers=numbers,
            newest_attempts=seen,
            silence={
                write.requested_time: load_silence(storage, self._layout.timeline, write)
                for write in needs.silence
                if not numbers[write.requested_time]
            },
            requests=self._load_requests(needs.requests),
            markers={time: tuple(self._load_markers(storage, time)) for time in needs.markers},
            cancelled=load_cancelled(storage) if needs.cancels else frozenset(),
            cancel_count=_load_count(storage) if needs.cancel_count else None,
            changes=changes,
            keys=keys,
            index_partitions=indexes,
            metadata_names={t: load_metadata_names(storage, t) for t in needs.metadata_names},
            **self._load_table(timeline, needs),
        )

    def _load_ahead(self, step: Step[R]) -> tuple[Timeline, _Ahead]:
        """List the timeline, and from a distant store load with it what the step may well need.

        That is told by the timeline that this process saw last; what is missing then is loaded
        afterwards. All of it is read under the lock.
        """
        storage, clock = self._components.storage, self._components.clock
        load_timeline = partial(load_active, storage, self._layout.timeline)
        if not storage.is_distant or self._seen is None:
            return load_timeline(), _Ahead({}, None)
        guess = step.needs(self._seen)
        claimed = (*guess.attempt_numbers, *guess.attempts)

        def load_more() -> _Ahead:
            load_numbers = partial(self._load_numbers, claimed)
            if not guess.indexes:
                return _Ahead(dict(zip(claimed, load_numbers(), strict=True)), None)
            load_config = partial(load_table_config, storage, clock)
            numbers, config = both_at_once(storage, load_numbers, load_config)
            return _Ahead(dict(zip(claimed, numbers, strict=True)), config)

        return both_at_once(storage, load_timeline, load_more)

    def _load_numbers(self, times: Sequence[InstantTime]) -> list[int]:
        storage = self._components.storage
        return storage.at_once(partial(load_newest_number, storage), times)

    def _load_table(self, timeline: Timeline, needs: Needs) -> _TablePart:
        """Read what a step must see of the table beside its timeline; nothing for most."""
        storage, part = self._components.storage, _TablePart()
        commits = CommitReader(storage, self._layout)
        if needs.config or needs.readable or needs.holding is not None:
            config = part["config"] = load_table_config(storage, self._components.clock)
            part["unreadable"] = _load_unreadable(timeline, commits, needs.readable, config.name)
            if needs.holding is not None:
                part["holding"] = needs.holding(storage, config, timeline)
        if needs.history:
            part["history"] = commits.history.instants()
        if needs.in_history:
            part["in_history"] = commits.history.find_all(needs.in_history)
        if needs.commits:
            found = commits.load(needs.commits)
            part["commits"] = {commit.requested_time: commit for commit in found}
        if needs.rewrites:
            part["rewrites"] = load_pending_rewrites(timeline, commits)
        return part

    def _keys_of(self, files: Sequence[DataFile]) -> dict[str, pa.ChunkedArray]:
        if not files or self._load_keys is None:
            return {}
        keys = self._load_keys(self._components.storage, files)
        found = zip(files, keys, strict=True)
        return {file.path: some for file, some in found if some is not None}

    def _check_clock(self, now_ms: int, known: InstantTime | None) -> None:
        """Compare the clock with the store's, if the timeline does not vouch for it (INV-90)."""
        bound_ms, is_utc = self._clock_ahead_ms_max, self._layout.is_utc
        if not is_doubtful(now_ms, known, bound_ms, is_utc=is_utc):
            return
        try:
            store_ms = load_store_times(self._components.storage).now_ms
        except (StorageError, NotFoundError) as error:
            log.warning("the store does not say its time error=%s", error)
            return
        if store_ms > 0:
            check_clock(now_ms, store_ms, bound_ms)

    def _load_requests(self, instants: tuple[Instant, ...]) -> dict[InstantTime, bytes]:
        contents = load_contents(
            self._components.storage, self._layout.timeline, instants, State.REQUESTED
        )
        times = (instant.requested_time for instant in instants)
        return dict(zip(times, contents, strict=True))

    def _largest_known(self, timeline: Timeline) -> InstantTime | None:
        known = (timeline.largest_time, self._last_issued)
        return max((time for time in known if time is not None), default=None)

    def _apply(self, write: Write, held: HeldLock) -> None:
        storage, clock = self._components.storage, self._components.clock
        held.check()
        match write:
            case PutOnce() | Put():
                self._put(write)
            case Together(puts):
                storage.at_once(self._put, puts)
            case Ensure(path, data):
                if put_if_missing(storage, clock, path, data):
                    meter_ensured(self._table, path)
            case Delete(path):
                storage.delete(path)
            case ChangeConfig(changes):
                update_table_config_in_lock(storage, held, clock, changes)
            case WriteHistory(instants):
                write_history(storage, self._layout, instants)
            case _:
                assert_never(write)

    def _put(self, write: PutOnce | Put) -> None:
        storage, clock = self._components.storage, self._components.clock
        if isinstance(write, Put):
            put_surely(storage, clock, write.path, write.data)
        else:
            put_once(storage, clock, write.path, write.data)


class _Ahead(NamedTuple):
    """What was loaded together with a timeline."""

    numbers: Mapping[InstantTime, int]
    config: TableConfig | None


class _TablePart(TypedDict, total=False):
    """The part of a prefix that `_load_table` reads."""

    config: TableConfig
    history: tuple[Instant, ...]
    in_history: Mapping[InstantTime, Instant]
    commits: Mapping[InstantTime, CompletedCommit]
    rewrites: Mapping[FileGroupId, Instant]
    unreadable: Mapping[InstantTime, NotFoundError]
    holding: frozenset[str]


def _load_unreadable(
    timeline: Timeline, commits: CommitReader, times: Iterable[InstantTime], table: str
) -> dict[InstantTime, NotFoundError]:
    found = {}
    for time in times:
        try:
            check_readable(timeline, commits, time, table=table)
        except NotFoundError as error:
            found[time] = error
    return found


def _without(timeline: Timeline, ended: Collection[InstantTime]) -> Timeline:
    """Return a timeline for guesses at what a step will need: without what has just ended."""
    if not ended:
        return timeline
    left = (instant for instant in timeline.instants if instant.requested_time not in ended)
    return Timeline(left, timeline.savepoints)


def load_cancelled(storage: Storage) -> frozenset[InstantTime]:
    """Return the instants whose cancellation is decided and that are not known to be aborted."""
    names = storage.list_names(CANCELS)
    return frozenset(InstantTime(name) for name in names if is_instant_time(name))


def _load_count(storage: Storage) -> bytes | None:
    try:
        return storage.read(CANCEL_COUNT)
    except NotFoundError:
        return None


def _release(held: HeldLock) -> None:
    try:
        held.release()
    except HeadwaterError as error:
        # The decision stands whatever becomes of the lock; its lease ends by itself.
        log.warning("table lock not released, others wait for its lease error=%s", error)
