"""Whatever happened to a table, reads with its indexes give the rows that reads without them give.

A table with every kind of index goes through operations and services; after each of them it is
asked by conditions on every column, of now and of moments before.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.support.counting_storage import CountingStorage
from tests.support.tables import columns, table_at

import headwater as hw
from headwater.kernel.view.table_view import load_listed_view
from headwater.metadata.partition_kinds import COLUMN_STATS, PARTITION_STATS, RECORD_INDEX
from headwater.metadata.table import load_own_timeline
from headwater.metadata.view import load_view
from headwater.model.instant import Action, InstantTime
from headwater.queries.snapshot import ReadRequest, plan_snapshot
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, fare int, rate double, note string")
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.write.lock.provider": "in_process",
    "hoodie.clean.commits.retained": "2",
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.parquet.small.file.limit": "0",
}
LISTING = {**OPTIONS, "hoodie.metadata.enable": "false"}

SHAPES = [
    (table_type, index)
    for table_type in ("COPY_ON_WRITE", "MERGE_ON_READ")
    for index in ("bucket", "simple", "record_index")
]

rows = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from("abcdef"),
            "city": st.sampled_from(["x", "y"]),
            "ts": st.integers(0, 9),
            "fare": st.none() | st.integers(-5, 5),
            "rate": st.none() | st.sampled_from([-1.5, 0.0, 2.5, float("nan")]),
            "note": st.none() | st.sampled_from(["", "m", "z"]),
        }
    ),
    min_size=1,
    max_size=5,
)
steps = st.one_of(
    st.tuples(st.sampled_from(["upsert", "insert", "delete", "overwrite"]), rows),
    st.tuples(
        st.sampled_from(["compact", "log_compact", "cluster", "clean", "delete_partitions"]),
        st.none(),
    ),
)
literals: dict[str, st.SearchStrategy[str]] = {
    "id": st.sampled_from([f"'{letter}'" for letter in "abcdefg"]),
    "_hoodie_record_key": st.sampled_from(["'a'", "'b'", "'g'"]),
    "city": st.sampled_from(["'x'", "'y'", "'z'"]),
    "ts": st.integers(-1, 10).map(str),
    "fare": st.integers(-6, 6).map(str),
    "rate": st.sampled_from(["-2.0", "-1.5", "0", "2.5", "3e0"]),
    "note": st.sampled_from(["''", "'m'", "'n'", "'zz'"]),
}


@st.composite
def conditions(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(sorted(literals)))
    literal = literals[column]
    form = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "!=", "IN", "BETWEEN", "NULL"]))
    match form:
        case "NULL":
            return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case "IN":
            return f"{column} IN ({', '.join(draw(st.lists(literal, min_size=1, max_size=3)))})"
        case "BETWEEN":
            return f"{column} BETWEEN {draw(literal)} AND {draw(literal)}"
        case _:
            return f"{column} {form} {draw(literal)}"


@pytest.fixture
def trusted_indexes(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail if an index was passed over: then nothing was tested."""
    caplog.set_level(logging.WARNING, logger="headwater.metadata.view")
    yield
    assert [r.getMessage() for r in caplog.records if "index" in r.getMessage()] == []


def new_table(folder: Path, table_type: str, index: str) -> Table:
    shape = table_at(folder, SCHEMA, partition_by="city", ordering="ts", options=OPTIONS)
    buckets = 2 if index == "bucket" else None
    table = shape.having(table_type=table_type, index=index, buckets=buckets).create()
    table.indexes.create("secondary_index_note", columns=["note"])
    table = hw.open_table(folder, OPTIONS)
    assert {COLUMN_STATS, PARTITION_STATS, RECORD_INDEX} < set(table.config.metadata_partitions)
    return table


def batch(drawn: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(drawn, SCHEMA)


def run_step(table: Table, name: str, drawn: list[dict[str, Any]] | None) -> None:
    keys = None if drawn is None else batch(drawn)
    run: dict[str, Callable[[], object]] = {
        "upsert": lambda: table.upsert(keys),
        "insert": lambda: table.insert(keys),
        "delete": lambda: table.delete(keys),
        "overwrite": lambda: table.overwrite(keys),
        "delete_partitions": lambda: table.delete_partitions(["city=y"]),
        "compact": table.services.compact,
        "log_compact": table.services.log_compact,
        "cluster": table.services.cluster,
        "clean": table.services.clean,
    }
    if name in ("compact", "log_compact") and table.config.table_type != "MERGE_ON_READ":
        return
    if name == "delete_partitions" and table.read_arrow(where="city = 'y'").num_rows == 0:
        return  # A partition that is not there is refused.
    run[name]()


def rows_of(table: Table, where: str | None, as_of: str | None = None) -> list[str]:
    found = table.read_arrow(where=where, as_of=as_of)
    return sorted(map(str, found.to_pylist()))


@pytest.mark.usefixtures("trusted_indexes")
@pytest.mark.parametrize(("table_type", "index"), SHAPES)
@pytest.mark.some(2)
def test_reads_with_and_without_indexes_agree(table_type: str, index: str) -> None:
    @settings(
        max_examples=3,
        deadline=None,
        derandomize=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.lists(steps, min_size=2, max_size=6),
        st.lists(conditions(), min_size=4, max_size=4),
    )
    def check(taken: list[tuple[str, Any]], wheres: list[str]) -> None:
        folder = Path(tempfile.mkdtemp())
        try:
            table = new_table(folder / "t", table_type, index)
            listing = hw.open_table(table.uri, LISTING)
            for name, drawn in taken:
                run_step(table, name, drawn)
                assert rows_of(table, None) == rows_of(listing, None), name
                for where in wheres:
                    assert rows_of(table, where) == rows_of(listing, where), (name, where)
            moments = _readable_moments(listing)
            for as_of in moments:
                for where in wheres:
                    then = rows_of(table, where, as_of)
                    assert then == rows_of(listing, where, as_of), (as_of, where)
        finally:
            shutil.rmtree(folder)

    check()


def _readable_moments(table: Table) -> list[str]:
    found = []
    for commit in table.inspect.timeline().to_pylist():
        time = commit.get("completion_time")
        if time is None or commit["action"] not in ("commit", "deltacommit", "replacecommit"):
            continue
        try:
            table.read_arrow(as_of=time)
        except hw.NotFoundError:
            continue
        found.append(time)
    return found[-2:]


class TestWhatIsRead:
    """Which file groups a condition leaves to be read."""

    @pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
    def table(self, request: pytest.FixtureRequest, tmp_path: Path) -> Table:
        """Two partitions, each with a group of low and one of high fares."""
        table = new_table(tmp_path / "t", request.param, "record_index")
        for city, id_, fare in (("x", "a", 1), ("x", "b", 50), ("y", "c", 2), ("y", "d", 90)):
            table.bulk_insert(rows_with(city=city, id=id_, fare=fare, note=f"of {id_}"))
        assert groups_read(table, "ts >= 0") == 4
        return table

    def test_groups(self, table: Table) -> None:
        expected = {
            "id = 'a'": 1,
            "id IN ('a', 'c', 'nobody')": 2,
            "id = 'nobody'": 0,
            "_hoodie_record_key = 'd'": 1,
            "note = 'of b'": 1,
            "note IN ('of b', 'of c')": 2,
            "fare > 60": 1,
            "fare BETWEEN 2 AND 50": 2,
            "fare < 0": 0,
            "fare IS NULL": 0,
            "rate IS NOT NULL": 0,
            "rate = 1.0": 0,
            "fare < 10 AND city = 'y'": 1,
            "ts = 0": 4,
        }
        assert {where: groups_read(table, where) for where in expected} == expected

    def test_a_group_is_read_for_what_its_logs_bring(self, tmp_path: Path) -> None:
        table = new_table(tmp_path / "t", "MERGE_ON_READ", "record_index")
        table.bulk_insert(rows_with(city="x", id="a", fare=1))
        table.bulk_insert(rows_with(city="x", id="b", fare=2))
        table.upsert(rows_with(city="x", id="a", fare=70, ts=1))
        assert groups_read(table, "fare = 70") == 1
        assert table.read_arrow(["id"], where="fare = 70").to_pylist() == [{"id": "a"}]
        # The base file below the log still holds a row with this fare, which nobody sees.
        assert groups_read(table, "fare = 1") == 1
        assert table.read_arrow(where="fare = 1").num_rows == 0
        table.delete(rows_with(city="x", id="a"))
        assert groups_read(table, "fare = 3") == 0

    def test_time_travel_asks_no_index_of_where_records_are(self, tmp_path: Path) -> None:
        table = new_table(tmp_path / "t", "COPY_ON_WRITE", "record_index")
        first = table.upsert(rows_with(city="x", id="a", fare=1))
        table.delete(rows_with(city="x", id="a"))
        assert table.read_arrow(where="id = 'a'").num_rows == 0
        then = table.read_arrow(where="id = 'a'", as_of=first.completion_time)
        assert then.num_rows == 1

    def test_a_key_that_may_be_there_twice_is_looked_for_everywhere(self, tmp_path: Path) -> None:
        table = new_table(tmp_path / "t", "COPY_ON_WRITE", "simple")
        table.insert(rows_with(city="x", id="a", fare=1))
        table.insert(rows_with(city="y", id="a", fare=2))
        assert table.read_arrow(where="id = 'a'").num_rows == 2


@pytest.mark.usefixtures("trusted_indexes")
def test_a_look_up_asks_storage_for_what_it_needs_and_once(tmp_path: Path) -> None:
    """On object storage requests are what a look-up costs."""
    options = {**OPTIONS, "hoodie.metadata.global.record.level.index.enable": "false"}
    table = hw.create_table(tmp_path / "t", schema=SCHEMA, record_key="id", options=options)
    for number in range(12):
        table.upsert(rows_with(city="x", id=f"{number}", fare=number))
    table.indexes.create(RECORD_INDEX)
    storage = CountingStorage(table.storage, keep_trace=True)
    request = ReadRequest(where="id = '1'", is_filtered=True)
    plan = plan_snapshot(replace(table.reload().context, storage=storage), request)
    assert len(plan.slices) == 1
    assert len(set(storage.trace)) == len(storage.trace)
    metadata = ".hoodie/metadata"
    assert list(dict.fromkeys(map(asked_for, storage.trace))) == [
        ("list_names", ".hoodie/timeline"),
        ("read_many", ".hoodie/timeline/"),  # The newest commit, for the schema.
        ("read", ".hoodie/"),  # Which indexes there are now.
        ("list_names", f"{metadata}/.hoodie/timeline"),
        ("list_tree", f"{metadata}/files"),
        ("list_tree", f"{metadata}/record_index"),
        ("read", ".hoodie/.index_defs/"),
        ("read_many", f"{metadata}/.hoodie/timeline/"),  # What the build of the index wrote.
        ("read", f"{metadata}/record_index/"),
        ("read_many", f"{metadata}/files/"),  # Base file and logs.
    ]
    logs = len([path for _, path in storage.trace if "/files/.files" in path])
    assert storage.count() == 10 + logs


@pytest.mark.parametrize(
    ("table_type", "is_asked"), [("COPY_ON_WRITE", True), ("MERGE_ON_READ", False)]
)
def test_n_134_the_record_index_is_not_asked_for_records_in_logs_of_buckets(
    tmp_path: Path, table_type: str, is_asked: bool
) -> None:
    """Hudi leaves those that it appends out of it; `tests/hudi/test_metadata_both_ways.py`."""
    shape = table_at(tmp_path / "t", SCHEMA, ordering="ts", options=OPTIONS)
    table = shape.having(table_type=table_type, index="bucket", buckets=2).create()
    table.upsert(rows_with(city="x", id="a", fare=1))
    storage = CountingStorage(table.storage, keep_trace=True)
    request = ReadRequest(where="id = 'a'", is_filtered=True)
    plan_snapshot(replace(table.reload().context, storage=storage), request)
    asked = [path for _, path in storage.trace if path.startswith(".hoodie/metadata/record_index/")]
    assert bool(asked) is is_asked


def asked_for(call: tuple[str, str]) -> tuple[str, str]:
    """Return a call with the folder in place of the file."""
    method, path = call
    return method, path if method.startswith("list") else path.rpartition("/")[0] + "/"


class TestWithoutIndexes:
    """The metadata table is passed over where it cannot be trusted, and that is told."""

    @pytest.fixture
    def table(self, tmp_path: Path) -> Table:
        table = new_table(tmp_path / "t", "COPY_ON_WRITE", "record_index")
        table.upsert(rows_with(city="x", id="a", fare=1))
        table.upsert(rows_with(city="y", id="b", fare=2))
        return table

    def read_all(self, table: Table, caplog: pytest.LogCaptureFixture) -> list[str]:
        """Read by every kind of index; return the warnings."""
        for where, count in ((None, 2), ("id = 'a'", 1), ("note = 'm'", 2), ("fare = 1", 1)):
            assert table.read_arrow(where=where).num_rows == count
        told = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return told

    @pytest.mark.parametrize("how", ["missing", "truncated", "flipped"])
    def test_damaged_files(self, table: Table, caplog: pytest.LogCaptureFixture, how: str) -> None:
        for info in table.storage.list_tree(".hoodie/metadata"):
            if "/.hoodie/" in info.path.removeprefix(".hoodie/metadata"):
                continue
            data = table.storage.read(info.path)
            if how == "missing":
                table.storage.delete(info.path)
            elif data:
                middle = len(data) // 2
                flipped = data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :]
                table.storage.put(info.path, flipped if how == "flipped" else data[:middle])
        assert self.read_all(table, caplog)

    @pytest.mark.usefixtures("tables_with_a_lock")
    def test_no_metadata_table_at_all(self, table: Table, caplog: pytest.LogCaptureFixture) -> None:
        for info in table.storage.list_tree(".hoodie/metadata"):
            table.storage.delete(info.path)
        assert "metadata table not used" in self.read_all(table, caplog)[0]

    @pytest.mark.usefixtures("tables_with_a_lock")
    def test_a_metadata_table_that_is_behind(
        self, table: Table, caplog: pytest.LogCaptureFixture
    ) -> None:
        last = max(
            info.path
            for info in table.storage.list_tree(".hoodie/metadata/.hoodie/timeline")
            if info.path.endswith(".deltacommit")
        )
        table.storage.delete(last)
        assert "which is completed" in self.read_all(table, caplog)[0]

    def test_a_metadata_table_that_is_far_ahead(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """N-45: what was cleaned after the timeline was listed is folded into the index."""
        table = new_table(tmp_path / "t", "COPY_ON_WRITE", "bucket")
        for fare in range(3):
            table.upsert(rows_with(city="x", id="a", fare=fare))
        view = load_view(table.storage, table.config)
        before = load_listed_view(table.storage, table.config).slices()
        for fare in range(3, 40):
            table.upsert(rows_with(city="x", id="a", fare=fare))
        table.services.clean()
        # By now compactions of the metadata table have folded in what is later than the view.
        found = view.slices()
        assert "is later than the timeline that was listed" in caplog.text
        assert [one.base_instant for one in found] == [one.base_instant for one in before]
        with pytest.raises(hw.CorruptTableError, match="lost files"):
            view.check_complete(found)

    @pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
    def test_a_metadata_table_that_is_ahead_is_read_as_it_was(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, table_type: str
    ) -> None:
        table = new_table(tmp_path / "t", table_type, "bucket")
        for fare in range(3):
            table.upsert(rows_with(city="x", id="a", fare=fare))
        seen = 0
        for _ in range(3):
            view = load_view(table.storage, table.config)
            before = load_listed_view(table.storage, table.config).slices()
            compaction = newest_compaction(table)
            for fare in range(3, 12):
                table.upsert(rows_with(city="x", id="a", fare=fare))
            assert view.slices() == before
            seen += newest_compaction(table) > compaction
        assert seen
        assert "metadata table not used" not in caplog.text


def newest_compaction(table: Table) -> str:
    own = load_own_timeline(table.storage)
    done = (i.requested_time for i in own.completed if i.action.completed_name is Action.COMMIT)
    return max(done, default=InstantTime(""))


def rows_with(**values: Any) -> pa.Table:
    row = {"ts": 0, "note": "m", **values}
    return pa.Table.from_pylist([{name: row.get(name) for name in SCHEMA.names}], SCHEMA)


def groups_read(table: Table, where: str) -> int:
    request = ReadRequest(where=where, is_filtered=True)
    plan = plan_snapshot(table.context, request)
    return len(plan.slices)


@pytest.mark.parametrize("index", ["bucket", "global_simple"])
def test_read_optimized_reads_do_not_ask_indexes_built_over_logs(
    tmp_path: Path, index: str
) -> None:
    table = hw.create_table(
        tmp_path / "rebuilt",
        schema="id string, s string",
        record_key="id",
        index=index,
        table_type="MERGE_ON_READ",
        options={"headwater.storage.fsync": "false", "hoodie.write.lock.provider": "in_process"},
    )
    table.bulk_insert(pa.table({"id": ["a", "b", "c"], "s": ["old", "old", "old"]}))
    table.upsert(pa.table({"id": ["a"], "s": ["new"]}))
    table.delete(pa.table({"id": ["b"]}))
    table.indexes.create(["record_index"])
    table.indexes.create("secondary_index_s", columns=["s"])
    table = table.reload()
    for where, expected in (("s = 'old'", "abc"), ("s = 'new'", ""), ("id = 'b'", "b")):
        found = table.read_arrow(where=where, read_optimized=True)["id"].to_pylist()
        assert sorted(found) == list(expected), where
    assert table.read_arrow(where="s = 'old'")["id"].to_pylist() == ["c"]
