"""Partitions of the metadata table: file ids, groups of keys, numbers of groups."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import CorruptTableError, InvalidInputError
from headwater.format.metadata.index_definitions import IndexVersion
from headwater.metadata.partition_kinds import (
    data_partition_of,
    file_id,
    group_count,
    group_number,
    groups_of_keys,
    kind_of,
)


def java_hash(text: str) -> int:
    units = text.encode("utf-16-be")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@pytest.mark.parametrize(
    ("partition", "group", "expected"),
    [
        ("files", 0, "files-0000-0"),
        ("column_stats", 1, "col-stats-0001-0"),
        ("bloom_filters", 3, "bloom-filters-0003-0"),
        ("record_index", 12, "record-index-0012-0"),
        ("partition_stats", 0, "partition-stats-0000-0"),
        ("secondary_index_txn_date_idx", 3, "secondary-index-txn-date-idx-0003-0"),
        ("expr_index_a_b", 10_000, "expr-index-a-b-10000-0"),
    ],
)
def test_file_ids_are_those_of_format_rule_8_2(partition: str, group: int, expected: str) -> None:
    assert file_id(partition, group) == expected
    assert group_number(expected) == group


@given(st.text(min_size=1, max_size=20), st.integers(0, 9))
@settings(deadline=None)
def test_a_partitioned_record_index_has_groups_for_each_partition(path: str, group: int) -> None:
    made = file_id("record_index", group, path)
    assert made.startswith("record-index-")
    assert made.count("-") == 4
    assert "/" not in made
    assert "_" not in made
    assert (data_partition_of(made), group_number(made)) == (path, group)


def test_an_index_that_is_not_partitioned_has_no_partition_in_its_file_ids() -> None:
    assert data_partition_of("record-index-0012-0") is None
    assert file_id("record_index", 0, "a=1/b_2-3") == "record-index-a%3D1%2Fb%5F2%2D3-0000-0"


def test_names_that_are_no_partition_are_refused() -> None:
    for name in ("", "file", "secondary_index", "column_stats2"):
        with pytest.raises(InvalidInputError, match="no partition"):
            kind_of(name)
    with pytest.raises(InvalidInputError, match="no file id"):
        group_number("files")


def test_the_number_of_groups_is_that_of_the_file_ids() -> None:
    assert group_count(["record-index-0001-0", "record-index-0000-0", "record-index-0001-0"]) == 2
    with pytest.raises(CorruptTableError, match="gaps"):
        group_count(["col-stats-0000-0", "col-stats-0002-0"])


@given(st.lists(st.text(max_size=30), max_size=10), st.integers(1, 20))
@settings(deadline=None)
def test_the_group_of_a_key_follows_from_its_java_hash(keys: list[str], count: int) -> None:
    expected = [abs(java_hash(key)) % count for key in keys]
    assert groups_of_keys("record_index", pa.array(keys, pa.string()), count).tolist() == expected


def test_a_hash_without_absolute_value_is_in_a_group_too() -> None:
    # Java has no absolute value of its smallest int, which is the hash of this text.
    smallest = "polygenelubricants"
    assert java_hash(smallest) == -(2**31)
    assert groups_of_keys("files", pa.array([smallest]), 10).tolist() == [8]


def test_secondary_keys_are_grouped_by_their_secondary_value_since_version_2() -> None:
    keys = pa.array(["19737$TXN-001", "19738$TXN-001", "19743$TXN-001", "19737$other"])
    found = groups_of_keys("secondary_index_date", keys, 10, IndexVersion.V2)
    assert found.tolist() == [3, 4, 0, 3]
    whole = [abs(java_hash(key)) % 10 for key in keys.to_pylist()]
    assert groups_of_keys("secondary_index_date", keys, 10, IndexVersion.V1).tolist() == whole
    # A column may be called like one, but its index is another partition.
    assert groups_of_keys("record_index", keys, 10).tolist() == whole
