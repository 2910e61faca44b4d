"""Names, manifests and the pointer of the archived timeline: format rule 3."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.memory_storage import MemoryStorage

from headwater.errors import ConflictError, CorruptTableError, ErrorKind
from headwater.kernel.timeline.history.archived_files import (
    HistoryFile,
    Manifest,
    advance_pointer,
    commit_manifest,
    encode_manifest,
    load_newest_manifest,
    load_pointer,
    manifest_versions,
    parse_data_file_name,
    parse_manifest,
)
from headwater.model.instant import InstantTime

T1, T2, T3 = (InstantTime(f"2024010100000000{digit}") for digit in "123")
A = HistoryFile(T1, T2, 0, 10)
B = HistoryFile(T2, T3, 1, 20)


def test_a_data_file_is_named_by_its_ends_and_level() -> None:
    assert B.name == f"{T2}_{T3}_1.parquet"
    assert parse_data_file_name(B.name, 20) == B


@pytest.mark.parametrize(
    "name",
    [
        f"{T1}_{T2}_10.parquet",
        f"{T1}_{T2}.parquet",
        f"{T1}_{T2}_0.parquet.crc",
        f".{T1}_{T2}_0.parquet",
        "manifest_1",
        "_version_",
    ],
)
def test_other_names_are_no_data_files(name: str) -> None:
    assert parse_data_file_name(name, 1) is None


def test_the_range_of_a_file_includes_its_ends() -> None:
    assert [A.may_hold(time) for time in (T1, T2, T3)] == [True, True, False]


def test_manifest_versions_are_numbers_newest_first() -> None:
    names = [
        "manifest_9",
        "manifest_10",
        "manifest_x",
        "xmanifest_3",
        "manifest_2.crc",
        "_version_",
    ]
    assert manifest_versions(names) == [10, 9]


def test_a_manifest_has_exactly_the_fields_of_stock_hudi() -> None:
    # Its parser refuses entries with other fields.
    assert json.loads(encode_manifest([A])) == {"files": [{"fileName": A.name, "fileLen": 10}]}


files = st.builds(
    HistoryFile,
    st.sampled_from([T1, T2, InstantTime("20190101000000")]),
    st.sampled_from([T2, T3]),
    st.integers(0, 9),
    st.integers(0, 2**40),
)


@settings(deadline=None)
@given(st.lists(files))
def test_a_manifest_survives_the_round_trip(listed: list[HistoryFile]) -> None:
    assert parse_manifest(encode_manifest(listed), "m") == tuple(listed)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"files": 1}',
        b'{"files": [{"fileName": "x"}]}',
        b'{"files": [{"fileName": "x.parquet", "fileLen": 1}]}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_manifest_is_corrupt_and_named(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match="is damaged") as raised:
        parse_manifest(data, "h/manifest_7")
    assert raised.value.context["path"] == "h/manifest_7"
    assert raised.value.kind is ErrorKind.CORRUPT_TIMELINE


class PlainStorage(MemoryStorage):
    """A store without conditional overwrite."""

    @property
    def can_replace(self) -> bool:
        return False


def storage_with(
    pointer: bytes | None = None, *, can_replace: bool = True, **manifests: bytes
) -> MemoryStorage:
    storage = MemoryStorage() if can_replace else PlainStorage()
    if pointer is not None:
        storage.put("h/_version_", pointer)
    for name, data in manifests.items():
        storage.put(f"h/{name}", data)
    return storage


def test_a_table_that_archived_nothing_has_version_0() -> None:
    assert load_newest_manifest(MemoryStorage(), "h") == Manifest(0, (), 1)


@pytest.mark.parametrize("pointer", [b"1", b"2", b"", b"garbage", None])
def test_the_largest_manifest_is_the_newest_whatever_the_pointer_says(
    pointer: bytes | None,
) -> None:
    storage = storage_with(
        pointer, manifest_1=encode_manifest([A]), manifest_2=encode_manifest([A, B])
    )
    assert load_newest_manifest(storage, "h") == Manifest(2, (A, B), 3)


def test_a_torn_manifest_beyond_the_pointer_was_never_committed() -> None:
    storage = storage_with(b"1", manifest_1=encode_manifest([A]), manifest_2=b'{"files": [')
    assert load_newest_manifest(storage, "h") == Manifest(1, (A,), 3)


def test_a_torn_first_manifest_was_never_committed() -> None:
    assert load_newest_manifest(storage_with(manifest_1=b""), "h") == Manifest(0, (), 2)


@pytest.mark.parametrize("pointer", [b"2", None, b"garbage"])
def test_a_damaged_manifest_that_was_committed_is_corrupt(pointer: bytes | None) -> None:
    storage = storage_with(pointer, manifest_1=encode_manifest([A]), manifest_2=b"{")
    with pytest.raises(CorruptTableError) as raised:
        load_newest_manifest(storage, "h")
    assert raised.value.context["path"] == "h/manifest_2"


@pytest.mark.parametrize(
    "storage", [storage_with(b"7"), storage_with(b"7", manifest_1=encode_manifest([A]))]
)
def test_a_missing_manifest_that_the_pointer_names_is_corrupt(storage: MemoryStorage) -> None:
    with pytest.raises(CorruptTableError, match="missing") as raised:
        load_newest_manifest(storage, "h")
    assert raised.value.context["path"] == "h/manifest_7"


class MovingStorage(MemoryStorage):
    """Something happens after the first listing."""

    def __init__(self, change: Callable[[MemoryStorage], None]) -> None:
        super().__init__()
        self._change: Callable[[MemoryStorage], None] | None = change

    def list_names(self, folder: str, after: str = "") -> list[str]:
        names = super().list_names(folder, after)
        if self._change is not None:
            change, self._change = self._change, None
            change(self)
        return names


def test_a_manifest_that_is_cleaned_away_under_our_eyes_is_looked_for_again() -> None:
    def go_on(storage: MemoryStorage) -> None:
        storage.put("h/manifest_5", encode_manifest([B]))
        storage.put("h/_version_", b"5")
        storage.delete("h/manifest_1")

    storage = MovingStorage(go_on)
    storage.put("h/manifest_1", encode_manifest([A]))
    assert load_newest_manifest(storage, "h") == Manifest(5, (B,), 6)


def test_of_two_processes_that_follow_one_manifest_the_second_loses() -> None:
    storage = storage_with(b"1", manifest_1=encode_manifest([A]))
    seen = load_newest_manifest(storage, "h")
    commit_manifest(storage, "h", seen, add=[B])
    with pytest.raises(ConflictError) as raised:
        commit_manifest(storage, "h", seen, add=[])
    assert raised.value.context["path"] == "h/manifest_2"
    assert load_newest_manifest(storage, "h") == Manifest(2, (A, B), 3)
    commit_manifest(storage, "h", load_newest_manifest(storage, "h"), add=[], drop=[A])
    assert load_newest_manifest(storage, "h") == Manifest(3, (B,), 4)


@pytest.mark.parametrize("can_replace", [True, False])
@pytest.mark.parametrize(
    ("pointer", "after"), [(None, b"3"), (b"2", b"3"), (b"garbage", b"3"), (b"10", b"10")]
)
def test_the_pointer_never_goes_back(
    pointer: bytes | None, after: bytes, can_replace: bool
) -> None:
    storage = storage_with(pointer, can_replace=can_replace)
    advance_pointer(storage, "h", 3)
    assert storage.read("h/_version_") == after
    assert load_pointer(storage, "h") == int(after)


class RacingStorage(MemoryStorage):
    """Others move the pointer between any read of it and the write that follows."""

    def __init__(self, *pointers: bytes) -> None:
        super().__init__()
        self._pointers = list(pointers)

    def _race(self, path: str) -> None:
        if self._pointers:
            super().put(path, self._pointers.pop(0))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._race(path)
        super().put_if_absent(path, data)

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        self._race(path)
        return super().replace(path, data, version=version)


@pytest.mark.parametrize(
    ("others", "after"), [([b"2"], b"3"), ([b"1", b"2"], b"3"), ([b"1", b"9"], b"9")]
)
def test_a_pointer_that_moved_is_looked_at_again(others: list[bytes], after: bytes) -> None:
    storage = RacingStorage(*others)
    advance_pointer(storage, "h", 3)
    assert storage.read("h/_version_") == after


def test_a_pointer_that_always_moves_is_a_conflict() -> None:
    storage = RacingStorage(*(str(number).encode() for number in range(10)))
    with pytest.raises(ConflictError) as raised:
        advance_pointer(storage, "h", 50)
    assert raised.value.context["path"] == "h/_version_"
