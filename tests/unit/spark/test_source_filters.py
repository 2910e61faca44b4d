"""Filters that a read takes: which files it plans to open, and which rows it gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

import headwater as hw
from headwater.queries.row_filter import filter_rows
from headwater.queries.snapshot import ReadRequest, plan_snapshot
from headwater.queries.text_filter import filter_of
from headwater.spark.data_source import HeadwaterDataSource
from headwater.spark.source_filters import take_filters
from headwater.spark.source_reader import FilteredTableReader, SlicesPartition


def trips(path: Path, **arguments: Any) -> hw.Table:
    """Create a table of three base files, each with a city and a range of fares of its own."""
    table = hw.create_table(
        path,
        schema="id string, city string, fare long, driver string",
        record_key="id",
        options={
            "hoodie.parquet.small.file.limit": "0",
            "hoodie.metadata.index.column.stats.enable": "true",
            "hoodie.write.lock.provider": "in_process",
        },
        **arguments,
    )
    for number, city in enumerate(("sf", "la", "ny")):
        fares = [100 * number + n for n in range(10)]
        rows = {
            "id": [f"{city}-{n}" for n in range(10)],
            "city": [city] * 10,
            "fare": fares,
            "driver": [f"driver-{n}" for n in fares],
        }
        table.bulk_insert(pa.table(rows))
    return table


def filtered(path: Path, *filters: Filter) -> tuple[set[str], list[str], list[Filter]]:
    """Return the files that a read plans to open, the ids it gives, and the filters it left."""
    options = {"path": str(path), "headwater.read.pushed.filters": "true"}
    source = HeadwaterDataSource(options)
    reader = source.reader(source.schema())
    assert isinstance(reader, FilteredTableReader)
    left = list(reader.pushFilters(list(filters)))
    partitions = [each for each in reader.partitions() if isinstance(each, SlicesPartition)]
    files = {one.base.name for each in partitions for one in each.slices if one.base is not None}
    rows = [batch.select(["id"]) for each in partitions for batch in reader.read(each)]
    ids = pa.Table.from_batches(rows)["id"].to_pylist() if rows else []
    return files, sorted(ids), left


@pytest.mark.parametrize(
    ("arguments", "where", "pushed"),
    [
        pytest.param(
            {"partition_by": "city", "buckets": 1},
            "city = 'la' AND fare = 107",
            [EqualTo(("city",), "la"), EqualTo(("fare",), 107)],
            id="partition",
        ),
        pytest.param(
            {"index": "simple"},
            "fare BETWEEN 105 AND 107",
            [GreaterThanOrEqual(("fare",), 105), LessThanOrEqual(("fare",), 107)],
            id="statistics",
        ),
        pytest.param(
            {"index": "simple"},
            "id >= 'la' AND id < 'lb'",
            [StringStartsWith(("id",), "la")],
            id="prefix",
        ),
        pytest.param(
            {"index": "record_index"}, "id = 'la-7'", [EqualTo(("id",), "la-7")], id="record key"
        ),
        pytest.param(
            {"index": "record_index"},
            "driver = 'driver-107'",
            [In(("driver",), ("driver-107",)), IsNotNull(("driver",))],
            id="secondary index",
        ),
    ],
)
def test_a_read_opens_what_the_table_itself_would(
    tmp_path: Path, arguments: dict[str, Any], where: str, pushed: list[Filter]
) -> None:
    table = trips(tmp_path, **arguments)
    if "driver" in where:
        table.indexes.create("secondary_index_driver", columns=["driver"])
        table = hw.open_table(tmp_path)
    plan = plan_snapshot(table.context, ReadRequest(where=where))

    files, ids, left = filtered(tmp_path, *pushed)

    assert files == {one.base.name for one in plan.slices if one.base is not None}
    assert len(files) == 1
    assert ids == sorted(table.read_arrow(["id"], where=where)["id"].to_pylist())
    assert not left


COLUMNS = pa.schema(
    [
        ("row", pa.int64()),
        ("n", pa.int32()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("b", pa.binary()),
    ]
)
ROWS = pa.RecordBatch.from_pylist(
    [
        {"row": 0, "n": 1, "s": "apple", "f": 1.0, "b": b"x"},
        {"row": 1, "n": 2, "s": "b\\c", "f": float("nan"), "b": b"y"},
        {"row": 2, "n": None, "s": None, "f": None, "b": None},
    ],
    schema=COLUMNS,
)


@pytest.mark.parametrize(
    ("pushed", "kept"),
    [
        (EqualNullSafe(("n",), None), [2]),
        (Not(EqualNullSafe(("n",), 1)), [1, 2]),
        (Not(In(("n",), (1,))), [1]),
        (Not(GreaterThan(("n",), 1)), [0]),
        (StringStartsWith(("s",), "ap"), [0]),
        (StringEndsWith(("s",), "\\c"), [1]),
        (StringContains(("s",), "ppl"), [0]),
        (Not(StringContains(("s",), "ppl")), [1]),
        (Not(LessThan(("f",), 2.0)), [1]),
        (Not(IsNull(("s",))), [0, 1]),
        (EqualTo(("b",), b"x"), [0]),
        (EqualTo(("s",), "b\\c"), [1]),
        (Not(In(("n",), (1, None))), []),
    ],
)
def test_rows_that_satisfy_a_filter(pushed: Filter, kept: list[int]) -> None:
    where, left = take_filters([pushed], COLUMNS)
    assert not left
    assert where is not None
    found = filter_rows(ROWS, filter_of(where, COLUMNS))
    assert found["row"].to_pylist() == kept


@pytest.mark.parametrize(
    "pushed",
    [
        EqualTo(("f",), float("nan")),
        EqualTo(("missing",), 1),
        EqualTo(("s", "part"), 1),
    ],
)
def test_what_is_not_compared_as_spark_does_is_left_to_spark(pushed: Filter) -> None:
    assert take_filters([pushed], COLUMNS) == (None, [pushed])
