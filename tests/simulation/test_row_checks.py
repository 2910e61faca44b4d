"""Every invariant of many writers notices the smallest thing that breaks it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import pytest

from headwater.format.timeline.records import encode_record
from headwater.kernel.timeline.names import file_name
from headwater.model.files import DataFile, FileGroupId
from headwater.model.instant import Action, InstantTime, State
from headwater.model.plans import (
    ClusteringGroup,
    ClusteringPlan,
    CompactionOperation,
    CompactionPlan,
    RequestedReplace,
    SliceInfo,
)
from headwater.testing.actor import Process
from headwater.testing.check import Checks
from headwater.testing.check_rows import PLANNED, READ, RowChecks
from headwater.testing.explore import run
from headwater.testing.rows import (
    PARTITION,
    Row,
    attempt_of,
    base_file,
    config_of,
    files_of,
    log_file,
    metadata_of,
    put_rows,
)
from headwater.testing.schedule import Random
from headwater.testing.simulation import Scenario
from headwater.testing.table import TIMELINE
from headwater.testing.world import World

CONFIG = config_of("MERGE_ON_READ", {"hoodie.index.type": "BUCKET"})
GROUP = FileGroupId(PARTITION, "00000000-a-0")
TWIN = FileGroupId(PARTITION, "00000000-b-0")
OTHER = FileGroupId(PARTITION, "00000001-a-0")

Act = Callable[[Process], object]


def time(number: int) -> InstantTime:
    return InstantTime(f"202601010000000{number:02d}")


def path(number: int, action: Action, state: State, completion: int | None = None) -> str:
    done = None if completion is None else time(completion)
    return f"{TIMELINE}/{file_name(time(number), action, state, done)}"


def begin(number: int, action: Action, plan: bytes = b"") -> list[Act]:
    return [
        lambda process: process.storage.put(path(number, action, State.REQUESTED), plan),
        lambda process: process.storage.put(path(number, action, State.INFLIGHT), b""),
    ]


def end(
    number: int,
    completion: int,
    files: Iterable[DataFile],
    key: str = "k",
    *,
    action: Action = Action.DELTA_COMMIT,
    operation: str = "UPSERT",
    replaced: Iterable[FileGroupId] | None = None,
    saw: int | None = None,
    by: int | None = None,
    columns: str = "",
) -> list[Act]:
    """Write one row to each file and complete, having seen all that completed up to `saw`."""

    def complete(process: Process) -> None:
        row = Row(key, 0, time(number if by is None else by))
        stats = [put_rows(process.storage, file, [row]) for file in files]
        if saw is not None:
            process.note(PLANNED, time(number), time(saw))
        process.clock.now_ms()
        said = metadata_of(operation, stats, replaced)
        extra = {**(said.extra_metadata or {}), "schema": columns}
        content = encode_record(dataclasses.replace(said, extra_metadata=extra))
        completed = path(number, action.completed_name, State.COMPLETED, completion)
        process.storage.put(completed, content)

    return [complete]


def log(number: int, group: FileGroupId = GROUP) -> DataFile:
    return log_file(group, time(number), 1)


def base(number: int, group: FileGroupId = GROUP) -> DataFile:
    return base_file(group, time(number), 1)


def append(
    number: int,
    completion: int,
    saw: int,
    *,
    key: str = "k",
    columns: str = "",
    **at: FileGroupId,
) -> list[Act]:
    began = begin(number, Action.DELTA_COMMIT)
    return began + end(number, completion, [log(number, **at)], key, saw=saw, columns=columns)


def rewrite(number: int, completion: int, saw: int, **at: FileGroupId) -> list[Act]:
    began = begin(number, Action.COMMIT)
    file = base(number, **at)
    return began + end(number, completion, [file], action=Action.COMMIT, saw=saw)


def compaction_plan(*names: str) -> bytes:
    one = CompactionOperation(
        base_instant_time=time(1), delta_file_paths=names, file_id=GROUP.file_id
    )
    return encode_record(CompactionPlan(operations=(one,)))


def clustering_plan() -> bytes:
    group = ClusteringGroup(slices=(SliceInfo(file_id=GROUP.file_id, partition_path=PARTITION),))
    return encode_record(RequestedReplace(clustering_plan=ClusteringPlan(input_groups=(group,))))


def replace_group(number: int, completion: int) -> list[Act]:
    return begin(number, Action.REPLACE_COMMIT) + end(
        number,
        completion,
        [],
        action=Action.REPLACE_COMMIT,
        operation="INSERT_OVERWRITE",
        replaced=[GROUP],
        saw=number,
    )


def compact(number: int, completion: int, *, by: int) -> list[Act]:
    plan = compaction_plan(log(1).name)
    return begin(number, Action.COMPACTION, plan) + end(
        number, completion, [base(number)], action=Action.COMPACTION, operation="COMPACT", by=by
    )


BAD: dict[str, tuple[str, list[Act]]] = {
    "a completed file vanishes": (
        "INV-35",
        [
            *append(1, 2, 0),
            lambda p: p.storage.delete(path(1, Action.DELTA_COMMIT, State.COMPLETED, 2)),
        ],
    ),
    "a plan without a log that was complete": (
        "INV-45",
        [*append(1, 2, 0), *begin(3, Action.COMPACTION, compaction_plan())],
    ),
    "a log completes below a plan that lacks it": (
        "INV-45",
        [
            *begin(1, Action.DELTA_COMMIT),
            *begin(3, Action.COMPACTION, compaction_plan()),
            *end(1, 2, [log(1)], saw=0),
        ],
    ),
    "a compaction changes a row": ("INV-48", [*append(1, 2, 0), *compact(3, 4, by=3)]),
    "a view of the past changes": (
        "INV-52",
        [*append(1, 2, 0), lambda p: p.storage.delete(log(1).path), *append(3, 4, 2)],
    ),
    "a commit is not in the view as of itself": (
        "INV-53",
        [
            *begin(1, Action.COMMIT),
            *rewrite(2, 3, 0),
            *end(1, 4, [base(1)], action=Action.COMMIT, saw=3),
        ],
    ),
    "a base file without what another wrote": ("INV-61", [*rewrite(1, 3, 0), *rewrite(4, 5, 0)]),
    "a commit requested long before is missed": (
        "INV-62",
        [
            *begin(1, Action.COMMIT),
            *rewrite(3, 4, 0, group=OTHER),
            *begin(5, Action.COMMIT),
            *end(1, 6, [base(1)], action=Action.COMMIT, saw=0),
            *end(5, 7, [base(5)], action=Action.COMMIT, saw=4),
        ],
    ),
    "a log in a replaced group": (
        "INV-63",
        [*append(1, 2, 0), *replace_group(3, 4), *append(5, 6, 4)],
    ),
    "a log in a group that is about to be replaced": (
        "INV-64",
        [*append(1, 2, 0), *begin(3, Action.CLUSTERING, clustering_plan()), *append(4, 5, 2)],
    ),
    "a bucket with two groups": (
        "INV-65",
        [*append(1, 2, 0), *append(3, 4, 2, key="other", group=TWIN)],
    ),
    "a write leaves fewer columns than the one before": (
        "INV-100",
        [*append(1, 2, 0, columns="a b"), *append(3, 4, 0, columns="a")],
    ),
    "a base file below a newer one": (
        "INV-81",
        [
            *begin(1, Action.COMMIT),
            *rewrite(2, 3, 0),
            *end(1, 4, [base(1)], action=Action.COMMIT, saw=3),
        ],
    ),
    "a key in two groups": ("INV-82", [*append(1, 2, 0), *append(3, 4, 2, group=OTHER)]),
    "a reader gets what nobody wrote": (
        "INV-85",
        [
            *append(1, 2, 0),
            lambda p: p.note(READ, time(2), (Row("k", 0, time(9)),)),
            lambda p: p.clock.now_ms(),
        ],
    ),
}

GOOD: dict[str, list[Act]] = {
    "appends that do not see each other": [
        *begin(1, Action.DELTA_COMMIT),
        *append(2, 3, 0),
        *end(1, 4, [log(1)], saw=0),
    ],
    "columns stay, and become more": [
        *append(1, 2, 0, columns="a"),
        *compact(3, 4, by=1),
        *append(5, 6, 4, columns="a b"),
    ],
    "a log on top of a compaction that was requested later": [
        *append(1, 2, 0),
        *begin(3, Action.DELTA_COMMIT),
        *compact(4, 5, by=1),
        *end(3, 6, [log(3)], saw=2),
    ],
    "a replaced group and its successor": [
        *append(1, 2, 0),
        *replace_group(3, 4),
        *append(5, 6, 4, group=TWIN),
        lambda p: p.note(READ, time(6), (Row("k", 0, time(5)),)),
        lambda p: p.clock.now_ms(),
    ],
}


def _empty(world: World) -> None:
    pass


def _scenario(acts: list[Act]) -> Scenario:
    checks = RowChecks(config=CONFIG, is_non_blocking=True)

    def body(process: Process) -> str:
        for act in acts:
            act(process)
        return "done"

    return Scenario(
        name="scripted",
        actors={"X": body},
        set_up=_empty,
        invariants=checks.invariants(),
        learn=checks.learn,
        hear=checks.hear,
    )


@pytest.mark.parametrize("case", BAD)
def test_a_breach_is_noticed(case: str) -> None:
    invariant, acts = BAD[case]
    trace = run(_scenario(acts), Random(0), stop_at=lambda found: found.invariant == invariant)
    assert trace.violation is not None, "not noticed"


def test_every_invariant_is_seen_to_fail_once() -> None:
    basic = Checks(files_of=files_of, attempt_of=attempt_of)
    known = {one.id for one in (*basic.timeline(), *basic.guard(), *basic.data())}
    own = {one.id for one in RowChecks(config=CONFIG).invariants()} - known
    assert own == {noticed for noticed, _ in BAD.values()}


@pytest.mark.parametrize("case", GOOD)
def test_what_is_allowed_breaks_nothing(case: str) -> None:
    assert run(_scenario(GOOD[case]), Random(0)).violation is None
