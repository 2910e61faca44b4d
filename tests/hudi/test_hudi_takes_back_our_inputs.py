"""N-189: Apache Hudi rolls a commit back that a pending plan of ours has taken in.

Ours refuses that; Hudi asks no plan. The rows must not come back with what the plan writes, and it
must not stay pending for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from tests.hudi.test_we_roll_back_theirs import OURS, THEIRS
from tests.support.hudi_peer import HudiPeer
from tests.support.hudi_procedures import call, register
from tests.support.stopped_process import StoppedProcess
from tests.support.tables import COW, LOCKED, MOR, a_table, columns, rows_of

import headwater as hw
from headwater.model.instant import Action

SCHEMA = columns("id string not null, city string, ts long, fare long")
rows = rows_of(SCHEMA)
OPTIONS = {**OURS, **LOCKED, "hoodie.client.heartbeat.interval_in_ms": "60000"}
WAYS = {key: value for key, value in THEIRS.items() if "lock" in key or "concurrency" in key}


class Case(NamedTuple):
    table_type: str
    service: str
    is_meanwhile: bool


def fares(found: pa.Table) -> dict[str, int]:
    return {row["id"]: row["fare"] for row in found.select(["id", "fare"]).to_pylist()}


def when_it_has_written(calls: Sequence[str]) -> bool:
    """Stop when the data files are there."""
    return calls[-1].startswith("list_tree .hoodie/.temp") and any(
        one.startswith(("publish", "create_many")) for one in calls
    )


@pytest.mark.parametrize(
    "case",
    [
        Case(table_type, service, is_meanwhile)
        for table_type, service in ((COW, "clustering"), (MOR, "clustering"), (MOR, "compaction"))
        for is_meanwhile in (False, True)
    ],
    ids=str,
)
def test_n_189_what_hudi_takes_back_does_not_come_back(
    hudi: HudiPeer, tmp_path: Path, case: Case
) -> None:
    shape = a_table(tmp_path, SCHEMA, table_type=case.table_type, ordering="ts", buckets=1)
    table = shape.with_options(OPTIONS).create()
    table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)))
    table.upsert(rows(("b", "sf", 2, 2)))
    wrong = table.upsert(rows(("a", "sf", 9, 9), ("wrong", "sf", 9, 9))).instant
    is_clustering = case.service == "clustering"
    services = table.services
    plan = (
        services.schedule_clustering(sort_by="ts")
        if is_clustering
        else services.schedule_compaction()
    )
    assert plan is not None

    def roll_back() -> None:
        register(hudi, "trips", table.uri)
        call(hudi, "rollback_to_instant", f"table => 'trips', instant_time => '{wrong}'", WAYS)

    def execute(table: hw.Table) -> None:
        (table.services.cluster if is_clustering else table.services.compact)(plan)

    if case.is_meanwhile:
        open_again = partial(hw.open_table, table.uri, OPTIONS)
        with StoppedProcess(open_again, execute, stops=when_it_has_written) as process:
            process.wait_until_stopped()
            roll_back()
            told = process.resume()
        assert told.error is None or isinstance(told.error, hw.ConflictError), repr(told.error)
    else:
        roll_back()
    table = hw.open_table(table.uri, OPTIONS)
    if plan in table.inspect.plans()["instant"].to_pylist():
        execute(table)
    assert table.inspect.plans().num_rows == 0
    expected = {"a": 1, "b": 2}
    assert fares(table.read_arrow()) == fares(hudi.read(table.uri)) == expected
    table.upsert(rows(("after", "sf", 9, 9)))
    expected["after"] = 9
    assert fares(table.read_arrow()) == fares(hudi.read(table.uri)) == expected
    assert table.inspect.problems(deep=True).num_rows == 0


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_n_188_hudi_restores_a_table_beside_an_overwrite_that_died(
    hudi: HudiPeer, tmp_path: Path, table_type: str
) -> None:
    without = {"hoodie.metadata.index.column.stats.enable": "false"}
    shape = a_table(tmp_path, SCHEMA, table_type=table_type, ordering="ts", buckets=1)
    table = shape.with_options({**OPTIONS, **without}).create()
    saved = table.upsert(rows(("a", "sf", 1, 1))).instant
    table.services.savepoint(saved)
    table.upsert(rows(("a", "sf", 2, 2)))

    def overwrite(table: hw.Table) -> None:
        table.overwrite(rows(("b", "sf", 3, 3)))

    open_again = partial(hw.open_table, table.uri, OPTIONS)
    with StoppedProcess(open_again, overwrite, stops=when_it_has_written) as process:
        process.wait_until_stopped()  # It is killed at the end of the block.
    (left,) = table.context.load_timeline().pending
    assert left.action is Action.REPLACE_COMMIT
    register(hudi, "trips", table.uri)
    call(hudi, "rollback_to_savepoint", f"table => 'trips', instant_time => '{saved}'", WAYS)
    table = hw.open_table(table.uri, OPTIONS)
    assert fares(table.read_arrow()) == fares(hudi.read(table.uri)) == {"a": 1}
    assert table.context.load_timeline().pending == ()


def test_n_191_an_index_that_hudi_makes_anew_after_its_restore_is_used(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    indexed = {
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "true",
    }
    shape = a_table(tmp_path, SCHEMA, partition_by="city", ordering="ts", index="simple")
    table = shape.with_options({**OPTIONS, **indexed}).create()
    saved = table.upsert(rows(("a", "sf", 1, 1))).instant
    table.services.savepoint(saved)
    table.upsert(rows(("a", "sf", 2, 2)))
    register(hudi, "trips", table.uri)
    settings = {**WAYS, **indexed}
    call(hudi, "rollback_to_savepoint", f"table => 'trips', instant_time => '{saved}'", settings)
    write = {**THEIRS, **indexed, "hoodie.index.type": "SIMPLE", "hoodie.table.name": table.name}
    hudi.write(rows(("b", "ny", 3, 3)), table.uri, write)
    table = hw.open_table(table.uri, {**OPTIONS, **indexed})
    assert fares(table.read_arrow()) == fares(hudi.read(table.uri)) == {"a": 1, "b": 3}
    assert {"column_stats", "partition_stats"} <= set(table.config.metadata_partitions)
    assert table.inspect.problems(deep=True).to_pylist() == []
