"""A whole write whose tasks create their markers through the service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.tables import columns, rows_of, table_at

from headwater.arrow.keys import KeyGenerator
from headwater.config.markers import MarkerConfig
from headwater.config.table_options import TableType
from headwater.engine.inline import InlineRows
from headwater.errors import EarlyConflictError, ErrorKind, StorageError
from headwater.kernel.txn.markers import Marker, delete_markers, delete_unlisted
from headwater.kernel.txn.markers import load_markers as load_direct_markers
from headwater.markers import client
from headwater.markers.batches import load_every_marker
from headwater.markers.running import RunningMarkerService, start_marker_service
from headwater.markers.service import NoConflictWatch
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import parse_data_file
from headwater.operations.plan import Announcing, Operation
from headwater.operations.request import WriteRequest
from headwater.operations.routing.route import group_route
from headwater.operations.tasks.execute import execute_write
from headwater.operations.write import RunningWrite, start_write
from headwater.table import Table

SCHEMA = columns("id string, city string, value long")
each_type = pytest.mark.parametrize("table_type", list(TableType))


rows = rows_of(SCHEMA)


def make_table(path: Path, table_type: TableType) -> Table:
    shape = table_at(path / "t", SCHEMA, partition_by="city", index="bucket", buckets=2)
    return shape.having(table_type=table_type).create()


def begin(table: Table) -> RunningWrite:
    target = table.context
    return start_write(target, WriteRequest(operation=Operation.UPSERT, columns=SCHEMA))


def run_tasks(
    running: RunningWrite, service: RunningMarkerService, written: pa.Table
) -> list[WriteStat]:
    plan = replace(running.plan, announcing=Announcing(marker_service=service.address))
    keys = KeyGenerator.from_config(plan.config)
    return InlineRows(written).run(group_route(plan, keys), partial(execute_write, plan))


def data_files(table: Table) -> set[str]:
    """Return the data files, but not those of the metadata table."""
    files = (info.path for info in table.storage.list_tree("") if parse_data_file(info.path))
    return {path for path in files if not path.startswith(".hoodie/")}


@each_type
def test_every_file_is_announced_and_unlisted_ones_go(
    tmp_path: Path, table_type: TableType
) -> None:
    table = make_table(tmp_path, table_type)
    table.insert(rows(("a", "sf", 1)))
    before = data_files(table)
    running = begin(table)
    time = running.plan.instant_time
    with start_marker_service(table.storage, table.context.ids, time, MarkerConfig()) as service:
        stats = run_tasks(running, service, rows(("a", "sf", 10), ("c", "la", 3)))
        announced = {marker.data_path for marker in load_every_marker(table.storage, time)}
        assert announced == data_files(table) - before
        assert len(announced) == len(stats) == 2
        assert load_direct_markers(table.storage, time) == []
        service.seal()
        listed = {stats[0].path}
        markers = load_every_marker(table.storage, time)
        assert delete_unlisted(table.storage, markers, {str(path) for path in listed}) == 1
        assert data_files(table) - before == listed
        service.stop()
    running.abandon()
    delete_markers(table.storage, time)
    assert table.storage.list_tree(".hoodie/.temp") == []


class OneWasFirst(NoConflictWatch):
    async def admit(self, markers: Sequence[Marker]) -> EarlyConflictError:
        return EarlyConflictError("Instant 1 was first")


def test_a_conflict_stops_a_task_before_it_writes(tmp_path: Path) -> None:
    table = make_table(tmp_path, TableType.COPY_ON_WRITE)
    running = begin(table)
    time = running.plan.instant_time
    with (
        start_marker_service(
            table.storage, table.context.ids, time, MarkerConfig(), conflicts=OneWasFirst()
        ) as service,
        pytest.raises(EarlyConflictError, match="Instant 1 was first"),
    ):
        run_tasks(running, service, rows(("a", "sf", 1)))
    assert data_files(table) == set()
    running.abandon()


def test_a_task_without_its_service_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TRIES_MAX", 1)
    table = make_table(tmp_path, TableType.COPY_ON_WRITE)
    running = begin(table)
    with start_marker_service(
        table.storage, table.context.ids, running.plan.instant_time, MarkerConfig()
    ) as service:
        service.stop()
        with pytest.raises(StorageError) as caught:
            run_tasks(running, service, rows(("a", "sf", 1)))
    assert caught.value.kind is ErrorKind.MARKER_SERVICE
    assert data_files(table) == set()
    running.abandon()
