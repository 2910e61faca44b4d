"""The active timeline: one listing, and the state of every instant as a pure function of it.

σ(t) is COMPLETED if a completed file of t exists, else ABORTED if an aborted one does, else
INFLIGHT, else REQUESTED, else absent. Contents are not read here; see `contents`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, cached_property, partial
from itertools import repeat
from operator import attrgetter
from typing import Any

from headwater.errors import CorruptTableError, ErrorKind, NotFoundError
from headwater.kernel.timeline.lately import LatelyParsed
from headwater.kernel.timeline.names import (
    COMPLETED_SUFFIXES,
    INFLIGHT_SUFFIXES,
    REQUESTED_SUFFIXES,
    TIME_LENGTH,
    TimelineFile,
    file_name,
    parse_file_name,
)
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.storage import Storage

# Positions in the names `<T>_<C>.<action>` and `<T>.<suffix>`. Slices made once are taken twice
# as fast as slices written out.
_TIME = slice(TIME_LENGTH)
_SEPARATOR = slice(TIME_LENGTH, TIME_LENGTH + 1)
_SUFFIX = slice(TIME_LENGTH + 1, None)
_COMPLETION = slice(TIME_LENGTH + 1, 2 * TIME_LENGTH + 1)
_ENDING = slice(2 * TIME_LENGTH + 1, None)

_COMPLETED_ENDINGS = {
    f".{suffix}": action
    for suffix, action in COMPLETED_SUFFIXES.items()
    if action is not Action.SAVEPOINT
}
_PENDING_SUFFIXES = REQUESTED_SUFFIXES | INFLIGHT_SUFFIXES
_BY_COMPLETION = attrgetter("completion_time", "requested_time")
_PRECEDENCE = (State.ABORTED, State.INFLIGHT, State.REQUESTED)


def completed_at(instant: Instant) -> InstantTime:
    """Return when an instant completed, by which instants are ordered."""
    return instant.completion_time or InstantTime("")


def completed_within_open_closed(
    completed: Sequence[Instant], after: InstantTime | None, up_to: InstantTime | None
) -> tuple[Instant, ...]:
    """Return those with `after` < completion time <= `up_to`; None leaves an end open.

    Args:
        completed: instants by completion time. Not all are looked at, for each of ten thousand
            cleans may ask.
    """
    first = 0 if after is None else bisect_right(completed, after, key=completed_at)
    last = None if up_to is None else bisect_right(completed, up_to, first, key=completed_at)
    return tuple(completed[first:last])


class Timeline:
    """The instants of one listing, ordered by requested time. Immutable."""

    def __init__(self, instants: Iterable[Instant], savepoints: Iterable[Instant] = ()) -> None:
        self.instants = tuple(instants)
        # A savepoint has the requested time of the instant it protects, so it lives apart.
        self.savepoints = tuple(savepoints)

    @cached_property
    def _by_time(self) -> dict[InstantTime, Instant]:
        return {instant.requested_time: instant for instant in self.instants}

    def find(self, time: InstantTime) -> Instant | None:
        """Return the instant requested at `time`, or None if this timeline has none."""
        return self._by_time.get(time)

    def get(self, time: InstantTime) -> Instant:
        """Return the instant requested at `time`.

        Raises:
            NotFoundError: kind INSTANT_NOT_FOUND.
        """
        instant = self.find(time)
        if instant is None:
            raise NotFoundError(
                f"The active timeline has no instant {time}; it may have been rolled back or "
                "archived, or never existed",
                kind=ErrorKind.INSTANT_NOT_FOUND,
                instant=time,
            )
        return instant

    @cached_property
    def completed(self) -> tuple[Instant, ...]:
        """Completed instants by completion time: the order in which they took effect."""
        done = (instant for instant in self.instants if instant.state is State.COMPLETED)
        return tuple(sorted(done, key=_BY_COMPLETION))

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        """Requested and inflight instants by requested time."""
        requested, inflight = State.REQUESTED, State.INFLIGHT
        return tuple(
            instant
            for instant in self.instants
            if instant.state is inflight or instant.state is requested
        )

    @cached_property
    def largest_time(self) -> InstantTime | None:
        """The largest requested or completion time this timeline has seen."""
        times = [*self.instants[-1:], *self.savepoints[-1:]]
        largest = [instant.requested_time for instant in times]
        largest += [i.completion_time for i in self.completed[-1:] if i.completion_time]
        largest += [i.completion_time for i in self.savepoints if i.completion_time]
        return max(largest, default=None)

    def completed_within_open_closed(
        self, after: InstantTime | None, up_to: InstantTime | None
    ) -> tuple[Instant, ...]:
        """Completed instants with `after` < completion time <= `up_to`; None leaves an end open."""
        return completed_within_open_closed(self.completed, after, up_to)

    def replaced(self, times: Collection[str], by: Timeline) -> Timeline:
        """Return it with what another says about some requested times, and only that one does."""
        instants = dict(self._by_time)
        was_completed = False
        for time in map(InstantTime, times):
            before = instants.pop(time, None)
            was_completed |= before is not None and before.is_completed
        instants.update(by._by_time)
        savepoints = [each for each in self.savepoints if each.requested_time not in times]
        fresh = Timeline(
            map(instants.__getitem__, sorted(instants)), sorted((*savepoints, *by.savepoints))
        )
        # What is derived is derived from the same few.
        fresh._by_time = instants
        pending = (each for each in self.pending if each.requested_time not in times)
        fresh.pending = tuple(sorted((*pending, *by.pending)))
        if not was_completed:
            fresh.completed = _merged(self.completed, by.completed, _BY_COMPLETION)
        return fresh

    def __len__(self) -> int:
        return len(self.instants)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timeline):
            return NotImplemented
        return (self.instants, self.savepoints) == (other.instants, other.savepoints)

    def __hash__(self) -> int:
        return hash((self.instants, self.savepoints))

    def __repr__(self) -> str:
        return f"Timeline({len(self.instants)} instants, {len(self.pending)} pending)"


def parse_timeline(names: Iterable[str], *, folder: str = "") -> Timeline:
    """Return the timeline that a listing of `names` shows.

    A table may have ten thousands of names and this is the floor of every operation on it. So
    completed files are read by position, all at once, and a pending file beside the completed one
    of the same action is passed over: it tells nothing new. Only an instant that has any other
    file is put together file by file.

    Raises:
        CorruptTableError: two completed files for one instant that takes effect once, two
            unrelated actions under one requested time, a timeline file without an instant time.
    """
    return _parser(folder).parse(tuple(names))


@cache
def _parser(folder: str) -> LatelyParsed:
    return LatelyParsed(partial(_parse, folder=folder))


def _parse(names: tuple[str, ...], *, folder: str) -> Timeline:
    completed, telling = _read_by_position(names)
    if not telling:
        return Timeline(completed)
    instants = {instant.requested_time: instant for instant in completed}
    savepoints = []
    stems = {name[_TIME] for name in telling}
    for time, files in _group(names, stems, folder).items():
        own = [file for file in files if file.action is not Action.SAVEPOINT]
        if own:
            instants[time] = _instant_of(time, own, folder)
        if len(own) < len(files):
            savepoints.append(_savepoint_of(time, files))
    return Timeline([instants[time] for time in sorted(instants)], sorted(savepoints))


def load_active(storage: Storage, folder: str) -> Timeline:
    """List and parse the active timeline: one listing while it fits in one page of the store.

    A listing of several pages mixes several moments and could show a later instant without an
    earlier one (H-73), so it is made twice. If the two differ, what completed after all that the
    first one shows is not completed yet in the answer (N-59): files appear in the order of their
    completion times, so all that completed before was there when the second one began. What the
    first one shows as completed and the second one does not has left: of an instant that was
    archived meanwhile an early page may still have the request (N-68). However fast others commit,
    two listings are enough.
    """
    names = storage.list_names(folder)
    if len(names) < storage.page_size:
        return parse_timeline(names, folder=folder)
    again = storage.list_names(folder)
    if set(again) != set(names):
        newest = max(map(_completion_in, names), default="")
        left = {name[_TIME] for name in set(names).difference(again) if _is_end(name)}
        again = [
            name
            for name in again
            if _completion_in(name) <= newest and (name[_TIME] not in left or _is_savepoint(name))
        ]
    return parse_timeline(again, folder=folder)


def _merged(
    early: tuple[Instant, ...], late: tuple[Instant, ...], key: Callable[[Instant], Any]
) -> tuple[Instant, ...]:
    """Return two that are in order as one; most often all of the second are behind the first."""
    if not early or not late or key(early[-1]) < key(late[0]):
        return early + late
    return tuple(sorted(early + late, key=key))


def instant_path(folder: str, instant: Instant, state: State | None = None) -> str:
    """Return the path of the file that says `instant` is in `state`, by default in its own."""
    state = state or instant.state
    completion = instant.completion_time if state is State.COMPLETED else None
    return f"{folder}/{file_name(instant.requested_time, instant.action, state, completion)}"


def _is_end(name: str) -> bool:
    """Whether a file says that its instant has completed."""
    return name[_ENDING] in _COMPLETED_ENDINGS and bool(_completion_in(name))


def _is_savepoint(name: str) -> bool:
    return ".savepoint" in name


def _completion_in(name: str) -> str:
    """Return the completion time in a file name; nothing if it has none."""
    return name[_COMPLETION] if name[_SEPARATOR] == "_" else ""


def _read_by_position(names: tuple[str, ...]) -> tuple[list[Instant], Sequence[str]]:
    """Return the completed instants, in order, and the names that tell more than these.

    If any completed file has no digits where its times belong, or an instant has two of them, no
    name is trusted and all of them tell: the error is worded where files are looked at singly.
    """
    finished = [
        name for name in names if name[_SEPARATOR] == "_" and name[_ENDING] in _COMPLETED_ENDINGS
    ]
    finished.sort()
    times = [name[_TIME] for name in finished]
    completions = [name[_COMPLETION] for name in finished]
    actions = [_COMPLETED_ENDINGS[name[_ENDING]] for name in finished]
    completed_actions = dict(zip(times, actions, strict=True))
    digits = "".join(times + completions)
    if len(completed_actions) < len(times) or not (digits.isascii() and digits.isdigit()):
        return [], names
    pending = [name for name in names if name[_SEPARATOR] == "."]
    telling = [
        name
        for name in pending
        # The two defaults differ, for an unknown suffix of an unknown instant is no agreement.
        if completed_actions.get(name[_TIME], "") is not _PENDING_SUFFIXES.get(name[_SUFFIX])
    ]
    if len(finished) + len(pending) < len(names):
        telling += set(names).difference(finished, pending)
    rows = zip(times, actions, repeat(State.COMPLETED), completions)
    # Calling Instant(...) would run Python code for each of ten thousands.
    return list(map(partial(tuple.__new__, Instant), rows)), telling


def _group(
    names: Iterable[str], stems: set[str], folder: str
) -> dict[InstantTime, list[TimelineFile]]:
    """Return by instant the timeline files whose names begin with one of `stems`."""
    files: dict[InstantTime, list[TimelineFile]] = {}
    for name in names:
        if name[_TIME] in stems:
            file = parse_file_name(name, folder=folder)
            if file is not None:
                files.setdefault(file.requested_time, []).append(file)
    return files


def _instant_of(time: InstantTime, files: list[TimelineFile], folder: str) -> Instant:
    """Return the one instant that its `files` show: σ(t)."""
    completed = [file for file in files if file.state is State.COMPLETED]
    others = [file for file in files if file.state is not State.COMPLETED]
    if len(completed) > 1 and not _is_repeatable(completed):
        raise _two_completed(time, completed, folder)
    for file in others[1:]:
        if file.action is not others[0].action:
            raise _two_actions(time, others[0].action, file.action, folder)
    if not completed:
        states = [file.state for file in others]
        state = next(state for state in _PRECEDENCE if state in states)
        return Instant(time, others[0].action, state)
    done = min(completed)
    action = others[0].action if others else done.action
    if action.completed_name is not done.action:
        raise _two_actions(time, action, done.action, folder)
    return Instant(time, action, State.COMPLETED, done.completion_time)


def _is_repeatable(completed: list[TimelineFile]) -> bool:
    """Whether files that complete one instant say that one thing was done, several times.

    Hudi finishes every clean and rollback that it finds pending, whoever is at it, and does not
    look whether somebody has completed it meanwhile (N-159). The first took effect.
    """
    actions = {file.action for file in completed}
    return len(actions) == 1 and actions <= {Action.CLEAN, Action.ROLLBACK}


def _savepoint_of(time: InstantTime, files: list[TimelineFile]) -> Instant:
    completions = [
        file.completion_time
        for file in files
        if file.action is Action.SAVEPOINT and file.completion_time is not None
    ]
    if not completions:
        return Instant(time, Action.SAVEPOINT, State.INFLIGHT)
    return Instant(time, Action.SAVEPOINT, State.COMPLETED, max(completions))


def _two_completed(
    time: InstantTime, completed: list[TimelineFile], folder: str
) -> CorruptTableError:
    one, other = (file_name(*file) for file in sorted(completed)[:2])
    return CorruptTableError(
        f"Instant {time} has two completed files, {one} and {other}: two writers believed to "
        "hold the table lock. Compare their contents and move one away",
        kind=ErrorKind.CORRUPT_TIMELINE,
        instant=time,
        path=f"{folder}/{other}",
    )


def _two_actions(time: str, one: Action, other: Action, folder: str) -> CorruptTableError:
    return CorruptTableError(
        f"Instant {time} is both a {one} and a {other}; a requested time belongs to one action",
        kind=ErrorKind.CORRUPT_TIMELINE,
        instant=time,
        path=folder,
    )
