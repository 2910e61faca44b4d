"""Servers of object stores that these tests start themselves; without a server they are skipped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.support.store_servers import azurite, versitygw

from headwater.seams.open_storage import open_storage
from headwater.seams.storage import Storage

BUCKET = "tables"


class Store(NamedTuple):
    """A store, and how one reaches it."""

    base: str
    options: dict[str, str]

    def uri(self, name: str) -> str:
        return f"{self.base}/{name}"


@pytest.fixture(scope="session")
def s3_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with versitygw(tmp_path_factory.mktemp("versitygw"), BUCKET) as server:
        yield Store(f"s3://{BUCKET}", server.options)


@pytest.fixture(scope="session")
def azure_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with azurite(tmp_path_factory.mktemp("azurite"), BUCKET) as server:
        yield Store(f"az://{BUCKET}", server.options)


@pytest.fixture(scope="session", params=["s3", "azure"])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.fixture
def table_uri(store: Store, request: pytest.FixtureRequest) -> str:
    """A place of its own for each test."""
    name = re.sub(r"\W+", "-", request.node.name)
    module = request.path.stem
    return store.uri(f"{module}-{request.cls.__name__ if request.cls else ''}-{name}")


@pytest.fixture
def storage(store: Store, table_uri: str, request: pytest.FixtureRequest) -> Storage:
    if store.base.startswith("az:") and "\\" in request.node.name:
        pytest.skip("Azure takes a backslash for a slash")
    return open_storage(table_uri, store.options)


@pytest.fixture
def real_storage(storage: Storage) -> Storage:
    """What the behaviour suite asks for where it starts threads."""
    return storage
