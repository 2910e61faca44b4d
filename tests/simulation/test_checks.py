"""Every invariant notices the smallest thing that breaks it, and accepts what is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from headwater.config.table import table_checksum
from headwater.format.properties import encode_properties
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import (
    METADATA,
    METADATA_TIMELINE,
    PROPERTIES,
    attempt_path,
    cancel_path,
    heartbeat_path,
)
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.attempts import Attempt, Purpose, encode_attempt
from headwater.kernel.txn.index_plan import PlannedIndex, encode_index_plan
from headwater.kernel.txn.markers import Marker, MarkerKind, marker_path
from headwater.kernel.txn.rollback_plan import plan_deletions, rollback_plan
from headwater.metadata.partition_kinds import file_id
from headwater.model.files import BaseFile, LogFile
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import CompactionOperation, CompactionPlan
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
from headwater.testing.scenarios.index import PLANNED
from headwater.testing.scenarios.journal_index import FIRST as DEFINED
from headwater.testing.scenarios.plan import CHECKS, data_path, encode_files
from headwater.testing.schedule import Random
from headwater.testing.simulation import Scenario
from headwater.testing.table import TIMELINE
from headwater.testing.toy_index import INDEX, encode_toy, encode_toy_commit
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


W = InstantTime("20260101000000003")
R = InstantTime("20260101000000004")
WRITTEN = data_path(W, 1)
MARKER = marker_path(W, Marker(WRITTEN, MarkerKind.CREATE))
WRITE_REQUESTED = f"{TIMELINE}/{W}.commit.requested"
WRITE_INFLIGHT = f"{TIMELINE}/{W}.inflight"


def _claim(number: int, purpose: Purpose, time: InstantTime = W, owner: str = "X") -> Act:
    attempt = Attempt(
        instant=time,
        attempt=number,
        token=f"{time}/{number}",
        owner=Owner(owner, 1, f"{owner}-1"),
        purpose=purpose,
        started_ms=0,
        interval_ms=100,
        tolerable_misses=2,
        is_released=True,
    )
    return _put(attempt.path, encode_attempt(attempt))


def _rollback_requested(time: InstantTime = R, target: InstantTime = W) -> Act:
    markers = [Marker(WRITTEN, MarkerKind.CREATE)] if target == W else []
    requests = plan_deletions(target, markers, "sim://table")
    is_plan = target == P
    instant = Instant(target, Action.COMPACTION if is_plan else Action.COMMIT, State.INFLIGHT)
    plan = encode_record(rollback_plan(instant, requests))
    return _put(f"{TIMELINE}/{time}.rollback.requested", plan)


FAILED_WRITE: list[Act] = [
    _claim(1, Purpose.WRITE),
    _put(heartbeat_path(W)),
    _put(WRITE_REQUESTED),
    _put(WRITE_INFLIGHT),
    _put(MARKER),
    _put(WRITTEN, b"rows"),
]
SCHEDULED: list[Act] = [*FAILED_WRITE, _claim(2, Purpose.ROLLBACK), _rollback_requested()]
ROLLED_BACK: list[Act] = [
    *SCHEDULED,
    _put(f"{TIMELINE}/{R}.rollback.inflight"),
    _delete(WRITTEN),
    _delete(WRITE_REQUESTED),
    _delete(WRITE_INFLIGHT),
    _put(f"{TIMELINE}/{R}_{C}.rollback", b"what was deleted"),
]

GOOD: list[Act] = [
    _attempt(1),
    _put(REQUESTED),
    _put(INFLIGHT),
    _put(DATA, b"rows"),
    _completed(DATA),
    _delete(attempt_path(P, 1)),
]

METADATA_TABLE = _put(f"{METADATA}/{PROPERTIES}")
INDEX_PLAN = f"{TIMELINE}/{Q}.indexing.requested"
FIRST = "0" * 17


def _config(partitions: str = "", inflight: str = "", **more: str) -> Act:
    properties = {
        "hoodie.table.name": "rows",
        "hoodie.table.version": "9",
        "hoodie.table.checksum": str(table_checksum(None, "rows")),
        "hoodie.table.metadata.partitions": partitions,
        "hoodie.table.metadata.partitions.inflight": inflight,
        "hoodie.table.type": "COPY_ON_WRITE",
        **more,
    }
    return _put(PROPERTIES, encode_properties(properties, comment="by hand"))


def _plan_index(groups: int = 1) -> Act:
    planned = PlannedIndex(partition=INDEX, group_count=groups)
    return _put(INDEX_PLAN, encode_index_plan([planned], InstantTime(FIRST)))


def _index_with(path: str) -> list[Act]:
    """Return what makes an index that holds one path."""
    base = BaseFile(INDEX, file_id(INDEX, 0), "0-0-0", InstantTime(FIRST), "hfile")
    name = file_name(InstantTime(FIRST), Action.DELTA_COMMIT, State.COMPLETED, InstantTime(C))
    return [
        METADATA_TABLE,
        _config(f"{INDEX},files"),
        _put(f"{METADATA_TIMELINE}/{name}", encode_toy_commit([], [INDEX])),
        _put(f"{METADATA}/{base.path}", encode_toy([path])),
    ]


INDEX_GROUP = f"{METADATA}/{LogFile(INDEX, file_id(INDEX, 0), Q, 1, '0-0-0').path}"


def _planned_with_group(planned: PlannedIndex) -> list[Act]:
    """Return what makes a plan over one file group."""
    plan = encode_index_plan([replace(planned, group_count=1)], InstantTime(FIRST))
    return [_put(INDEX_GROUP, encode_toy([])), _put(INDEX_PLAN, plan)]


_FOLD_PLANNED = CompactionPlan(
    operations=(CompactionOperation(base_instant_time=FIRST, file_id="x", partition_path=INDEX),)
)

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
    "an instant before the heartbeat that other engines look at": (
        "INV-111",
        [_attempt(1), _put(f"{TIMELINE}/{P}.deltacommit.requested")],
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
    "requested plan deleted": ("INV-25", [_put(REQUESTED), _delete(REQUESTED)]),
    "write goes on while it is rolled back": ("INV-26", [*SCHEDULED, _claim(3, Purpose.WRITE)]),
    "write goes inflight while it is rolled back": (
        "INV-26",
        [*SCHEDULED, _delete(WRITE_INFLIGHT), _put(WRITE_INFLIGHT)],
    ),
    "file deleted that the plan lacks": (
        "INV-27",
        [*SCHEDULED, _put(data_path(W, 1, "fg-2"), b"late"), _delete(data_path(W, 1, "fg-2"))],
    ),
    "file of a live attempt deleted": (
        "INV-27",
        [_claim(1, Purpose.WRITE, owner="Y"), _put(WRITTEN, b"rows"), _delete(WRITTEN)],
    ),
    "rollback of a write that is not fenced": ("INV-28", [*FAILED_WRITE, _rollback_requested()]),
    "rollback of a completed write": (
        "INV-28",
        [
            *FAILED_WRITE,
            _put(f"{TIMELINE}/{W}_{C}.commit", encode_files([WRITTEN])),
            _claim(2, Purpose.ROLLBACK),
            _rollback_requested(InstantTime(D)),
        ],
    ),
    "rollback of a plan": (
        "INV-28",
        [
            _put(REQUESTED),
            _claim(1, Purpose.ROLLBACK, P),
            _rollback_requested(R, P),
        ],
    ),
    "rollback of what is not there": (
        "INV-28",
        [_claim(1, Purpose.ROLLBACK), _rollback_requested()],
    ),
    "two rollbacks of one write": ("INV-29", [*SCHEDULED, _rollback_requested(InstantTime(C))]),
    "rolled back and completed": (
        "INV-31",
        [*SCHEDULED, _put(f"{TIMELINE}/{W}_{C}.commit", encode_files([WRITTEN]))],
    ),
    "rolled back, file left": (
        "INV-32",
        [act for act in ROLLED_BACK if act is not ROLLED_BACK[len(SCHEDULED) + 1]],
    ),
    "rolled back, write left on the timeline": (
        "INV-32",
        [act for act in ROLLED_BACK if act is not ROLLED_BACK[len(SCHEDULED) + 3]],
    ),
    "marker deleted while the write is pending": ("INV-60", [*FAILED_WRITE, _delete(MARKER)]),
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
    "index names what is not there": ("INV-71", _index_with("nowhere.parquet")),
    "index shows an instant that is pending": (
        "INV-72",
        [_put(WRITE_REQUESTED), _put(WRITE_INFLIGHT), *_index_with(WRITTEN)],
    ),
    "planned index is in use": (
        "INV-73",
        [METADATA_TABLE, _config(f"{INDEX},files"), _plan_index()],
    ),
    "commit tells no index": (
        "INV-74",
        [METADATA_TABLE, _config("files"), _attempt(1), _put(REQUESTED), _completed()],
    ),
    "plan without its file groups": ("INV-75", [METADATA_TABLE, _config("files"), _plan_index(2)]),
    "index being built without a plan": ("INV-76", [METADATA_TABLE, _config("files", INDEX)]),
    "rolled back write still told": (
        "INV-78",
        [
            METADATA_TABLE,
            _config(),
            _put(f"{METADATA_TIMELINE}/{W}.deltacommit.requested"),
            *ROLLED_BACK,
        ],
    ),
    "index update changes another key": (
        "INV-79",
        [
            METADATA_TABLE,
            _config("files"),
            _config("files", **{"hoodie.table.partition.fields": "city"}),
        ],
    ),
    "index vanishes": ("INV-79", [METADATA_TABLE, _config("files"), _config()]),
    "compaction takes in a planned index": (
        "INV-80",
        [
            METADATA_TABLE,
            _config("files"),
            _plan_index(),
            _put(f"{METADATA_TIMELINE}/{C}.compaction.requested", encode_record(_FOLD_PLANNED)),
        ],
    ),
    "index without its definition": (
        "INV-135",
        [METADATA_TABLE, _config("files"), *_planned_with_group(DEFINED)],
    ),
    "file group of a planned index deleted": (
        "INV-136",
        [METADATA_TABLE, _config("files"), *_planned_with_group(PLANNED), _delete(INDEX_GROUP)],
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


def test_a_failed_write_rolled_back_and_tidied_away_breaks_nothing() -> None:
    acts = [
        *ROLLED_BACK,
        _put(WRITTEN, b"rows"),  # Its writer woke up; nobody lists the file, so it is swept.
        _delete(WRITTEN),
        _delete(MARKER),
        _delete(attempt_path(W, 1)),
        _claim(1, Purpose.WRITE),  # The last beat of the writer, late: no new attempt.
        _delete(attempt_path(W, 1)),
        _delete(attempt_path(W, 2)),
    ]
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
