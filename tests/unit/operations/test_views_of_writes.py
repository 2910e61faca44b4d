"""The view of a write goes on from what the one before it knew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.metadata.indexed_files import IndexedFiles
from headwater.metadata.view import view_of
from headwater.model.plans import CompactionPlan
from headwater.services.logged_slices import load_logged_slices

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64()), ("ts", pa.int64())])
LATE = {"hoodie.metadata.compact.max.delta.commits": "1000"}


def rows(number: int) -> pa.Table:
    columns = {"id": [f"key {number % 7}", "every"], "value": [number] * 2, "ts": [number] * 2}
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> hw.Table:
    return hw.create_table(
        str(tmp_path / "table"),
        schema=SCHEMA,
        record_key="id",
        ordering="ts",
        table_type="MERGE_ON_READ",
        buckets=2,
        options=LATE,
    )


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """How often the files of partitions were put together from the start."""
    found: list[object] = []
    gather = IndexedFiles.gather

    def counted(*arguments: object) -> None:
        found.append(arguments)
        gather(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(IndexedFiles, "gather", counted)
    return found


def upsert(table: hw.Table, *numbers: int) -> None:
    for number in numbers:
        table.upsert(rows(number))


def latest(table: hw.Table) -> dict[str, int]:
    found = table.read_arrow(["id", "value"])
    return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


def test_one_write_after_another_puts_no_files_together(
    table: hw.Table, gathered: list[object]
) -> None:
    upsert(table, 1, 2)
    gathered.clear()
    upsert(table, *range(3, 20))
    assert gathered == []


def test_a_writer_among_others_neither(table: hw.Table, gathered: list[object]) -> None:
    upsert(table, 1, 2)
    gathered.clear()
    upsert(hw.open_table(table.uri), *range(3, 6))
    gathered.clear()
    upsert(table, 6)
    assert gathered == []


def take_back(table: hw.Table) -> None:
    newest = view_of(table.context).timeline.completed[-1]
    table.services.rollback(newest.requested_time)


CHANGES: dict[str, Callable[[hw.Table], object]] = {
    "compaction": lambda table: table.services.compact(),
    "log compaction": lambda table: table.services.log_compact(),
    "overwrite": lambda table: table.overwrite(rows(9)),
    "rollback": take_back,
    "partitions deleted": lambda table: table.delete_partitions([""]),
}


@pytest.mark.parametrize("by_another", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_no_log_on_top_is_seen(table: hw.Table, change: str, by_another: bool) -> None:
    upsert(table, *range(1, 6))
    CHANGES[change](hw.open_table(table.uri) if by_another else table)
    for number in range(11, 16):
        upsert(table, number)
        kept = view_of(table.context).slices([""])
        anew = view_of(hw.open_table(table.uri).context).slices([""])
        assert kept == anew
        assert [one.base_completion for one in kept] == [one.base_completion for one in anew]
        assert latest(table) == latest(hw.open_table(table.uri))


def test_a_view_that_put_no_files_together_knows_when_they_completed(table: hw.Table) -> None:
    upsert(table, *range(5))
    view = view_of(table.context)
    done = {one.requested_time: one.completion_time for one in view.timeline.completed}
    files = [file for one in view.slices([""]) for file in one.files()]
    assert files
    assert [view.completion_time_of(file) for file in files] == [
        done[f.instant_time] for f in files
    ]


def test_a_plan_of_a_compaction_says_when_the_logs_completed_that_it_leaves(
    table: hw.Table,
) -> None:
    upsert(table, *range(5))
    table.services.compact()
    upsert(table, *range(5, 9))
    view = view_of(table.context)
    logged = load_logged_slices(view)
    assert logged.logs_after is not None
    anew = view_of(hw.open_table(table.uri).context)
    of_none = CompactionPlan(operations=())
    said = logged.extra_metadata(view, of_none)
    assert said == load_logged_slices(anew).extra_metadata(anew, of_none)
    assert said
