"""Merging what instants said: against a dict, and by the rules for lists."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.format.metadata.column_stats import (
    decode_column_stats,
    encode_statistic,
    typed_bounds,
)
from headwater.format.metadata.records import (
    FileInfo,
    decode_files,
    encode_bloom_filters,
    encode_files,
    encode_secondary,
)
from headwater.format.metadata.schema import RecordType
from headwater.format.metadata.wrapped_values import value_kind
from headwater.metadata.merge_records import merge_records
from headwater.metadata.partition_kinds import groups_of_keys
from headwater.metadata.records import MetadataRecords
from headwater.metadata.records_by_group import split_by_group

Told = dict[str, bytes | None]

keys = st.text(st.characters(codec="utf-8"), max_size=4)
said = st.lists(st.dictionaries(keys, st.none() | st.binary(max_size=3), max_size=6), max_size=5)


def entries(told: Told) -> MetadataRecords:
    kept = {key: value for key, value in told.items() if value is not None}
    return MetadataRecords(
        pa.array(list(kept), pa.string()),
        pa.array(list(kept.values()), pa.binary()),
        pa.array([key for key in told if key not in kept], pa.string()),
    )


def as_dict(found: MetadataRecords) -> dict[str, bytes]:
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
    found = merge_records("record_index", [*map(entries, parts)], base=entries({**base}))
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


def files(**infos: FileInfo) -> MetadataRecords:
    value = encode_files(dict(infos), RecordType.FILE_LIST)
    return entries({"city=sf": value})


def test_lists_of_files_are_united_and_what_is_deleted_goes() -> None:
    parts = [
        files(a=FileInfo(1), b=FileInfo(2)),
        files(b=FileInfo(0, is_deleted=True), c=FileInfo(3)),
        files(a=FileInfo(5)),
    ]
    found = merge_records("files", parts[1:], base=parts[0])
    assert decode_files(as_dict(found)["city=sf"]) == {"a": FileInfo(5), "c": FileInfo(3)}


# A range of statistics, and whether it is tight. None stands for a key that is removed, an empty
# range for a record that says that it is deleted.
Range = tuple[int, int, bool] | tuple[()] | None
ranges = st.builds(
    lambda a, b, tight: (min(a, b), max(a, b), tight), *[st.integers(0, 9)] * 2, st.booleans()
)
told_ranges = st.dictionaries(st.sampled_from("abc"), st.none() | st.just(()) | ranges, max_size=3)


def stats_entries(told: dict[str, Range]) -> MetadataRecords:
    return entries({key: None if one is None else stats_record(one) for key, one in told.items()})


def stats_record(one: tuple[int, int, bool] | tuple[()]) -> bytes:
    low, high, is_tight = one or (None, None, False)
    return encode_statistic(
        RecordType.COLUMN_STATS,
        "file",
        "column",
        value_kind(pa.int64()),
        (low, high),
        (1, 0, 0, 0),
        is_deleted=not one,
        is_tight=is_tight,
    )


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), ranges), st.lists(told_ranges, max_size=5))
def test_statistics_are_widened_unless_something_replaces_them(
    base: dict[str, tuple[int, int, bool]], parts: list[dict[str, Range]]
) -> None:
    expected: dict[str, tuple[int, int, int]] = {}
    told: list[dict[str, Range]] = [{**base}, *parts]
    for part in told:
        for key, one in part.items():
            if not one:
                expected.pop(key, None)
                continue
            low, high, is_tight = one
            before = expected.get(key)
            if before is not None and not is_tight:
                low, high = min(low, before[0]), max(high, before[1])
            count = 1 if before is None or is_tight else before[2] + 1
            expected[key] = (low, high, count)
    logged = [stats_entries(part) for part in parts]
    found = merge_records("column_stats", logged, base=stats_entries({**base}))
    decoded = decode_column_stats(found.values)
    lower, upper = typed_bounds(decoded, pa.int64())
    rows = zip(
        lower.to_pylist(), upper.to_pylist(), decoded["value_count"].to_pylist(), strict=True
    )
    assert dict(zip(as_dict(found), rows, strict=True)) == expected


def test_a_record_that_says_that_it_is_deleted_removes_its_key() -> None:
    one = encode_bloom_filters(pa.array([b"filter"], pa.binary()), "DYNAMIC_V0", "1")[0].as_py()
    gone = encode_bloom_filters(pa.array([b""], pa.binary()), "DYNAMIC_V0", "2", is_deleted=True)[
        0
    ].as_py()
    found = merge_records("bloom_filters", [entries({"a": one, "b": one}), entries({"a": gone})])
    assert as_dict(found) == {"b": one}
    here = encode_secondary(1)[0].as_py()
    away = encode_secondary(1, is_deleted=True)[0].as_py()
    found = merge_records("secondary_index_x", [entries({"a": away})], base=entries({"a": here}))
    assert as_dict(found) == {}
