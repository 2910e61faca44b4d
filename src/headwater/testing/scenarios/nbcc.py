"""nbcc: non-blocking writers of one bucket, and who else works on it (RFC-66).

    nbcc_slice     two writers that append, a compactor, a reader      INV-41, INV-45, INV-48
    nbcc_replace   two writers, and one that replaces their file group  INV-63, INV-64
    nbcc_columns   three writers, two of which bring a column           INV-100

All writers write the same key, and each one of its own. Which file group they append to is the
product's choice: the bucket's, or a new one under the name of its generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.config.files import FileConfig
from headwater.errors import CommitUnknownError, FencedError, HeadwaterError
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.layout import ATTEMPTS, HEARTBEATS
from headwater.kernel.timeline.names import TimelineFile, file_name
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.cancel import AbortedPlan
from headwater.kernel.txn.fenced import transaction_on
from headwater.kernel.txn.guard import Work
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.schedule import schedule_plan
from headwater.kernel.txn.writes import InflightWrite
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import load_view
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import FileGroupId, FileSlice
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import (
    ClusteringGroup,
    ClusteringPlan,
    CompactionOperation,
    CompactionPlan,
    RequestedReplace,
    SliceInfo,
)
from headwater.operations.plan import (
    OpenGroups,
    Operation,
    WriteColumns,
    WritePlan,
    generations_of,
    slices_by_bucket,
)
from headwater.operations.table_location import TableLocation
from headwater.seams.storage import Storage
from headwater.testing.actor import Body, Process
from headwater.testing.check import ABORTED, COMMITTED, FAILED, FENCED, UNKNOWN
from headwater.testing.check_rows import READ, Done, RowChecks, done_of
from headwater.testing.faults import Faults
from headwater.testing.history import Step
from headwater.testing.operation import Kind, Op
from headwater.testing.rows import (
    PARTITION,
    Row,
    attempt_of,
    base_file,
    config_of,
    decode_rows,
    encode_rows,
    files_of,
    log_file,
    merge_rows,
    metadata_of,
    put_rows,
    read_slice,
    stat_of,
)
from headwater.testing.scenarios.cancel import cancellations_of
from headwater.testing.scenarios.guard import WORLD
from headwater.testing.scenarios.plan import (
    LOCK_TIMEOUT_MS,
    MakeTransaction,
    claim_of,
    components_of,
    heartbeat_deadlines_ms,
    lock_transaction,
)
from headwater.testing.scenarios.writes import Fill, Write, check_outcome, losses_in, writer
from headwater.testing.simulation import Scenario, Simulation
from headwater.testing.table import LAYOUT, TIMELINE, place_of, state_of, timeline_files
from headwater.testing.world import World, WorldRules

CONFIG = config_of(
    "MERGE_ON_READ", {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "1"}
)
BUCKET = 0
GROUP = FileGroupId(PARTITION, "00000000-0000-0000-0000-000000000000-0")
SHARED_KEY = "k"
COLUMNS = {"A": "a", "B": "b", "C": ""}
"""What writers bring, in `nbcc_columns`."""

IDLE = "idle"


def nbcc_slice(faults: Faults, *, transaction: MakeTransaction = lock_transaction) -> Scenario:
    """Two writers, a compactor and a reader, from an empty table on."""
    scenario = _scenario(
        "nbcc_slice",
        {"A": _appender(transaction), "B": _appender(transaction), "C": compactor, "R": reader},
        faults,
        marks=("compacted", "log on top of a compaction requested after it"),
    )
    return replace(scenario, twins=("A", "B"))


def nbcc_replace(faults: Faults, *, by: str, writers: int = 1) -> Scenario:
    """Writers that write again after a loss, and one that replaces their group.

    `by` is overwrite, deletion or clustering: with new rows, with none, with the same rows.
    """
    names = "AB"[:writers]
    marks = ["replaced", "lost to the replacing one"]
    if by == "deletion":
        marks += ["next generation"]
    if by == "clustering":
        marks += ["lost to a pending clustering"]
    scenario = _scenario(
        f"nbcc_replace by {by}",
        {**{name: _appender(rounds=2) for name in names}, "O": REPLACERS[by]},
        faults,
        marks=marks,
        before=_before(),
    )
    return replace(scenario, set_up=commit_before, twins=tuple(names))


def nbcc_columns(faults: Faults) -> Scenario:
    """Writers that append to one group, two with a column of their own, and again after a loss."""
    scenario = _scenario(
        "nbcc_columns",
        {name: _appender(rounds=3, brings=column) for name, column in COLUMNS.items()},
        faults,
        marks=("lost to the columns of another",),
        before=_before(),
    )
    return replace(scenario, set_up=commit_before)


def _scenario(
    name: str,
    actors: Mapping[str, Body],
    faults: Faults,
    *,
    marks: Iterable[str],
    before: tuple[Done, ...] = (),
) -> Scenario:
    checks = RowChecks(config=CONFIG, is_non_blocking=True, before=before)
    return Scenario(
        name=name,
        actors=actors,
        set_up=_empty_table,
        invariants=checks.invariants(),
        learn=checks.learn,
        hear=checks.hear,
        faults=faults,
        world=WORLD,
        deadlines_ms=heartbeat_deadlines_ms,
        check_end=check_outcome,
        marks={mark: MARKS[mark] for mark in marks},
        is_private=is_private,
        has_eager_clocks=True,
    )


def is_private(actor: str, op: Op) -> bool:
    """Whether a call is about what nobody else looks at, or reads what never changes."""
    folders = (f"{ATTEMPTS}/", f"{HEARTBEATS}/", LAYOUT.history)
    return op.kind is Kind.READ or op.target.startswith(folders)


# The table before.


def _empty_table(world: World) -> None:
    """An empty table has no timeline files at all."""


_BEFORE = Instant(
    InstantTime("20251231235958000"),
    Action.DELTA_COMMIT,
    State.COMPLETED,
    InstantTime("20251231235959000"),
)


def commit_before(world: World) -> None:
    """Set up a log file of the bucket, committed."""

    def put(path: str, data: bytes = b"") -> None:
        world.apply("set-up", Op(Kind.PUT, path, data))

    time = _BEFORE.requested_time
    file = log_file(GROUP, time, 1)
    data = encode_rows([Row(SHARED_KEY, 0, time), Row("old", 0, time)])
    put(file.path, data)
    for state in (State.REQUESTED, State.INFLIGHT):
        put(f"{TIMELINE}/{file_name(time, _BEFORE.action, state)}")
    put(f"{TIMELINE}/{file_name(*_BEFORE)}", _content_before())


def _content_before() -> bytes:
    time = _BEFORE.requested_time
    return encode_record(metadata_of("UPSERT", [stat_of(log_file(GROUP, time, 1), b"")]))


def _before() -> tuple[Done, ...]:
    world = World(WorldRules())
    commit_before(world)
    return (done_of(_BEFORE, _content_before(), "", world),)


# Writers.


def _appender(
    transaction: MakeTransaction = lock_transaction, *, rounds: int = 1, brings: str | None = None
) -> Body:
    write = _write(append, Action.DELTA_COMMIT)
    return writer(replace(write, transaction=transaction, brings=brings), rounds)


def _write(fill: Fill, action: Action) -> Write:
    return Write(config=CONFIG, action=action, fill=fill, is_bucketed=True, is_non_blocking=True)


def append(process: Process, write: InflightWrite, view: TableView) -> CommitMetadata:
    """Append a log file to the group of the bucket."""
    time, attempt = write.instant_time, write.attempt.attempt
    slices = slices_by_bucket(view.slices([PARTITION]), BUCKET + 1).get(PARTITION, {})
    group = slices[BUCKET].group if BUCKET in slices else new_group(view, time, Operation.UPSERT)
    rows = [Row(SHARED_KEY, 0, time), Row(process.name, 0, time)]
    return metadata_of("UPSERT", [put_rows(process.storage, log_file(group, time, attempt), rows)])


def overwrite(process: Process, write: InflightWrite, view: TableView) -> CommitMetadata:
    """Replace all groups and start a new one."""
    time, attempt = write.instant_time, write.attempt.attempt
    replaced = [one.group for one in view.slices([PARTITION])]
    group = new_group(view, time, Operation.OVERWRITE)
    rows = [Row(SHARED_KEY, 0, time), Row(process.name, 0, time)]
    stat = put_rows(process.storage, base_file(group, time, attempt), rows)
    return metadata_of(Operation.OVERWRITE, [stat], replaced)


def delete_all(process: Process, write: InflightWrite, view: TableView) -> CommitMetadata:
    """Replace all groups by nothing."""
    replaced = [one.group for one in view.slices([PARTITION])]
    return metadata_of(Operation.DELETE_PARTITIONS, [], replaced)


def new_group(view: TableView, time: InstantTime, operation: Operation) -> FileGroupId:
    """Return the name that the product gives a new group of the bucket."""
    none = pa.schema([])
    plan = WritePlan(
        location=TableLocation("", {}),
        config=CONFIG,
        columns=WriteColumns(schema=none, avro_schema="", block_avro_schema="", of_rows=none),
        instant_time=time,
        attempt=1,
        operation=operation,
        files=FileConfig(),
        is_non_blocking=True,
        groups=OpenGroups(generations=generations_of(view.commits)),
    )
    return plan.new_group(PARTITION, BUCKET)


def reader(process: Process) -> str:
    """Read the table once."""
    view = load_view(process.storage, CONFIG)
    slices = view.slices([PARTITION])
    rows = [row for one in slices for row in read_slice(process.storage, one).values()]
    process.note(READ, view.instant or "", tuple(rows))
    return READ


# Plans.


def compactor(process: Process) -> str:
    """Plan a compaction of what is there, and execute it."""
    return _run_plan(process, Action.COMPACTION, plan_compaction, Compact)


def clusterer(process: Process) -> str:
    """Plan a clustering of what is there, and execute it."""
    return _run_plan(process, Action.CLUSTERING, plan_clustering, Cluster)


def _run_plan(
    process: Process,
    action: Action,
    plan: Callable[[list[FileSlice]], bytes],
    work: Callable[[Storage], Work],
) -> str:
    components = components_of(process)
    txn = transaction_on(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)

    def make() -> bytes | None:
        slices = load_view(process.storage, CONFIG).slices([PARTITION])
        return plan(slices) if any(one.logs for one in slices) else None

    try:
        started = schedule_plan(txn, action, make, lambda: claim_of(process))
        if started is None:
            return IDLE
        done = cancellations_of(process).execute(started, work(process.storage))
    except CommitUnknownError:
        return UNKNOWN
    except FencedError:
        return FENCED
    except HeadwaterError:
        return FAILED
    return ABORTED if isinstance(done, AbortedPlan) else COMMITTED


def plan_compaction(slices: list[FileSlice]) -> bytes:
    operations = [
        CompactionOperation(
            base_instant_time=one.base_instant,
            delta_file_paths=tuple(log.name for log in one.logs),
            data_file_path=None if one.base is None else one.base.name,
            file_id=one.group.file_id,
            partition_path=one.group.partition,
        )
        for one in slices
    ]
    return encode_record(CompactionPlan(operations=tuple(operations)))


def plan_clustering(slices: list[FileSlice]) -> bytes:
    infos = [
        SliceInfo(
            data_file_path=None if one.base is None else one.base.path,
            delta_file_paths=tuple(log.path for log in one.logs),
            file_id=one.group.file_id,
            partition_path=one.group.partition,
        )
        for one in slices
    ]
    plan = ClusteringPlan(input_groups=(ClusteringGroup(slices=tuple(infos)),))
    return encode_record(RequestedReplace(operation_type="CLUSTER", clustering_plan=plan))


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Write what a plan names anew; undo by deleting the files of dead attempts."""

    storage: Storage

    def undo_before(self, attempt: Attempt) -> None:
        for found in self.storage.list_tree(PARTITION):
            owner = attempt_of(found.path)
            if owner is not None and owner[0] == attempt.instant and owner[1] < attempt.attempt:
                self.storage.delete(found.path)

    def load_plan(self, attempt: Attempt, action: Action) -> bytes:
        name = file_name(attempt.instant, action, State.REQUESTED)
        return self.storage.read(f"{TIMELINE}/{name}")

    def read(self, paths: list[str]) -> list[Row]:
        merged = merge_rows(decode_rows(self.storage.read(path)) for path in paths)
        return list(merged.values())


@dataclass(frozen=True, slots=True)
class Compact(Rewrite):
    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        data = self.load_plan(attempt, Action.COMPACTION)
        stats = []
        for one in decode_record(CompactionPlan, data, path="").operations or ():
            names = [one.data_file_path] if one.data_file_path else []
            names += one.delta_file_paths or ()
            rows = self.read([f"{PARTITION}/{name}" for name in names])
            group = FileGroupId(PARTITION, one.file_id or "")
            file = base_file(group, attempt.instant, attempt.attempt)
            stats.append(put_rows(self.storage, file, rows))
        return encode_record(metadata_of("COMPACT", stats))


@dataclass(frozen=True, slots=True)
class Cluster(Rewrite):
    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        data = self.load_plan(attempt, Action.CLUSTERING)
        plan = decode_record(RequestedReplace, data, path="").clustering_plan
        slices = [
            one for group in (plan.input_groups if plan else ()) or () for one in group.slices or ()
        ]
        paths = [
            path
            for one in slices
            for path in (one.data_file_path, *(one.delta_file_paths or ()))
            if path
        ]
        view = load_view(self.storage, CONFIG)
        group = new_group(view, attempt.instant, Operation.OVERWRITE)
        file = base_file(group, attempt.instant, attempt.attempt)
        stat = put_rows(self.storage, file, self.read(paths))
        replaced = [FileGroupId(PARTITION, one.file_id or "") for one in slices]
        return encode_record(metadata_of("CLUSTER", [stat], replaced))


REPLACERS: Mapping[str, Body] = {
    "overwrite": writer(_write(overwrite, Action.REPLACE_COMMIT)),
    "deletion": writer(_write(delete_all, Action.REPLACE_COMMIT)),
    "clustering": clusterer,
}


# Situations that the search must have met, or it proves nothing.


def _completes(step: Step, action: Action) -> TimelineFile | None:
    """Return the completed file of an action that a step creates."""
    file = place_of(step.path).file if step.path and step.after is not None else None
    is_it = file is not None and file.state is State.COMPLETED and file.action is action
    return file if is_it else None


def _is_compacted(step: Step, simulation: Simulation) -> bool:
    return _completes(step, Action.COMMIT) is not None


def _is_replaced(step: Step, simulation: Simulation) -> bool:
    return _completes(step, Action.REPLACE_COMMIT) is not None


def _is_above_later_compaction(step: Step, simulation: Simulation) -> bool:
    done = _completes(step, Action.DELTA_COMMIT)
    plans = [f for f in timeline_files(simulation.world) if f.action is Action.COMPACTION]
    return done is not None and any(plan.requested_time > done.requested_time for plan in plans)


def _has_lost(step: Step, simulation: Simulation) -> bool:
    return any(True for _ in losses_in(step, simulation))


def _has_lost_to_pending(step: Step, simulation: Simulation) -> bool:
    files = timeline_files(simulation.world)
    plans = {file.requested_time for file in files if file.action is Action.CLUSTERING}
    is_pending = any(state_of(time, files) is not State.COMPLETED for time in plans)
    return is_pending and _has_lost(step, simulation)


def _is_next_generation(step: Step, simulation: Simulation) -> bool:
    if _completes(step, Action.DELTA_COMMIT) is None or step.after is None:
        return False
    return any(GROUP.file_id not in path for path in files_of(step.after))


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "compacted": _is_compacted,
    "log on top of a compaction requested after it": _is_above_later_compaction,
    "replaced": _is_replaced,
    "lost to the replacing one": _has_lost,
    "lost to the columns of another": _has_lost,
    "lost to a pending clustering": _has_lost_to_pending,
    "next generation": _is_next_generation,
}
