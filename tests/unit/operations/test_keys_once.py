"""The keys and partition paths of a batch are made once, whatever is done with its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.tables import COW, MOR, a_table, columns
from tests.support.tables import trips as plain

import headwater as hw
from headwater.arrow import keys
from headwater.arrow.partition_paths import PartitionPathRule
from headwater.table import Table

SCHEMA = columns("id long not null, part int not null, city string, ts long")
GLOBAL = ("record_index", "global_simple", "global_bloom")
INDEXES = ("bucket", "simple", "bloom", "record_level_index", *GLOBAL)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the text of a key column was made, and how often the paths of some rows."""
    counts: Counter[str] = Counter()

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any) -> Any:
            counts[name] += 1
            return call(*arguments)

        return count

    monkeypatch.setattr(keys, "_column_text", counting("key columns", keys._column_text))
    monkeypatch.setattr(PartitionPathRule, "paths", counting("paths", PartitionPathRule.paths))
    return counts


def trips(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    rows = [{"id": n, "part": n % 3, "city": ("sf", "ny")[n % 2], "ts": ts} for n in numbers]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def create(path: Path, index: str, table_type: str, **shape: Any) -> Table:
    buckets = {"buckets": 4} if index == "bucket" else {}
    builder = a_table(path, SCHEMA, partition_by="city", table_type=table_type, ordering="ts")
    return builder.having(index=index, **buckets, **shape).create()


@pytest.mark.parametrize("key", ["id", ("id", "part")])
@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.some(10)
def test_an_upsert_makes_them_once(
    tmp_path: Path, made: Counter[str], index: str, table_type: str, key: str | tuple[str, str]
) -> None:
    table = create(tmp_path, index, table_type, record_key=key)
    table.upsert(trips(0, 60, 1))
    made.clear()

    table.upsert(pa.concat_tables([trips(30, 90, 2), trips(40, 50, 3)]).combine_chunks())

    assert made["key columns"] == (1 if key == "id" else 2)
    # Where records may be in other partitions, rows are compared with the places they are found in.
    assert made["paths"] == 1 or index in GLOBAL
    found = {row["id"]: row["ts"] for row in table.read_arrow().to_pylist()}
    assert found == {n: 3 if 40 <= n < 50 else 2 if n >= 30 else 1 for n in range(90)}


def test_a_delete_makes_them_once(tmp_path: Path, made: Counter[str]) -> None:
    table = create(tmp_path, "bloom", MOR, record_key="id")
    table.upsert(trips(0, 60, 1))
    made.clear()

    table.delete(trips(0, 50, 1).select(["id", "city"]))

    assert made == {"key columns": 1, "paths": 1}
    assert table.read_arrow().num_rows == 10


def test_what_rows_carry_is_in_no_file_and_no_answer(tmp_path: Path) -> None:
    table = create(tmp_path, "simple", COW, record_key=("id", "part"))
    table.upsert(trips(0, 10, 1))
    table.upsert(trips(0, 10, 2))
    assert table.read_arrow().column_names == SCHEMA.names
    assert hw.open_table(table.uri).schema.names == SCHEMA.names
    for base in Path(table.uri).glob("city=*/*.parquet"):
        assert not set(keys.CARRIED) & set(pq.read_schema(base).names)


@pytest.mark.parametrize("name", ["__headwater_key", "__headwater_path", "__headwater_leaving"])
def test_no_column_of_the_users_is_taken_for_what_rows_carry(tmp_path: Path, name: str) -> None:
    table = a_table(tmp_path).create()  # Its key is a text as it is, which needs no carrying.
    rows = plain(("a", "sf", 1)).append_column(name, pa.array(["b"]))
    for write in (table.upsert, table.insert, table.delete):
        with pytest.raises(hw.errors.InvalidInputError, match=f"column {name}.*Rename it"):
            write(rows)
    assert table.read_arrow().num_rows == 0
    with pytest.raises(hw.errors.InvalidInputError, match=f"column {name} is one that"):
        a_table(tmp_path / "other", SCHEMA.append(pa.field(name, pa.string()))).create()
