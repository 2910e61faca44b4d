"""A browser for all tests here, and a table with a console for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.chromium import Browser, running_chromium
from tests.support.console_client import ConsoleClient, served
from tests.support.tables import MOR, a_table

from headwater.table import Table

LOCK = {"hoodie.write.lock.provider": "filesystem"}


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_chromium(tmp_path_factory.mktemp("chromium") / "profile") as running:
        yield running


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = a_table(tmp_path, table_type=MOR, partition_by="city", buckets=2, options=LOCK)
    return made.with_commits(3).create()


@pytest.fixture
def client(table: Table) -> Iterator[ConsoleClient]:
    with served(table, allows_actions=True) as made:
        yield made
