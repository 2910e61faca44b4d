"""Events: what a decision changes, and the files that say so.

Decisions (see `transaction`) speak in events and never name a file. `writes_of` is the one place
that knows which objects an event becomes and in which order they are written; the order matters
wherever a crash may fall between two of them, and the reason stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from headwater.kernel.layout import (
    CANCEL_COUNT,
    METADATA_TIMELINE,
    TableLayout,
    cancel_path,
    heartbeat_path,
)
from headwater.kernel.timeline.active import instant_path
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.attempts import Attempt, encode_attempt
from headwater.model.instant import Action, Instant, InstantTime, State


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """A process claims the next attempt of an instant; all earlier attempts are dead."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Requested:
    """An instant begins; a plan's content is the plan."""

    time: InstantTime
    action: Action
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class WentInflight:
    time: InstantTime
    action: Action
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Completed:
    """The commit point: from here on the instant's effect is visible."""

    time: InstantTime
    action: Action
    completion_time: InstantTime
    content: bytes


@dataclass(frozen=True, slots=True)
class MetadataCommitted:
    """What an instant says to indexes counts as soon as the instant itself is completed."""

    time: InstantTime
    completion_time: InstantTime
    content: bytes


@dataclass(frozen=True, slots=True)
class MetadataWithdrawn:
    """The files of an instant leave the metadata table's timeline."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RevertedToRequested:
    """A dead attempt of a plan was undone; the plan itself stays (INV-25)."""

    time: InstantTime
    action: Action


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A failed write or removable plan leaves the timeline, request and all.

    Nothing it wrote is ever visible.
    """

    time: InstantTime
    action: Action


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Something completed is taken back: it leaves the timeline, and views lose its effect."""

    instant: Instant


@dataclass(frozen=True, slots=True)
class SavepointDeleted:
    """A savepoint protects nothing any more."""

    savepoint: Instant


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A plan is cancelled for good: from here on it can only be aborted."""

    time: InstantTime
    content: bytes


@dataclass(frozen=True, slots=True)
class Aborted:
    """A cancelled plan has ended; the content embeds the plan."""

    time: InstantTime
    action: Action
    content: bytes


@dataclass(frozen=True, slots=True)
class AbortTidied:
    """Nothing but its aborted file is left of an aborted plan."""

    time: InstantTime
    action: Action


@dataclass(frozen=True, slots=True)
class CancelDropped:
    """The entry of an instant that is not on the timeline any more goes; it means nothing."""

    time: InstantTime


@dataclass(frozen=True, slots=True)
class CancelCounted:
    """The count of cancelled plans becomes this."""

    content: bytes


@dataclass(frozen=True, slots=True)
class AttemptsForgotten:
    """Attempts of an instant that has ended go; all of them are dead."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """Keys of table config get these values, or go."""

    changes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class DefinitionsChanged:
    """The definitions of indexes become these, all of them."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Archived:
    """Completed instants are on the archived timeline from here on, and may leave the active."""

    instants: tuple[Instant, ...]


Event = (
    AttemptStarted
    | Requested
    | WentInflight
    | Completed
    | MetadataCommitted
    | MetadataWithdrawn
    | RevertedToRequested
    | RolledBack
    | Withdrawn
    | SavepointDeleted
    | CancelRequested
    | Aborted
    | AbortTidied
    | CancelDropped
    | CancelCounted
    | AttemptsForgotten
    | ConfigChanged
    | DefinitionsChanged
    | Archived
)


class PutOnce(NamedTuple):
    """Create this very object; another one under its name is a conflict."""

    path: str
    data: bytes


class Ensure(NamedTuple):
    """Create the object unless there is one under its name, whatever it holds."""

    path: str
    data: bytes


class Put(NamedTuple):
    """Create or overwrite the object."""

    path: str
    data: bytes


class Delete(NamedTuple):
    path: str


class ChangeConfig(NamedTuple):
    """Change table config; `kernel.table_config` knows its files and their crashes."""

    changes: Mapping[str, str | None]


class WriteHistory(NamedTuple):
    """Archive completed instants; `kernel.timeline.history.write` knows the files and crashes."""

    instants: tuple[Instant, ...]


class Together(NamedTuple):
    """Create these objects at once: a crash may leave any of them, without the others."""

    puts: tuple[PutOnce | Put, ...]


Write = PutOnce | Ensure | Put | Delete | ChangeConfig | WriteHistory | Together


def writes_of(events: Iterable[Event], layout: TableLayout) -> Iterator[Write]:
    """Return the storage writes of `events`, to be applied in this order."""
    begun: Requested | None = None
    for event in events:
        if begun is not None:
            request = begun
            begun = None
            if isinstance(event, WentInflight) and event.time == request.time:
                # A write that lacks its request is rolled back like any other: a rollback that
                # died has left such ones as well. Only plans must never be inflight without one.
                puts = (*_puts_of(request, layout), *_puts_of(event, layout))
                yield Together(puts)
                continue
            yield from _writes_of(request, layout.timeline)
        if isinstance(event, Requested) and event.action.is_ingestion:
            begun = event
        else:
            yield from _writes_of(event, layout.timeline)
    if begun is not None:
        yield from _writes_of(begun, layout.timeline)


def _puts_of(event: Event, layout: TableLayout) -> Iterator[PutOnce]:
    return (write for write in _writes_of(event, layout.timeline) if isinstance(write, PutOnce))


def _writes_of(event: Event, folder: str) -> Iterator[Write]:
    match event:
        case AttemptStarted(attempt):
            claim = PutOnce(attempt.path, encode_attempt(attempt))
            if attempt.is_released:
                yield claim
                return
            # The plain heartbeat is there before the instant: stock Hudi takes a pending write
            # without one for a failed one (INV-111).
            yield Together((claim, Put(heartbeat_path(attempt.instant), b"")))
        case Requested(time, action, content):
            yield PutOnce(f"{folder}/{file_name(time, action, State.REQUESTED)}", content)
        case WentInflight(time, action, content):
            yield PutOnce(f"{folder}/{file_name(time, action, State.INFLIGHT)}", content)
        case Completed(time, action, completion, content):
            name = file_name(time, action, State.COMPLETED, completion)
            yield PutOnce(f"{folder}/{name}", content)
        case MetadataCommitted(time, completion, content):
            # Under the lock, because stock Hudi takes a pending one for a failed write; and in any
            # order, because none of them counts before the instant itself is completed (INV-72).
            folder, action = METADATA_TIMELINE, Action.DELTA_COMMIT
            pending = (State.REQUESTED, State.INFLIGHT)
            name = file_name(time, action, State.COMPLETED, completion)
            yield Together(
                (
                    *(PutOnce(f"{folder}/{file_name(time, action, one)}", b"") for one in pending),
                    PutOnce(f"{folder}/{name}", content),
                )
            )
        case MetadataWithdrawn(names):
            # The completed file goes first: without it the others count for nothing.
            for name in sorted(names, key=lambda name: name.endswith((".requested", ".inflight"))):
                yield Delete(f"{METADATA_TIMELINE}/{name}")
        case RevertedToRequested(time, action):
            yield Delete(f"{folder}/{file_name(time, action, State.INFLIGHT)}")
        case RolledBack(time, action):
            # The request goes first. The other way round the write would for a moment look like
            # one that has not begun, and an ingestion never goes back to that (INV-01). A plan may,
            # and as long as it is pending every write reads its request (N-18).
            states = (State.REQUESTED, State.INFLIGHT)
            for state in states if action.is_ingestion else reversed(states):
                yield Delete(f"{folder}/{file_name(time, action, state)}")
        case Withdrawn(instant):
            # The completed file of a write goes last, as in archival (INV-36): it is never taken
            # for one that failed. Readers need the plan of a log compaction as long as it is
            # completed, so a plan goes last; nobody executes one that is withdrawn.
            stages = (State.REQUESTED, State.INFLIGHT, State.COMPLETED)
            for state in stages if instant.action.is_ingestion else reversed(stages):
                yield Delete(instant_path(folder, instant, state))
        case SavepointDeleted(savepoint):
            yield Delete(instant_path(folder, savepoint, State.INFLIGHT))
            if savepoint.is_completed:
                yield Delete(instant_path(folder, savepoint))
        case CancelRequested(time, content):
            yield Ensure(cancel_path(time), content)
        case Aborted(time, action, content):
            yield PutOnce(f"{folder}/{file_name(time, action, State.ABORTED)}", content)
        case AbortTidied(time, action):
            # Engines that do not know aborted files see no pending plan once these are gone (H-11).
            # The request goes last of the two, for a plan is never inflight without one. The entry
            # goes after both: as long as it is there somebody comes back and finishes this.
            yield Delete(f"{folder}/{file_name(time, action, State.INFLIGHT)}")
            yield Delete(f"{folder}/{file_name(time, action, State.REQUESTED)}")
            yield Delete(cancel_path(time))
        case CancelDropped(time):
            yield Delete(cancel_path(time))
        case CancelCounted(content):
            yield Put(CANCEL_COUNT, content)
        case AttemptsForgotten(paths):
            for path in paths:
                yield Delete(path)
        case ConfigChanged(changes):
            yield ChangeConfig(changes)
        case DefinitionsChanged(path, content):
            yield Put(path, content)
        case Archived(instants):
            yield WriteHistory(instants)
        case _:
            assert_never(event)
