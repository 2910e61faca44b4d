"""Writes to tables whose records a function of the user's merges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.tables import columns, rows_of, table_at

import headwater as hw
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError
from headwater.kernel.table_config import update_table_config
from headwater.table import Table

SCHEMA = columns("id string, city string, fare long")
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.write.lock.provider": "in_process",
    "hoodie.record.merge.mode": "CUSTOM",
    "headwater.merge.function": f"{__name__}:add_fares",
    **{
        f"hoodie.{kind}.index.update.partition.path": "true"
        for kind in ("simple", "bloom", "record")
    },
}
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
GLOBAL_INDEXES = ("global_simple", "global_bloom", "record_index")


def add_fares(old: pa.Table, new: pa.Table) -> pa.Table:
    """Read a data column, as any such function does."""
    total = pc.add(old["fare"], new["fare"])
    return new.set_column(new.schema.get_field_index("fare"), new.schema.field("fare"), total)


def new_table(folder: Path, table_type: str, index: str = "bucket", **options: str) -> Table:
    shape = table_at(folder, SCHEMA, partition_by="city", table_type=table_type, index=index)
    return shape.with_options({**OPTIONS, **options}).create()


rows = rows_of(SCHEMA)


def content(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.read_arrow().to_pylist())


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("index", GLOBAL_INDEXES)
def test_a_record_that_moved_is_found_where_it_is(
    tmp_path: Path, index: str, table_type: str
) -> None:
    table = new_table(tmp_path / "t", table_type, index)
    table.upsert(rows(("a", "sf", 1), ("b", "sf", 1)))
    table.upsert(rows(("a", "sf", 2), ("b", "sf", 2)))
    table.upsert(rows(("b", "sf", 3)))
    table.upsert(rows(("a", "la", 4)))
    assert content(table) == [("a", "la", 7), ("b", "sf", 6)]
    table.upsert(rows(("a", "la", 5)))
    assert content(table) == [("a", "la", 12), ("b", "sf", 6)]


@pytest.mark.parametrize("table_type", TYPES)
def test_a_partial_write_is_refused_before_it_begins(tmp_path: Path, table_type: str) -> None:
    table = new_table(tmp_path / "t", table_type)
    table.upsert(rows(("a", "sf", 1)))
    table.upsert(rows(("a", "sf", 2)))
    before = table.inspect.timeline()
    for key in ("a", "new"):
        with pytest.raises(UnsupportedError, match="takes whole records") as refused:
            table.upsert(pa.table({"id": [key], "city": ["sf"]}), partial=True)
        assert refused.value.kind is ErrorKind.UNSUPPORTED_OPTION
    assert table.inspect.timeline() == before
    assert content(table) == [("a", "sf", 3)]


def change(one: dict[str, Any]) -> tuple[Any, ...]:
    images = (one[side] and (one[side]["city"], one[side]["fare"]) for side in ("before", "after"))
    return (one["op"], *images)


@pytest.mark.parametrize("index", ["bucket", "simple", "bloom", *GLOBAL_INDEXES])
@pytest.mark.some(2)
def test_services_and_the_change_feed_see_what_the_function_makes(
    tmp_path: Path, index: str
) -> None:
    table = new_table(tmp_path / "t", "MERGE_ON_READ", index)
    table.upsert(rows(("a", "sf", 1), ("b", "sf", 1)))
    table.upsert(rows(("a", "sf", 2), ("b", "sf", 2)))
    since = table.upsert(rows(("b", "sf", 3))).completion_time
    table.services.log_compact()
    table.upsert(rows(("a", "sf", 4)))
    table.services.compact()
    table.delete(rows(("b", "sf", 0)))
    table.upsert(rows(("b", "sf", 8)))
    table.services.schedule_clustering()
    table.services.cluster()
    assert content(table) == [("a", "sf", 7), ("b", "sf", 8)]
    assert table.read_arrow(["id"], where="fare > 7").to_pylist() == [{"id": "b"}]
    assert [change(one) for one in table.changes_arrow(since, cdc=True).to_pylist()] == [
        ("u", ("sf", 3), ("sf", 7)),
        ("d", ("sf", 6), None),
        ("i", None, ("sf", 8)),
    ]
    assert table.inspect.validate_metadata().num_rows == 0


PARTIAL_MODE = "hoodie.table.partial.update.mode"


@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_table_cannot_merge_by_a_function_and_by_column(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="cannot have partial update mode"):
        new_table(tmp_path / "new", "MERGE_ON_READ", **{PARTIAL_MODE: "IGNORE_DEFAULTS"})
    assert not (tmp_path / "new").exists()
    made = new_table(tmp_path / "t", "MERGE_ON_READ")
    changes = {PARTIAL_MODE: "IGNORE_DEFAULTS"}
    locks = made.context.components.locks
    update_table_config(made.storage, locks, made.context.clock, changes, lock_timeout_ms=1_000)
    table = hw.open_table(tmp_path / "t", OPTIONS)
    before = table.inspect.timeline()
    with pytest.raises(UnsupportedError, match="cannot have partial update mode"):
        table.upsert(rows(("a", "sf", 1)))
    assert table.inspect.timeline() == before


def test_a_function_for_a_table_that_takes_none_is_refused_before_a_write_begins(
    tmp_path: Path,
) -> None:
    table = hw.create_table(tmp_path / "t", schema=SCHEMA, record_key="id", index="bucket")
    table.upsert(rows(("a", "sf", 1)))
    before = table.inspect.timeline()
    function = {"headwater.merge.function": f"{__name__}:add_fares"}
    other = hw.open_table(tmp_path / "t", function)
    with pytest.raises(InvalidInputError, match="takes no merge function"):
        other.upsert(rows(("a", "sf", 2)))
    assert other.inspect.timeline() == before
    with pytest.raises(InvalidInputError, match="takes no merge function"):
        other.read_arrow()
