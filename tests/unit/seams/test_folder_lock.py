from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import Retry, StorageError, UnsupportedError
from headwater.seams import folder_lock
from headwater.seams.folder_lock import hold_folder
from headwater.seams.local import LocalStorage


@pytest.fixture
def descriptors(tmp_path: Path) -> Iterator[list[int]]:
    """Two descriptors of one folder, as two callers have them."""
    opened = [os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY) for _ in range(2)]
    yield opened
    for descriptor in opened:
        os.close(descriptor)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "WAIT_S_MAX", 0.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
def test_who_holds_a_folder_alone_keeps_all_others_out(
    descriptors: list[int], first: bool, second: bool
) -> None:
    with (
        hold_folder(descriptors[0], "the folder", alone=first),
        pytest.raises(StorageError, match="the folder was locked") as caught,
        hold_folder(descriptors[1], "the folder", alone=second),
    ):
        pytest.fail("both held the folder")
    assert caught.value.retry is Retry.SAME_CALL
    with hold_folder(descriptors[1], "the folder", alone=second):
        pass


@pytest.mark.usefixtures("impatient")
def test_two_may_share_a_folder(descriptors: list[int]) -> None:
    with (
        hold_folder(descriptors[0], "the folder", alone=False),
        hold_folder(descriptors[1], "the folder", alone=False),
    ):
        pass


@pytest.mark.usefixtures("impatient")
def test_a_write_that_waited_in_vain_did_not_land(tmp_path: Path, descriptors: list[int]) -> None:
    storage = LocalStorage(tmp_path, fsync=False)
    storage.put("kept", b"1")
    version = storage.read_versioned("kept").version
    with hold_folder(descriptors[0], str(tmp_path), alone=True):
        for write in (
            lambda: storage.put("kept", b"2"),
            lambda: storage.put_if_absent("new", b"2"),
            lambda: storage.replace("kept", b"2", version=version),
            lambda: storage.delete("kept"),
        ):
            with pytest.raises(StorageError, match=str(tmp_path)):
                write()
    assert storage.read("kept") == b"1"
    assert os.listdir(tmp_path) == ["kept"]


def test_a_file_system_without_such_locks_is_named(tmp_path: Path) -> None:
    # A descriptor that only names the folder cannot be locked, as no folder can over NFS.
    descriptor = os.open(tmp_path, os.O_PATH)
    try:
        with (
            pytest.raises(UnsupportedError, match="cannot lock a folder"),
            hold_folder(descriptor, str(tmp_path), alone=True),
        ):
            pytest.fail("the lock was taken")
    finally:
        os.close(descriptor)
