"""A table that has indexes and no rows: what instants say to them is made up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.config.table import TableConfig
from headwater.format.metadata.index_definitions import IndexDefinition
from headwater.format.metadata.records import record_start
from headwater.format.metadata.schema import RecordType
from headwater.format.timeline.records import encode_record
from headwater.kernel.new_table import NewTable, plan_table_config
from headwater.kernel.table_config import create_table_config, load_table_config, table_layout
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.index_births import IndexBirth
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.kernel.txn.steps import Claim
from headwater.kernel.txn.transaction import LockTransaction
from headwater.kernel.txn.writes import InflightWrite, start_inflight_write
from headwater.metadata.bootstrap import create_metadata_table
from headwater.metadata.files_partition import MetadataFiles
from headwater.metadata.records import MetadataRecords, PartitionedRecords
from headwater.metadata.services import MetadataServices
from headwater.metadata.table import MetadataTable, load_metadata_table
from headwater.metadata.table_change import TableChange
from headwater.metadata.update import MetadataUpdate
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import parse_data_file
from headwater.model.instant import Action, Instant, InstantTime
from headwater.seams.clock import Clock
from headwater.seams.components import Components
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.storage import Storage

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("city", pa.string())])
PARTITIONS = (("files", 1), ("record_index", 3))
INTERVAL_MS = 1_000

Told = Mapping[str, bytes | None]
"""Keys of the record index with their values; None removes a key.

Nobody looks further into a value than for its type.
"""
_TYPE = record_start(RecordType.RECORD_INDEX)


def entries(told: Told) -> MetadataRecords:
    kept = {key: value for key, value in told.items() if value is not None}
    return MetadataRecords(
        pa.array(list(kept), pa.string()),
        pa.array([_TYPE + value for value in kept.values()], pa.binary()),
        pa.array([key for key in told if key not in kept], pa.string()),
    )


def told(found: MetadataRecords) -> dict[str, bytes]:
    values = [value.removeprefix(_TYPE) for value in found.values.to_pylist()]
    return dict(zip(found.keys.to_pylist(), values, strict=True))


@dataclass(frozen=True)
class Derived:
    """Says the same to every index."""

    entries: Callable[[], MetadataRecords | PartitionedRecords]
    definitions: Mapping[str, IndexDefinition] = field(default_factory=dict)

    @property
    def births(self) -> dict[str, IndexBirth]:
        return {}

    def of_changes(
        self, partition: str, changes: Sequence[TableChange]
    ) -> MetadataRecords | PartitionedRecords:
        return self.entries()


@dataclass
class Process:
    """One process at work on the table."""

    components: Components
    layout: Any
    config: TableConfig

    def __post_init__(self) -> None:
        self.txn = LockTransaction(self.components, self.layout)

    def claim(self) -> Claim:
        return Claim.new(self.components.ids, interval_ms=INTERVAL_MS, tolerable_misses=2)

    def begin(self) -> InflightWrite:
        self._tick()
        return start_inflight_write(
            self.components, self.txn, Action.DELTA_COMMIT, self.claim(), b""
        )

    def update(
        self,
        write: InflightWrite,
        *,
        added: Iterable[str] = (),
        removed: Iterable[str] = (),
        told: Told | None = None,
        seen: Iterable[str] | None = None,
        attempt: int | None = None,
        has_seen_all: bool = True,
    ) -> MetadataUpdate:
        files = [parse_data_file(path.format(T=write.instant_time), 7) for path in added]
        gone = [parse_data_file(path) for path in removed]
        change = TableChange(
            instant_time=write.instant_time,
            action=Action.DELTA_COMMIT,
            added=tuple(file for file in files if file is not None),
            removed=tuple(file for file in gone if file is not None),
            has_seen_all=has_seen_all,
        )
        assert (len(change.added), len(change.removed)) == (len(files), len(gone))
        return MetadataUpdate(
            self.components.storage,
            self.layout,
            change,
            write.attempt.attempt if attempt is None else attempt,
            self.config.metadata_partitions if seen is None else seen,
            lambda: Derived(lambda: entries(told or {})),
        )

    def commit(self, write: InflightWrite | None = None, **said: Any) -> Instant:
        """Commit a write that says this to the indexes."""
        write = write or self.begin()
        self._tick()
        done = write.commit(encode_record(CommitMetadata()), update=self.update(write, **said))
        return done.instant

    def upkeep(self, commits: int = 3) -> MetadataServices:
        return MetadataServices(
            components=self.components,
            config=self.config,
            commits=commits,
            claim=self.claim,
            lock_timeout_ms=1_000,
        )

    def _tick(self) -> None:
        """Let a millisecond pass, so that times are those of the clock."""
        self.components.clock.sleep_ms(1)


@dataclass
class MetadataBench:
    """A table in memory, and the processes that work on it."""

    clock: ManualClock = field(default_factory=ManualClock)
    partitions: tuple[tuple[str, int], ...] = PARTITIONS
    storage: Storage | None = None

    def __post_init__(self) -> None:
        self.storage = self.storage or MemoryStorage(clock=self.clock)
        self.locks = InProcessLocks()
        new = NewTable(
            location="memory://trips", schema=SCHEMA, record_key=["id"], partition_by=["city"]
        )
        names = tuple(name for name, _ in self.partitions)
        self.config = replace(plan_table_config(new, {}), metadata_partitions=names)
        create_metadata_table(self.storage, self.config, self.partitions)
        create_table_config(self.storage, self.clock, SystemIds(), self.config)
        self.layout = table_layout(self.config)

    def process(
        self, name: str = "w", *, storage: Storage | None = None, clock: Clock | None = None
    ) -> Process:
        """Return a process, with seams of its own where given."""
        clock = clock or self.clock
        assert self.storage is not None
        ids = SystemIds(Owner(name, 1, name))
        locks = InProcessLockProvider(self.locks, clock, ids, table="memory://trips")
        components = Components(storage or self.storage, clock, ids, locks)
        return Process(components, self.layout, self.config)

    def clock_of_its_own(self) -> ManualClock:
        """Return a clock at the same time, for a process that dies, and whose timers die with it,
        or that waits while the others do not."""
        return ManualClock(self.clock.now_ms())

    def copy(self) -> MetadataBench:
        """Return the same table in storage of its own."""
        other = object.__new__(MetadataBench)
        vars(other).update(vars(self))
        other.clock = self.clock_of_its_own()
        other.storage = MemoryStorage(clock=other.clock)
        other.locks = InProcessLocks()
        assert self.storage is not None
        for info in self.storage.list_tree(""):
            other.storage.put(info.path, self.storage.read(info.path))
        return other

    def timeline(self) -> Timeline:
        assert self.storage is not None
        return load_active(self.storage, self.layout.timeline)

    def table(self) -> MetadataTable:
        assert self.storage is not None
        config = load_table_config(self.storage, self.clock)
        return load_metadata_table(self.storage, config, self.timeline())

    def files(self) -> list[str]:
        return sorted(file.path for file in MetadataFiles(self.table()).list_data_files())

    entries = staticmethod(entries)
    told = staticmethod(told)

    def keys(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for group in self.table().read("record_index"):
            found |= told(group)
        return found

    def paths(self, time: InstantTime | str = "") -> list[str]:
        """Return the paths in the metadata table that bear a time."""
        assert self.storage is not None
        found = [info.path for info in self.storage.list_tree(".hoodie/metadata")]
        return [path for path in found if time in path]


@pytest.fixture
def metadata_bench() -> Callable[..., MetadataBench]:
    """Return a function that makes a table with indexes."""
    return MetadataBench


@pytest.fixture
def metadata(metadata_bench: Callable[..., MetadataBench]) -> MetadataBench:
    return metadata_bench()
