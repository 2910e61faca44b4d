"""Where the batches of a stream end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import headwater as hw
from headwater.config.source import SourceConfig
from headwater.spark.schemas import frame_schema_of
from headwater.spark.source_stream import OFFSET, TableStreamReader

SCHEMA = pa.schema([("n", pa.int64())])


def written(table: hw.Table, *numbers: int) -> list[str]:
    return [str(table.insert(pa.table({"n": [n]})).completion_time) for n in numbers]


def stream(path: Path, **options: str) -> TableStreamReader:
    config = SourceConfig.from_options({"path": str(path), **options})
    return TableStreamReader(config, frame_schema_of(SCHEMA))


def rows_between(reader: TableStreamReader, start: Any, end: Any) -> list[int]:
    partitions = reader.partitions(start, end)
    rows = [batch for each in partitions for batch in reader.read(each)]
    return sorted(n for batch in rows for n in batch["n"].to_pylist())


def test_a_batch_reads_all_there_is_unless_it_is_limited(tmp_path: Path) -> None:
    times = written(hw.create_table(tmp_path, schema=SCHEMA), 1, 2, 3)
    reader = stream(tmp_path)
    assert reader.latestOffset() == {OFFSET: times[2]}, "as Spark 4.1 asks"
    start = reader.initialOffset()
    assert reader.latestOffset(start) == {OFFSET: times[2]}

    limited = stream(tmp_path, **{"headwater.stream.commits.per.trigger": "2"})
    first = limited.latestOffset(start)
    second = limited.latestOffset(first)
    assert [first, second] == [{OFFSET: times[1]}, {OFFSET: times[2]}]
    assert limited.latestOffset(second) == second, "nothing more"
    assert rows_between(limited, start, first) == [1, 2]
    assert rows_between(limited, first, second) == [3]


def test_a_query_of_what_is_available_now_ends_there(tmp_path: Path) -> None:
    table = hw.create_table(tmp_path, schema=SCHEMA)
    times = written(table, 1, 2)
    reader = stream(tmp_path, **{"headwater.stream.commits.per.trigger": "1"})
    reader.prepareForTriggerAvailableNow()
    written(table, 3)

    offset, seen = reader.initialOffset(), []
    while (following := reader.latestOffset(offset)) != offset:
        seen.append(following[OFFSET])
        offset = following
    assert seen == times


def test_an_empty_table_has_no_batch(tmp_path: Path) -> None:
    hw.create_table(tmp_path, schema=SCHEMA)
    reader = stream(tmp_path)
    start = reader.initialOffset()
    assert rows_between(reader, start, reader.latestOffset(start)) == []
