"""A table in memory that holds no rows: which files a view consists of is all that matters."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.context import TableContext
from headwater.errors import ErrorKind, NotFoundError
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import TableLayout
from headwater.kernel.new_table import NewTable, plan_table_config
from headwater.kernel.table_config import create_table_config
from headwater.kernel.timeline.active import instant_path
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.metadata.view import load_view
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata, WriteStat
from headwater.model.files import DataFile, FileGroupId
from headwater.model.instant import Action, Instant, InstantTime, State, instant_time_after
from headwater.seams.components import Components
from headwater.seams.ids import Owner, SystemIds

QUICK_TO_DIE = {
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
}
LAYOUT = TableLayout()
FIRST = InstantTime("20251231000000000")
"""Before the clock of the cleaner begins."""
STEP_MS = 60_000
STEPS_BEFORE_CLOCK = 24 * 60


def at(number: int) -> InstantTime:
    return instant_time_after(FIRST, number * STEP_MS)


@dataclass
class BareTable:
    """A table in memory, written instant by instant; numbers are minutes."""

    storage: MemoryStorage = field(default_factory=MemoryStorage)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        columns = pa.schema([("id", pa.string())])
        self.config = plan_table_config(
            NewTable(location="orders", schema=columns, record_key=["id"]), {}
        )
        ids = SystemIds(Owner("C", 1, "C"))
        create_table_config(self.storage, self.clock, ids, self.config)

    def commit(
        self,
        requested: int,
        completed: int | None,
        files: list[DataFile],
        *,
        action: Action,
        replaced: list[FileGroupId] | None = None,
        operation: str = "UPSERT",
    ) -> None:
        for file in files:
            self.storage.put(file.path, b"data")
        pending = instant_path(LAYOUT.timeline, Instant(at(requested), action, State.REQUESTED))
        if pending not in self.paths():
            self.storage.put(pending, b"")
        if completed is None:
            return
        stats: dict[str, tuple[WriteStat, ...]] = {}
        for file in files:
            stat = WriteStat(file_id=file.file_id, path=file.path)
            stats[file.partition] = (*stats.get(file.partition, ()), stat)
        record = CommitMetadata(partition_to_write_stats=stats, operation_type=operation)
        if action is Action.REPLACE_COMMIT:
            gone: dict[str, tuple[str, ...]] = {}
            for group in replaced or ():
                gone[group.partition] = (*gone.get(group.partition, ()), group.file_id)
            record = ReplaceCommitMetadata(
                partition_to_write_stats=stats,
                operation_type="INSERT_OVERWRITE",
                partition_to_replace_file_ids=gone,
            )
        done = Instant(at(requested), action, State.COMPLETED, at(completed))
        self.storage.put(instant_path(LAYOUT.timeline, done), encode_record(record))

    def target(self) -> TableContext:
        ids = SystemIds(Owner("C", 1, "C"))
        locks = InProcessLockProvider(InProcessLocks(), self.clock, ids, table="orders")
        components = Components(self.storage, self.clock, ids, locks)
        return TableContext.through(components, self.config, QUICK_TO_DIE)

    def views(self, times: list[int]) -> dict[int, frozenset[str] | None]:
        """Return the files of the view as of each time; None where it is refused."""
        return {time: self._view(at(time)) for time in times}

    def newest(self) -> frozenset[str] | None:
        return self._view(None)

    def _view(self, as_of: InstantTime | None) -> frozenset[str] | None:
        try:
            view = load_view(self.storage, self.config, as_of=as_of)
        except NotFoundError as error:
            if error.kind is not ErrorKind.OUTSIDE_RETENTION:
                raise
            return None
        slices = view.slices()
        view.check_complete(slices)
        return frozenset(file.path for one in slices for file in one.files())

    def paths(self) -> set[str]:
        return {info.path for info in self.storage.list_tree("")}

    def data_files(self) -> set[str]:
        return {path for path in self.paths() if not path.startswith(".hoodie")}
