"""Events: what a decision changes, and the files that say so.

Decisions (see `transaction`) speak in events and never name a file. `writes_of` is the one place
that knows which objects an event becomes and in which order they are written; the order matters
wherever a crash may fall between two of them, and the reason stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.attempts import Attempt, encode_attempt
from headwater.model.instant import Action, InstantTime, State


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
class RevertedToRequested:
    """A dead attempt of a plan was undone; the plan itself stays (INV-25)."""

    time: InstantTime
    action: Action


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A failed write leaves the timeline, request and all; nothing it wrote is ever visible."""

    time: InstantTime
    action: Action


Event = AttemptStarted | Requested | WentInflight | Completed | RevertedToRequested | RolledBack


class PutOnce(NamedTuple):
    path: str
    data: bytes


class Delete(NamedTuple):
    path: str


Write = PutOnce | Delete


def writes_of(events: Iterable[Event], layout: TableLayout) -> Iterator[Write]:
    """Return the storage writes of `events`, to be applied in this order."""
    for event in events:
        yield from _writes_of(event, layout.timeline)


def _writes_of(event: Event, folder: str) -> Iterator[Write]:
    match event:
        case AttemptStarted(attempt):
            yield PutOnce(attempt.path, encode_attempt(attempt))
        case Requested(time, action, content):
            yield PutOnce(f"{folder}/{file_name(time, action, State.REQUESTED)}", content)
        case WentInflight(time, action, content):
            yield PutOnce(f"{folder}/{file_name(time, action, State.INFLIGHT)}", content)
        case Completed(time, action, completion, content):
            name = file_name(time, action, State.COMPLETED, completion)
            yield PutOnce(f"{folder}/{name}", content)
        case RevertedToRequested(time, action):
            yield Delete(f"{folder}/{file_name(time, action, State.INFLIGHT)}")
        case RolledBack(time, action):
            # The request goes first. The other way round the write would for a moment look like
            # one that has not begun, and an ingestion never goes back to that (INV-01).
            yield Delete(f"{folder}/{file_name(time, action, State.REQUESTED)}")
            yield Delete(f"{folder}/{file_name(time, action, State.INFLIGHT)}")
        case _:
            assert_never(event)
