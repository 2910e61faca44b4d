"""ecd: writers that look for conflicts while they write (5.9, INV-66 to INV-70).

The first writer appends to file groups A and B, the second to B and A, the third to A and B again.
Rows do not matter here, only who announces what and when: the log files are empty. Everything about
markers, rivals, detection and the commit is the product's; the marker service is there without its
network, as a file of markers and the checker beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from headwater.config.detection import DetectionConfig, DetectionStrategy
from headwater.config.lock import LockConfig
from headwater.config.markers import MarkerType
from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    EarlyConflictError,
    FencedError,
    HeadwaterError,
    StorageError,
)
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import DETECTION, MARKERS
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.changes import change_of, load_changes
from headwater.kernel.txn.conflicts import ConflictCheck, Snapshot
from headwater.kernel.txn.markers import DirectMarkers, Marker, MarkerKind, Markers, delete_markers
from headwater.kernel.txn.writes import InflightWrite, start_inflight_write
from headwater.kernel.view.commits import CompletedCommit
from headwater.markers.batches import BatchFile, put_marker_type
from headwater.markers.checker import MarkerChecker
from headwater.markers.detection import Detection, detecting_markers, plan_detection
from headwater.markers.early_conflict import EarlyCheck
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import FileGroupId
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.testing.actor import Body, Process
from headwater.testing.check import BEGUN, COMMITTED, ENDED, FAILED, FENCED, UNKNOWN
from headwater.testing.check_detection import PLANNED, STOPPED, DetectionChecks
from headwater.testing.faults import Faults
from headwater.testing.history import Step
from headwater.testing.operation import STORAGE_READS, STORAGE_WRITES, Op
from headwater.testing.rows import PARTITION, log_file, metadata_of, put_rows
from headwater.testing.scenarios.guard import WORLD
from headwater.testing.scenarios.plan import (
    LOCK_TIMEOUT_MS,
    claim_of,
    components_of,
    heartbeat_deadlines_ms,
    lock_transaction,
)
from headwater.testing.simulation import Scenario, Simulation, Violation
from headwater.testing.table import LAYOUT, Area, place_of
from headwater.testing.world import World

A = FileGroupId(PARTITION, "A")
B = FileGroupId(PARTITION, "B")
LOST = "lost"  # At the commit.

_NAMES = "VWX"
_CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """One writer of two groups."""

    groups: tuple[FileGroupId, ...]
    strategy: DetectionStrategy
    has_final_check: bool = True

    def run(self, process: Process) -> str:
        """Write and commit, once; return how it ended."""
        components, storage = components_of(process), process.storage
        process.note(BEGUN)
        try:
            inflight = start_inflight_write(
                components,
                lock_transaction(components),
                Action.DELTA_COMMIT,
                claim_of(process),
                b"",
            )
        except CommitUnknownError:
            return UNKNOWN  # It stood still behind its first slot, and others deleted that.
        except ConflictError:
            return FAILED  # The lock was not to be had in time.
        time = inflight.instant_time
        try:
            timeline = load_active(storage, LAYOUT.timeline)
            snapshot = Snapshot.of(timeline)
            process.note(PLANNED, time, tuple(sorted(snapshot.completed)))
            instant = Instant(time, Action.DELTA_COMMIT, State.INFLIGHT)
            detection = plan_detection(
                DetectionConfig(strategy=self.strategy),
                components,
                inflight.attempt,
                timeline,
                EarlyCheck(instant=instant, snapshot=snapshot, is_bucketed=False),
                layout=LAYOUT,
                locks=LockConfig(acquire_timeout_ms=LOCK_TIMEOUT_MS),
            )
            metadata = self._write_files(process, inflight, detection)
            check = self._final_check(process, CompletedCommit(instant, metadata), snapshot)
            inflight.commit(encode_record(metadata), check)
        except CommitUnknownError:
            return _ended(process, UNKNOWN, time)
        except HeadwaterError as error:
            if isinstance(error, EarlyConflictError):
                process.note(STOPPED, time, error.context["other"], error.context["group"])
            inflight.abandon()
            return _ended(process, _word_of(error), time)
        process.note(ENDED, COMMITTED, time)
        try:
            delete_markers(storage, time)
        except StorageError:
            return COMMITTED  # As in the product, they are left for whoever tidies up.
        return COMMITTED

    def _write_files(
        self, process: Process, inflight: InflightWrite, detection: Detection
    ) -> CommitMetadata:
        stats = []
        with self._markers(process, detection) as markers:
            for group in self.groups:
                file = log_file(group, inflight.instant_time, inflight.attempt.attempt)
                markers.create(Marker(file.path, MarkerKind.CREATE))
                stats.append(put_rows(process.storage, file, ()))
            if isinstance(markers, _ServiceMarkers):
                markers.check()
        return metadata_of("UPSERT", stats)

    def _markers(self, process: Process, detection: Detection) -> AbstractContextManager[Markers]:
        if self.strategy.markers is MarkerType.TIMELINE_SERVER_BASED:
            return nullcontext(_ServiceMarkers(process, detection))
        return detecting_markers(
            detection,
            DirectMarkers(process.storage, detection.instant_time),
            process.storage,
            process.clock,
            process.ids,
            task="0-1-0",
            locks=process.lock,
        )

    def _final_check(
        self, process: Process, mine: CompletedCommit, snapshot: Snapshot
    ) -> ConflictCheck | None:
        if not self.has_final_check:
            return None
        check = ConflictCheck(mine=change_of(mine), snapshot=snapshot)
        timeline = load_active(process.storage, LAYOUT.timeline)
        done = [i for i in check.unread(timeline) if i.is_completed]
        return replace(check, known=load_changes(process.storage, LAYOUT, done))


class _ServiceMarkers:
    """The marker service of one writer, in the process of its only task."""

    def __init__(self, process: Process, detection: Detection) -> None:
        time = detection.instant_time
        config = DetectionConfig(strategy=detection.strategy)
        self._checker = MarkerChecker(
            detection, config, process.storage, process.clock, process.ids
        )
        put_marker_type(process.storage, time)
        self._file = BatchFile(process.storage, time, 0, self._checker.new_filter)

    def create(self, marker: Marker) -> None:
        if self._checker.note([marker]):
            self.check()
        self._file.add([marker])

    def check(self) -> None:
        """Look, as the service does again and again."""
        conflict = self._checker.check()
        if conflict is not None:
            raise conflict


def _word_of(error: HeadwaterError) -> str:
    if isinstance(error, FencedError):
        return FENCED
    if isinstance(error, EarlyConflictError):
        return STOPPED
    return LOST if isinstance(error, ConflictError) else FAILED


def _ended(process: Process, word: str, time: InstantTime) -> str:
    process.note(ENDED, FAILED if word in (LOST, STOPPED) else word, time)
    return word


def body_of(writer: Writer) -> Body:
    return writer.run


def crossed_writers(
    strategy: DetectionStrategy, count: int, *, has_final_check: bool = True
) -> Mapping[str, Body]:
    """Return writers of A and B, every second one the other way round."""
    orders = ((A, B), (B, A))
    return {
        name: body_of(
            Writer(groups=orders[number % 2], strategy=strategy, has_final_check=has_final_check)
        )
        for number, name in enumerate(_NAMES[:count])
    }


def ecd(
    strategy: DetectionStrategy, count: int, faults: Faults, *, has_final_check: bool = True
) -> Scenario:
    """Return `count` writers that all use one strategy."""
    checks = DetectionChecks()
    marks = ["stopped early"]
    if faults.crashes and faults.ticks:
        marks += ["went on past the markers of a dead writer"]
    return Scenario(
        name=f"ecd_{count}_{strategy}",
        actors=crossed_writers(strategy, count, has_final_check=has_final_check),
        set_up=empty_table,
        invariants=checks.invariants(),
        learn=checks.learn,
        hear=checks.hear,
        faults=faults,
        world=WORLD,
        deadlines_ms=heartbeat_deadlines_ms,
        check_end=check_outcome,
        marks={mark: MARKS[mark] for mark in marks},
        is_private=is_own_business,
        twins=tuple(_NAMES[:count:2]),
        has_eager_clocks=True,
    )


def empty_table(world: World) -> None:
    """An empty table has no timeline files at all."""


def is_own_business(actor: str, op: Op) -> bool:
    """Whether nobody else looks at what a call reads or writes: data, and plain heartbeats.

    Plain heartbeats are looked at only where a pending writer has no attempt, and ours have one.
    """
    if op.kind not in STORAGE_WRITES and op.kind not in STORAGE_READS:
        return False
    return place_of(op.target).area in (Area.DATA, Area.HEARTBEAT)


def is_look_at_markers(actor: str, op: Op) -> bool:
    """Let fail what detection reads of markers and filters (INV-69)."""
    return op.kind in STORAGE_READS and op.target.startswith((f"{MARKERS}/", f"{DETECTION}/"))


def check_outcome(simulation: Simulation) -> Iterator[Violation]:
    """5.9: which results may stand together at the end."""
    results = simulation.results()
    is_faultless = simulation.budgets == simulation.scenario.faults.budgets()
    allowed = {COMMITTED, STOPPED, LOST}
    # Time passes, too, for those who wait until the lease of a dead one is over.
    if simulation.scenario.faults.ticks or simulation.scenario.world.lock == "lease":
        allowed |= {FENCED, FAILED}
    if not is_faultless:
        allowed.add(_CRASHED)
    for actor, word in results.items():
        if word not in allowed:
            yield Violation("5.9", f"{actor} ended {word}: {results}")
    if is_faultless and COMMITTED not in results.values():
        yield Violation("INV-68", f"all conflict only with each other, and nobody won: {results}")


def _is_stopped(step: Step, simulation: Simulation) -> bool:
    return step.outcome is not None and step.outcome.value == STOPPED


def _has_passed_the_dead(step: Step, simulation: Simulation) -> bool:
    results = simulation.results().values()
    is_alone = COMMITTED in results and _CRASHED in results
    return is_alone and any(path.startswith(f"{MARKERS}/") for path in simulation.world.paths)


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "stopped early": _is_stopped,
    "went on past the markers of a dead writer": _has_passed_the_dead,
}
