"""Rows in from whatever speaks Arrow, and out as whatever people want, without Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import headwater as hw
from headwater.engine.arrow_input import SpooledRows, opened_arrow_rows
from headwater.queries.predicate import Comparison, Condition
from headwater.queries.slice_query import read_slices
from headwater.table import Table

ROWS = pa.table(
    {
        "id": [f"k{number:02d}" for number in range(40)],
        "city": [("sf", "la")[number % 2] for number in range(40)],
        "fare": [float(number) for number in range(40)],
        "day": [date(2024, 1, 1 + number % 28) for number in range(40)],
    }
)


def create(folder: Path, **arguments: Any) -> Table:
    given = {"schema": ROWS.schema, "record_key": "id", "partition_by": "city", **arguments}
    return hw.create_table(folder / "t", **given)


class OnlyStream:
    """An object of an unknown library."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return ROWS.__arrow_c_stream__(requested_schema)


class OnlyArray:
    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        return ROWS.combine_chunks().to_batches()[0].__arrow_c_array__(requested_schema)


def dataset_of(folder: Path) -> ds.Dataset:
    pq.write_table(ROWS, folder / "rows.parquet")
    return ds.dataset(folder / "rows.parquet")


INPUTS: dict[str, Callable[[Path], Any]] = {
    "table": lambda _: ROWS,
    "batch": lambda _: ROWS.combine_chunks().to_batches()[0],
    "reader": lambda _: ROWS.to_reader(max_chunksize=7),
    "stream": lambda _: OnlyStream(),
    "array": lambda _: OnlyArray(),
    "dataset": dataset_of,
    "scanner": lambda folder: dataset_of(folder).scanner(),
    "pandas": lambda _: ROWS.to_pandas(),
    "pandas by its key": lambda _: ROWS.to_pandas().set_index(["id", "city"]),
    "polars": lambda _: pl.from_arrow(ROWS),
    "lazy polars": lambda _: pl.from_arrow(ROWS).lazy(),  # type: ignore[union-attr]
    "polars categories": lambda _: pl.DataFrame(ROWS).with_columns(
        pl.col("city").cast(pl.Categorical)
    ),
    "duckdb": lambda _: duckdb.from_arrow(ROWS),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_rows_of_all_kinds_are_written(kind: str, tmp_path: Path) -> None:
    # All streams are longer than this many bytes.
    table = create(tmp_path, options={"headwater.write.inline.bytes": "100"})
    commit = table.upsert(INPUTS[kind](tmp_path))
    assert commit.inserted == 40
    assert table.read_arrow().sort_by("id").equals(ROWS)


def test_a_scan_is_written_to_another_table(tmp_path: Path) -> None:
    table = create(tmp_path / "one")
    table.upsert(ROWS)
    other = create(tmp_path / "two")
    other.upsert(table.scan(where="city = 'sf'"))
    assert other.scan().count() == 20


def test_other_things_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(hw.InvalidInputError, match=r"DuckDB relation; got list"):
        create(tmp_path).upsert([1, 2])


OPERATIONS = ["upsert", "insert", "bulk_insert", "delete", "overwrite", "overwrite_partitions"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_none_is_no_rows_but_a_mistake(tmp_path: Path, operation: str) -> None:
    table = create(tmp_path)
    table.upsert(ROWS)
    commits = table.history()
    with pytest.raises(hw.InvalidInputError, match=r"got NoneType|either keys or where="):
        getattr(table, operation)(None)
    assert table.history() == commits
    assert table.read_arrow().num_rows == ROWS.num_rows


@pytest.mark.parametrize(
    "given",
    [
        *(pa.array(["a"]), pa.chunked_array([["a"]]), pl.Series(["a"]), pd.Series(["a"])),
        pd.DataFrame([["a", "b"]], columns=["id", "id"]),
    ],
)
def test_values_that_are_no_rows_are_refused_by_name(tmp_path: Path, given: Any) -> None:
    with pytest.raises(hw.InvalidInputError, match=rf"{type(given).__name__} cannot be taken as"):
        create(tmp_path).upsert(given)


@pytest.mark.parametrize("index", [[0, 1, 2, 3], [7, 7, 7, 7]])
def test_maps_come_back_from_pandas(tmp_path: Path, index: list[int]) -> None:
    maps, lists = pa.map_(pa.string(), pa.int64()), pa.list_(pa.string())
    schema = pa.schema([*ROWS.schema, pa.field("tags", maps), pa.field("words", lists)])
    table = create(tmp_path, schema=schema)
    tags = [None, [("a", 1), ("b", None)], {"c": 3}, []]
    frame = ROWS.slice(0, 4).to_pandas().assign(tags=tags, words=[["x"], None, [], ["y", "z"]])
    frame.index = index
    table.insert(frame)
    table.upsert(table.scan().to_pandas())  # What has been read can be written.
    found = table.read_arrow().sort_by("id")
    assert found["tags"].to_pylist() == [None, tags[1], [("c", 3)], []]
    assert found["words"].to_pylist() == [["x"], None, [], ["y", "z"]]


def test_a_short_stream_is_held_and_a_long_one_laid_aside_until_the_end() -> None:
    with opened_arrow_rows(ROWS.to_reader(max_chunksize=7), 10**6) as rows:
        assert rows.held() is not None
    with opened_arrow_rows(ROWS.to_reader(max_chunksize=7), 500) as rows:
        assert isinstance(rows, SpooledRows)
        folder = Path(rows._path).parent
        for _ in range(2):  # A write that lost comes again.
            batches = list(rows._batches())
            assert pa.Table.from_batches(batches).equals(ROWS)
    assert not folder.exists()


def test_an_error_of_a_stream_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches(max_chunksize=20)
        raise RuntimeError("the other end is gone")

    table = create(tmp_path, options={"headwater.write.inline.bytes": "100"})
    reader = pa.RecordBatchReader.from_batches(ROWS.schema, failing())
    with pytest.raises(RuntimeError, match="the other end is gone"):
        table.upsert(reader)
    assert table.inspect.timeline().num_rows == 0


@pytest.fixture(scope="module", params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """The rows, of which half were updated and one more deleted."""
    kind = request.param
    table = create(tmp_path_factory.mktemp("scan"), table_type=kind, index="bucket", buckets=2)
    older = ROWS.set_column(2, "fare", pa.array([-1.0] * 40))
    gone = older.slice(0, 1).set_column(0, "id", pa.array(["gone"]))
    table.upsert(pa.concat_tables([older, gone]))
    table.upsert(ROWS)
    table.delete(gone)
    return table


class TestScan:
    def test_every_form_has_the_same_rows(self, table: Table) -> None:
        scan = table.scan(["id", "fare"], "fare >= 10 OR id = 'k00'")
        expected = [(f"k{n:02d}", float(n)) for n in (0, *range(10, 40))]
        forms = [
            scan.to_arrow(),
            scan.to_reader().read_all(),
            pa.table(scan),
            pa.Table.from_pandas(scan.to_pandas(), preserve_index=False),
            scan.to_polars().collect().to_arrow(),
            pl.DataFrame(scan).to_arrow(),
            scan.to_duckdb().to_arrow_table(),
        ]
        for found in forms:
            rows = [tuple(row.values()) for row in found.sort_by("id").to_pylist()]
            assert rows == expected
        assert scan.count() == 31
        assert scan.schema.names == ["id", "fare"]

    def test_a_scan_keeps_to_its_moment(self, tmp_path: Path) -> None:
        table = create(tmp_path)
        first = table.upsert(ROWS)
        scan = table.scan()
        assert scan.count() == 40
        table.delete(ROWS.slice(0, 10))
        assert scan.count() == 40
        assert scan.to_arrow().num_rows == 40
        assert table.scan().count() == 30
        assert table.scan(as_of=first.completion_time).count() == 40

    def test_a_reader_reads_as_it_goes(self, table: Table) -> None:
        with table.scan().to_reader() as reader:
            assert reader.read_next_batch().num_rows

    def test_a_bad_filter_is_told_before_anything_is_read(self, table: Table) -> None:
        with pytest.raises(hw.InvalidInputError, match="position 5"):
            table.scan(where="1 = nope").to_reader()

    def test_times_are_of_the_zone_that_is_said(self, tmp_path: Path) -> None:
        moments = pa.array([0, 3_600_000_000], pa.timestamp("us", "UTC"))
        table = hw.create_table(
            tmp_path / "t", schema=pa.schema([("id", pa.int64()), ("at", moments.type)])
        )
        table.insert(pa.table({"id": [1, 2], "at": moments}))
        where = "at = TIMESTAMP '1970-01-01 01:00:00'"
        assert table.scan(["id"], where).to_arrow()["id"].to_pylist() == [2]
        berlin = table.scan(["id"], where, time_zone="Europe/Berlin")
        assert berlin.to_arrow()["id"].to_pylist() == [1]

    def test_its_text_says_what_it_reads(self, table: Table) -> None:
        assert repr(table.scan(["id"], "fare > 1")) == "Scan of t(columns=['id'], where='fare > 1')"


class TestCount:
    def test_footers_tell_it(self, tmp_path: Path) -> None:
        table = create(tmp_path)
        table.upsert(ROWS)
        for path in Path(table.uri).rglob("*.parquet"):
            if ".hoodie" not in path.parts:
                content = bytearray(path.read_bytes())
                end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
                content[4:end] = bytes(end - 4)  # Rows, of which nothing is looked at.
                path.write_bytes(content)
        assert table.scan().count() == 40
        with pytest.raises(hw.CorruptTableError):
            table.scan().to_arrow()


class TestPolars:
    def test_what_polars_says_skips_files(self, table: Table) -> None:
        scan = table.scan()
        frame = scan.to_polars()
        wanted = frame.filter((pl.col("city") == "sf") & (pl.col("fare") > 30)).select("id")
        assert wanted.collect()["id"].sort().to_list() == ["k32", "k34", "k36", "k38"]
        assert frame.select(pl.len()).collect().item() == 40
        assert frame.head(3).collect().height == 3
        explained = wanted.explain()
        assert "PYTHON" in explained
        assert "1/4 COLUMNS" in explained or '"id"' in explained

    def test_filters_of_polars_are_understood(self) -> None:
        from headwater.polars_source import known_part_of_polars as known

        fare, day = pl.col("fare"), pl.col("day")
        assert known((fare > 5) & (pl.col("city") == "sf")).conditions == (
            Condition("fare", Comparison.GREATER, (5,)),
            Condition("city", Comparison.EQUAL, ("sf",)),
        )
        assert known(pl.lit(5) > fare).conditions == (Condition("fare", Comparison.LESS, (5,)),)
        (either,) = known((fare < 1) | (day == date(2024, 1, 2))).alternatives
        assert [branch.conditions[0].column for branch in either] == ["fare", "day"]
        assert known(fare.is_between(1, 2)).conditions == (
            Condition("fare", Comparison.GREATER_EQUAL, (1,)),
            Condition("fare", Comparison.LESS_EQUAL, (2,)),
        )
        assert known(pl.col("city").is_in(["sf", None])).conditions == (
            Condition("city", Comparison.IN, ("sf",)),
        )
        assert known(fare.is_null()).conditions == (Condition("fare", Comparison.IS_NULL),)
        assert not known(fare.sin() > 0).is_known
        assert not known((fare < 1) | (fare.sin() > 0)).is_known

    def test_partitions_that_a_filter_rules_out_are_not_read(self, table: Table) -> None:
        from headwater.polars_source import known_part_of_polars as known

        scan = table.scan()
        for wanted in (pl.col("city") == "sf", pl.col("city").is_in(["sf", "x"])):
            found = scan.narrowed(("id",), known(wanted)).read_all()
            assert found.num_rows == 20


class TestTable:
    def test_it_tells_what_it_is_in_five_lines(self, table: Table) -> None:
        lines = repr(table).splitlines()
        assert len(lines) == 5
        assert lines[0] == "Table t"
        assert "record key id; partitioned by city" in lines[3]
        assert table._repr_html_().startswith("<table>")
        assert "bucket of 2" in table._repr_html_()

    def test_schema_and_history(self, table: Table) -> None:
        assert table.schema.names == ROWS.column_names
        history = table.history()
        assert history["operation"].to_pylist() == ["DELETE", "UPSERT", "UPSERT"]
        assert history["inserted"].to_pylist()[-1] == 41
        assert table.history(limit=1).num_rows == 1

    def test_history_has_what_was_archived(self, tmp_path: Path) -> None:
        options = {
            "hoodie.keep.min.commits": "2",
            "hoodie.keep.max.commits": "3",
            "hoodie.clean.commits.retained": "1",
        }
        table = create(tmp_path, options=options)
        commits = [table.upsert(ROWS.slice(number, 5)) for number in range(6)]
        table.services.clean()
        table.services.archive()
        instants = [str(commit.instant) for commit in reversed(commits)]
        assert table.history()["instant"].to_pylist() == instants


def test_names_of_the_package_are_there_to_be_found() -> None:
    assert {"create_table", "open_table", "Table", "Scan", "register"} <= set(dir(hw))
    assert (Path(hw.__file__).parent / "py.typed").exists()
    assert hw.__version__


WITHOUT_SPARK = """
import sys, tempfile
import headwater as hw
loaded = {"pyspark", "py4j", "pyarrow"} & sys.modules.keys()
assert not loaded, loaded
import pyarrow as pa
rows = pa.table({"id": ["a", "b"], "fare": [1.0, 2.0]})
t = hw.create_table(tempfile.mkdtemp() + "/t", schema=rows.schema, record_key="id")
t.upsert(rows)
t.services.compact() if t.config.table_type == "MERGE_ON_READ" else t.services.clean()
assert t.scan(where="fare > 1").to_arrow()["id"].to_pylist() == ["b"]
assert t.read_arrow().num_rows == 2
print(repr(t), t.schema, t.history(), t.inspect.timeline())
hw.open_table(t.uri).delete(rows.slice(0, 1))
loaded = {"pyspark", "py4j", "polars", "duckdb"} & sys.modules.keys()
assert not loaded, loaded
"""


def test_work_on_arrow_loads_no_spark() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_slices_are_read_one_after_the_other(table: Table) -> None:
    scan = table.scan()
    slices = list(scan._plan.slices)
    assert len(slices) > 1
    first = sum(batch.num_rows for batch in read_slices(scan._plan.query, slices[:1]))
    assert 0 < first < 40
