"""A record index that is kept apart by partitions: one place for each key of each partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.support.tables import FAST, columns, rows_of, table_at

import headwater as hw
from headwater.context import TableContext
from headwater.engine.inline import InlineRows
from headwater.kernel.table_config import load_table_config, table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.steps import Claim
from headwater.metadata.partition_kinds import RECORD_INDEX, data_partition_of, file_id
from headwater.metadata.record_lookup import find_locations, find_locations_by_partition
from headwater.metadata.services import MetadataServices, compact_metadata_table
from headwater.metadata.table import MetadataTable, load_metadata_table
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import start_write
from headwater.table import Table

SCHEMA = columns("id string, city string, fare long")
OPTIONS = {**FAST, "hoodie.write.lock.provider": "in_process"}
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")

Row = tuple[str, str, int]


@pytest.fixture
def target_of() -> Callable[[Table], TableContext]:
    def target_of(table: Table) -> TableContext:
        return table.context

    return target_of


@pytest.fixture(params=TYPES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return new_table(tmp_path / "t", request.param)


def new_table(folder: Path, table_type: str = "COPY_ON_WRITE", **more: Any) -> Table:
    shape = table_at(folder, SCHEMA, partition_by="city", index="record_level_index")
    return shape.having(table_type=table_type, options=OPTIONS).having(**more).create()


rows = rows_of(SCHEMA)


def content(table: Table, **more: Any) -> list[Row]:
    found = table.read_arrow(["id", "city", "fare"], **more).to_pylist()
    return sorted((row["id"], row["city"], row["fare"]) for row in found)


def metadata_of(table: Table) -> MetadataTable:
    config = load_table_config(table.storage, table.context.clock)
    timeline = load_active(table.storage, table_layout(config).timeline)
    return load_metadata_table(table.storage, config, timeline)


def places(table: Table) -> set[tuple[str, str]]:
    """Return partition and key of all entries."""
    metadata = metadata_of(table)
    return {
        (partition, key)
        for partition in metadata.data_partitions(RECORD_INDEX)
        for one in metadata.read(RECORD_INDEX, data_partition=partition)
        for key in one.keys.to_pylist()
    }


def problems(table: Table) -> list[dict[str, Any]]:
    """Return what is wrong in the indexes; that they name too much is allowed."""
    found: list[dict[str, Any]] = table.inspect.validate_metadata().to_pylist()
    return [one for one in found if one["problem"] != "stale"]


def compact_index(table: Table) -> None:
    config = load_table_config(table.storage, table.context.clock)
    new_claim = partial(
        Claim.new, table.context.components.ids, interval_ms=60_000, tolerable_misses=2
    )
    compact_metadata_table(
        MetadataServices(
            components=table.context.components,
            config=config,
            commits=1,
            claim=new_claim,
            lock_timeout_ms=1_000,
        )
    )


def test_a_new_table_has_an_index_without_file_groups(table: Table) -> None:
    metadata = metadata_of(table)
    assert RECORD_INDEX in metadata.usable
    assert metadata.definitions[RECORD_INDEX].is_partitioned
    assert metadata.group_count(RECORD_INDEX) == 0


def test_a_key_has_a_place_in_each_partition(table: Table) -> None:
    table.upsert(rows(("a", "x", 1), ("a", "y", 2), ("b", "y", 3)))
    assert content(table) == [("a", "x", 1), ("a", "y", 2), ("b", "y", 3)]
    assert places(table) == {("city=x", "a"), ("city=y", "a"), ("city=y", "b")}
    metadata = metadata_of(table)
    assert metadata.uncovered(RECORD_INDEX) is None
    assert [data_partition_of(one.file_id) for one in metadata.slices(RECORD_INDEX)] == [
        "city=x",
        "city=y",
    ]
    found = find_locations_by_partition(
        metadata, {"city=y": pa.array(["a"]), "city=new": pa.array(["a"])}
    )
    assert found["partition_path"].to_pylist() == ["city=y"]
    assert len(find_locations(metadata, pa.array(["a"]))) == 2


def test_writes_find_the_record_of_their_own_partition(table: Table) -> None:
    table.upsert(rows(("a", "x", 1), ("a", "y", 2), ("b", "y", 3)))
    done = table.upsert(rows(("a", "y", 20), ("a", "z", 30), ("b", "x", 4)))
    assert (done.inserted, done.updated) == (2, 1)
    table.delete(rows(("a", "x", 0), ("b", "z", 0)))
    assert content(table) == [("a", "y", 20), ("a", "z", 30), ("b", "x", 4), ("b", "y", 3)]
    assert not problems(table)


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_inserts_look_keys_up_too(table: Table, operation: str) -> None:
    table.upsert(rows(("a", "x", 1)))
    getattr(table, operation)(rows(("a", "x", 5), ("a", "y", 6)))
    assert content(table) == [("a", "x", 5), ("a", "y", 6)]


def test_writes_ask_the_index(table: Table, target_of: Callable[[Table], TableContext]) -> None:
    table.upsert(rows(("a", "x", 1), ("b", "y", 2), ("c", "z", 3)))
    request = WriteRequest(operation=Operation.UPSERT, columns=SCHEMA)
    running = start_write(target_of(table), request, held=rows(("a", "x", 9)).to_batches())
    assert running.plan.key_search.uses_record_index
    assert set(running.plan.groups.slices) == {"city=x"}
    running.abandon()


def test_a_key_is_looked_up_in_every_partition(table: Table) -> None:
    for number in range(3):
        table.bulk_insert(rows((f"k{number}", "x", number), ("a", "xyz"[number], number)))
    assert content(table, where="id = 'a'") == [("a", "x", 0), ("a", "y", 1), ("a", "z", 2)]
    assert content(table, where="id = 'k1'") == [("k1", "x", 1)]
    assert content(table, where="id = 'a' AND city = 'y'") == [("a", "y", 1)]
    assert content(table, where="id = 'nobody'") == []


def test_two_writers_who_begin_a_partition_at_once_write_to_one_file_group(
    tmp_path: Path, target_of: Callable[[Table], TableContext]
) -> None:
    table = new_table(tmp_path / "t")
    options = {**OPTIONS, "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    one, other = hw.open_table(tmp_path / "t", options), hw.open_table(tmp_path / "t", options)
    request = WriteRequest(operation=Operation.UPSERT, columns=SCHEMA)
    first = start_write(target_of(one), request)
    # The index is usable and the other writer done, while the first has not said anything yet.
    other.upsert(rows(("b", "new", 2)))
    stats = first.run_tasks(InlineRows(rows(("a", "new", 1))))
    first.commit(stats)
    assert content(table) == [("a", "new", 1), ("b", "new", 2)]
    metadata = metadata_of(table)
    (only,) = metadata.slices(RECORD_INDEX)
    assert only.file_id == file_id(RECORD_INDEX, 0, "city=new")
    assert len(only.logs) == 2
    assert not problems(table)


def test_a_partition_that_a_failed_write_began_does_no_harm(table: Table) -> None:
    table.upsert(rows(("a", "x", 1)))
    log = f".{file_id(RECORD_INDEX, 0, 'city=dead')}_20990101000000000.log.1_0-1-0"
    table.storage.put(f".hoodie/metadata/{RECORD_INDEX}/{log}", b"whatever")
    metadata = metadata_of(table)
    assert metadata.uncovered(RECORD_INDEX) is None
    table.upsert(rows(("a", "x", 2), ("b", "dead", 3)))
    assert content(table) == [("a", "x", 2), ("b", "dead", 3)]


def test_an_index_is_dropped_and_built_again_apart(table: Table) -> None:
    table.upsert(rows(("a", "x", 1), ("a", "y", 2)))
    table.indexes.drop(RECORD_INDEX)
    table.upsert(rows(("a", "x", 10), ("b", "z", 3)))
    table.indexes.create(RECORD_INDEX)
    assert metadata_of(table).definitions[RECORD_INDEX].is_partitioned
    assert places(table) == {("city=x", "a"), ("city=y", "a"), ("city=z", "b")}
    table = hw.open_table(table.storage.uri, OPTIONS)
    table.upsert(rows(("a", "y", 20), ("a", "w", 4)))
    assert content(table) == [("a", "w", 4), ("a", "x", 10), ("a", "y", 20), ("b", "z", 3)]
    assert not problems(table)


def test_a_commit_that_is_taken_back_leaves_the_index(table: Table) -> None:
    table.upsert(rows(("a", "x", 1), ("a", "y", 2)))
    second = table.upsert(rows(("b", "x", 3), ("b", "new", 4)))
    compact_index(table)
    table.services.rollback(second.instant)
    table = hw.open_table(table.storage.uri, OPTIONS)
    assert content(table) == [("a", "x", 1), ("a", "y", 2)]
    assert metadata_of(table).definitions[RECORD_INDEX].is_partitioned
    assert places(table) == {("city=x", "a"), ("city=y", "a")}
    table.upsert(rows(("a", "y", 5), ("b", "new", 6)))
    assert content(table) == [("a", "x", 1), ("a", "y", 5), ("b", "new", 6)]
    assert not problems(table)


@pytest.mark.parametrize("city", ["x", "y", "z"])
def test_a_lost_log_is_noticed(table: Table, city: str) -> None:
    table.upsert(rows(("a", "x", 1)))
    table.upsert(rows(("a", "y", 2), ("b", "z", 3)))
    name = file_id(RECORD_INDEX, 0, f"city={city}")
    (lost,) = (
        info.path
        for info in table.storage.list_tree(f".hoodie/metadata/{RECORD_INDEX}")
        if name in info.path
    )
    table.storage.delete(lost)
    assert "is missing" in (metadata_of(table).uncovered(RECORD_INDEX) or "")
    assert content(table, where="id = 'a'") == [("a", "x", 1), ("a", "y", 2)]
    table.upsert(rows(("a", "x", 4), ("a", "y", 5), ("b", "z", 6)))
    assert content(table) == [("a", "x", 4), ("a", "y", 5), ("b", "z", 6)]


def test_a_table_without_partitions(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", partition_by=None)
    table.upsert(rows(("a", "x", 1), ("b", "y", 2)))
    table.upsert(rows(("a", "y", 3)))
    table.delete(rows(("b", "y", 3)))
    assert content(table) == [("a", "y", 3)]
    assert content(table, where="id = 'a'") == [("a", "y", 3)]
    assert places(table) == {("", "a")}
    assert not problems(table)


def test_the_metadata_table_cannot_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(hw.InvalidInputError, match="needs the metadata table"):
        new_table(tmp_path / "t", options={**OPTIONS, "hoodie.metadata.enable": "false"})


def test_a_secondary_index_keeps_a_value_that_another_partition_has(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    table.upsert(rows(("a", "x", 7), ("a", "y", 7)))
    table.indexes.create("secondary_index_fare", columns=["fare"])
    table = hw.open_table(tmp_path / "t", OPTIONS)
    table.delete(rows(("a", "x", 0)))
    assert content(table, where="fare = 7") == [("a", "y", 7)]
    assert not problems(table)


NO_SHRINKING = (Phase.explicit, Phase.generate)
"""An example takes seconds, and says what happened as it is."""

KEYS = st.sampled_from(["a", "b", "c", "d"])
ROWS = st.lists(st.tuples(KEYS, st.sampled_from("xyz"), st.integers(0, 99)), min_size=1, max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["upsert", "insert", "delete", "overwrite_partitions"]), ROWS),
        st.tuples(st.sampled_from(["compact", "cluster", "clean", "compact_index"]), st.just([])),
    ),
    min_size=1,
    max_size=9,
)


@given(table_type=st.sampled_from(TYPES), steps=STEPS)
@settings(max_examples=20, deadline=None, derandomize=True, phases=NO_SHRINKING)
def test_a_table_is_a_dictionary_by_partition_and_key(
    tmp_path_factory: pytest.TempPathFactory,
    table_type: str,
    steps: Sequence[tuple[str, list[Row]]],
) -> None:
    table = new_table(tmp_path_factory.mktemp("t") / "t", table_type)
    model: dict[tuple[str, str], Row] = {}
    for step, given_rows in steps:
        if step == "compact_index":
            compact_index(table)
        elif not given_rows:
            getattr(table.services, step)()
        else:
            getattr(table, step)(rows(*given_rows))
        if step == "overwrite_partitions":
            cities = {city for _, city, _ in given_rows}
            model = {place: row for place, row in model.items() if place[0] not in cities}
        for key, city, fare in given_rows:
            if step == "delete":
                model.pop((city, key), None)
            else:
                model[city, key] = (key, city, fare)
        assert content(table) == sorted(model.values())
    for key in "abcd":
        expected = sorted(row for row in model.values() if row[0] == key)
        assert content(table, where=f"id = '{key}'") == expected
    assert not problems(table)
    assert places(table) >= {(f"city={city}", key) for city, key in model}
