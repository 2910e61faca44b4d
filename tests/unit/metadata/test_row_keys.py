"""Keys of rows, and which of them an index may lose."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory_storage import MemoryStorage

from headwater.arrow.merge_rule import MergeMode, MergeRule
from headwater.arrow.meta_columns import META_COLUMNS, schema_with_meta_columns
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError
from headwater.format.avro.schema import encode_avro_schema
from headwater.format.log.blocks import encode_data_block, encode_delete_block
from headwater.format.metadata.records import decode_record_locations
from headwater.format.parquet.base_file import write_base_file
from headwater.metadata.record_locations import (
    LocatedKeys,
    gone_for_good,
    record_index_records,
)
from headwater.metadata.records import MetadataRecords
from headwater.metadata.row_keys import (
    IndexKeyRule,
    index_key_rule,
    index_keys_of_base_file,
    index_keys_of_logs,
    live_index_keys,
    secondary_text,
    vanished_index_keys,
    without_keys,
)
from headwater.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from headwater.model.instant import InstantTime, epoch_ms

T0, T1, T2 = (InstantTime(f"2026010100000000{n}") for n in range(3))
GROUP = FileGroupId("p", "f-0")
BASE = BaseFile("p", "f-0", "0-0-0", T0)
SCHEMA = pa.schema(
    [("id", pa.string()), ("rider", pa.string()), ("s", pa.struct([("n", pa.int32())]))]
)
RULE = MergeRule()
RECORDS = IndexKeyRule(RULE, SCHEMA)
RIDERS = IndexKeyRule(RULE, SCHEMA, "rider")


def rows(time: InstantTime, *values: tuple[str, str | None, int | None]) -> pa.Table:
    metas = {
        "_hoodie_commit_time": time,
        "_hoodie_commit_seqno": "",
        "_hoodie_partition_path": "p",
        "_hoodie_file_name": "",
    }
    content = [
        {**metas, "_hoodie_record_key": key, "id": key, "rider": rider, "s": {"n": number}}
        for key, rider, number in values
    ]
    return pa.Table.from_pylist(content, schema=schema_with_meta_columns(SCHEMA))


def log_file(storage: MemoryStorage, time: InstantTime, *blocks: bytes) -> LogFile:
    file = LogFile("p", "f-0", time, 1, "0-0-0")
    storage.put(file.path, b"".join(blocks))
    return file


def data_block(table: pa.Table, time: InstantTime, *, is_partial: bool = False) -> bytes:
    avro = encode_avro_schema(table.schema, table="t")
    return encode_data_block(table, instant_time=time, avro_schema_json=avro, is_partial=is_partial)


def delete_block(time: InstantTime, *keys: str) -> bytes:
    avro = encode_avro_schema(schema_with_meta_columns(SCHEMA), table="t")
    paths = pa.array(["p"] * len(keys))
    return encode_delete_block(
        pa.array(keys), paths, None, instant_time=time, avro_schema_json=avro
    )


@pytest.fixture
def storage() -> MemoryStorage:
    storage = MemoryStorage()
    table = rows(T0, ("a", "x", 1), ("b", None, 2), ("c", "x$", None))
    with storage.open_output(BASE.path) as sink:
        write_base_file([table], table.schema, sink=sink)
    return storage


def base_terms(storage: MemoryStorage, rule: IndexKeyRule) -> list[str]:
    return [
        index_key
        for some in index_keys_of_base_file(storage, BASE, rule)
        for index_key in some.to_pylist()
    ]


def test_terms_of_a_base_file(storage: MemoryStorage) -> None:
    assert base_terms(storage, RECORDS) == ["a", "b", "c"]
    assert base_terms(storage, RIDERS) == ["x$a", "\0$b", "x\\$$c"]
    assert base_terms(storage, IndexKeyRule(RULE, SCHEMA, "s.n")) == ["1$a", "2$b", "\0$c"]
    # A column that came after the file is null in it.
    wider = SCHEMA.append(pa.field("new", pa.int64()))
    assert base_terms(storage, IndexKeyRule(RULE, wider, "new")) == ["\0$a", "\0$b", "\0$c"]


def test_a_slice_with_logs(storage: MemoryStorage) -> None:
    first = log_file(storage, T1, data_block(rows(T1, ("a", "y", 1), ("d", "z", 1)), T1))
    second = log_file(storage, T2, delete_block(T2, "b", "d"))
    whole = FileSlice(GROUP, T0, BASE, (first, second))
    assert index_keys_of_logs(storage, whole.logs, RIDERS)[0].to_pylist() == ["y$a", "z$d"]
    found: dict[str, str] = {}
    for some in live_index_keys(storage, whole, RIDERS):
        assert some.commit_times is not None
        found |= dict(zip(some.index_keys.to_pylist(), some.commit_times.to_pylist(), strict=True))
    assert found == {"y$a": T1, "x\\$$c": T0}
    assert set(vanished_index_keys(storage, whole, RIDERS).to_pylist()) == {"x$a", "\0$b", "z$d"}
    assert set(vanished_index_keys(storage, whole, RECORDS).to_pylist()) == {"b", "d"}
    bare = FileSlice(GROUP, T0, BASE)
    assert vanished_index_keys(storage, bare, RIDERS).to_pylist() == []
    assert [some.commit_times for some in live_index_keys(storage, bare, RECORDS)] == [None]


def test_a_partial_row_has_no_term_for_a_column_that_it_lacks(storage: MemoryStorage) -> None:
    partial = rows(T1, ("a", "y", 5)).select([*META_COLUMNS, "s"])
    log = log_file(storage, T1, data_block(partial, T1, is_partial=True))
    assert index_keys_of_logs(storage, [log], RIDERS) == []
    (numbers,) = index_keys_of_logs(storage, [log], IndexKeyRule(RULE, SCHEMA, "s.n"))
    assert numbers.to_pylist() == ["5$a"]
    older = rows(T2, ("a", "y", 5)).select([*META_COLUMNS, "id"])
    log = log_file(storage, T2, data_block(older, T2))
    (nulls,) = index_keys_of_logs(storage, [log], RIDERS)
    assert nulls.to_pylist() == ["\0$a"]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([date(2024, 1, 15), None]), ["19737", None]),
        (pa.array([datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("us", "UTC")), ["1000000"]),
        (pa.array([1000], pa.time64("us")), ["1000"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([-5], pa.int32()), ["-5"]),
        (pa.array([Decimal("1.50")], pa.decimal128(9, 2)), ["1.50"]),
        (pa.array(["a"]).dictionary_encode(), ["a"]),
    ],
)
def test_texts_of_secondary_values(values: pa.Array, texts: list[str | None]) -> None:
    assert secondary_text(values, "c").to_pylist() == texts


def test_columns_that_cannot_have_a_secondary_index() -> None:
    # A column may grow from int to double after the index was made.
    with pytest.raises(InvalidInputError, match=r"c has the type double, .* Drop the index") as got:
        secondary_text(pa.array([1.5]), "c")
    assert got.value.kind is ErrorKind.INVALID_INDEX
    with pytest.raises(InvalidInputError, match="no column other"):
        index_key_rule(RULE, SCHEMA, column="other", has_meta_fields=True)
    custom = MergeRule(mode=MergeMode.CUSTOM)
    with pytest.raises(UnsupportedError, match="CUSTOM"):
        index_key_rule(custom, SCHEMA, column="rider", has_meta_fields=True)
    assert index_key_rule(custom, SCHEMA, column=None, has_meta_fields=True).column is None


def test_times_of_record_locations() -> None:
    assert epoch_ms(InstantTime("20240115123456789"), is_utc=True) == 1_705_322_096_789
    assert epoch_ms(InstantTime("00000000000000002"), is_utc=True) == 0


def located(*places: tuple[str, FileGroupId, InstantTime]) -> MetadataRecords:
    placed = [LocatedKeys(group, pa.array([key]), time) for key, group, time in places]
    return record_index_records(placed, pa.array([], pa.string()), is_utc=True)


def test_of_terms_in_several_places_the_last_counts() -> None:
    other = FileGroupId("q", "g-0")
    entries = located(("a", GROUP, T0), ("b", GROUP, T0), ("a", other, T1))
    places = decode_record_locations(entries.values)["partition_path"].to_pylist()
    found = dict(zip(entries.keys.to_pylist(), places, strict=True))
    assert found == {"a": "q", "b": "p"}


def test_what_is_elsewhere_or_was_told_since_stays() -> None:
    other = FileGroupId("q", "g-0")
    held = located(("here", GROUP, T0), ("moved", other, T0), ("back", GROUP, T2))
    gone = gone_for_good(
        pa.array(["here", "moved", "back", "unknown"]),
        held,
        groups=[GROUP],
        unseen=[T2],
        is_secondary=False,
        is_utc=True,
    )
    assert gone.to_pylist() == ["here"]
    gone = gone_for_good(
        pa.array(["x$here", "x$moved", "x$back", "x$unknown"]),
        held,
        groups=[GROUP],
        unseen=[T2],
        is_secondary=True,
        is_utc=True,
    )
    assert gone.to_pylist() == ["x$here", "x$unknown"]


@given(st.lists(st.sampled_from("abcd")), st.lists(st.lists(st.sampled_from("abcdef"))))
def test_without_terms_is_a_difference_of_sets(held: list[str], others: list[list[str]]) -> None:
    arrays = [pa.array(some, pa.string()) for some in others]
    found = without_keys(pa.array(held, pa.string()), arrays).to_pylist()
    known = {index_key for some in others for index_key in some}
    assert found == [index_key for index_key in held if index_key not in known]
