"""Records of builds, beside those of a naive twin: a dictionary by key, one HFile for a group."""

from __future__ import annotations

import tempfile
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory_storage import MemoryStorage

from headwater.arrow.key_order import key_order
from headwater.format.hfile.reader import HFile
from headwater.format.hfile.writer import HFileAssembly
from headwater.metadata import sorted_records
from headwater.metadata.bootstrap import initialise_partition, write_base_files
from headwater.metadata.partition_kinds import groups_of_keys
from headwater.metadata.record_locations import (
    LocatedKeys,
    built_record_index_records,
    record_index_records,
)
from headwater.metadata.records import MetadataRecords
from headwater.metadata.sorted_records import RecordSorter
from headwater.model.files import FileGroupId
from headwater.model.instant import InstantTime

KEYS = st.text(st.sampled_from("ab\0é7"), max_size=12)
PIECES = st.lists(st.lists(st.tuples(KEYS, st.binary(max_size=40)), max_size=30), max_size=6)


@pytest.fixture(autouse=True)
def _several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "cpu_count", lambda: 3)


def records(piece: list[tuple[str, bytes]], *, is_numbered: bool) -> MetadataRecords:
    values = pa.array([value for _, value in piece], pa.binary())
    return MetadataRecords(
        pa.array([key for key, _ in piece], pa.string()),
        values.dictionary_encode() if is_numbered else values,
        pa.array([], pa.string()),
    )


def read_groups(sorter: RecordSorter) -> dict[int, dict[str, bytes]]:
    found = {}
    for group, parts in groupby(sorter.encoded(), lambda one: one.group):
        file = HFileAssembly(schema="x", is_base_file=True)
        blocks = [block for one in parts for block in file.add(one.part)]
        keys, values = HFile.of_bytes(b"".join([*blocks, file.end()]), path="p").read_all()
        assert len(keys) == file.entry_count
        found[group] = dict(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    return found


@given(PIECES, st.booleans(), st.sampled_from([1, 3]), st.sampled_from([1, 200, 1 << 30]))
def test_every_key_is_in_its_group_with_the_value_that_came_last(
    pieces: list[list[tuple[str, bytes]]], is_numbered: bool, group_count: int, bytes_max: int
) -> None:
    expected: dict[int, dict[str, bytes]] = {}
    for piece in pieces:
        for key, value in piece:
            (group,) = groups_of_keys("record_index", pa.array([key]), group_count).tolist()
            expected.setdefault(group, {})[key] = value
    with (
        pytest.MonkeyPatch.context() as patched,
        RecordSorter(
            "record_index", group_count, held_bytes_max=bytes_max, sorted_bytes_max=bytes_max
        ) as sorter,
    ):
        patched.setattr(sorted_records, "PART_BYTES", 64)
        patched.setattr(sorted_records, "SAMPLED_BYTES", 16)
        sorter.add_all(records(piece, is_numbered=is_numbered) for piece in pieces)
        assert read_groups(sorter) == expected


def test_a_group_that_is_too_much_is_shared_out_by_ranges_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sorted_rows: list[int] = []

    def watched(keys: pa.Array) -> np.ndarray:
        sorted_rows.append(len(keys))
        return key_order(keys)

    numbers = np.random.default_rng(8).permutation(200_000)
    piece_rows = 20_000
    with RecordSorter(
        "record_index", 1, held_bytes_max=1 << 20, sorted_bytes_max=1 << 20
    ) as sorter:
        sorter.add_all(
            records([(f"key-{n}", b"%d" % (n % 3)) for n in some.tolist()], is_numbered=True)
            for some in np.split(numbers, len(numbers) // piece_rows)
        )
        monkeypatch.setattr(sorted_records, "key_order", watched)
        (found,) = read_groups(sorter).values()
    assert found == {f"key-{n}": b"%d" % (n % 3) for n in range(len(numbers))}
    assert max(sorted_rows) < len(numbers) / 2
    assert list(tmp_path.iterdir()) == []


def test_a_build_holds_what_the_entries_of_a_commit_would_say() -> None:
    """Built entries are those that commits write, record for record."""
    rng = np.random.default_rng(4)
    placed = [
        LocatedKeys(
            FileGroupId(f"part={n % 2}", f"0000000{n}-1111-4222-8333-444444444444-0"),
            pa.array([f"k{key}" for key in rng.integers(0, 300, 200)]).unique(),
            InstantTime(f"2025010100000000{n}"),
        )
        for n in range(5)
    ]
    times = pa.array(["20250102000000000", "20250103000000000"])
    some = pa.array(rng.integers(0, 2, len(placed[2].index_keys)))
    placed[2] = LocatedKeys(placed[2].group, placed[2].index_keys, times.take(some))
    said = record_index_records(placed, pa.array([], pa.string()), is_utc=True)
    with RecordSorter("record_index", 1) as sorter:
        sorter.add_all(built_record_index_records([one], is_utc=True) for one in placed)
        (found,) = read_groups(sorter).values()
    assert found == dict(zip(said.keys.to_pylist(), said.values.to_pylist(), strict=True))


def test_base_files_that_are_large_are_written_as_they_come_and_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headwater.metadata.bootstrap._GATHERED_GROUP_BYTES_MAX", 100)
    storage = MemoryStorage()
    time = InstantTime("0" * 16 + "2")
    initialise_partition(storage, "record_index", 2, time)
    for value in (b"outdated", b"new"):
        rows = records([(f"k{n}", value) for n in range(50)], is_numbered=False)
        stats = write_base_files(storage, "record_index", time, 1, [rows], 2)
    found: dict[str, bytes] = {}
    for stat in stats:
        data = storage.read(f".hoodie/metadata/{stat.path}")
        assert len(data) == stat.file_size_in_bytes
        keys, values = HFile.of_bytes(data, path="p").read_all()
        assert len(keys) == stat.num_writes
        found.update(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    assert found == {f"k{n}": b"new" for n in range(50)}
