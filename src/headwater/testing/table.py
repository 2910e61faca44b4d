"""The table as a checker sees it: what each path is, and what state each instant is in.

Everything here reads the simulated world with the product's own parsers, never the memory of an
actor.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from enum import Enum, auto, unique
from functools import lru_cache
from typing import NamedTuple

from headwater.errors import CorruptTableError
from headwater.kernel.layout import ATTEMPTS, CANCELS, HEARTBEATS, HOODIE, MARKERS, TableLayout
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.names import TimelineFile, file_name, parse_file_name
from headwater.kernel.txn.attempts import Attempt, decode_attempt
from headwater.kernel.txn.rollback_plan import decode_rollback_plan, listed_paths, target_of
from headwater.model.instant import Action, InstantTime, State
from headwater.testing.operation import Kind, Op
from headwater.testing.world import LAST_CHARACTER, World, standalone_storage

LAYOUT = TableLayout()
TIMELINE = LAYOUT.timeline
_CHECKER = "checker"


@unique
class Area(Enum):
    TIMELINE = auto()
    ATTEMPT = auto()
    HEARTBEAT = auto()
    CANCEL = auto()
    MARKER = auto()
    DATA = auto()
    OTHER = auto()


class Place(NamedTuple):
    """What a path is. `time` is the instant it belongs to, where the path tells."""

    area: Area
    time: InstantTime = InstantTime("")
    attempt: int = 0
    file: TimelineFile | None = None


@lru_cache(maxsize=10_000)
def place_of(path: str) -> Place:
    """Return what `path` is."""
    folder, _, name = path.rpartition("/")
    if folder == TIMELINE:
        file = parse_file_name(name, folder=folder)
        if file is not None:
            return Place(Area.TIMELINE, file.requested_time, file=file)
    if path.startswith(f"{ATTEMPTS}/") and name.endswith(".json"):
        time = InstantTime(folder.rpartition("/")[2])
        return Place(Area.ATTEMPT, time, int(name.removesuffix(".json")))
    if folder == HEARTBEATS:
        return Place(Area.HEARTBEAT, InstantTime(name))
    if folder == CANCELS:
        return Place(Area.CANCEL, InstantTime(name))
    if path.startswith(f"{MARKERS}/"):
        return Place(Area.MARKER, InstantTime(path.removeprefix(f"{MARKERS}/").partition("/")[0]))
    if not path.startswith(f"{HOODIE}/"):
        return Place(Area.DATA)
    return Place(Area.OTHER)


def timeline_files(world: World) -> tuple[TimelineFile, ...]:
    """Return all timeline files of the active timeline."""
    valid_for, files = world.memo
    if valid_for != world.digest:
        files = _parse_all(_names(world, TIMELINE))
        world.memo = (world.digest, files)
    found: tuple[TimelineFile, ...] = files
    return found


def _names(world: World, folder: str) -> tuple[str, ...]:
    op = Op(Kind.LIST_NAMES, folder, number=len(world.paths) + 1)
    names: tuple[str, ...] = world.apply(_CHECKER, op).entries
    return names


@lru_cache(maxsize=10_000)
def _parse_all(names: tuple[str, ...]) -> tuple[TimelineFile, ...]:
    parsed = (parse_file_name(name, folder=TIMELINE) for name in names)
    return tuple(file for file in parsed if file is not None)


def files_without(files: tuple[TimelineFile, ...], file: TimelineFile) -> tuple[TimelineFile, ...]:
    return tuple(other for other in files if other != file)


def state_of(time: InstantTime, files: tuple[TimelineFile, ...]) -> State | None:
    """Return σ of an instant: COMPLETED before ABORTED before INFLIGHT before REQUESTED."""
    found = {file.state for file in files if file.requested_time == time}
    for state in (State.COMPLETED, State.ABORTED, State.INFLIGHT, State.REQUESTED):
        if state in found:
            return state
    return None


def current_state(world: World, time: InstantTime) -> State | None:
    found = state_of(time, timeline_files(world))
    return State.COMPLETED if found is None and is_archived(world, time) else found


def is_archived(world: World, time: InstantTime) -> bool:
    """Whether the archived timeline shows an instant."""
    prefix = f"{LAYOUT.history}/"
    start = bisect_left(world.paths, prefix)
    end = bisect_left(world.paths, f"{prefix}{LAST_CHARACTER}", start)
    shown = tuple((path, world.objects[path].data) for path in world.paths[start:end])
    return bool(shown) and time in _archived_times(shown)


@lru_cache(maxsize=10_000)
def _archived_times(shown: tuple[tuple[str, bytes], ...]) -> frozenset[InstantTime]:
    storage = standalone_storage()
    for path, data in shown:
        storage.put(path, data)
    instants = HistoryTimeline(storage, LAYOUT.history).instants()
    return frozenset(instant.requested_time for instant in instants)


def times_of(files: tuple[TimelineFile, ...]) -> list[InstantTime]:
    """Return every requested and completion time, instants with several files once."""
    requested = {file.requested_time for file in files}
    completion = [file.completion_time for file in files if file.completion_time is not None]
    return [*requested, *completion]


def attempt_numbers(world: World, time: InstantTime) -> list[int]:
    """Return the numbers of the attempts of an instant that are there, ascending."""
    names = _names(world, f"{ATTEMPTS}/{time}")
    return sorted(int(name.removesuffix(".json")) for name in names if name.endswith(".json"))


def attempts_in(world: World) -> Iterator[tuple[str, int, Attempt]]:
    """Return path, modification time and content of every attempt that is there."""
    start = bisect_left(world.paths, f"{ATTEMPTS}/")
    for path in world.paths[start:]:
        if not path.startswith(f"{ATTEMPTS}/"):
            return
        found = world.objects[path]
        attempt = attempt_in(found.data)
        if attempt is not None:
            yield path, found.modified_ms, attempt


@lru_cache(maxsize=10_000)
def attempt_in(data: bytes) -> Attempt | None:
    """Return the attempt that an object's bytes describe, or None if they are none."""
    try:
        return decode_attempt(data, path="")
    except CorruptTableError:
        return None


class Rollback(NamedTuple):
    """A rollback on the timeline, and what its plan says."""

    time: InstantTime
    state: State
    target: InstantTime
    paths: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        return self.state is State.COMPLETED


def rollbacks_in(world: World) -> list[Rollback]:
    """Return the rollbacks of the active timeline by requested time."""
    files = timeline_files(world)
    found = []
    for file in files:
        if file.action is not Action.ROLLBACK or file.state is not State.REQUESTED:
            continue
        time = file.requested_time
        data = world.objects[f"{TIMELINE}/{file_name(time, file.action, file.state)}"].data
        plan, state = _plan_in(data), state_of(time, files)
        if plan is not None and state is not None:
            found.append(Rollback(time, state, *plan))
    return sorted(found)


def rollback_of(world: World, target: InstantTime) -> Rollback | None:
    """Return the rollback that targets an instant, if there is one."""
    return next((found for found in rollbacks_in(world) if found.target == target), None)


@lru_cache(maxsize=10_000)
def _plan_in(data: bytes) -> tuple[InstantTime, tuple[str, ...]] | None:
    try:
        plan = decode_rollback_plan(data, path="")
        return target_of(plan), tuple(listed_paths(plan))
    except CorruptTableError:
        return None
