"""A table in memory with one plan P, and processes that execute, cancel, override and undo it.

For tests that walk through one interleaving by hand. Time passes only when told, and no heartbeat
beats meanwhile: `lapse` is a stall of everybody. A process may be made to die after so many writes;
nothing it does later reaches storage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.dying import DyingStorage
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import attempt_path
from headwater.kernel.timeline.active import load_active
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.attempts import Attempt, Purpose, encode_attempt
from headwater.kernel.txn.cancel import AbortedPlan, Cancellations, undo_announced
from headwater.kernel.txn.cancel_overlapped import cancel_overlapped
from headwater.kernel.txn.changes import change_of
from headwater.kernel.txn.conflicts import ConflictCheck, Snapshot
from headwater.kernel.txn.guard import Executed, Returned
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.kernel.txn.markers import Marker, MarkerKind, create_marker, load_markers
from headwater.kernel.txn.rollback import Rollbacks
from headwater.kernel.txn.transaction import LockTransaction
from headwater.kernel.txn.writes import CommittedWrite, InflightWrite, start_inflight_write
from headwater.kernel.view.commits import CompletedCommit
from headwater.model.files import FileGroupId
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plan_flags import PlanFlags
from headwater.model.plans import (
    ClusteringGroup,
    ClusteringPlan,
    CompactionPlan,
    RequestedReplace,
    SliceInfo,
)
from headwater.seams.components import Components
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.storage import Storage
from headwater.testing.rows import PARTITION, base_file, metadata_of, stat_of
from headwater.testing.table import LAYOUT, TIMELINE

WRITTEN = InstantTime("20251231235958000")
"""When what P reads was written."""
PLAN = InstantTime("20251231235959000")
GROUP = FileGroupId(PARTITION, "fg-1")
OTHER_GROUP = FileGroupId(PARTITION, "fg-2")
CLUSTERED = FileGroupId(PARTITION, "fg-3")

INTERVAL_MS = 1_000
TOLERABLE_MISSES = 2
EXPIRY_MS = INTERVAL_MS * TOLERABLE_MISSES

CANCELLABLE = PlanFlags(is_cancellable=True)
REMOVABLE = PlanFlags(is_removable=True)


During = Callable[[Attempt, Heartbeat], None]


def clustering_request(flags: PlanFlags, *groups: FileGroupId) -> bytes:
    """Return the request of a clustering that replaces some groups."""
    slices = tuple(
        SliceInfo(
            file_id=group.file_id,
            partition_path=group.partition,
            data_file_path=base_file(group, WRITTEN, 0).path,
        )
        for group in groups
    )
    plan = ClusteringPlan(
        input_groups=(ClusteringGroup(slices=slices),), extra_metadata=flags.to_extra_metadata()
    )
    return encode_record(RequestedReplace(operation_type="CLUSTER", clustering_plan=plan))


@dataclass(frozen=True)
class PlanSite:
    """Storage, clock and locks that all processes share."""

    storage: Storage = field(default_factory=MemoryStorage)
    clock: ManualClock = field(default_factory=ManualClock)
    locks: InProcessLocks = field(default_factory=InProcessLocks)

    def request(
        self,
        flags: PlanFlags = CANCELLABLE,
        *,
        action: Action = Action.CLUSTERING,
        time: InstantTime = PLAN,
        group: FileGroupId = GROUP,
    ) -> None:
        """Put a plan on the timeline, as who schedules one and leaves it to others does."""
        if action is Action.CLUSTERING:
            content = clustering_request(flags, group)
        else:
            content = encode_record(CompactionPlan(extra_metadata=flags.to_extra_metadata()))
        attempt = Attempt(
            instant=time,
            attempt=1,
            token="the scheduler's",
            owner=Owner("scheduler", 1, "s"),
            purpose=Purpose.EXECUTE,
            started_ms=0,
            interval_ms=INTERVAL_MS,
            tolerable_misses=TOLERABLE_MISSES,
            is_released=True,
        )
        self.storage.put(attempt_path(time, 1), encode_attempt(attempt))
        self.storage.put(f"{TIMELINE}/{file_name(time, action, State.REQUESTED)}", content)

    def process(
        self, name: str, *, writes_left: int | None = None, delay_ms: int = 0
    ) -> SiteProcess:
        """Return a process on a host of its own, which may die after so many writes."""
        storage: Any = self.storage
        if writes_left is not None:
            storage = DyingStorage(storage, writes_left=writes_left)
        ids = SystemIds(Owner(name, 1, name))
        locks = InProcessLockProvider(self.locks, self.clock, ids, table="site")
        components = Components(storage, self.clock, ids, locks)
        txn = LockTransaction(components, LAYOUT)
        return SiteProcess(
            components=components,
            txn=txn,
            cancellations=Cancellations(
                components=components,
                txn=txn,
                layout=LAYOUT,
                load_markers=load_markers,
                interval_ms=INTERVAL_MS,
                tolerable_misses=TOLERABLE_MISSES,
            ),
            rollbacks=Rollbacks(
                components=components,
                txn=txn,
                layout=LAYOUT,
                load_markers=load_markers,
                interval_ms=INTERVAL_MS,
                tolerable_misses=TOLERABLE_MISSES,
                delay_ms=delay_ms,
            ),
        )

    def lapse(self, duration_ms: int = EXPIRY_MS) -> None:
        """Let time pass in which nobody beats."""
        with self.clock.timers_stalled():
            self.clock.advance_ms(duration_ms)

    def state(self, time: InstantTime = PLAN) -> State | None:
        found = load_active(self.storage, TIMELINE).find(time)
        return None if found is None else found.state

    def objects(self) -> dict[str, bytes]:
        """Return all there is in storage."""
        return {info.path: self.storage.read(info.path) for info in self.storage.list_tree("")}

    def paths_of(self, time: InstantTime = PLAN) -> set[str]:
        """Return every path with an instant in it."""
        return {path for path in self.objects() if time in path}


@dataclass(frozen=True, kw_only=True)
class SiteProcess:
    """One process, and what it does to P."""

    components: Components
    txn: LockTransaction
    cancellations: Cancellations
    rollbacks: Rollbacks

    def execute(
        self, during: During | None = None, time: InstantTime = PLAN
    ) -> Executed | Returned | AbortedPlan:
        """Execute P; `during` is called when its one file is written."""
        work = FileWork(self.components.storage, during)
        return self.cancellations.execute(time, work)

    def begin_write(self, group: FileGroupId = GROUP, action: Action = Action.COMMIT) -> SiteWrite:
        """Start a write that has taken its snapshot and announced nothing yet."""
        inflight = start_inflight_write(
            self.components, self.txn, action, self.cancellations.claim(), b""
        )
        snapshot = Snapshot.of(load_active(self.components.storage, TIMELINE))
        time = inflight.instant_time
        file = base_file(group, time, 1)
        metadata = metadata_of("UPSERT", [stat_of(file, b"rows")])
        mine = change_of(CompletedCommit(Instant(time, action, State.INFLIGHT), metadata))
        return SiteWrite(
            process=self,
            inflight=inflight,
            path=file.path,
            content=encode_record(metadata),
            check=ConflictCheck(mine=mine, snapshot=snapshot),
        )


@dataclass(frozen=True)
class FileWork:
    """Write one data file, announced by a marker."""

    storage: Storage
    during: During | None = None

    def undo_before(self, attempt: Attempt) -> None:
        undo_announced(self.storage, load_markers, attempt)

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        file = base_file(CLUSTERED, attempt.instant, attempt.attempt)
        create_marker(self.storage, attempt.instant, Marker(file.path, MarkerKind.CREATE))
        self.storage.put(file.path, b"rows")
        if self.during is not None:
            self.during(attempt, heartbeat)
        return encode_record(metadata_of("CLUSTER", [stat_of(file, b"rows")], [GROUP]))


@dataclass(frozen=True)
class SiteWrite:
    """A write of one file group, step by step."""

    process: SiteProcess
    inflight: InflightWrite
    path: str
    content: bytes
    check: ConflictCheck

    @property
    def time(self) -> InstantTime:
        return self.inflight.instant_time

    def announce(self) -> SiteWrite:
        """Make the marker and the file: what tasks do."""
        storage = self.process.components.storage
        create_marker(storage, self.time, Marker(self.path, MarkerKind.MERGE))
        storage.put(self.path, b"rows")
        return self

    def publish(self) -> SiteWrite:
        """Cancel what is in the way, as a write does when its tasks have returned."""
        storage = self.process.components.storage
        others = self.check.unread(load_active(storage, TIMELINE))
        plans = [instant for instant in others if instant.is_pending]
        check = cancel_overlapped(self.inflight, storage, LAYOUT, self.check, plans)
        return replace(self, check=check)

    def commit(self) -> CommittedWrite:
        return self.inflight.commit(self.content, self.check)
