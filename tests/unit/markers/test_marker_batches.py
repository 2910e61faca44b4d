"""Files of markers: what is in them, and how they are read when they are damaged (INV-69)."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory_storage import MemoryStorage

from headwater.errors import (
    AlreadyExistsError,
    CorruptTableError,
    ErrorKind,
    InvalidInputError,
    StorageError,
)
from headwater.kernel.txn.markers import (
    Marker,
    MarkerKind,
    create_marker,
    delete_unlisted,
)
from headwater.markers.batches import (
    BatchFile,
    batch_path,
    encode_markers,
    first_free_number,
    load_every_marker,
    load_markers_and_files,
    load_readable_markers,
    marker_type_path,
    parse_markers,
    parse_readable_markers,
    put_marker_type,
)
from headwater.markers.data_path import DATA_PATH_BYTES_MAX, check_data_path, check_marker_of
from headwater.model.files import FileGroupId
from headwater.model.instant import InstantTime

T = InstantTime("20260101000000000")
LATER = InstantTime("20260101000000001")


def marker(name: str, kind: MarkerKind = MarkerKind.CREATE) -> Marker:
    return Marker(f"city=sf/{name}_0-1-0_{T}.parquet", kind)


A, B, C = marker("a"), marker("b", MarkerKind.MERGE), marker("c")
LOG = Marker(f"city=sf/.d_{T}.log.1_0-1-0", MarkerKind.APPEND)

paths = st.lists(
    st.text(
        st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1
    ).filter(lambda part: part not in (".", "..", ".hoodie")),
    min_size=1,
    max_size=3,
).map("/".join)


# Content ---------------------------------------------------------------------------------------


def test_a_file_has_the_names_of_hudis_markers_one_in_a_line() -> None:
    assert encode_markers([A, LOG]) == (
        b"city=sf/a_0-1-0_20260101000000000.parquet.marker.CREATE\n"
        b"city=sf/.d_20260101000000000.log.1_0-1-0.marker.APPEND\n"
    )


@given(st.lists(st.builds(Marker, paths, st.sampled_from(MarkerKind)), min_size=1))
def test_markers_survive_their_file(markers: list[Marker]) -> None:
    data = encode_markers(markers)
    assert parse_markers(data, "p") == parse_readable_markers(data) == markers


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "whole line"),
        (encode_markers([A, B])[:-1], "whole line"),
        (encode_markers([A]) + b"city=sf/b_0", "whole line"),
        (encode_markers([A]) + b"\n", "line 2"),
        (encode_markers([A]) + b"\xff\xfe.marker.CREATE\n", "not UTF-8"),
        (encode_markers([A]) + b"x.marker.RENAME\n", "not the name of a marker"),
        (encode_markers([A]) + b".marker.CREATE\n", "not the name of a marker"),
        (encode_markers([A]) + b"../../etc/passwd.marker.CREATE\n", "does not name an object"),
        (encode_markers([A]) + b"/etc/passwd.marker.CREATE\n", "does not name an object"),
        (encode_markers([A]) + b".hoodie/hoodie.properties.marker.CREATE\n", "own records"),
        (encode_markers([A]) + b"a\x00b.marker.CREATE\n", "control character"),
    ],
)
def test_a_damaged_file_is_an_error_to_whoever_deletes_and_not_to_detection(
    data: bytes, reason: str
) -> None:
    storage = MemoryStorage()
    put_marker_type(storage, T)
    storage.put(batch_path(T, 0), encode_markers([C]))
    storage.put(batch_path(T, 7), data)
    with pytest.raises(CorruptTableError, match=reason) as caught:
        load_every_marker(storage, T)
    assert caught.value.kind is ErrorKind.CORRUPT_MARKERS
    assert batch_path(T, 7) in str(caught.value)
    whole_lines = {A, C} if data else {C}
    # The name of a marker that lost only its newline is still whole.
    assert whole_lines <= set(load_readable_markers(storage, T)) <= {A, B, C}


class UnreadableFile(MemoryStorage):
    def read(self, path: str) -> bytes:
        if path == batch_path(T, 1):
            raise StorageError(f"{path}: connection reset")
        return super().read(path)


class VanishingFile(MemoryStorage):
    """Somebody deletes the markers while they are read."""

    def read(self, path: str) -> bytes:
        if path == batch_path(T, 1):
            self.delete(path)
        return super().read(path)


@pytest.mark.parametrize(
    ("storage", "error"),
    [(UnreadableFile(), StorageError), (VanishingFile(), CorruptTableError)],
    ids=["unreadable", "vanishing"],
)
def test_a_file_that_cannot_be_read(storage: MemoryStorage, error: type[Exception]) -> None:
    storage.put(batch_path(T, 0), encode_markers([A]))
    storage.put(batch_path(T, 1), encode_markers([B]))
    assert load_readable_markers(storage, T) == [A]
    storage.put(batch_path(T, 1), encode_markers([B]))
    with pytest.raises(error):
        load_every_marker(storage, T)


# Both kinds ------------------------------------------------------------------------------------


def test_markers_of_both_kinds_are_one_list_without_doubles() -> None:
    """An instant may change its kind when another process goes on with it."""
    storage = MemoryStorage()
    put_marker_type(storage, T)
    storage.put(batch_path(T, 0), encode_markers([LOG, A]))
    storage.put(batch_path(T, 11), encode_markers([A, B]))
    create_marker(storage, T, B)
    create_marker(storage, T, C)
    create_marker(storage, LATER, Marker("other", MarkerKind.CREATE))
    assert load_every_marker(storage, T) == load_readable_markers(storage, T)
    assert load_every_marker(storage, T) == sorted([A, B, C, LOG])


def test_direct_markers_alone_and_no_markers_at_all() -> None:
    storage = MemoryStorage()
    assert load_every_marker(storage, T) == load_readable_markers(storage, T) == []
    create_marker(storage, T, A)
    assert load_every_marker(storage, T) == load_readable_markers(storage, T) == [A]


@pytest.mark.parametrize("text", [b"TIMELINE_SERVER_BASED", b"DIRECT", b""])
def test_known_kinds_are_read(text: bytes) -> None:
    storage = MemoryStorage()
    storage.put(marker_type_path(T), text)
    storage.put(batch_path(T, 0), encode_markers([A]))
    assert load_every_marker(storage, T) == [A]


def test_a_kind_from_the_future_is_an_error_to_whoever_deletes() -> None:
    storage = MemoryStorage()
    storage.put(marker_type_path(T), b"TELEPATHIC")
    create_marker(storage, T, A)
    with pytest.raises(CorruptTableError, match="TELEPATHIC"):
        load_every_marker(storage, T)
    assert load_readable_markers(storage, T) == [A]


def test_files_that_no_stat_lists_are_deleted_whatever_announced_them() -> None:
    storage = MemoryStorage()
    put_marker_type(storage, T)
    storage.put(batch_path(T, 0), encode_markers([A, B]))
    create_marker(storage, T, C)
    for path in (A.data_path, B.data_path, C.data_path, "city=sf/unrelated.parquet"):
        storage.put(path, b"rows")
    markers, files = load_markers_and_files(storage, T)
    assert delete_unlisted(storage, markers, {A.data_path}) == 2
    assert sorted(storage.list_names("city=sf")) == [A.data_path[8:], "unrelated.parquet"]
    storage.delete_many(files)
    assert storage.list_tree(".hoodie") == []


# Files that are written again and again --------------------------------------------------------


def test_numbers_go_on_after_those_in_use() -> None:
    storage = MemoryStorage()
    assert first_free_number(storage, T) == 0
    put_marker_type(storage, T)
    for number in (0, 9, 10):
        storage.put(batch_path(T, number), b"")
    storage.put(batch_path(T, 11) + "x", b"")
    assert first_free_number(storage, T) == 11
    assert first_free_number(storage, LATER) == 0


def test_a_file_holds_all_that_was_ever_added_to_it() -> None:
    storage = MemoryStorage()
    file = BatchFile(storage, T, 3)
    file.add([A])
    assert storage.read(file.path) == encode_markers([A])
    file.add([B, C])
    assert storage.read(file.path) == encode_markers([A, B, C])


def test_a_file_of_another_process_is_never_overwritten() -> None:
    storage = MemoryStorage()
    BatchFile(storage, T, 0).add([A])
    with pytest.raises(AlreadyExistsError):
        BatchFile(storage, T, 0).add([B])
    assert load_every_marker(storage, T) == [A]


# Data paths ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/a",
        "a//b",
        "a/../b",
        "..",
        "./a",
        "a/",
        "a\nb",
        "a\rb",
        "a\x7fb",
        ".hoodie/a",
        ".hoodie",
        "\ud800",
        "é" * (DATA_PATH_BYTES_MAX // 2) + "x",
    ],
)
def test_paths_that_no_data_file_has(path: str) -> None:
    with pytest.raises(InvalidInputError):
        check_data_path(path)


def test_paths_that_a_data_file_may_have() -> None:
    for path in (A.data_path, LOG.data_path, "x" * DATA_PATH_BYTES_MAX, "é/ü", ".hoodie2/a"):
        check_data_path(path)


def test_a_marker_names_a_file_of_its_own_instant() -> None:
    """A marker of a file that another instant has committed would have it deleted."""
    check_marker_of(T, A)
    check_marker_of(T, LOG)
    for wrong in (A, LOG):
        with pytest.raises(InvalidInputError, match=str(LATER)):
            check_marker_of(LATER, wrong)
    with pytest.raises(InvalidInputError, match="data file of instant"):
        check_marker_of(T, Marker(f"city=sf/a_0-1-0_{T}.txt", MarkerKind.CREATE))


@pytest.mark.parametrize(
    ("path", "group"),
    [
        (A.data_path, ("city=sf", "a")),
        (LOG.data_path, ("city=sf", "d")),
        (f"a/b/e-0_0-1-0_{T}.parquet", ("a/b", "e-0")),
        (f"e-0_0-1-0_{T}.parquet", ("", "e-0")),
    ],
)
def test_a_marker_tells_its_file_group(path: str, group: tuple[str, str]) -> None:
    assert Marker(path, MarkerKind.CREATE).group == cast(FileGroupId, group)
