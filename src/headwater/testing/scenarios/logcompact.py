"""logcompact: a writer, a log compactor and a compactor of one file group (INV-51, H-40).

What is planned is the product's choice: which logs a plan takes in, and that no two plans of one
group are pending together. The group has two logs when it begins, so either service finds work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from headwater.config.compaction import CompactionConfig
from headwater.errors import CommitUnknownError, FencedError, HeadwaterError
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.fenced import transaction_on
from headwater.kernel.txn.guard import Work, run_started
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.schedule import schedule_plan
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import load_view
from headwater.model.files import FileGroupId, LogFile
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plan_flags import PlanFlags
from headwater.model.plans import CompactionPlan
from headwater.seams.storage import Storage
from headwater.services.compaction import plan_compaction
from headwater.services.log_compaction import plan_log_compaction
from headwater.testing.actor import Process
from headwater.testing.check import COMMITTED, FAILED, FENCED, UNKNOWN
from headwater.testing.check_rows import Done, RowChecks, done_of
from headwater.testing.faults import Faults
from headwater.testing.history import Step
from headwater.testing.operation import Kind, Op
from headwater.testing.rows import (
    PARTITION,
    Row,
    encode_rows,
    log_file,
    metadata_of,
    put_rows,
    stat_of,
)
from headwater.testing.scenarios.guard import WORLD
from headwater.testing.scenarios.nbcc import (
    CONFIG,
    GROUP,
    IDLE,
    SHARED_KEY,
    Compact,
    Rewrite,
    append,
    is_private,
    reader,
)
from headwater.testing.scenarios.plan import (
    LOCK_TIMEOUT_MS,
    claim_of,
    components_of,
    heartbeat_deadlines_ms,
)
from headwater.testing.scenarios.writes import Write, check_outcome, writer
from headwater.testing.seams import SimStorage
from headwater.testing.simulation import Invariant, Scenario, Simulation
from headwater.testing.table import LAYOUT, TIMELINE, place_of, state_of, timeline_files
from headwater.testing.world import World, WorldRules

PLANNING = CompactionConfig(log_compaction_files_min=2)

_TIMES = ("20251231235950000", "20251231235954000")
_BEFORE = tuple(
    Instant(
        InstantTime(time),
        Action.DELTA_COMMIT,
        State.COMPLETED,
        InstantTime(f"{time[:14]}900"),
    )
    for time in _TIMES
)


def logcompact(faults: Faults) -> Scenario:
    """One of each, and a reader."""
    checks = RowChecks(config=CONFIG, is_non_blocking=True, before=_done_before())
    marks = ("log compacted", "compacted after a log compaction", "log on top of a log compaction")
    return Scenario(
        name="logcompact",
        actors={
            "A": writer(
                Write(
                    config=CONFIG,
                    action=Action.DELTA_COMMIT,
                    fill=append,
                    is_bucketed=True,
                    is_non_blocking=True,
                )
            ),
            "L": log_compactor,
            "C": compactor,
            "R": reader,
        },
        set_up=commit_before,
        invariants=(
            *checks.invariants(),
            Invariant(id="INV-51", check=_one_plan_a_group, under=f"{TIMELINE}/"),
            Invariant(id="INV-51", check=_no_view_shows_both, under=f"{TIMELINE}/"),
        ),
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


# The table before.


def commit_before(world: World) -> None:
    """Set up two log files of the bucket, committed."""
    for instant in _BEFORE:
        time = instant.requested_time
        file, data = _file_before(instant)
        world.apply("set-up", Op(Kind.PUT, file.path, data))
        for state in (State.REQUESTED, State.INFLIGHT):
            name = file_name(time, instant.action, state)
            world.apply("set-up", Op(Kind.PUT, f"{TIMELINE}/{name}"))
        content = _content_before(instant)
        world.apply("set-up", Op(Kind.PUT, f"{TIMELINE}/{file_name(*instant)}", content))


def _file_before(instant: Instant) -> tuple[LogFile, bytes]:
    time = instant.requested_time
    rows = [Row(SHARED_KEY, 0, time), Row(f"old {time[12:14]}", 0, time)]
    return log_file(GROUP, time, 1), encode_rows(rows)


def _content_before(instant: Instant) -> bytes:
    return encode_record(metadata_of("UPSERT", [stat_of(*_file_before(instant))]))


def _done_before() -> tuple[Done, ...]:
    world = World(WorldRules())
    commit_before(world)
    return tuple(done_of(instant, _content_before(instant), "", world) for instant in _BEFORE)


# The services.


def compactor(process: Process) -> str:
    """Plan a compaction as the product does, and execute it."""

    def plan(view: TableView) -> CompactionPlan | None:
        return plan_compaction(
            view.slices([PARTITION]),
            closed=view.pending_rewrites.keys(),
            config=PLANNING,
        )

    return _run_plan(process, Action.COMPACTION, plan, Compact)


def log_compactor(process: Process) -> str:
    """Plan a log compaction as the product does, and execute it."""

    def plan(view: TableView) -> CompactionPlan | None:
        return plan_log_compaction(
            view.slices([PARTITION]),
            closed=view.pending_rewrites.keys(),
            config=PLANNING,
            flags=PlanFlags(),
        )

    return _run_plan(process, Action.LOG_COMPACTION, plan, LogCompact)


def _run_plan(
    process: Process,
    action: Action,
    plan: Callable[[TableView], CompactionPlan | None],
    work: Callable[[Storage], Work],
) -> str:
    components = components_of(process)
    txn = transaction_on(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)

    def make() -> bytes | None:
        made = plan(load_view(process.storage, CONFIG))
        return None if made is None else encode_record(made)

    try:
        started = schedule_plan(txn, action, make, lambda: claim_of(process))
        if started is None:
            return IDLE
        run_started(components, txn, started, work(process.storage))
    except CommitUnknownError:
        return UNKNOWN
    except FencedError:
        return FENCED
    except HeadwaterError:
        return FAILED
    return COMMITTED


@dataclass(frozen=True, slots=True)
class LogCompact(Rewrite):
    """Write the logs that a plan names as one."""

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        data = self.load_plan(attempt, Action.LOG_COMPACTION)
        stats = []
        for one in decode_record(CompactionPlan, data, path="").operations or ():
            rows = self.read([f"{PARTITION}/{name}" for name in one.delta_file_paths or ()])
            group = FileGroupId(PARTITION, one.file_id or "")
            file = log_file(group, attempt.instant, attempt.attempt)
            stats.append(put_rows(self.storage, file, rows))
        return encode_record(replace(metadata_of("LOG_COMPACT", stats), compacted=True))


# INV-51.


def _plans(world: World) -> Iterable[tuple[InstantTime, State | None, CompactionPlan]]:
    files = timeline_files(world)
    for file in files:
        is_plan = file.action in (Action.COMPACTION, Action.LOG_COMPACTION)
        if is_plan and file.state is State.REQUESTED:
            time = file.requested_time
            name = file_name(time, file.action, file.state)
            data = world.objects[f"{TIMELINE}/{name}"].data
            yield time, state_of(time, files), decode_record(CompactionPlan, data, path="")


def _one_plan_a_group(step: Step, simulation: Simulation) -> Iterable[str]:
    taken: dict[str, InstantTime] = {}
    for time, state, plan in _plans(simulation.world):
        if state is None or not state.is_pending:
            continue
        for one in plan.operations or ():
            other = taken.setdefault(one.file_id or "", time)
            if other != time:
                yield f"plans {other} and {time} are pending for file group {one.file_id}"


def _no_view_shows_both(step: Step, simulation: Simulation) -> Iterable[str]:
    file = place_of(step.path).file if step.path else None
    if file is None or file.state is not State.COMPLETED or step.after is None:
        return
    world = simulation.world
    storage = SimStorage(lambda op: world.apply("checker", op))
    try:
        slices = load_view(storage, CONFIG).slices([PARTITION])
    except HeadwaterError:
        return  # INV-48 has the words for it.
    shown = {log.name: log.instant_time for one in slices for log in one.logs}
    for time, _, plan in _plans(world):
        for one in plan.operations or ():
            both = [name for name in one.delta_file_paths or () if name in shown]
            if both and time in shown.values():
                yield f"readers see {', '.join(both)} and log compaction {time} that took them in"


# Situations that the search must have met, or it proves nothing.


def _completes(step: Step, simulation: Simulation, action: Action) -> bool:
    """Whether a step completes a plan of an action."""
    file = place_of(step.path).file if step.path and step.after is not None else None
    if file is None or file.state is not State.COMPLETED:
        return False
    request = file_name(file.requested_time, action, State.REQUESTED)
    return f"{TIMELINE}/{request}" in simulation.world.objects


def _is_log_compacted(step: Step, simulation: Simulation) -> bool:
    return _completes(step, simulation, Action.LOG_COMPACTION)


def _log_compactions(simulation: Simulation) -> set[InstantTime]:
    files = timeline_files(simulation.world)
    return {file.requested_time for file in files if file.action is Action.LOG_COMPACTION}


def _is_compacted_after(step: Step, simulation: Simulation) -> bool:
    if not _completes(step, simulation, Action.COMPACTION):
        return False
    names = {
        name
        for _, _, plan in _plans(simulation.world)
        for one in plan.operations or ()
        for name in one.delta_file_paths or ()
    }
    return any(time in name for time in _log_compactions(simulation) for name in names)


def _is_log_on_top(step: Step, simulation: Simulation) -> bool:
    file = place_of(step.path).file if step.path and step.after is not None else None
    if file is None or file.action is not Action.DELTA_COMMIT or file.completion_time is None:
        return False
    plans = _log_compactions(simulation) - {file.requested_time}
    files = timeline_files(simulation.world)
    return any(state_of(time, files) is not State.COMPLETED for time in plans)


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "log compacted": _is_log_compacted,
    "compacted after a log compaction": _is_compacted_after,
    "log on top of a log compaction": _is_log_on_top,
}
