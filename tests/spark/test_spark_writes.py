"""Writes from DataFrames through Spark's tasks give what the same writes give inline."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import StatusTracker
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.support.tables import columns

import headwater as hw
from headwater.arrow.java_hash import string_hashes
from headwater.engine.engine import Route, RouteKind, RowsTask, TaskContext
from headwater.errors import InvalidInputError, StorageError
from headwater.spark.input_rows import rows_of
from headwater.spark.java_hash import java_hash
from headwater.spark.rows import SparkRows
from headwater.spark.schemas import frame_schema_of
from headwater.spark.session import batches_bound_by_rows

DISTRIBUTED = {"headwater.write.inline.bytes": 0, "headwater.write.tasks": 3}
CITIES = ("ams", "ber", "rome", None, "")

SCHEMA = columns("id long, part int, city string, ts long, amount double")
SHAPES = [
    pytest.param("COPY_ON_WRITE", ["id"], ["city"], id="cow-simple-partitioned"),
    pytest.param("MERGE_ON_READ", ["id", "part"], ["city"], id="mor-complex-partitioned"),
    pytest.param("COPY_ON_WRITE", ["id", "part"], None, id="cow-complex", marks=pytest.mark.long),
    pytest.param("MERGE_ON_READ", ["id"], None, id="mor-simple"),
]


def some_rows(ids: range, *, ts: int) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "part": [number % 3 for number in ids],
            "city": [CITIES[number % len(CITIES)] for number in ids],
            "ts": [ts] * len(ids),
            "amount": [number + ts / 8 for number in ids],
        },
        SCHEMA,
    )


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    return spark.createDataFrame(rows, frame_schema_of(rows.schema))


def by_key(rows: pa.Table, key: str = "id") -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: str(row[key]))


def twins(tmp_path: Path, **arguments: Any) -> tuple[hw.Table, hw.Table]:
    """Two equal tables: the first is written inline, the second by Spark's tasks."""
    inline = hw.create_table(tmp_path / "inline", **arguments)
    distributed = hw.create_table(tmp_path / "distributed", **arguments, options=DISTRIBUTED)
    return inline, distributed


def data_files(table: hw.Table) -> set[str]:
    base = Path(table.uri)
    files = (path.relative_to(base) for path in base.rglob("*") if path.is_file())
    return {str(path) for path in files if ".hoodie" not in path.parts} - {
        str(path.relative_to(base)) for path in base.rglob(".hoodie_partition_metadata*")
    }


@pytest.mark.parametrize(("table_type", "key", "partition_by"), SHAPES)
@pytest.mark.some(1)
def test_every_operation_equals_its_inline_twin(
    spark: SparkSession,
    tmp_path: Path,
    table_type: str,
    key: list[str],
    partition_by: list[str] | None,
) -> None:
    inline, distributed = twins(
        tmp_path,
        schema=SCHEMA,
        table_type=table_type,
        record_key=key,
        partition_by=partition_by,
        ordering="ts",
    )
    steps: list[tuple[str, pa.Table]] = [
        ("bulk_insert", some_rows(range(40), ts=1)),
        ("upsert", some_rows(range(20, 60), ts=2)),
        ("upsert", some_rows(range(50, 55), ts=1)),
        ("insert", some_rows(range(60, 70), ts=3)),
        ("delete", some_rows(range(5), ts=9).select(["id", "part", "city"])),
        ("overwrite_partitions", some_rows(range(100, 101), ts=4)),
        ("overwrite", some_rows(range(200, 230), ts=5)),
    ]
    for operation, rows in steps:
        here = getattr(inline, operation)(rows)
        there = getattr(distributed, operation)(frame_of(spark, rows))
        assert by_key(distributed.read_arrow()) == by_key(inline.read_arrow()), operation
        assert by_key(distributed.read().toArrow()) == by_key(inline.read_arrow()), operation
        assert (here.inserted, here.updated, here.deleted) == (
            there.inserted,
            there.updated,
            there.deleted,
        )
        assert sorted(g.partition for g in here.file_groups) == sorted(
            g.partition for g in there.file_groups
        )


def test_rows_without_keys_are_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    inline, distributed = twins(tmp_path, schema=SCHEMA, partition_by="city")
    for number in range(3):
        rows = some_rows(range(number * 10, number * 10 + 10), ts=number)
        inline.insert(rows)
        distributed.insert(frame_of(spark, rows))
    assert by_key(distributed.read_arrow()) == by_key(inline.read_arrow())
    keys = distributed.read(["_hoodie_record_key"]).toArrow().column(0).to_pylist()
    assert len(set(keys)) == 30


@pytest.mark.parametrize(
    ("table_type", "index"),
    [
        ("COPY_ON_WRITE", "simple"),
        ("MERGE_ON_READ", "bloom"),
        pytest.param("COPY_ON_WRITE", "bloom", marks=pytest.mark.long),
        pytest.param("MERGE_ON_READ", "simple", marks=pytest.mark.long),
    ],
)
def test_looked_up_keys_find_their_file_groups(
    spark: SparkSession, tmp_path: Path, index: str, table_type: str
) -> None:
    inline, distributed = twins(
        tmp_path,
        schema=SCHEMA,
        record_key="id",
        partition_by="part",
        index=index,
        table_type=table_type,
    )
    steps = [
        ("insert", some_rows(range(30), ts=1)),
        ("upsert", some_rows(range(20, 40), ts=2)),
        ("delete", some_rows(range(5), ts=9)),
    ]
    for operation, rows in steps:
        getattr(inline, operation)(rows)
        getattr(distributed, operation)(frame_of(spark, rows))
        assert by_key(distributed.read_arrow()) == by_key(inline.read_arrow()), operation


KEY_TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), ["a", "😀\x00", "z" * 300, "é", "0"]),
    "int": (pa.int32(), [-1, 0, 7, 2**31 - 1, -(2**31)]),
    "long": (pa.int64(), [-1, 0, 7, 2**63 - 1, -(2**63)]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(2026, 1, 2)]),
    "boolean": (pa.bool_(), [True, False]),
    "decimal": (pa.decimal128(12, 8), [Decimal("0.00000001"), Decimal("-3.5")]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1969, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 7, 1, 3, 4, 5, 6, dt.UTC)],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [dt.datetime(1969, 1, 1), dt.datetime(2026, 3, 8, 2, 30)],
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] * (name == "int"))  # As a long is.
        for name in KEY_TYPES
    ],
)
@pytest.mark.some(3)
def test_keys_and_partitions_of_any_type(spark: SparkSession, tmp_path: Path, name: str) -> None:
    kind, values = KEY_TYPES[name]
    schema = pa.schema([pa.field("k", kind), pa.field("p", kind), pa.field("v", pa.int32())])
    size = len(values)
    rows = pa.table({"k": values, "p": values[:1] * size, "v": [1] * size}, schema)
    changed = pa.table({"k": values, "p": values[:1] * size, "v": [2] * size}, schema)
    inline, distributed = twins(
        tmp_path, schema=schema, record_key="k", partition_by="p", buckets=7
    )
    for step in (rows, changed):
        inline.upsert(step)
        distributed.upsert(frame_of(spark, step))
    assert by_key(distributed.read_arrow(), "k") == by_key(inline.read_arrow(), "k")
    meta = ["_hoodie_record_key", "_hoodie_partition_path", "v"]
    assert by_key(distributed.read_arrow(meta), meta[0]) == by_key(inline.read_arrow(meta), meta[0])


ALL_TYPES = columns(
    "id string, flag boolean, small int, large long, single float, double double, "
    "text string, bytes binary, day date, instant timestamp, wall timestamp_ntz, "
    "price decimal(20,4), tags array<string>, counts map<string,long>, "
    "inner struct<a:int,at:timestamp>"
)
NOON = dt.datetime(2026, 3, 8, 2, 30, 0, 123456)
ALL_VALUES: list[dict[str, Any]] = [
    {
        "id": "full",
        "flag": True,
        "small": -5,
        "large": 2**62,
        "single": 0.5,
        "double": -1e300,
        "text": "ü😀",
        "bytes": b"\x00\xff",
        "day": dt.date(1500, 2, 3),
        "instant": NOON.replace(tzinfo=dt.UTC),
        "wall": NOON,
        "price": Decimal("1234567890123456.7891"),
        "tags": ["x", None, ""],
        "counts": [("one", 1), ("none", None)],
        "inner": {"a": 1, "at": NOON.replace(tzinfo=dt.UTC)},
    },
    {"id": "nulls"},
    {"id": "old", "instant": dt.datetime(1, 1, 2, tzinfo=dt.UTC), "wall": dt.datetime(1, 1, 2)},
]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_values_of_all_types_survive(spark: SparkSession, tmp_path: Path, table_type: str) -> None:
    rows = pa.Table.from_pylist(ALL_VALUES, ALL_TYPES)
    inline, distributed = twins(tmp_path, schema=ALL_TYPES, record_key="id", table_type=table_type)
    inline.upsert(rows)
    distributed.upsert(frame_of(spark, rows))
    assert distributed.read_arrow().schema == inline.read_arrow().schema
    assert by_key(distributed.read_arrow()) == by_key(rows)
    assert by_key(distributed.read().toArrow()) == by_key(rows)


def test_types_that_tables_widen_and_columns_of_nulls(spark: SparkSession, tmp_path: Path) -> None:
    table = hw.create_table(
        tmp_path / "t", schema="id string, n int, s string", record_key="id", options=DISTRIBUTED
    )
    df = spark.sql("select '1' as id, cast(3 as tinyint) as n, null as s")
    table.upsert(df)
    assert table.read_arrow().to_pylist() == [{"id": "1", "n": 3, "s": None}]


def test_workers_that_stay_cold_write_the_same(spark: SparkSession, tmp_path: Path) -> None:
    table = hw.create_table(
        tmp_path / "t",
        schema=SCHEMA,
        record_key="id",
        options={**DISTRIBUTED, "headwater.spark.warm.workers": False},
    )
    rows = some_rows(range(10), ts=1)
    table.upsert(frame_of(spark, rows))
    assert by_key(table.read().toArrow()) == by_key(rows)


def test_partial_update_keeps_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = hw.create_table(
        tmp_path / "t",
        schema="id string, a int, b int",
        record_key="id",
        table_type="MERGE_ON_READ",
        options=DISTRIBUTED,
    )
    table.upsert(spark.sql("select '1' as id, 1 as a, 1 as b"))
    table.upsert(spark.sql("select '1' as id, 2 as b"), partial=True)
    assert table.read().toArrow().to_pylist() == [{"id": "1", "a": 1, "b": 2}]


@pytest.mark.parametrize("is_hive_style", [True, False])
def test_values_that_share_a_partition_path_share_its_file_groups(
    spark: SparkSession, tmp_path: Path, is_hive_style: bool
) -> None:
    schema = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())])
    pairs = [(None, "q"), ("", "q"), ("x", "q")]
    rows = pa.table(
        {
            "id": [number for number in range(10) for _ in pairs],
            "a": [a for _ in range(10) for a, _ in pairs],
            "b": [b for _ in range(10) for _, b in pairs],
        },
        schema,
    )
    options = {"hoodie.datasource.write.hive_style_partitioning": is_hive_style}
    table = hw.create_table(
        tmp_path / "t",
        schema=schema,
        record_key="id",
        partition_by=["a", "b"],
        buckets=2,
        options={**DISTRIBUTED, **options},
    )
    commit = table.upsert(frame_of(spark, rows))
    assert len(commit.file_groups) == len(set(commit.file_groups))
    in_bucket = [(g.partition, g.file_id[:8]) for g in commit.file_groups]
    assert len(in_bucket) == len(set(in_bucket))


def test_a_small_dataframe_is_written_without_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table = hw.create_table(tmp_path / "t", schema=SCHEMA, record_key="id")
    rows = some_rows(range(10), ts=1)
    assert not isinstance(rows_of(frame_of(spark, rows), table.context.file_config), SparkRows)
    assert isinstance(rows_of(spark.range(100_001), table.context.file_config), SparkRows)
    table.upsert(frame_of(spark, rows))
    assert by_key(table.read_arrow()) == by_key(rows)


def counting(folder: Path) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Pass rows on, and leave a file in the folder for each batch."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            (folder / str(len(list(folder.iterdir())))).touch()
            yield batch

    return count


def test_a_dataframe_runs_once(spark: SparkSession, tmp_path: Path) -> None:
    """A source that gives other rows each time must be asked once, inline or not."""
    for name, options in (("inline", None), ("distributed", DISTRIBUTED)):
        seen = tmp_path / f"seen-{name}"
        seen.mkdir()

        table = hw.create_table(tmp_path / name, schema="id long", record_key="id", options=options)
        table.upsert(spark.range(0, 5, 1, numPartitions=1).mapInArrow(counting(seen), "id long"))
        assert len(list(seen.iterdir())) == 1, name


@contextmanager
def job_group(spark: SparkSession, name: str) -> Iterator[None]:
    """Give the jobs of this thread a name to find them by."""
    spark.sparkContext.setJobGroup(name, "")
    try:
        yield
    finally:
        spark.sparkContext.setJobGroup("others", "")


def test_one_shuffle_for_a_write(
    spark: SparkSession, tmp_path: Path, job_status: Callable[[], StatusTracker]
) -> None:
    table = hw.create_table(
        tmp_path / "t",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        options=DISTRIBUTED,
    )
    with job_group(spark, "one-shuffle"):
        table.upsert(frame_of(spark, some_rows(range(50), ts=1)))
    tracker = job_status()
    infos = [
        tracker.getStageInfo(stage)
        for job in tracker.getJobIdsForGroup("one-shuffle")
        for stage in getattr(tracker.getJobInfo(job), "stageIds", ())
    ]
    ran = {info.stageId: info.numTasks for info in infos if info and info.numCompletedTasks}
    assert len(ran) == 2
    assert ran[max(ran)] == 3


@pytest.mark.parametrize("own_limit", [None, "1024"])
def test_batches_end_by_rows_unless_the_session_limits_their_bytes(
    spark: SparkSession, own_limit: str | None
) -> None:
    setting = "spark.sql.execution.arrow.maxBytesPerBatch"
    if own_limit is not None:
        spark.conf.set(setting, own_limit)
    try:
        with batches_bound_by_rows(spark):
            wide = spark.range(0, 500, 1, 1).mapInArrow(_batch_sizes, "rows long")
            sizes = [row.rows for row in wide.collect()]
        assert (len(sizes) == 1) == (own_limit is None)
        assert spark.conf.get(setting, None) == own_limit
    finally:
        spark.conf.unset(setting)


def _batch_sizes(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": pa.array([batch.num_rows], pa.int64())})


@pytest.mark.parametrize("key", [["id"], ["id", "part"]])
@pytest.mark.some(1)
def test_an_error_of_a_task_is_the_error_of_the_write(
    spark: SparkSession, tmp_path: Path, key: list[str]
) -> None:
    inline, distributed = twins(tmp_path, schema=SCHEMA, record_key=key)
    rows = some_rows(range(5), ts=1)
    nulls = pa.table({**{n: rows[n] for n in rows.schema.names}, **_no_keys(5)}, SCHEMA)
    inline.upsert(rows)
    distributed.upsert(frame_of(spark, rows))
    with pytest.raises(InvalidInputError) as here:
        inline.upsert(nulls)
    with pytest.raises(InvalidInputError) as there:
        distributed.upsert(frame_of(spark, nulls.slice(0, 5)))
    assert there.value.message.partition(" in ")[0] == here.value.message.partition(" in ")[0]
    assert there.value.kind is here.value.kind
    assert by_key(distributed.read_arrow()) == by_key(rows)
    distributed.upsert(frame_of(spark, some_rows(range(6), ts=2)))


def _no_keys(count: int) -> dict[str, pa.Array]:
    return {"id": pa.nulls(count, pa.int64()), "part": pa.nulls(count, pa.int32())}


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("select 1 as id, 2 as id", "id comes twice"),
        ("select '1' as id, interval 1 day as gap", "gap"),
        ("select '1' as id, parse_json('1') as v", "v has the type variant"),
        ("select '1' as id, struct(parse_json('1') as w) as v", "v.w has the type variant"),
        ("select '1' as id, map(1, 2) as m", "m"),
    ],
)
def test_columns_that_cannot_be_stored(
    spark: SparkSession, tmp_path: Path, query: str, problem: str
) -> None:
    for name, options in (("inline", None), ("distributed", DISTRIBUTED)):
        table = hw.create_table(
            tmp_path / name, schema="id string", record_key="id", options=options
        )
        with pytest.raises(InvalidInputError, match=problem):
            table.upsert(spark.sql(query))


def test_a_stream_is_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = hw.create_table(tmp_path / "t", schema="id string", record_key="id")
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InvalidInputError, match="foreachBatch"):
        table.upsert(stream)


class WrappedRows:
    """Rows of a DataFrame whose tasks are wrapped by a function."""

    def __init__(self, df: DataFrame, wrap: Callable[[RowsTask[Any]], RowsTask[Any]]) -> None:
        self._rows = SparkRows(df, task_count=3)
        self._wrap = wrap
        self.schema = self._rows.schema
        self.driver_host = self._rows.driver_host

    def held(self) -> None:
        """Say that the rows are not here."""

    def run(self, route: Route, task: RowsTask[Any]) -> list[Any]:
        return self._rows.run(route, self._wrap(task))


def failing_after_its_work(
    flags: Path, *, fails_always: bool = False
) -> Callable[[RowsTask[Any]], RowsTask[Any]]:
    """Let each task fail once, or always, after it has written its files."""

    def wrap(task: RowsTask[Any]) -> RowsTask[Any]:
        def run(context: TaskContext, batches: Iterator[pa.RecordBatch]) -> list[Any]:
            results = task(context, batches)
            flag = flags / str(context.task)
            if fails_always or not flag.exists():
                flag.touch()
                raise RuntimeError("the machine burnt down")
            return results

        return run

    return wrap


def test_a_task_that_fails_once_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hw.create_table(
        tmp_path / "t", schema=SCHEMA, record_key="id", partition_by="city", options=DISTRIBUTED
    )
    rows = some_rows(range(50), ts=1)
    flags = tmp_path / "flags"
    flags.mkdir()
    wrapped = WrappedRows(frame_of(spark, rows), failing_after_its_work(flags))
    monkeypatch.setattr("headwater.spark.input_rows.rows_of", lambda *_, **__: wrapped)
    commit = table.upsert(frame_of(spark, rows))
    assert list(flags.iterdir())
    assert by_key(table.read().toArrow()) == by_key(rows)
    assert len(data_files(table)) == len(commit.file_groups)


@pytest.mark.long
def test_a_task_that_always_fails_fails_the_write(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hw.create_table(
        tmp_path / "t", schema=SCHEMA, record_key="id", partition_by="city", options=DISTRIBUTED
    )
    rows = some_rows(range(50), ts=1)
    flags = tmp_path / "flags"
    flags.mkdir()
    with monkeypatch.context() as patched:
        failing = failing_after_its_work(flags, fails_always=True)
        wrapped = WrappedRows(frame_of(spark, rows), failing)
        patched.setattr("headwater.spark.input_rows.rows_of", lambda *_, **__: wrapped)
        with pytest.raises(PySparkException, match="burnt down"):
            table.upsert(frame_of(spark, rows))
    assert table.inspect.timeline()["action"].to_pylist() == ["rollback"]
    assert table.read_arrow().num_rows == 0
    table.upsert(frame_of(spark, rows))
    assert by_key(table.read_arrow()) == by_key(rows)


def test_an_error_that_may_pass_is_tried_again_and_keeps_its_class(spark: SparkSession) -> None:
    def fail(context: TaskContext, batches: Iterator[pa.RecordBatch]) -> list[Any]:
        raise StorageError("The disk is full; free some space", path="a/b")

    rows = SparkRows(spark.range(3), task_count=1)
    with pytest.raises(StorageError, match="The disk is full; free some space") as raised:
        rows.run(Route(kind=RouteKind.ANYWHERE), fail)
    assert "path=a/b" in str(raised.value)
    assert isinstance(raised.value.__cause__, PySparkException)


def test_native_bucket_numbers_are_those_of_the_key_generator(spark: SparkSession) -> None:
    texts = ["", "a", "Aa", "BB", "é", "😀", "\x00", "a\x00b", "z" * 1000, "\U0001d4b3y\U0001d4b5"]
    df = spark.createDataFrame(pa.table({"k": texts}))
    native = df.select(java_hash(spark, F.col("k")).alias("h")).toArrow()["h"].to_pylist()
    assert native == string_hashes(pa.array(texts)).astype("int32").tolist()
    portable = F.reflect(F.lit("java.util.Objects"), F.lit("hashCode"), F.col("k")).cast("int")
    assert df.select(portable.alias("h")).toArrow()["h"].to_pylist() == native


@pytest.mark.parametrize("options", [{}, DISTRIBUTED], ids=["inline", "distributed"])
@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_a_delete_brings_keys_to_the_types_of_the_table(
    spark: SparkSession, tmp_path: Path, index: str, options: dict[str, Any]
) -> None:
    millis = pa.timestamp("ms", tz="UTC")
    schema = pa.schema([("at", millis), ("day", millis), ("n", pa.int64())])
    noon = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)
    table = hw.create_table(
        tmp_path, schema=schema, record_key="at", partition_by="day", index=index, options=options
    )
    later = noon + dt.timedelta(seconds=1)
    table.upsert(pa.table({"at": [noon, later], "day": [noon, noon], "n": [1, 2]}, schema=schema))
    table.delete(spark.createDataFrame([(noon, noon)], "at timestamp, day timestamp"))
    assert table.read_arrow()["n"].to_pylist() == [2]
    with pytest.raises(InvalidInputError, match=r"Column at is .* but string in the rows"):
        table.delete(spark.createDataFrame([("x", later)], "at string, day timestamp"))
