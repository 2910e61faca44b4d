"""Merging what instants said: against a dict, and by the rules for lists."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.kernel.format.metadata_records import (
    FileInfo,
    decode_files,
    encode_bloom_filters,
    encode_files,
    encode_secondary,
)
from headwater.kernel.format.metadata_schema import RecordType
from headwater.kernel.index.entries import Entries
from headwater.kernel.index.group_entries import split_by_group
from headwater.kernel.index.merge_entries import merge_entries
from headwater.kernel.index.partition_kinds import groups_of_keys

Told = dict[str, bytes | None]

keys = st.text(st.characters(codec="utf-8"), max_size=4)
said = st.lists(st.dictionaries(keys, st.none() | st.binary(max_size=3), max_size=6), max_size=5)


def entries(told: Told) -> Entries:
    kept = {key: value for key, value in told.items() if value is not None}
    return Entries(
        pa.array(list(kept), pa.string()),
        pa.array(list(kept.values()), pa.binary()),
        pa.array([key for key in told if key not in kept], pa.string()),
    )


def as_dict(found: Entries) -> dict[str, bytes]:
    assert len(found.removed) == 0
    pairs = dict(zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True))
    assert len(pairs) == len(found.keys)
    return pairs


@settings(deadline=None)
@given(st.dictionaries(keys, st.binary(max_size=3), max_size=6), said)
def test_the_newest_counts(base: dict[str, bytes], parts: list[Told]) -> None:
    expected: Told = {**base}
    for part in parts:
        expected |= part
    found = merge_entries("record_index", [*map(entries, parts)], base=entries({**base}))
    assert as_dict(found) == {key: value for key, value in expected.items() if value is not None}


@settings(deadline=None)
@given(st.dictionaries(keys, st.none() | st.binary(max_size=3)), st.integers(1, 7))
def test_every_entry_goes_to_the_group_of_its_key(told: Told, count: int) -> None:
    shared = split_by_group("record_index", entries(told), count)
    found: Told = {}
    for group, part in shared.items():
        for of_part in (part.keys, part.removed):
            assert set(groups_of_keys("record_index", of_part, count).tolist()) <= {group}
        found |= dict(zip(part.keys.to_pylist(), part.values.to_pylist(), strict=True))
        found |= dict.fromkeys(part.removed.to_pylist())
    assert found == told
    assert all(len(part) for part in shared.values())


def files(**infos: FileInfo) -> Entries:
    value = encode_files(dict(infos), RecordType.FILE_LIST)
    return entries({"city=sf": value})


def test_lists_of_files_are_united_and_what_is_deleted_goes() -> None:
    parts = [
        files(a=FileInfo(1), b=FileInfo(2)),
        files(b=FileInfo(0, is_deleted=True), c=FileInfo(3)),
        files(a=FileInfo(5)),
    ]
    found = merge_entries("files", parts[1:], base=parts[0])
    assert decode_files(as_dict(found)["city=sf"]) == {"a": FileInfo(5), "c": FileInfo(3)}


def test_a_record_that_says_that_it_is_deleted_removes_its_key() -> None:
    one = encode_bloom_filters(pa.array([b"filter"], pa.binary()), "DYNAMIC_V0", "1")[0].as_py()
    gone = encode_bloom_filters(pa.array([b""], pa.binary()), "DYNAMIC_V0", "2", is_deleted=True)[
        0
    ].as_py()
    found = merge_entries("bloom_filters", [entries({"a": one, "b": one}), entries({"a": gone})])
    assert as_dict(found) == {"b": one}
    here = encode_secondary(1)[0].as_py()
    away = encode_secondary(1, is_deleted=True)[0].as_py()
    found = merge_entries("secondary_index_x", [entries({"a": away})], base=entries({"a": here}))
    assert as_dict(found) == {}
