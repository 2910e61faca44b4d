"""The storages that the behaviour suite runs on. To add one, add it to `STORAGES`."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage
from tests.support.store_servers import S3Server, moto_server

from headwater.seams.local import LocalStorage
from headwater.seams.object_store import ObjectStorage
from headwater.seams.open_storage import open_storage
from headwater.seams.prefetched_storage import PrefetchedStorage
from headwater.seams.storage import Storage
from headwater.seams.sub_storage import SubStorage
from headwater.testing.world import standalone_storage

BUCKET = "contract"
NAMES_PER_PAGE = 7  # Few, so that a handful of objects needs more than one page.


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with moto_server(NAMES_PER_PAGE) as s3:
        s3.request("PUT", f"/{BUCKET}")
        yield s3


def _local(request: pytest.FixtureRequest) -> Storage:
    return LocalStorage(_folder(request), fsync=False)


def _local_fsync(request: pytest.FixtureRequest) -> Storage:
    return LocalStorage(_folder(request))


def _local_without_nameless_files(request: pytest.FixtureRequest) -> Storage:
    """What a system other than Linux has."""
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    patch.delattr(os, "O_TMPFILE", raising=False)
    return LocalStorage(_folder(request), fsync=False)


def _local_without_links(request: pytest.FixtureRequest) -> Storage:
    """What a file system such as FAT has: it refuses every hard link with EPERM."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    patch.delattr(os, "O_TMPFILE", raising=False)
    patch.setattr(os, "link", refuse)
    return LocalStorage(_folder(request), fsync=False)


def _memory(request: pytest.FixtureRequest) -> Storage:
    return MemoryStorage()


def _counting(request: pytest.FixtureRequest) -> Storage:
    return CountingStorage(MemoryStorage(), keep_trace=True)


def _obstore_memory(request: pytest.FixtureRequest) -> Storage:
    return ObjectStorage(MemoryStore(), "memory://obstore")


def _simulated(request: pytest.FixtureRequest) -> Storage:
    return standalone_storage(page_size=NAMES_PER_PAGE)


def _s3(request: pytest.FixtureRequest) -> Storage:
    server: S3Server = request.getfixturevalue("s3_server")
    # The name of the test is the table's prefix, so that no test sees another's objects.
    return open_storage(f"s3://{BUCKET}/{_folder(request).name}/table", server.options)


def _sub_of_memory(request: pytest.FixtureRequest) -> Storage:
    whole = MemoryStorage()
    # Neighbours whose names begin like the folder's must not show.
    whole.put(".hoodie/metadata.backup/a", b"beside")
    whole.put(".hoodie/a", b"above")
    return SubStorage(whole, ".hoodie/metadata")


def _sub_of_local(request: pytest.FixtureRequest) -> Storage:
    return SubStorage(LocalStorage(_folder(request), fsync=False), ".hoodie/metadata")


def _folder(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue("tmp_path")
    return folder


def _fetched(request: pytest.FixtureRequest) -> Storage:
    return PrefetchedStorage(MemoryStorage(), ["an object that nobody here reads"])


STORAGES: dict[str, Callable[[pytest.FixtureRequest], Storage]] = {
    "local": _local,
    "local-fsync": _local_fsync,
    "local-without-nameless-files": _local_without_nameless_files,
    "local-without-links": _local_without_links,
    "memory": _memory,
    "counting": _counting,
    "fetched": _fetched,
    "obstore-memory": _obstore_memory,
    "s3": _s3,
    "simulated": _simulated,
    "sub-of-memory": _sub_of_memory,
    "sub-of-local": _sub_of_local,
}


# The simulator orders the calls of its actors itself, and takes any text for a path.
SIMULATORS = frozenset({"simulated"})


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest) -> Storage:
    """One empty storage of each kind in turn."""
    return STORAGES[request.param](request)


@pytest.fixture(params=[name for name in STORAGES if name not in SIMULATORS])
def real_storage(request: pytest.FixtureRequest) -> Storage:
    """One empty storage of each kind that threads may share and that checks what it is given."""
    return STORAGES[request.param](request)
