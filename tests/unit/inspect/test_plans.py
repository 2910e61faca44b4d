"""What plans say they are to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.tables import COW, MOR, a_table, trips

import headwater as hw
from headwater.errors import NotFoundError


def subjects(table: hw.Table, instant: str) -> list[tuple[str | None, int]]:
    """Return the partition and the number of files of each file group."""
    found = table.inspect.plan(instant).to_pylist()
    assert all(one["subject"] for one in found)
    return [(one["partition"], len(one["files"])) for one in found]


def test_a_clustering_names_its_file_groups(tmp_path: Path) -> None:
    table = a_table(tmp_path, table_type=COW, partition_by="city", index="simple").create()
    table.insert(trips(("a", "x", 1), ("b", "y", 2)))
    plan = table.services.schedule_clustering(sort_by=["value"])
    assert plan is not None
    assert sorted(subjects(table, plan)) == [("city=x", 1), ("city=y", 1)]


def test_a_compaction_names_the_logs_to_fold(tmp_path: Path) -> None:
    table = a_table(tmp_path, table_type=MOR, partition_by="city").create()
    table.upsert(trips(("a", "x", 1)))
    table.upsert(trips(("a", "x", 2)))
    plan = table.services.schedule_compaction()
    assert plan is not None
    assert subjects(table, plan) == [("city=x", 2)]


def test_a_write_is_no_plan(tmp_path: Path) -> None:
    table = a_table(tmp_path).create()
    written = table.upsert(trips(("a", "x", 1)))
    with pytest.raises(NotFoundError, match="not a plan"):
        table.inspect.plan(written.instant)
