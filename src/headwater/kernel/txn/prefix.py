"""The prefix: one moment of the table, as far as a decision must see it.

A step says what it needs beside the timeline; the loader reads it, from a distant store together
with what the step would have needed on the timeline that was seen last. Nothing here decides or
writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypedDict

import pyarrow as pa

from headwater.config.table import TableConfig
from headwater.errors import CorruptTableError, NotFoundError, StorageError
from headwater.format.metadata.index_definitions import IndexDefinition
from headwater.kernel.index_definitions import load_index_definitions
from headwater.kernel.journal.storage import being_archived, find_journal
from headwater.kernel.layout import CANCEL_COUNT, CANCELS, TableLayout
from headwater.kernel.table_config import load_table_config
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.timeline.names import is_instant_time
from headwater.kernel.timeline.times import check_clock, is_doubtful, issue_time
from headwater.kernel.txn.attempts import Attempt, load_attempt, load_newest_number
from headwater.kernel.txn.changes import Change, load_changes
from headwater.kernel.txn.foreign import Silence, load_beat_ms, load_silence
from headwater.kernel.txn.heartbeat import HeartbeatWatch
from headwater.kernel.txn.key_conflicts import LoadKeys
from headwater.kernel.txn.markers import LoadMarkers, Marker, load_markers
from headwater.kernel.txn.metadata_commit import load_index_partitions_of, load_metadata_names
from headwater.kernel.txn.store_age import load_store_times
from headwater.kernel.view.commits import CommitReader, CompletedCommit
from headwater.kernel.view.retention import check_readable
from headwater.kernel.view.table_view import load_pending_rewrites
from headwater.model.files import DataFile, FileGroupId
from headwater.model.instant import Instant, InstantTime, State
from headwater.seams.components import Components
from headwater.seams.storage import Storage, both_at_once

log = logging.getLogger(__name__)

LoadHolding = Callable[[Storage, TableConfig, Timeline], frozenset[str]]
"""Return the indexes that hold something for good; the room that knows indexes is above this."""

FilesOfChanges = Callable[[Timeline, Mapping[InstantTime, Change]], Sequence[DataFile]]
"""Names the files whose keys a step must see, given the changes that were read for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a step must see beside the timeline. Every entry costs storage calls under the lock."""

    attempt_numbers: tuple[InstantTime, ...] = ()  # One listing each.
    attempts: tuple[InstantTime, ...] = ()  # One listing and one read each.
    silence: tuple[Instant, ...] = ()  # A few calls for each that has no attempt.
    beats: tuple[InstantTime, ...] = ()  # One call for each that has no attempt, if none beats.
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
    definitions: bool = False  # One read, and table config.
    results: tuple[Instant, ...] = ()  # One read each, all at once.
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
    beats: Mapping[InstantTime, int] = field(default_factory=dict)
    """How old the heartbeats are, in milliseconds, that stand for no attempt of ours."""
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
    definitions: Mapping[str, IndexDefinition] = field(default_factory=dict)
    """The definitions of indexes, by partition of the metadata table."""
    definitions_lost: CorruptTableError | None = None
    """Why nobody can read them, if so."""
    results: Mapping[InstantTime, bytes] = field(default_factory=dict)
    """What the completed files of instants say."""
    is_fenced: bool = False
    """Whether the decision is put into a journal."""
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


NeedsOf = Callable[[Timeline], Needs]
"""Say what must be seen beside a timeline, which may be one that is outdated."""


class LoadingWays(TypedDict, total=False):
    """How a process reads what other rooms know about."""

    load_markers: LoadMarkers
    clock_ahead_ms_max: int
    load_keys: LoadKeys | None
    age_ms: Callable[[Attempt], int]
    """Tells how old the attempt of another process is when it is first seen."""
    check_config: Callable[[TableConfig], None]
    """Raises if a config is no longer that of the table which was opened."""


class PrefixLoader:
    """Reads prefixes for one process, and remembers what it saw of other processes."""

    def __init__(
        self,
        components: Components,
        layout: TableLayout,
        *,
        load_markers: LoadMarkers = load_markers,
        clock_ahead_ms_max: int = 0,
        load_keys: LoadKeys | None = None,
        age_ms: Callable[[Attempt], int] = lambda _: 0,
        check_config: Callable[[TableConfig], None] = lambda _: None,
    ) -> None:
        self._components = components
        self._layout = layout
        self._load_markers = load_markers
        self._clock_ahead_ms_max = clock_ahead_ms_max
        self._load_keys = load_keys
        self._check_config = check_config
        ids = components.ids
        self.watch = HeartbeatWatch(components.clock, ids.is_gone, age_ms, ids.given_up)
        """What this process has seen of other processes' heartbeats."""
        self._last_issued: InstantTime | None = None
        self._seen: Timeline | None = None

    def note_seen(self, timeline: Timeline, ended: Collection[InstantTime]) -> Timeline:
        """Remember a timeline for guesses at what steps will need; return it without the ended."""
        self._seen = _without(timeline, ended)
        return self._seen

    def load(self, needs_of: NeedsOf, issued: InstantTime | None = None) -> Prefix:
        """Read one moment; `issued` is a time that is given out, if the timeline does not tell."""
        storage = self._components.storage
        timeline, ahead = self._load_ahead(needs_of)
        needs = needs_of(timeline)
        claimed = (*needs.attempt_numbers, *needs.attempts)
        late = [time for time in claimed if time not in ahead.numbers]
        numbers = dict(zip(late, self._load_numbers(late), strict=True))
        numbers |= {time: ahead.numbers[time] for time in claimed if time in ahead.numbers}
        indexes: frozenset[str] = frozenset()
        if needs.indexes:
            config = ahead.config or load_table_config(storage, self._components.clock)
            self._check_config(config)
            indexes = load_index_partitions_of(storage, config, self._layout, timeline)
        seen = {}
        for time in needs.attempts:
            attempt = load_attempt(storage, time, numbers[time]) if numbers[time] else None
            if attempt is not None:
                seen[time] = SeenAttempt(attempt=attempt, is_active=self.watch.is_active(attempt))
        changes = load_changes(storage, self._layout, needs.changes, needs.archived)
        keys = self._keys_of([] if needs.key_files is None else needs.key_files(timeline, changes))
        now_ms = self._components.clock.now_ms()
        known = self._largest_known(timeline, issued)
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
            beats=self._load_beats(time for time in needs.beats if not numbers[time]),
            requests=self._load_contents(needs.requests, State.REQUESTED),
            results=self._load_contents(needs.results, State.COMPLETED),
            is_fenced=find_journal(storage)[0] is not None,
            markers={time: tuple(self._load_markers(storage, time)) for time in needs.markers},
            cancelled=load_cancelled(storage) if needs.cancels else frozenset(),
            cancel_count=_load_count(storage) if needs.cancel_count else None,
            changes=changes,
            keys=keys,
            index_partitions=indexes,
            metadata_names={t: load_metadata_names(storage, t) for t in needs.metadata_names},
            **self._load_table(timeline, needs),
        )

    def _load_ahead(self, needs_of: NeedsOf) -> tuple[Timeline, _Ahead]:
        """List the timeline, and from a distant store load with it what the step may well need.

        That is told by the timeline that this process saw last; what is missing then is loaded
        afterwards. All of it is read under the lock.
        """
        storage, clock = self._components.storage, self._components.clock
        load_timeline = partial(load_active, storage, self._layout.timeline)
        if not storage.is_distant or self._seen is None:
            return load_timeline(), _Ahead({}, None)
        guess = needs_of(self._seen)
        claimed = (*guess.attempt_numbers, *guess.attempts)

        def load_more() -> _Ahead:
            load_numbers = partial(self._load_numbers, claimed)
            if not guess.indexes:
                return _Ahead(dict(zip(claimed, load_numbers(), strict=True)), None)
            load_config = partial(load_table_config, storage, clock)
            numbers, config = both_at_once(storage, load_numbers, load_config)
            return _Ahead(dict(zip(claimed, numbers, strict=True)), config)

        return both_at_once(storage, load_timeline, load_more)

    def _load_beats(self, times: Iterable[InstantTime]) -> dict[InstantTime, int]:
        ages = {time: load_beat_ms(self._components.storage, time) for time in times}
        return {time: age_ms for time, age_ms in ages.items() if age_ms is not None}

    def _load_numbers(self, times: Sequence[InstantTime]) -> list[int]:
        storage = self._components.storage
        return storage.at_once(partial(load_newest_number, storage), times)

    def _load_table(self, timeline: Timeline, needs: Needs) -> _TablePart:
        """Read what a step must see of the table beside its timeline; nothing for most."""
        storage, part = self._components.storage, _TablePart()
        commits = CommitReader(storage, self._layout)
        if needs.config or needs.definitions or needs.readable or needs.holding is not None:
            config = part["config"] = load_table_config(storage, self._components.clock)
            part["unreadable"] = _load_unreadable(timeline, commits, needs.readable, config.name)
            if needs.holding is not None:
                part["holding"] = needs.holding(storage, config, timeline)
            if needs.definitions:
                try:
                    part["definitions"] = load_index_definitions(storage, config)
                except CorruptTableError as error:
                    part["definitions_lost"] = error
        if needs.history or needs.in_history:
            # Those whose archival is decided count, although their rows may not be written yet.
            both = map(timeline.find, being_archived(storage))
            leaving = {each.requested_time: each for each in both if each is not None}
            if needs.history:
                part["history"] = (*commits.history.instants(), *leaving.values())
            if needs.in_history:
                wanted = {time: leaving[time] for time in needs.in_history if time in leaving}
                part["in_history"] = {**commits.history.find_all(needs.in_history), **wanted}
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

    def _load_contents(
        self, instants: tuple[Instant, ...], state: State
    ) -> dict[InstantTime, bytes]:
        contents = load_contents(self._components.storage, self._layout.timeline, instants, state)
        times = (instant.requested_time for instant in instants)
        return dict(zip(times, contents, strict=True))

    def _largest_known(self, timeline: Timeline, issued: InstantTime | None) -> InstantTime | None:
        known = (timeline.largest_time, self._last_issued, issued)
        return max((time for time in known if time is not None), default=None)


class _Ahead(NamedTuple):
    """What was loaded together with a timeline."""

    numbers: Mapping[InstantTime, int]
    config: TableConfig | None


class _TablePart(TypedDict, total=False):
    """The part of a prefix that `_load_table` reads."""

    config: TableConfig
    definitions: Mapping[str, IndexDefinition]
    definitions_lost: CorruptTableError
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
