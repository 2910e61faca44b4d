"""Every invariant notices the smallest thing that breaks it, and accepts what is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from headwater.kernel.layout import attempt_path, cancel_path, heartbeat_path
from headwater.kernel.txn.attempts import Attempt, Purpose, encode_attempt
from headwater.model.instant import InstantTime
from headwater.seams.ids import Owner
from headwater.testing.actor import Process
from headwater.testing.check import (
    BEGUN,
    COMMITTED,
    ENDED,
    FAILED,
    READ_BACK,
    REFUSED,
    RETURNED,
    UNKNOWN,
)
from headwater.testing.explore import run
from headwater.testing.scenarios.plan import CHECKS, data_path, encode_files
from headwater.testing.schedule import Random
from headwater.testing.simulation import Scenario
from headwater.testing.table import TIMELINE
from headwater.testing.world import World

P = InstantTime("20260101000000001")
Q = InstantTime("20260101000000002")
C = "20260101000000005"
D = "20260101000000006"

REQUESTED = f"{TIMELINE}/{P}.compaction.requested"
INFLIGHT = f"{TIMELINE}/{P}.compaction.inflight"
COMPLETED = f"{TIMELINE}/{P}_{C}.commit"
ABORTED = f"{TIMELINE}/{P}.clustering.aborted"
DATA = data_path(P, 1)

Act = Callable[[Process], object]


def _put(path: str, data: bytes = b"") -> Act:
    return lambda process: process.storage.put(path, data)


def _delete(path: str) -> Act:
    return lambda process: process.storage.delete(path)


def _note(name: str, *values: object) -> Act:
    return lambda process: process.note(name, *values)


def _attempt(number: int, owner: str = "X", token: str = "t", **changes: object) -> Act:
    attempt = Attempt(
        instant=P,
        attempt=number,
        token=token,
        owner=Owner(owner, 1, f"{owner}-1"),
        purpose=Purpose.EXECUTE,
        started_ms=0,
        interval_ms=100,
        tolerable_misses=2,
        **changes,  # type: ignore[arg-type]
    )
    return _put(attempt_path(P, number), encode_attempt(attempt))


def _look(process: Process) -> object:
    return process.clock.monotonic_ms()


def _lock(process: Process) -> object:
    return process.lock.acquire(timeout_ms=1)


def _sleep(process: Process) -> None:
    process.clock.sleep_ms(200)


def _completed(*paths: str) -> Act:
    return _put(COMPLETED, encode_files(list(paths)))


GOOD: list[Act] = [
    _attempt(1),
    _put(REQUESTED),
    _put(INFLIGHT),
    _put(DATA, b"rows"),
    _completed(DATA),
    _delete(attempt_path(P, 1)),
]

BAD: dict[str, tuple[str, list[Act]]] = {
    "completes before it is inflight": ("INV-01", [_put(REQUESTED), _completed()]),
    "ingestion goes back to requested": (
        "INV-01",
        [
            _put(f"{TIMELINE}/{P}.commit.requested"),
            _put(f"{TIMELINE}/{P}.inflight"),
            _delete(f"{TIMELINE}/{P}.inflight"),
        ],
    ),
    "two completed files": ("INV-02", [*GOOD, _put(f"{TIMELINE}/{P}_{D}.commit", b'{"files":[]}')]),
    "completed and aborted": ("INV-02", [*GOOD, _put(ABORTED)]),
    "completed file deleted": ("INV-03", [*GOOD, _delete(COMPLETED)]),
    "completed file overwritten": ("INV-03", [*GOOD, _completed()]),
    "completed without request": ("INV-04", [_completed()]),
    "cancelled without request": ("INV-04", [_put(cancel_path(P))]),
    "timeline file overwritten": ("INV-05", [_put(REQUESTED, b"1"), _put(REQUESTED, b"2")]),
    "timeline file comes back with other bytes": (
        "INV-05",
        [_put(REQUESTED, b"1"), _delete(REQUESTED), _put(REQUESTED, b"2")],
    ),
    "one time, two actions": (
        "INV-06",
        [_put(REQUESTED), _put(f"{TIMELINE}/{P}.clustering.requested")],
    ),
    "cancelled plan completes": (
        "INV-07",
        [_put(REQUESTED), _put(cancel_path(P)), _put(INFLIGHT), _completed()],
    ),
    "aborted without a cancel": (
        "INV-08",
        [_put(f"{TIMELINE}/{P}.clustering.requested"), _put(ABORTED)],
    ),
    "files of two attempts": (
        "INV-18",
        [_put(REQUESTED), _put(INFLIGHT), _completed(DATA, data_path(P, 2))],
    ),
    "files of a dead attempt": (
        "INV-18",
        [_put(REQUESTED), _put(INFLIGHT), _attempt(2), _completed(DATA)],
    ),
    "attempt number used again": (
        "INV-19",
        [_attempt(1), _delete(attempt_path(P, 1)), _attempt(1, token="u")],
    ),
    "attempt numbers fall": ("INV-19", [_attempt(2), _attempt(1)]),
    "start beside a live attempt": ("INV-20", [_attempt(1), _attempt(2, token="u")]),
    "somebody else's heartbeat overwritten": (
        "INV-21",
        [_attempt(1, owner="Y"), _attempt(1, owner="Y", beat=1)],
    ),
    "somebody else's heartbeat deleted": (
        "INV-21",
        [_attempt(1, owner="Y"), _delete(attempt_path(P, 1))],
    ),
    "lapsed heartbeat refreshed": (
        "INV-21",
        [_attempt(1), _sleep, _look, _attempt(1, beat=1)],
    ),
    "plain heartbeat of a successor deleted": (
        "INV-21",
        [
            _put(REQUESTED),
            _attempt(1, is_released=True),
            _put(heartbeat_path(P)),
            _attempt(2, owner="Y"),
            _delete(heartbeat_path(P)),
        ],
    ),
    "timeline write by who was taken over": (
        "INV-22",
        [_put(REQUESTED), _attempt(1), _attempt(2, owner="Y"), _put(INFLIGHT)],
    ),
    "timeline write by who had lapsed": (
        "INV-22",
        [_put(REQUESTED), _attempt(1), _sleep, _look, _lock, _put(INFLIGHT)],
    ),
    "refused, yet it wrote": (
        "INV-23",
        [_note(BEGUN), _attempt(1), _note(ENDED, REFUSED, P), _look],
    ),
    "returned what has not ended": (
        "INV-24",
        [_put(REQUESTED), _look, _note(ENDED, RETURNED, P), _look],
    ),
    "began after the end, yet not returned": (
        "INV-24",
        [*GOOD, _look, _note(BEGUN), _look, _lock, _note(ENDED, FAILED, P), _look],
    ),
    "returned, yet it wrote": (
        "INV-24",
        [*GOOD, _note(ENDED, RETURNED, P), _look],
    ),
    "time given out twice": (
        "INV-40",
        [_put(REQUESTED), _put(INFLIGHT), _put(f"{TIMELINE}/{P}_{P}.commit", b'{"files":[]}')],
    ),
    "times go back": (
        "INV-40",
        [_put(f"{TIMELINE}/{Q}.commit.requested"), _put(REQUESTED)],
    ),
    "late arrival": (
        "INV-41",
        [_put(REQUESTED), _put(INFLIGHT), _put(f"{TIMELINE}/{D}.commit.requested"), _completed()],
    ),
    "completion not after the request": (
        "INV-42",
        [
            _put(f"{TIMELINE}/{D}.commit.requested"),
            _put(f"{TIMELINE}/{D}.inflight"),
            _put(f"{TIMELINE}/{D}_{C}.commit", b'{"files":[]}'),
        ],
    ),
    "data file written twice": ("INV-57", [_put(DATA, b"1"), _put(DATA, b"2")]),
    "data file comes back with other bytes": (
        "INV-57",
        [_put(DATA, b"1"), _delete(DATA), _put(DATA, b"2")],
    ),
    "listed file is missing": ("INV-59", [_put(REQUESTED), _put(INFLIGHT), _completed(DATA)]),
    "listed file is deleted": ("INV-59", [*GOOD, _delete(DATA)]),
    "success that is not visible": (
        "INV-84",
        [_put(REQUESTED), _note(ENDED, COMMITTED, P), _look],
    ),
    "success that does not last": (
        "INV-84",
        [*GOOD, _note(ENDED, COMMITTED, P), _look, _delete(COMPLETED)],
    ),
    "failure that is visible": ("INV-84", [*GOOD, _note(ENDED, FAILED, P), _look]),
    "failure that becomes visible": (
        "INV-84",
        [_put(REQUESTED), _put(INFLIGHT), _note(ENDED, FAILED, P), _look, _completed()],
    ),
    "read-back that was wrong": (
        "INV-84",
        [
            _put(REQUESTED),
            _put(INFLIGHT),
            _note(ENDED, UNKNOWN, P),
            _note(READ_BACK, P, False),
            _look,
            _completed(),
        ],
    ),
}


def _empty(world: World) -> None:
    pass


def _scenario(acts: list[Act]) -> Scenario:
    def body(process: Process) -> str:
        for act in acts:
            act(process)
        return "done"

    return Scenario(
        name="scripted",
        actors={"X": body},
        set_up=_empty,
        invariants=CHECKS.all(),
        learn=CHECKS.learn,
        hear=CHECKS.hear,
    )


@pytest.mark.parametrize("case", BAD)
def test_a_breach_is_noticed(case: str) -> None:
    invariant, acts = BAD[case]
    trace = run(_scenario(acts), Random(0), stop_at=lambda found: found.invariant == invariant)
    assert trace.violation is not None, "not noticed"


def test_every_invariant_is_seen_to_fail_once() -> None:
    assert {invariant.id for invariant in CHECKS.all()} == {noticed for noticed, _ in BAD.values()}


def test_an_orderly_instant_breaks_nothing() -> None:
    acts = [_note(BEGUN), *GOOD, _note(ENDED, COMMITTED, P), _look]
    assert run(_scenario(acts), Random(0)).violation is None


def test_a_plan_taken_back_and_executed_again_breaks_nothing() -> None:
    acts = [
        _attempt(1),
        _put(REQUESTED),
        _put(INFLIGHT),
        _attempt(1, beat=1, is_released=True),
        _attempt(2, token="u"),
        _delete(INFLIGHT),
        _put(INFLIGHT),
        _put(data_path(P, 2), b"rows"),
        _put(COMPLETED, json.dumps({"files": [data_path(P, 2)]}).encode()),
    ]
    assert run(_scenario(acts), Random(0)).violation is None
