"""What people and disks do wrong: each ends in a typed error that names what is wrong.

After a write that failed the table reads as it did before, nobody is left holding it, and the next
write works. A damaged file stops readers; it never costs them rows in silence.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson
import pytest
from tests.support.tables import FAST, columns, table_at

import headwater as hw
from headwater.config.table_options import TableType
from headwater.errors import ErrorKind, Retry
from headwater.kernel.table_config import table_layout
from headwater.kernel.txn.steps import Claim
from headwater.kernel.txn.transaction import LockTransaction
from headwater.kernel.txn.writes import InflightWrite, start_inflight_write
from headwater.model.instant import Action
from headwater.table import Table

SCHEMA = columns("id string, city string, fare int, amount decimal(10,2)")

each_type = pytest.mark.parametrize("table_type", list(TableType))


def rows(*values: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = schema.names
    return pa.Table.from_pylist(
        [{**dict.fromkeys(columns), **dict(zip(columns, row, strict=False))} for row in values],
        schema=schema,
    )


def a_table(path: Path, **changes: Any) -> Table:
    """Return a table of two rows."""
    arguments = {"record_key": "id", "partition_by": "city", "buckets": 1, **changes}
    table = hw.create_table(path / "trips", schema=SCHEMA, options=FAST, **arguments)
    table.insert(rows(("a", "sf", 1), ("b", "ny", 2)))
    return table


def content(table: Table) -> list[dict[str, Any]]:
    found = table.read_arrow(["_hoodie_commit_time", *SCHEMA.names]).sort_by("id")
    return list(found.to_pylist())


def completed(table: Table) -> list[str]:
    """Return the commits; the rollback of a write that failed is there too, and changes nothing."""
    found = table.inspect.timeline().to_pylist()
    assert not [one for one in found if one["state"] != "completed"], "something is left pending"
    return [one["requested_time"] for one in found if one["action"] != "rollback"]


@contextmanager
def nothing_changes(table: Table) -> Iterator[None]:
    """Check that the block leaves rows and commits as they are, and that writing goes on."""
    before, commits = content(table), completed(table)
    yield
    assert content(table) == before
    assert completed(table) == commits
    fresh = hw.open_table(table.uri, FAST)
    assert content(fresh) == before
    if fresh.config.record_key_fields:
        fresh.upsert(rows(("z", "sf", 26)))
        assert len(content(table)) == len(before) + 1


# Rows ------------------------------------------------------------------------------------------

LIST_SCHEMA = SCHEMA.set(0, pa.field("id", pa.list_(pa.string())))

BAD_ROWS: dict[str, tuple[pa.Table, str]] = {
    "null key": (rows(("c", "sf"), (None, "sf")), "Column id is the record key.* 1 of 2 row"),
    "empty key": (rows(("", "sf")), "Column id is the record key.*empty"),
    "no key column": (rows(("c", "sf")).drop_columns(["id"]), r"\bid\b"),
    "no partition column": (rows(("c", "sf")).drop_columns(["city"]), r"\bcity\b"),
    "text for a number": (
        pa.table({"id": ["c"], "city": ["sf"], "fare": ["seven"]}),
        "Column fare is int32 in the table but string in the rows",
    ),
    "a number for text": (pa.table({"id": [1], "city": ["sf"]}), "Column id is string"),
    "a list for text": (rows((["c"], "sf"), schema=LIST_SCHEMA), "Column id is string"),
    "another scale": (
        pa.table({"id": ["c"], "city": ["sf"], "amount": pa.array([None], pa.decimal128(9, 3))}),
        "Column amount is decimal128",
    ),
    "another case": (pa.table({"id": ["c"], "City": ["sf"]}), "Column City differs from city"),
    "the same column twice": (
        pa.Table.from_arrays([pa.array(["c"])] * 2, names=["id", "id"]),
        "Column id comes twice",
    ),
    "a type without counterpart": (
        pa.table({"id": ["c"], "city": ["sf"], "wait": pa.array([1], pa.duration("s"))}),
        "Column wait",
    ),
    "a new column of nulls": (
        pa.table({"id": ["c"], "city": ["sf"], "new": pa.nulls(1)}),
        "Column new is new to the table and holds only nulls",
    ),
}


@each_type
@pytest.mark.parametrize("problem", BAD_ROWS)
def test_rows_that_do_not_fit(tmp_path: Path, table_type: TableType, problem: str) -> None:
    table = a_table(tmp_path, table_type=table_type)
    bad, message = BAD_ROWS[problem]
    with nothing_changes(table), pytest.raises(hw.InvalidInputError, match=message):
        table.upsert(bad)


@each_type
@pytest.mark.parametrize(
    "operation", ["insert", "bulk_insert", "overwrite", "overwrite_partitions"]
)
def test_no_operation_takes_a_null_key(
    tmp_path: Path, table_type: TableType, operation: str
) -> None:
    table = a_table(tmp_path, table_type=table_type)
    write: Callable[[pa.Table], object] = getattr(table, operation)
    with nothing_changes(table), pytest.raises(hw.InvalidInputError, match="Column id"):
        write(rows(("c", "sf"), (None, "ny")))


@each_type
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (pa.table({"id": pa.array([None], pa.string()), "city": ["sf"]}), "Column id"),
        (pa.table({"city": ["sf"]}), "Column id is part of the key or partition path"),
        (pa.table({"id": ["a"]}), "Column city is part of the key or partition path"),
    ],
    ids=["null key", "no key column", "no partition column"],
)
def test_deletes_need_whole_keys(
    tmp_path: Path, table_type: TableType, keys: pa.Table, message: str
) -> None:
    table = a_table(tmp_path, table_type=table_type)
    with nothing_changes(table), pytest.raises(hw.InvalidInputError, match=message):
        table.delete(keys)


def test_a_column_that_must_not_be_null(tmp_path: Path) -> None:
    schema = SCHEMA.set(2, pa.field("fare", pa.int32(), nullable=False))
    table = hw.create_table(tmp_path / "trips", schema=schema, record_key="id", options=FAST)
    table.insert(rows(("a", "sf", 1), schema=schema))
    with nothing_changes(table), pytest.raises(hw.InvalidInputError, match=r"\bfare\b"):
        table.upsert(rows(("b", "sf", None)))


@each_type
@pytest.mark.parametrize("partial", [True, False], ids=["partial", "whole"])
def test_rows_without_the_ordering_column(
    tmp_path: Path, table_type: TableType, partial: bool
) -> None:
    """They would lose to every row that has one, so the update would be lost in silence."""
    table = a_table(tmp_path, table_type=table_type, ordering="fare")
    with (
        nothing_changes(table),
        pytest.raises(hw.InvalidInputError, match="Column fare is part of the ordering"),
    ):
        table.upsert(rows(("a", "sf")).select(["id", "city", "amount"]), partial=partial)


def test_rows_of_another_kind(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    with nothing_changes(table), pytest.raises(hw.InvalidInputError, match="got list"):
        table.upsert([{"id": "c"}])


@each_type
@pytest.mark.parametrize("operation", ["upsert", "delete"])
def test_a_table_without_keys_cannot_tell_records_apart(
    tmp_path: Path, table_type: TableType, operation: str
) -> None:
    table = a_table(tmp_path, record_key=None, buckets=None, table_type=table_type)
    write: Callable[[pa.Table], object] = getattr(table, operation)
    with (
        nothing_changes(table),
        pytest.raises(hw.InvalidInputError, match="Table trips has no record key"),
    ):
        write(rows(("a", "sf", 9)))


# Options, paths and times ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"headwater.writer.idd": "x"}, "headwater.writer.idd is no option.*headwater.writer.id"),
        ({"speed": "fast"}, "speed is no option"),
        ({"hoodie.parquet.max.file.size": "big"}, "hoodie.parquet.max.file.size.*big"),
        ({"hoodie.table.type": "MERGE_ON_READ"}, "hoodie.table.type.*the table has"),
    ],
    ids=["misspelt", "of no family", "malformed", "contradicts the table"],
)
def test_bad_options(tmp_path: Path, options: dict[str, str], message: str) -> None:
    table = a_table(tmp_path)
    with (
        nothing_changes(table),
        pytest.raises(hw.InvalidInputError, match=message) as caught,
    ):
        hw.open_table(table.uri, options)
    assert caught.value.kind is ErrorKind.INVALID_OPTION


def test_a_path_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "file.parquet").write_bytes(b"PAR1")
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(hw.NotFoundError, match="There is no table at") as caught:
            hw.open_table(path)
        assert caught.value.kind is ErrorKind.NOT_A_TABLE
        assert str(path) in str(caught.value)


def test_times_before_the_first_commit(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    with pytest.raises(hw.NotFoundError, match=r"Table trips.*its first commit") as caught:
        table.read_arrow(as_of="20200101000000000")
    assert caught.value.kind is ErrorKind.BEFORE_FIRST_INSTANT
    empty = hw.create_table(tmp_path / "empty", schema=SCHEMA, record_key="id", options=FAST)
    with pytest.raises(hw.NotFoundError, match="no commit has completed yet") as caught:
        empty.read_arrow(as_of="20200101000000000")
    assert caught.value.kind is ErrorKind.BEFORE_FIRST_INSTANT


@pytest.mark.parametrize("time", ["", "yesterday", "2024-13-01", "2024", "20240101T000000"])
def test_malformed_times(tmp_path: Path, time: str) -> None:
    table = a_table(tmp_path)
    with pytest.raises(hw.InvalidInputError, match="A time to query as of") as caught:
        table.read_arrow(as_of=time)
    assert caught.value.kind is ErrorKind.INVALID_INSTANT_TIME
    assert repr(time) in str(caught.value)


SOURCE = rows(("a", "sf", 9))
HALF = "id = '\ud800'"
A_LIST = "comes in a list"

BAD_ARGUMENTS: dict[str, tuple[Callable[[Any], object], str]] = {
    "a column twice": (lambda t: t.read_arrow(["id", "fare", "id"]), "names id twice"),
    "a column for columns": (lambda t: t.read_arrow("id"), rf"{A_LIST}: \['id'\], not 'id'"),
    "a number for columns": (lambda t: t.scan(5), A_LIST),
    "a number for a column": (lambda t: t.read_arrow([1]), "A column to read is text, got 1"),
    "no column": (lambda t: t.read_arrow([None]), "is text, got None"),
    "a number as condition": (lambda t: t.read_arrow(where=1), "SQL as text.* got int"),
    "a truth as condition": (lambda t: t.read_arrow(where=True), "got bool"),
    "no condition": (lambda t: t.read_arrow(where=pc.field("fare") + 1), "evaluate to bool"),
    "half of a character": (lambda t: t.read_arrow(where=HALF), "half of a character"),
    "no zone": (
        lambda t: t.scan(where="fare = 1", time_zone=None).to_arrow(),
        "A time zone is text, got None",
    ),
    "changes after a number": (lambda t: t.changes_arrow(5), "A time to query.* got 5"),
    "changes until the beginning": (lambda t: t.changes_arrow("0", "0"), "holds nothing"),
    "an infinite decimal": (lambda t: t.update({"amount": Decimal("Infinity")}), "are finite"),
    "a number for a column to set": (lambda t: t.update({1: "1"}), "is text, got 1"),
    "an empty expression": (lambda t: t.update({"fare": ""}), "fare is set to an empty expr"),
    "a list for values": (lambda t: t.update(["fare"]), "a mapping by column"),
    "an update where a number": (lambda t: t.update({"fare": 1}, where=1), "text, got 1"),
    "a delete where a number": (lambda t: t.delete(where=1), "in SQL is text, got 1"),
    "a delete by an expression": (
        lambda t: t.delete(where=pc.field("fare") == 1),
        "in SQL is text, got",
    ),
    "a delete of half a character": (lambda t: t.delete(where=HALF), "half of a character"),
    "a merge on nothing": (lambda t: t.merge(SOURCE, None), A_LIST),
    "a merge where a number": (
        lambda t: t.merge(SOURCE, "id").when_matched_delete(where=1).execute(),
        "in SQL is text, got 1",
    ),
    "no partitions": (lambda t: t.delete_partitions(None), A_LIST),
    "a list of no partitions": (lambda t: t.delete_partitions([]), "was named"),
    "a partition for partitions": (lambda t: t.delete_partitions("city=sf"), A_LIST),
    "options in a list": (lambda t: hw.open_table(t.uri, ["x"]), "Options are a mapping"),  # type: ignore[arg-type]
    "an option without a name": (lambda t: hw.open_table(t.uri, {1: "x"}), "is text, got 1"),  # type: ignore[dict-item]
    "part of a commit": (lambda t: t.history(-1), "limit.*-1"),
}


@each_type
@pytest.mark.parametrize("what", BAD_ARGUMENTS)
def test_arguments_of_another_type(tmp_path: Path, table_type: TableType, what: str) -> None:
    table = a_table(tmp_path, table_type=table_type)
    table.upsert(rows(("a", "sf", 1)))  # In a log, where there are logs.
    call, message = BAD_ARGUMENTS[what]
    commits = completed(table)
    with pytest.raises(hw.InvalidInputError, match=message):
        call(table)
    assert completed(table) == commits


@pytest.mark.parametrize("path", [None, 5, b"/tmp/x", "a\0b", "\ud800"], ids=repr)
def test_what_is_no_path(path: Any) -> None:
    for reach in (hw.open_table, partial(hw.create_table, schema=SCHEMA)):
        with pytest.raises(hw.InvalidInputError, match="The path of a table"):
            reach(path)


@pytest.mark.parametrize(
    "argument", ["record_key", "partition_by", "ordering", "table_type", "index", "name"]
)
def test_a_number_for_what_makes_a_table(tmp_path: Path, argument: str) -> None:
    with pytest.raises(hw.InvalidInputError, match="got 5"):
        a_table(tmp_path, **{argument: 5})
    assert not (tmp_path / "trips").exists()


def test_columns_that_do_not_exist(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    with pytest.raises(hw.InvalidInputError, match="Table trips has no column tips; it has id"):
        table.read_arrow(["id", "tips"])


# Other writers and other versions --------------------------------------------------------------


def start_to_write(table: Table) -> InflightWrite:
    components = table.context.components
    claim = Claim(
        owner=components.ids.owner,
        token=components.ids.new_uuid(),
        interval_ms=1_000,  # A second writer sees it beat within half of that.
        tolerable_misses=20,
    )
    txn = LockTransaction(components, table_layout(table.config))
    return start_inflight_write(components, txn, Action.COMMIT, claim, b"")


@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_second_writer_of_a_single_writer_table(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    other = hw.open_table(table.uri, {**FAST, "headwater.writer.id": "nightly-load"})
    running = start_to_write(other)
    try:
        before = content(table)
        with pytest.raises(hw.ConflictError, match="nightly-load") as caught:
            table.upsert(rows(("a", "sf", 9)))
        assert caught.value.kind is ErrorKind.LIVE_WRITER
        assert caught.value.retry is Retry.FRESH_VIEW
        assert caught.value.context["instant"] == running.instant_time
        assert content(table) == before
    finally:
        running.abandon()
    table.upsert(rows(("a", "sf", 9)))
    assert [row["fare"] for row in content(table)] == [9, 2]


def test_a_table_of_version_8_is_read_but_not_written(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    properties = tmp_path / "trips" / ".hoodie" / "hoodie.properties"
    text = properties.read_text()
    assert "hoodie.table.version=9" in text
    text = text.replace("#headwater.crc32", "#")  # As others write it, without a checksum.
    properties.write_text(text.replace("hoodie.table.version=9", "hoodie.table.version=8"))
    older = hw.open_table(table.uri, FAST)
    before, commits = content(older), completed(older)
    for write in (older.upsert, older.insert, older.delete, older.overwrite):
        with pytest.raises(hw.UnsupportedError, match="Table trips has version 8") as caught:
            write(rows(("c", "sf", 9)))
        assert caught.value.kind is ErrorKind.UNSUPPORTED_TABLE_VERSION
    assert content(older) == before
    assert completed(older) == commits
    assert not any(one["state"] != "completed" for one in older.inspect.timeline().to_pylist())


# Damaged files ---------------------------------------------------------------------------------


def data_files(path: Path, pattern: str) -> list[Path]:
    found = sorted((path / "trips").glob(f"city=sf/{pattern}"))
    assert found
    return found


def a_table_with_logs(path: Path, **options: str) -> Table:
    """Return a table with a base file in each partition, and two log files in that of sf."""
    shape = table_at(path / "trips", SCHEMA, partition_by="city", buckets=1)
    table = shape.having(table_type=TableType.MERGE_ON_READ, options=options).create()
    table.bulk_insert(rows(("a", "sf", 1), ("b", "ny", 2)))
    table.upsert(rows(("a", "sf", 10), ("c", "sf", 3)))
    table.upsert(rows(("a", "sf", 100)))
    return table


def flip_a_byte(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


LOG_DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut in the middle": lambda data: data[: len(data) // 2],
    "cut at the end": lambda data: data[:-1],
    "garbage at the end": lambda data: data + b"garbage",
    "garbage between two blocks": lambda data: data + b"garbage" + data,
    "garbage alone": lambda _: b"garbage",
    "another length": lambda data: flip_a_byte(data, 13),
    "damaged content": lambda data: data.replace(b"PAR1", b"XXXX"),
}


@pytest.mark.parametrize("damage", LOG_DAMAGE)
def test_a_damaged_log(tmp_path: Path, damage: str) -> None:
    table = a_table_with_logs(tmp_path)
    log = data_files(tmp_path, ".*.log.*")[0]
    intact = log.read_bytes()
    log.write_bytes(LOG_DAMAGE[damage](intact))
    with pytest.raises(hw.CorruptTableError) as caught:
        table.read_arrow()
    assert log.name in str(caught.value)
    # Base files and other partitions are none the worse.
    assert table.read_arrow(read_optimized=True).num_rows == 2
    log.write_bytes(intact)
    assert [row["fare"] for row in content(table)] == [100, 2, 3]


def test_an_empty_log(tmp_path: Path) -> None:
    table = a_table_with_logs(tmp_path)
    log = data_files(tmp_path, ".*.log.*")[0]
    log.write_bytes(b"")
    with pytest.raises(hw.CorruptTableError) as caught:
        table.read_arrow()
    assert log.name in str(caught.value)


@pytest.mark.parametrize("pattern", [".*.log.*", "*.parquet"], ids=["log", "base file"])
@pytest.mark.parametrize(
    ("is_indexed", "sentence"),
    [("true", "of a completed instant does not exist"), ("false", "trips has lost files")],
    ids=["by the metadata table", "by listing"],
)
def test_a_missing_file(tmp_path: Path, pattern: str, is_indexed: str, sentence: str) -> None:
    table = a_table_with_logs(tmp_path, **{"hoodie.metadata.enable": is_indexed})
    lost = data_files(tmp_path, pattern)[0]
    lost.unlink()
    with pytest.raises(hw.CorruptTableError, match=sentence) as caught:
        table.read_arrow()
    assert caught.value.kind is ErrorKind.MISSING_DATA_FILE
    assert lost.name in str(caught.value)


def footer_start(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def footer(data: bytes) -> bytes:
    return data[footer_start(data) :]


BASE_FILE_DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda _: b"this is no Parquet file at all",
    "empty": lambda _: b"",
    "cut in the middle": lambda data: data[: len(data) // 2],
    "damaged pages": lambda data: data[:4] + b"\xff" * (footer_start(data) - 4) + footer(data),
}


@each_type
@pytest.mark.parametrize("damage", BASE_FILE_DAMAGE)
def test_a_damaged_base_file(tmp_path: Path, table_type: TableType, damage: str) -> None:
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        buckets=1,
        options=FAST,
    )
    table.bulk_insert(rows(("a", "sf", 1), ("b", "ny", 2)))
    base = data_files(tmp_path, "*.parquet")[0]
    intact = base.read_bytes()
    base.write_bytes(BASE_FILE_DAMAGE[damage](intact))
    with pytest.raises(hw.CorruptTableError) as caught:
        table.read_arrow()
    assert base.name in str(caught.value)
    commits = completed(table)
    if table_type is TableType.COPY_ON_WRITE:
        # An upsert reads the file that it replaces.
        with pytest.raises(hw.CorruptTableError) as caught:
            table.upsert(rows(("a", "sf", 9), ("b", "ny", 9)))
        assert base.name in str(caught.value)
        assert completed(table) == commits
    base.write_bytes(intact)
    assert [row["fare"] for row in content(table)] == [1, 2]


@pytest.mark.parametrize("damaged", [b"", b"garbage", b"Obj\x01"], ids=["empty", "text", "cut"])
@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_damaged_commit(tmp_path: Path, damaged: bytes) -> None:
    table = a_table(tmp_path)
    (commit,) = (tmp_path / "trips" / ".hoodie" / "timeline").glob("*.commit")
    commit.write_bytes(damaged)
    with pytest.raises(hw.CorruptTableError) as caught:
        table.read_arrow()
    assert commit.name.split("_")[0] in str(caught.value)
    with pytest.raises(hw.CorruptTableError):
        table.upsert(rows(("a", "sf", 9)))
    assert len(completed(table)) == 1


def nested(levels: int, wrap: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    return functools.reduce(lambda inner, _: wrap(inner), range(levels), pa.int32())


@each_type
@pytest.mark.parametrize(
    ("wrap", "most"),
    [
        (pa.list_, 49),
        (lambda inner: pa.map_(pa.string(), inner), 49),
        (lambda inner: pa.map_(pa.string(), pa.list_(inner)), 24),
    ],
)
def test_a_column_is_nested_no_deeper_than_its_files_can_be_read(
    tmp_path: Path, table_type: TableType, wrap: Callable[[pa.DataType], pa.DataType], most: int
) -> None:
    def rows_with(levels: int) -> pa.Table:
        values = pa.nulls(1, nested(levels, wrap))
        return pa.table({"id": ["a"], "city": ["sf"], "deep": values})

    with pytest.raises(hw.InvalidInputError, match="Column deep is nested too deeply"):
        hw.create_table(tmp_path / "new", schema=rows_with(most + 1).schema, record_key="id")
    table = a_table(tmp_path, table_type=table_type)
    with nothing_changes(table):
        for levels in (most + 1, 2_000):
            with pytest.raises(hw.InvalidInputError, match=r"Column deep.* is nested too deeply"):
                table.upsert(rows_with(levels))
    table.upsert(rows_with(most))
    assert table.read_arrow(["deep"]).num_rows == 3


def no_text() -> pa.Array:
    return pa.array([b"s\xff"], pa.binary()).view(pa.string())


@each_type
@pytest.mark.parametrize("column", ["id", "city", "note"])
@pytest.mark.parametrize("streams", [False, True])
def test_text_that_is_no_utf8_is_refused_before_it_is_stored(
    tmp_path: Path, table_type: TableType, column: str, streams: bool
) -> None:
    table = a_table(tmp_path, table_type=table_type)
    bad = pa.table({"id": ["c"], "city": ["sf"], "fare": [1], column: no_text()})
    names = ("upsert", "insert", "bulk_insert", "overwrite", "overwrite_partitions", "delete")
    with nothing_changes(table):
        for write in (getattr(table, name) for name in names):
            with pytest.raises(hw.InvalidInputError, match=f"Column {column} .* UTF8"):
                write(bad.to_reader() if streams else bad)
        with pytest.raises(hw.InvalidInputError, match=f"Column {column} .* UTF8"):
            table.merge(bad, "id")


def test_a_decimal_that_arrow_parsed_beyond_its_digits_is_refused(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    text = b'{"id": "c", "city": "sf", "fare": 1, "amount": 123456789.5}'
    parse = pajson.ParseOptions(explicit_schema=SCHEMA)
    parsed = pajson.read_json(pa.BufferReader(text), parse_options=parse)
    with nothing_changes(table), pytest.raises(hw.InvalidInputError, match=r"Column amount .* fit"):
        table.upsert(parsed)


def test_a_frame_that_arrow_cannot_take_is_refused(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    mixed = pd.DataFrame({"id": ["c", 1], "city": ["sf", "sf"]})
    with nothing_changes(table), pytest.raises(hw.InvalidInputError, match="DataFrame cannot be"):
        table.upsert(mixed)
