"""The meta columns in front of every row."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.arrow.meta_columns import (
    META_COLUMNS,
    add_meta_columns,
    repeated_text,
    replace_file_name,
    schema_with_meta_columns,
    sequence_numbers,
    strip_meta_columns,
)
from headwater.errors import InternalError
from headwater.model.instant import InstantTime

T = InstantTime("20240101000000001")
BATCH = pa.record_batch({"id": [1, 2, 3], "name": ["a", None, "c"]})
KEYS = pa.array(["1", "2", "3"])


def with_meta(rows: pa.Table, *, encodes_constants: bool) -> pa.Table:
    return add_meta_columns(
        rows,
        instant_time=T,
        task=4,
        first_row=9,
        record_keys=KEYS,
        partition_path="region=eu",
        file_name="f-0_4-1-0_20240101000000001.parquet",
        encodes_constants=encodes_constants,
    )


@pytest.mark.parametrize("encodes_constants", [True, False])
@pytest.mark.parametrize("rows", [BATCH, pa.table(BATCH)], ids=["batch", "table"])
def test_format_rule_6_3(rows: pa.Table, encodes_constants: bool) -> None:
    found = with_meta(rows, encodes_constants=encodes_constants)
    assert type(found) is type(rows)
    assert found.to_pylist()[2] == {
        "_hoodie_commit_time": T,
        "_hoodie_commit_seqno": f"{T}_4_11",
        "_hoodie_record_key": "3",
        "_hoodie_partition_path": "region=eu",
        "_hoodie_file_name": "f-0_4-1-0_20240101000000001.parquet",
        "id": 3,
        "name": "c",
    }
    assert found.schema.names == [*META_COLUMNS, "id", "name"]
    assert strip_meta_columns(found).equals(rows)


def test_plain_text_has_the_schema_of_files() -> None:
    found = with_meta(BATCH, encodes_constants=False)
    assert found.schema.equals(schema_with_meta_columns(BATCH.schema))


def test_dictionaries_are_plain_text_in_parquet() -> None:
    file = io.BytesIO()
    pq.write_table(with_meta(pa.table(BATCH), encodes_constants=True), file, store_schema=False)
    assert pq.read_table(file).schema.equals(schema_with_meta_columns(BATCH.schema))


def test_a_partition_path_per_row_is_taken_as_it_is() -> None:
    paths = pa.array(["a", "b", "a"]).dictionary_encode()
    found = add_meta_columns(
        BATCH,
        instant_time=T,
        task=0,
        first_row=0,
        record_keys=KEYS,
        partition_path=paths,
        file_name="f",
    )
    assert found["_hoodie_partition_path"].to_pylist() == ["a", "b", "a"]


def test_a_moved_row_gets_the_name_of_its_new_file_only() -> None:
    before = with_meta(BATCH, encodes_constants=True)
    after = replace_file_name(before, "other")
    assert after["_hoodie_file_name"].to_pylist() == ["other"] * 3
    assert after.drop_columns(["_hoodie_file_name"]).equals(
        before.drop_columns(["_hoodie_file_name"])
    )


def test_the_column_of_operations_is_stripped_too() -> None:
    rows = BATCH.append_column("_hoodie_operation", pa.array(["I", "U", "D"]))
    assert strip_meta_columns(rows).equals(BATCH)


def test_meta_columns_are_not_added_twice() -> None:
    with pytest.raises(InternalError, match="already"):
        with_meta(with_meta(BATCH, encodes_constants=True), encodes_constants=True)


@given(st.integers(0, 50), st.integers(0, 2**40), st.integers(0, 5))
def test_sequence_numbers_count_on(task: int, first_row: int, count: int) -> None:
    found = sequence_numbers(T, task=task, first_row=first_row, count=count)
    assert found.type == pa.string()
    assert found.to_pylist() == [f"{T}_{task}_{first_row + n}" for n in range(count)]


@pytest.mark.parametrize("is_encoded", [True, False])
def test_no_rows_have_no_text(is_encoded: bool) -> None:
    assert repeated_text("x", 0, is_encoded=is_encoded).to_pylist() == []
