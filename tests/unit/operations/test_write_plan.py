"""Where rows go: names of new file groups, and the group of every row."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.tables import columns

import headwater as hw
from headwater.arrow.buckets import bucket_ids
from headwater.arrow.keys import KeyGenerator
from headwater.context import TableContext
from headwater.metadata.view import load_view
from headwater.model.instant import instant_time_after
from headwater.operations.plan import INSERTS, Operation, WritePlan, slices_by_bucket
from headwater.operations.request import WriteRequest
from headwater.operations.routing.route import GroupKey, assign_groups, group_numbers
from headwater.operations.write import start_write
from headwater.table import Table

SCHEMA = columns("id string, city string, value long")
FILE_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}-0")
BUCKETS = 7

PlanOf = Callable[[Table], WritePlan]


def make_table(path: Path, **arguments: Any) -> Table:
    options = {"headwater.storage.fsync": "false"}
    return hw.create_table(path / "trips", schema=SCHEMA, options=options, **arguments)


def bucketed(path: Path, **arguments: Any) -> Table:
    return make_table(path, record_key="id", partition_by="city", buckets=BUCKETS, **arguments)


@pytest.fixture
def plan_of(target_of: Callable[[Table], TableContext]) -> PlanOf:
    """Return a function that plans an upsert, or an insert into a table without keys."""

    def plan_of(table: Table) -> WritePlan:
        operation = Operation.UPSERT if table.config.record_key_fields else Operation.INSERT
        running = start_write(target_of(table), WriteRequest(operation=operation, columns=SCHEMA))
        running.abandon()
        return running.plan

    return plan_of


def rows(*values: tuple[str, str | None]) -> pa.RecordBatch:
    ids, cities = [key for key, _ in values], [city for _, city in values]
    return pa.record_batch([pa.array(ids), pa.array(cities, pa.string())], names=["id", "city"])


# Names of new groups ---------------------------------------------------------------------------


@pytest.mark.parametrize("has_key", [True, False], ids=["bucketed", "without key"])
def test_a_retried_task_names_the_same_group(
    tmp_path: Path, plan_of: PlanOf, has_key: bool
) -> None:
    plan = plan_of(bucketed(tmp_path) if has_key else make_table(tmp_path))
    assert plan.new_group("city=sf", 3, 2) == plan.new_group("city=sf", 3, 2)


@pytest.mark.parametrize("has_key", [True, False], ids=["bucketed", "without key"])
def test_whatever_differs_makes_another_name(
    tmp_path: Path, plan_of: PlanOf, has_key: bool
) -> None:
    plan = plan_of(bucketed(tmp_path) if has_key else make_table(tmp_path))
    plans = [
        plan,
        replace(plan, attempt=plan.attempt + 1),
        replace(plan, instant_time=instant_time_after(plan.instant_time)),
    ]
    named = [
        each.new_group(partition, number, serial)
        for each, partition, number, serial in product(
            plans, ["", "a", "a/1", "b"], range(12), range(12)
        )
    ]
    # Also without the partition: other engines take a file id for unique in the whole table.
    assert len({group.file_id for group in named}) == len(named)
    assert all(FILE_ID.fullmatch(group.file_id) for group in named)


def test_the_name_of_a_bucket_begins_with_its_number(tmp_path: Path, plan_of: PlanOf) -> None:
    plan = plan_of(bucketed(tmp_path))
    assert plan.new_group("city=sf", 6).file_id.startswith("00000006-")


def test_groups_in_storage_are_found_by_their_bucket(tmp_path: Path) -> None:
    table = bucketed(tmp_path)
    table.insert(pa.table({"id": ["a", "b", "c", "d"], "city": ["sf", "sf", "ny", "ny"]}))
    slices = load_view(table.storage, table.config).slices()
    found = slices_by_bucket(slices, BUCKETS)
    assert sum(len(buckets) for buckets in found.values()) == len(slices)
    for key, city in (("a", "sf"), ("c", "ny")):
        (bucket,) = bucket_ids(pa.array([key]), BUCKETS).tolist()
        assert found[f"city={city}"][bucket].group.file_id.startswith(f"{bucket:08d}-")


# The group of every row ------------------------------------------------------------------------


def test_every_row_goes_to_the_bucket_of_its_key(tmp_path: Path, plan_of: PlanOf) -> None:
    table = bucketed(tmp_path)
    plan, keys = plan_of(table), KeyGenerator.from_config(table.config)
    given = [(f"key-{n}", ["sf", "ny", None, ""][n % 4]) for n in range(200)]
    fitted, numbers, groups = assign_groups(plan, keys, rows(*given))
    assert fitted.schema.names == SCHEMA.names
    assert fitted.column("id").to_pylist() == [key for key, _ in given]
    found = [groups[number] for number in numbers.tolist()]
    expected = [
        GroupKey(
            f"city={city or '__HIVE_DEFAULT_PARTITION__'}",
            int(bucket_ids(pa.array([key]), BUCKETS)[0]),
        )
        for key, city in given
    ]
    assert found == expected
    assert sorted(groups) == sorted(set(expected)), "groups without rows, or twice"


def test_rows_of_one_group_share_a_number(tmp_path: Path, plan_of: PlanOf) -> None:
    """Engines send rows to tasks by these numbers, and no group may be split."""
    table = bucketed(tmp_path)
    plan, keys = plan_of(table), KeyGenerator.from_config(table.config)
    batch = rows(*[(f"key-{n}", ["sf", "ny", None][n % 3]) for n in range(200)])
    _, numbers, groups = assign_groups(plan, keys, batch)
    sent: dict[GroupKey, set[int]] = {}
    for place, number in enumerate(group_numbers(plan, keys, batch).to_pylist()):
        sent.setdefault(groups[numbers[place]], set()).add(number)
    assert all(len(each) == 1 for each in sent.values())
    assert len(sent) == 3 * BUCKETS


def test_rows_without_keys_are_inserts_of_their_partition(tmp_path: Path, plan_of: PlanOf) -> None:
    table = make_table(tmp_path, partition_by="city")
    plan, keys = plan_of(table), KeyGenerator.from_config(table.config)
    _, numbers, groups = assign_groups(plan, keys, rows(("a", "sf"), ("a", "ny"), ("b", "sf")))
    found = [groups[number] for number in numbers.tolist()]
    assert found == [
        GroupKey("city=sf", INSERTS),
        GroupKey("city=ny", INSERTS),
        GroupKey("city=sf", INSERTS),
    ]


def test_a_batch_without_rows_has_no_groups(tmp_path: Path, plan_of: PlanOf) -> None:
    table = bucketed(tmp_path)
    plan, keys = plan_of(table), KeyGenerator.from_config(table.config)
    _, numbers, groups = assign_groups(plan, keys, rows(("a", "sf")).slice(1))
    assert (len(numbers), groups) == (0, [])
