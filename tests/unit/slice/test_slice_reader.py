"""Few columns and few records of a slice are those of the whole of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.memory_storage import MemoryStorage

from headwater.arrow.log_parts import DataPart, DeletePart, LogPart
from headwater.arrow.merge_rule import MergeMode, MergeRule, PartialUpdate
from headwater.arrow.meta_columns import META_COLUMNS, RECORD_KEY, schema_with_meta_columns
from headwater.errors import InternalError, UnsupportedError
from headwater.format.avro.schema import encode_avro_schema
from headwater.format.log.blocks import encode_data_block, encode_delete_blocks
from headwater.format.parquet.base_file import BaseFileReader, write_base_file
from headwater.kernel.new_table import NewTable, plan_table_config
from headwater.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from headwater.model.instant import InstantTime
from headwater.slice.merged_slice import open_merged
from headwater.slice.reader import SliceReader

GROUP = FileGroupId("p", "f-0")
MARKER = "?"
DATA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("a", pa.int64()),
        ("b", pa.string()),
        ("op", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
SCHEMA = schema_with_meta_columns(DATA)
AVRO = encode_avro_schema(SCHEMA, table="t")


def add_a(old: pa.Table, new: pa.Table) -> pa.Table:
    total = pc.add(pc.fill_null(old["a"], 0), pc.fill_null(new["a"], 0))
    return new.set_column(new.schema.get_field_index("a"), new.schema.field("a"), total)


CUSTOM = MergeRule(mode=MergeMode.CUSTOM, ordering_fields=("ts",), custom=f"{__name__}:add_a")
BY_TIME = MergeRule(mode=MergeMode.EVENT_TIME_ORDERING, ordering_fields=("ts",))
BY_COLUMN = MergeRule(partial=PartialUpdate.IGNORE_DEFAULTS)
MARKED = replace(BY_TIME, delete_field="op", delete_marker="D")
RULES = [
    MergeRule(),
    BY_TIME,
    MARKED,
    BY_COLUMN,
    replace(BY_TIME, partial=PartialUpdate.IGNORE_DEFAULTS),
    replace(MARKED, partial=PartialUpdate.FILL_UNAVAILABLE, unavailable_marker=MARKER),
    CUSTOM,
]

Row = dict[str, Any]
KEYS = "abcde"


def instant(number: int) -> InstantTime:
    return InstantTime(f"2026010100000{number:04}")


def table(rows: Sequence[Row], number: int) -> pa.Table:
    metas = dict.fromkeys(META_COLUMNS, "") | {"_hoodie_commit_time": instant(number)}
    whole = [{**metas, RECORD_KEY: row["id"], **row} for row in rows]
    return pa.Table.from_pylist(whole, schema=SCHEMA)


def new_slice(
    storage: MemoryStorage, base: pa.Table | None, logs: Sequence[bytes], *, group_rows: int = 2
) -> FileSlice:
    file = None
    if base is not None:
        file = BaseFile(*GROUP, "0-0-0", instant(0))
        with storage.open_output(file.path) as sink:
            write_base_file([base], base.schema, sink=sink, row_group_rows=group_rows)
    files = []
    for number, data in enumerate(logs, 1):
        log = LogFile(*GROUP, instant(number), 1, "0-0-0")
        storage.put(log.path, data)
        files.append(log)
    return FileSlice(GROUP, instant(0 if file else 1), file, tuple(files))


def data_block(rows: pa.Table, number: int, *, is_partial: bool = False) -> bytes:
    return encode_data_block(
        rows,
        instant_time=instant(number),
        avro_schema_json=encode_avro_schema(rows.schema, table="t"),
        is_partial=is_partial,
    )


def delete_blocks(keys: Sequence[str], values: Sequence[int | None], number: int) -> bytes:
    blocks = encode_delete_blocks(
        pa.array(keys, pa.string()),
        pa.array(["p"] * len(keys), pa.string()),
        (pa.array(values, pa.int64()),),
        instant_time=instant(number),
        avro_schema_json=AVRO,
    )
    return b"".join(blocks)


some_rows = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from(KEYS),
            "ts": st.none() | st.integers(0, 3),
            "a": st.none() | st.integers(0, 9),
            "b": st.sampled_from([None, "x", "y", MARKER]),
            "op": st.sampled_from([None, "I", "D"]),
            "_hoodie_is_deleted": st.sampled_from([None, False, False, True]),
        }
    ),
    max_size=4,
)
some_deletes = st.lists(
    st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 3)), min_size=1, max_size=3
)
some_names = st.lists(st.sampled_from(SCHEMA.names), unique=True)


@st.composite
def slices(draw: st.DrawFn, storage: MemoryStorage, rule: MergeRule) -> FileSlice:
    unique = {row["id"]: row for row in draw(some_rows)}
    base = draw(st.sampled_from([None, table(list(unique.values()), 0)]))
    logs = []
    for number in range(1, 1 + draw(st.integers(0 if base else 1, 3))):
        if draw(st.booleans()):
            rows = table(draw(some_rows), number)
            is_partial = rule.mode is not MergeMode.CUSTOM and draw(st.booleans())
            if is_partial:
                left = {*META_COLUMNS, "id", "ts", *draw(some_names)}
                rows = rows.select([name for name in SCHEMA.names if name in left])
            logs.append(data_block(rows, number, is_partial=is_partial))
        else:
            keys, values = zip(*draw(some_deletes), strict=True)
            logs.append(delete_blocks(keys, values, number))
    return new_slice(storage, base, logs)


def rows_of(batches: Any, names: Sequence[str]) -> list[tuple[Any, ...]]:
    found = [tuple(row[name] for name in names) for some in batches for row in some.to_pylist()]
    return sorted(found, key=repr)


@settings(deadline=None)
@given(st.data(), st.sampled_from(RULES))
def test_some_columns_of_some_records(data: st.DataObject, rule: MergeRule) -> None:
    storage = MemoryStorage()
    reader = SliceReader(storage, rule, SCHEMA)
    file_slice = data.draw(slices(storage, rule))
    with open_merged(reader, file_slice) as opened:
        whole = pa.Table.from_batches(opened.batches, SCHEMA)
    names = data.draw(some_names)
    wanted = data.draw(st.lists(st.sampled_from(KEYS), unique=True))
    keys = pa.array(wanted, pa.string())
    some = whole.filter(pc.is_in(whole[RECORD_KEY], value_set=keys))
    for batch in reader.read(file_slice, names):
        assert batch.schema.names == names
    assert rows_of(reader.read(file_slice, names), names) == rows_of([whole], names)
    assert rows_of(reader.read(file_slice, names, keys=keys), names) == rows_of([some], names)
    live = reader.live_keys(file_slice, keys).to_pylist()
    assert sorted(live) == sorted(some[RECORD_KEY].to_pylist())


@pytest.mark.parametrize("rule", [BY_TIME, CUSTOM], ids=["by time", "by a function"])
def test_a_table_without_record_keys_in_its_files(rule: MergeRule) -> None:
    new = NewTable(location="t", schema=DATA, record_key=["id"], table_type="MERGE_ON_READ")
    config = replace(plan_table_config(new, {}), has_meta_fields=False)
    storage = MemoryStorage()
    file_slice = new_slice(
        storage,
        without_meta(table([a_row("a", 1), a_row("b", 2), a_row("c", 3)], 0)),
        [data_block(without_meta(table([a_row("a", 4)], 1)), 1), delete_blocks("b", [9], 2)],
    )
    reader = SliceReader(storage, rule, SCHEMA, config)
    a = 5 if rule is CUSTOM else 4
    assert rows_of(reader.read(file_slice, ["a"]), ["a"]) == [(3,), (a,)]
    names = [RECORD_KEY, "a"]
    only = pa.array(["a", "b"])
    assert rows_of(reader.read(file_slice, names, keys=only), names) == [(None, a)]
    bare = FileSlice(GROUP, instant(0), file_slice.base)
    assert rows_of(reader.read(bare, names, keys=only), names) == [(None, 1), (None, 2)]
    with pytest.raises(InternalError):
        reader.live_keys(file_slice, only)


def test_row_groups_are_for_the_caller_to_choose() -> None:
    storage = MemoryStorage()
    base = table([a_row(key, number) for number, key in enumerate(KEYS)], 0)
    bare = new_slice(storage, base, [], group_rows=1)
    reader = SliceReader(storage, MergeRule(), SCHEMA)
    seen: list[int] = []

    def last_three(file: BaseFileReader) -> list[int]:
        seen.append(file.footer.num_row_groups)
        return [2, 3, 4]

    found = rows_of(reader.read(bare, ["id"], row_groups=last_three), ["id"])
    assert found == [("c",), ("d",), ("e",)]
    keys = pa.array(["a", "d"])
    found = rows_of(reader.read(bare, ["id"], keys=keys, row_groups=last_three), ["id"])
    assert found == [("d",)]
    assert seen == [5, 5]


def test_no_more_columns_are_merged_than_the_rule_looks_at() -> None:
    def needed(rule: MergeRule) -> list[str]:
        names: list[str] = SliceReader(MemoryStorage(), rule, SCHEMA).columns_to_merge(["b"]).names
        return names

    assert needed(MergeRule(ordering_fields=("ts",))) == [RECORD_KEY, "b"]
    assert needed(BY_TIME) == [RECORD_KEY, "ts", "b"]
    assert needed(BY_COLUMN) == [RECORD_KEY, "b"]
    assert needed(CUSTOM) == SCHEMA.names


def test_what_lies_on_top_of_a_slice_is_merged_last() -> None:
    storage = MemoryStorage()
    base = table([a_row("a", 1), a_row("b", 1), a_row("c", 1)], 0)
    file_slice = new_slice(storage, base, [data_block(table([a_row("a", 2)], 1), 1)])
    gone = DeletePart(instant(2), pa.array(["c"]), pa.array(["p"]))
    rows = table([a_row("a", 4), a_row("d", 8)], 2)
    written: list[LogPart] = [DataPart(instant(2), rows), gone]
    with open_merged(SliceReader(storage, CUSTOM, SCHEMA), file_slice, written=written) as opened:
        assert rows_of(opened.batches, ["id", "a"]) == [("a", 7), ("b", 1), ("d", 8)]
    counts = opened.batches.counts
    assert (counts.inserted, counts.updated, counts.deleted) == (1, 1, 1)
    assert (opened.key_count, opened.log_block_count, opened.row_count_max) == (3, 3, 5)


def never(old: pa.Table, new: pa.Table) -> pa.Table:
    raise AssertionError("Rows were merged")


def test_which_keys_are_there_is_known_without_merging_rows() -> None:
    storage = MemoryStorage()
    log = data_block(table([a_row("a", 2), a_row("c", 2)], 1), 1)
    base = table([a_row("a", 1), a_row("b", 1)], 0)
    file_slice = new_slice(storage, base, [log, delete_blocks("b", [None], 2)])
    reader = SliceReader(storage, replace(CUSTOM, custom=f"{__name__}:never"), SCHEMA)
    assert sorted(reader.live_keys(file_slice, pa.array(list(KEYS))).to_pylist()) == ["a", "c"]


def test_keys_of_a_table_that_is_merged_by_another_engine_are_not_known() -> None:
    storage = MemoryStorage()
    java = MergeRule(mode=MergeMode.CUSTOM, custom="com.example.Merger")
    base = table([a_row("a", 1)], 0)
    reader = SliceReader(storage, java, SCHEMA)
    bare = new_slice(storage, base, [])
    assert reader.live_keys(bare, pa.array(["a", "b"])).to_pylist() == ["a"]
    log = new_slice(storage, None, [data_block(table([a_row("a", 2)], 1), 1)]).logs
    merged = replace(bare, logs=log)
    with pytest.raises(UnsupportedError, match="merged by com"):
        reader.live_keys(merged, pa.array(["a"]))


def a_row(key: str, a: int) -> Row:
    return {"id": key, "ts": a, "a": a, "b": "x", "op": None, "_hoodie_is_deleted": False}


def without_meta(rows: pa.Table) -> pa.Table:
    for name in META_COLUMNS:
        nothing = pa.nulls(rows.num_rows, pa.string())
        rows = rows.set_column(rows.schema.get_field_index(name), name, nothing)
    return rows
