"""A local disk whose requests are counted: each once, with what became of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.collecting import collecting, total

from headwater.errors import AlreadyExistsError, ConflictError, NotFoundError, StorageError
from headwater.seams.local import LocalStorage
from headwater.seams.metered_local import MeteredLocalStorage
from headwater.seams.open_storage import open_storage
from headwater.seams.storage import Storage

BY_OTHERS = {"at_once", "delete_many", "read_many", "read_versioned"}
"""What calls other methods of the seam for each object, so that those count."""


def test_it_is_opened_only_if_somebody_listens(tmp_path: Path) -> None:
    assert type(open_storage(str(tmp_path))) is LocalStorage
    with collecting():
        assert type(open_storage(str(tmp_path))) is MeteredLocalStorage


def test_every_method_of_the_seam_is_counted() -> None:
    methods = {name for name, value in vars(Storage).items() if callable(value) and name[0] != "_"}
    assert methods - BY_OTHERS == {name for name in vars(MeteredLocalStorage) if name[0] != "_"}


def test_each_request_counts_once(tmp_path: Path) -> None:
    storage = MeteredLocalStorage(tmp_path / "base", fsync=False)
    with collecting() as kept:
        storage.put("a", b"1")
        storage.put_many({"b": b"2", "c": b"3"})
        storage.put_if_absent("d", b"4")
        storage.create_many({"f": b"6", "g": b"7"})
        with storage.open_output("e") as sink:
            sink.write(b"5")
        with storage.open_input("e") as source:
            assert source.read() == b"5"
        assert storage.read("a") == b"1"
        assert storage.read_many(["a", "no"]) == [b"1", None]
        assert storage.read_range("a", 0, 1) == b"1"
        storage.info("a")
        storage.list_names("")
        storage.list_tree("")
        storage.delete("a")
        storage.delete_many(["b", "c"])
        text = kept.text()

    def requests(request: str, outcome: str = "ok") -> float:
        name = "headwater_storage_requests_total"
        return total(text, name, store="file", request=request, outcome=outcome)

    assert requests("write") == 7
    assert requests("read") == 4
    assert requests("read", "absent") == 1
    assert requests("look up") == 1
    assert requests("list") == 2
    assert requests("delete") == 3
    assert total(text, "headwater_storage_requests_total") == 18


def test_what_became_of_it_is_counted(tmp_path: Path) -> None:
    storage = MeteredLocalStorage(tmp_path / "base", fsync=False)
    storage.put("a", b"1")
    with collecting() as kept:
        with pytest.raises(NotFoundError):
            storage.info("no")
        with pytest.raises(AlreadyExistsError):
            storage.put_if_absent("a", b"2")
        with pytest.raises(ConflictError):
            storage.replace("a", b"2", version="another")
        with pytest.raises(StorageError):
            storage.put("a/b", b"2")  # A file stands where a folder is needed.
        text = kept.text()
    name = "headwater_storage_requests_total"
    assert total(text, name, request="look up", outcome="absent") == 1
    assert total(text, name, request="write", outcome="exists") == 1
    assert total(text, name, request="replace", outcome="changed") == 1
    assert total(text, name, request="write", outcome="storage") == 1
