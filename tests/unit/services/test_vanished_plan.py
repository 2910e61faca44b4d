"""N-37: a rewrite that comes upon a plan just as it is cancelled passes it over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.tables import a_table, columns

from headwater.metadata.view import view_of
from headwater.table import Table

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

SCHEMA = columns("id string not null, value long")
KINDS = ("compaction", "logcompaction", "clustering")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    writes = [pa.table({"id": ["a"], "value": [value]}, schema=SCHEMA) for value in range(7)]
    shape = a_table(tmp_path, SCHEMA, table_type="MERGE_ON_READ", buckets=1)
    return shape.with_upserts(*writes).create()


def schedule(table: Table, kind: str) -> str:
    services = table.services
    if kind == "compaction":
        scheduled = services.schedule_compaction()
    elif kind == "logcompaction":
        scheduled = services.schedule_log_compaction()
    else:
        scheduled = services.schedule_clustering()
    assert scheduled is not None
    return scheduled


def remove(table: Table, time: str) -> None:
    storage = table.storage
    for name in storage.list_names(".hoodie/timeline"):
        if name.startswith(time):
            storage.delete(f".hoodie/timeline/{name}")


def vanish_when_read(monkeypatch: pytest.MonkeyPatch, table: Table, time: str) -> list[str]:
    """Take a plan away at the moment in which somebody has listed it and comes to read it."""
    real: Callable[..., Any] = type(table.storage).read_many
    seen: list[str] = []

    def read_many(self: object, paths: Iterable[str]) -> Any:
        asked = list(paths)
        if not seen and any(time in path and path.endswith(".requested") for path in asked):
            seen.append(time)
            remove(table, time)
        return real(self, asked)

    monkeypatch.setattr(type(table.storage), "read_many", read_many)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_n_37_a_view_passes_over_a_plan_that_is_gone(table: Table, kind: str) -> None:
    time = schedule(table, kind)
    view = view_of(table.context)
    remove(table, time)
    assert view.pending_rewrites == {}
    assert view.pending_compactions == {}
    assert [row["value"] for row in table.read_arrow().to_pylist()] == [6]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", ["compact", "log_compact", "cluster"])
@pytest.mark.some(6)
def test_n_37_a_rewrite_passes_over_a_plan_that_is_gone(
    table: Table, monkeypatch: pytest.MonkeyPatch, kind: str, other: str
) -> None:
    seen = vanish_when_read(monkeypatch, table, schedule(table, kind))
    getattr(table.services, other)()
    assert seen, "the test did not come to its point"
    assert [row["value"] for row in table.read_arrow().to_pylist()] == [6]
