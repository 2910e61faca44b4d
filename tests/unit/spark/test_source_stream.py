"""Where the batches of a stream end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.config.source import SourceConfig
from headwater.errors import ErrorKind, InvalidInputError
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


START_OFFSET = "hoodie.datasource.streaming.startoffset"


class Query:
    """One run of a streaming query, as Spark 4.1 or a later one asks for its batches."""

    def __init__(self, reader: TableStreamReader, offset: Any = None, *, tells_start: bool) -> None:
        self.reader = reader
        self._tells_start = tells_start
        self.offset = offset
        """Where the checkpoint says that the query has come."""

    def run(self) -> list[int]:
        """Run batches until none is new."""
        reader, rows = self.reader, list[int]()
        for _ in range(9):
            start = reader.initialOffset() if self.offset is None else self.offset
            end = reader.latestOffset(start) if self._tells_start else reader.latestOffset()
            if end == self.offset:
                return rows
            rows += rows_between(reader, start, end)
            self.offset = end
        raise AssertionError(f"The query does not come to rest at {self.offset}")


both_versions = pytest.mark.parametrize("tells_start", [False, True])


@both_versions
@pytest.mark.parametrize("is_new_run", [False, True])
def test_a_stream_goes_on_after_what_it_has_read_was_taken_back(
    tmp_path: Path, tells_start: bool, is_new_run: bool
) -> None:
    table = hw.create_table(tmp_path, schema=SCHEMA)
    written(table, 1)
    savepoint = table.services.savepoint()
    written(table, 2, 3)
    query = Query(stream(tmp_path), tells_start=tells_start)
    assert query.run() == [1, 2, 3]

    table.services.restore(savepoint.instant)
    if is_new_run:
        query = Query(stream(tmp_path), query.offset, tells_start=tells_start)
    assert query.run() == []
    written(table, 4)
    assert query.run() == [4]


def test_a_batch_whose_end_was_taken_back_is_read_again(tmp_path: Path) -> None:
    table = hw.create_table(tmp_path, schema=SCHEMA)
    written(table, 1)
    savepoint = table.services.savepoint()
    second, third = written(table, 2, 3)
    table.services.restore(savepoint.instant)

    reader = stream(tmp_path)
    assert rows_between(reader, {OFFSET: "0"}, {OFFSET: third}) == [1]
    assert rows_between(reader, {OFFSET: second}, {OFFSET: third}) == []


@both_versions
@pytest.mark.parametrize("is_new_run", [False, True])
def test_a_stream_that_begins_at_a_time_to_come_waits_for_it(
    tmp_path: Path, tells_start: bool, is_new_run: bool
) -> None:
    table = hw.create_table(tmp_path, schema=SCHEMA)
    written(table, 1)
    query = Query(stream(tmp_path, **{START_OFFSET: "2999-01-01"}), tells_start=tells_start)
    assert query.run() == []
    written(table, 2)
    if is_new_run:
        again = stream(tmp_path, **{START_OFFSET: "2999-01-01"})
        query = Query(again, query.offset, tells_start=tells_start)
    assert query.run() == []


@both_versions
def test_a_stream_may_begin_after_the_newest_write(tmp_path: Path, tells_start: bool) -> None:
    table = hw.create_table(tmp_path, schema=SCHEMA)
    newest = written(table, 1)[-1]
    begin = {START_OFFSET: str(int(newest) + 1)}
    query = Query(stream(tmp_path, **begin), tells_start=tells_start)
    assert query.run() == []
    written(table, 2)
    assert query.run() == [2]
    query = Query(stream(tmp_path, **begin), query.offset, tells_start=tells_start)
    written(table, 3)
    assert query.run() == [3]


def test_another_beginning_to_come_loses_nothing_of_a_stream_that_has_begun(tmp_path: Path) -> None:
    table = hw.create_table(tmp_path, schema=SCHEMA)
    written(table, 1)
    query = Query(stream(tmp_path), tells_start=False)
    assert query.run() == [1]
    written(table, 2)

    told = Query(stream(tmp_path, **{START_OFFSET: "2999-01-01"}), query.offset, tells_start=False)
    with pytest.raises(InvalidInputError, match=f"{START_OFFSET} tells it to begin at 2999"):
        told.run()
    with pytest.raises(InvalidInputError, match="This batch can be read once"):
        rows_between(stream(tmp_path), query.offset, told.reader.latestOffset())
    assert Query(stream(tmp_path), query.offset, tells_start=False).run() == [2]


@pytest.mark.parametrize("end", ["begin", "end"])
def test_a_stream_takes_no_window(tmp_path: Path, end: str) -> None:
    options = {
        "hoodie.datasource.query.type": "incremental",
        f"hoodie.datasource.read.{end}.instanttime": "2024-01-31",
    }
    with pytest.raises(InvalidInputError, match=f"remove .*{end}.instanttime") as caught:
        stream(tmp_path, **options)
    assert caught.value.kind is ErrorKind.INVALID_OPTION


def test_batches_before_a_column_came_have_nulls_in_it(tmp_path: Path) -> None:
    table = hw.create_table(tmp_path, schema=SCHEMA)
    (first,) = written(table, 1)
    table.insert(pa.table({"n": [2], "name": ["b"]}))
    wide = pa.schema([*SCHEMA, ("name", pa.string())])
    config = SourceConfig.from_options({"path": str(tmp_path)})
    reader = TableStreamReader(config, frame_schema_of(wide))

    (task,) = reader.partitions({OFFSET: "0"}, {OFFSET: first})
    (batch,) = reader.read(task)
    assert batch.to_pylist() == [{"n": 1, "name": None}]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_stream_that_cleaning_has_passed_goes_on(tmp_path: Path, table_type: str) -> None:
    table = hw.create_table(
        tmp_path,
        schema=pa.schema([("n", pa.int64()), ("v", pa.int64())]),
        record_key="n",
        table_type=table_type,
        options={
            "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
            "hoodie.clean.fileversions.retained": "1",
        },
    )
    for number in range(4):
        table.upsert(pa.table({"n": [0, 10 + number], "v": [number, number]}))
    if table_type == "MERGE_ON_READ":
        table.services.compact()
    (cleaned,) = table.services.clean()
    assert cleaned.deleted_paths

    limited = stream(tmp_path, **{"headwater.stream.commits.per.trigger": "1"})
    assert Query(limited, tells_start=True).run() == [10, 11, 12, 0, 13]
