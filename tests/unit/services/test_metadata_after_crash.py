"""A writer dies after each of its writes; what is rolled back leaves nothing in the indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.manual_clock import ManualClock
from tests.support.tables import columns

import headwater as hw
from headwater.config.registry import check_options
from headwater.errors import ConflictError
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.view.file_index import ListingFileIndex
from headwater.metadata.files_partition import MetadataFiles
from headwater.metadata.services import load_held_back
from headwater.metadata.table import load_metadata_table
from headwater.model.files import parse_data_file
from headwater.seams.ids import Owner, SystemIds
from headwater.table import Table

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

Dying = Callable[..., Any]
Copies = Callable[[Table], Iterator[Table]]

SCHEMA = columns("id string not null, city string, value long")
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.metadata.compact.max.delta.commits": "3",
    "headwater.clock.ahead.max.ms": "0",  # The clock of these tests has nothing to do with files.
}
HEARTBEAT = {"hoodie.client.heartbeat.interval_in_ms": "1000"}
EXPIRY_MS = 10_000
INDEX_WRITES_MIN = 4
"""A log and three timeline files: fewer crashes than this would mean that nothing was tried."""


def rows(*values: tuple[str, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": key, "city": f"c{key}", "value": value} for key, value in values], schema=SCHEMA
    )


def process_of(name: str, table: Table, clock: ManualClock, storage: Any = None) -> Table:
    return Table(
        replace(
            table.context.reload(),
            storage=storage or table.storage,
            clock=clock,
            ids=SystemIds(Owner(name, 1, name)),
            options=check_options({**OPTIONS, **HEARTBEAT}).known,
        )
    )


def check_index_equals_listing(table: Table) -> None:
    """INV-71 for `files`, and INV-78: nothing in there of what was rolled back."""
    storage = table.storage
    timeline = load_active(storage, table_layout(table.config).timeline)
    assert timeline.pending == ()
    index = load_metadata_table(storage, table.config, timeline)
    assert index.is_behind is None
    told = sorted((f.path, f.size_bytes) for f in MetadataFiles(index).list_data_files())
    listed = ListingFileIndex(storage).list_data_files()
    assert told == sorted((file.path, file.size_bytes) for file in listed)
    assert load_held_back(storage, table_layout(table.config), timeline, index.timeline) == ()
    known = {instant.requested_time for instant in index.timeline.instants}
    parsed = (parse_data_file(info.path) for info in storage.list_tree(".hoodie/metadata"))
    assert {file.instant_time for file in parsed if file is not None} <= known


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.some(1)
def test_a_dead_write_leaves_nothing_in_the_index(
    tmp_path: Path, dying: Dying, killed: type[BaseException], copies: Copies, table_type: str
) -> None:
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        buckets=1,
        table_type=table_type,
        options=OPTIONS,
    )
    table.upsert(rows(("a", 1), ("b", 1)))
    deaths_in_index = 0
    for writes, copy in zip(count(), copies(table), strict=False):
        clock = ManualClock(1_900_000_000_000)
        victim = process_of("X", copy, clock, dying(copy.storage, writes))
        try:
            victim.upsert(rows(("a", 2), ("c", 2)))
            has_died = False
        except killed:
            has_died = True
        names = [info.path for info in copy.storage.list_tree(".hoodie/metadata")]
        deaths_in_index += any("20300" in name for name in names)
        heir = process_of("Y", copy, ManualClock(clock.now_ms() + EXPIRY_MS))
        services = heir.services
        services.rollback_failed_writes()
        heir.context.clock.sleep_ms(EXPIRY_MS)
        services.rollback_failed_writes()
        check_index_equals_listing(heir)
        values = {row["id"]: row["value"] for row in heir.read_arrow().to_pylist()}
        assert values in ({"a": 1, "b": 1}, {"a": 2, "b": 1, "c": 2})
        heir.upsert(rows(("a", 3)))
        check_index_equals_listing(heir)
        if not has_died:
            break
    assert deaths_in_index > INDEX_WRITES_MIN


class DyingAtItsCommit:
    """Storage of a process that dies right before the completed file of a table service."""

    def __init__(self, storage: Any, killed: type[BaseException]) -> None:
        self._storage = storage
        self._killed = killed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def put_if_absent(self, path: str, data: bytes) -> None:
        folder, _, name = path.rpartition("/")
        if folder == ".hoodie/timeline" and "_" in name:
            raise self._killed
        self._storage.put_if_absent(path, data)


def test_what_a_dead_compaction_told_the_indexes_is_withdrawn_before_it_runs_again(
    tmp_path: Path, killed: type[BaseException]
) -> None:
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        buckets=1,
        table_type="MERGE_ON_READ",
        options=OPTIONS,
    )
    for value in range(2):
        table.upsert(rows(("a", value)))
    clock = ManualClock(1_900_000_000_000)
    plan = process_of("P", table, clock).services.schedule_compaction()
    dead = process_of("X", table, clock, DyingAtItsCommit(table.storage, killed))
    with pytest.raises(killed):
        dead.services.compact(plan)
    metadata = ".hoodie/metadata/.hoodie/timeline"
    ends = [name for name in table.storage.list_names(metadata) if name.startswith(f"{plan}_")]
    assert len(ends) == 1
    heir = process_of("Y", table, ManualClock(clock.now_ms() + EXPIRY_MS))
    with pytest.raises(ConflictError):
        heir.services.compact(plan)
    heir.context.clock.sleep_ms(EXPIRY_MS)
    heir.services.compact(plan)
    again = [name for name in table.storage.list_names(metadata) if name.startswith(f"{plan}_")]
    assert len(again) == 1
    assert again != ends
    check_index_equals_listing(heir)
    heir.upsert(rows(("b", 9)))
    assert {r["id"]: r["value"] for r in heir.read_arrow().to_pylist()} == {"a": 1, "b": 9}
