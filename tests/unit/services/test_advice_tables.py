"""Tables with one thing wrong each: advice names that thing first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.tables import COW, FAST, MOR, NUMBERS, a_table, numbers, trips
from tests.unit.services.conftest import Bench

import headwater as hw
from headwater.engine.engine import Engine
from headwater.errors import InvalidInputError, StorageError
from headwater.seams.storage import Storage
from headwater.services import Services
from headwater.services.advice.advice import Need
from headwater.services.advice.load import load_statistics, rewrite_settings
from headwater.services.auto import run

FIVE_KEPT = {"hoodie.keep.min.commits": "4", "hoodie.keep.max.commits": "5"} | {
    "hoodie.clean.commits.retained": "3"
}
LOCK = {"hoodie.write.lock.provider": "filesystem"}


def reopened(table: hw.Table, **options: str) -> hw.Table:
    """Return the table as another process opens it, with other options."""
    named = {key.replace("_", "."): value for key, value in options.items()}
    return hw.open_table(table.uri, {**FAST, **named})


def in_files(folder: Path, files: list[list[int]], **options: str) -> hw.Table:
    """Return a table with a file for each list of values, all in one partition."""
    table = a_table(folder, table_type=COW, index="simple", options=options).create()
    number = 0
    for values in files:
        keys = range(number, number := number + len(values))
        batch = trips(*((f"k{key}", "sf", one) for key, one in zip(keys, values, strict=True)))
        # Or inserts would go into the small files that are there.
        table.bulk_insert(batch)
    return table


def with_logs(folder: Path) -> hw.Table:
    shape = a_table(folder, NUMBERS, ordering="ts", table_type=MOR, buckets=1)
    return shape.with_upserts(*(numbers("abc", value) for value in range(4))).create()


def with_many_logs(folder: Path) -> hw.Table:
    """Base files so large that it is cheaper to put the logs together than to merge them."""
    table = a_table(folder, NUMBERS, ordering="ts", table_type=MOR, buckets=1).create()
    noise = np.random.default_rng(5).integers(0, 1 << 62, 250_000)
    keys = pa.array(range(len(noise)), pa.int64()).cast(pa.string())
    table.bulk_insert(pa.table({"id": keys, "value": noise, "ts": noise}))
    for value in range(5):
        table.upsert(numbers("abc", value))
    return table


def with_small_files(folder: Path) -> hw.Table:
    return in_files(folder, [[number] for number in range(4)])


def unsorted(folder: Path) -> hw.Table:
    """Files that are large enough, and each of which has values from all over."""
    values = [list(range(number, 400, 4)) for number in range(4)]
    table = in_files(folder, values)
    size = max(table.inspect.files()["size_bytes"].to_pylist())
    return reopened(
        table,
        hoodie_clustering_plan_strategy_sort_columns="value",
        hoodie_clustering_plan_strategy_target_file_max_bytes=str(size),
    )


def with_old_files(folder: Path) -> hw.Table:
    options = {"hoodie.clean.commits.retained": "1"}
    shape = a_table(folder, table_type=COW, buckets=1, options=options)
    return shape.with_upserts(*(trips(("a", "sf", value)) for value in range(10))).create()


def with_long_timeline(folder: Path) -> hw.Table:
    shape = a_table(folder, table_type=COW, partition_by="city", buckets=1, options=FIVE_KEPT)
    # Each in a partition of its own, so that no file is ever obsolete.
    writes = [trips((f"k{number}", f"c{number}", number)) for number in range(10)]
    table = shape.with_upserts(*writes).create()
    table.services.compact_metadata_table()
    return table


def with_failed_write(folder: Path) -> hw.Table:
    first = trips(("a", "sf", 1), ("b", "ny", 2))
    shape = a_table(folder, table_type=COW, partition_by="city", buckets=1)
    bench = Bench(shape.with_upserts(first).create())
    bench.fail_write()
    return bench.table


def with_metadata_logs(folder: Path) -> hw.Table:
    """Written by processes that were told to compact the metadata table much later."""
    later = {"hoodie.metadata.compact.max.delta.commits": "100"}
    shape = a_table(folder, table_type=COW, partition_by="city", buckets=1, options=later)
    writes = [trips((f"k{number}", f"c{number}", number)) for number in range(9)]
    return reopened(shape.with_upserts(*writes).create())


def with_planned_index(folder: Path) -> hw.Table:
    table = in_files(folder, [[1, 2, 3]], **LOCK)
    table.indexes.schedule("column_stats")
    return table


def without_index(folder: Path) -> hw.Table:
    table = in_files(folder, [[1, 2, 3]], **{"hoodie.metadata.enable": "false"})
    return reopened(table, hoodie_metadata_enable="true")


def with_waiting_plan(folder: Path) -> hw.Table:
    table = with_logs(folder)
    assert table.services.schedule_compaction() is not None
    return table


def with_cancelled_plan(folder: Path) -> hw.Table:
    table = with_small_files(folder)
    plan = table.services.schedule_clustering(cancellable=True)
    assert plan is not None
    table.services.request_cancel(plan, reason="to be aborted")
    return table


def cancelled_again_and_again(folder: Path) -> hw.Table:
    table = with_small_files(folder)
    for _ in range(3):
        plan = table.services.schedule_clustering(cancellable=True)
        assert plan is not None
        table.services.request_cancel(plan, reason="a write came in between")
        table.services.execute_abort(plan)
    return table


def with_failed_plan(folder: Path) -> hw.Table:
    """A removable one, whose execution failed."""
    table = with_small_files(folder)
    plan = table.services.schedule_clustering(removable=True)

    def no_engine(size_bytes: int) -> Engine:
        raise StorageError("The store is away")

    with pytest.raises(StorageError):
        Services(replace(table.context, engine_for=no_engine)).cluster(plan)
    return table


class WithoutDeletes:
    """Storage that deletes nothing."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    def delete_many(self, paths: Iterable[str]) -> None:
        raise StorageError("The store is away")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def with_unfinished_clean(folder: Path) -> hw.Table:
    table = with_old_files(folder)
    failing = replace(table.context, storage=WithoutDeletes(table.storage))
    with pytest.raises(StorageError):
        Services(failing).clean()
    return table


def with_dropped_index(folder: Path) -> hw.Table:
    """A restore took back what the metadata table had in base files, and could not rebuild it."""
    folded = {"hoodie.metadata.compact.max.delta.commits": "2"}
    shape = a_table(folder, table_type=COW, partition_by="city", buckets=1, options=folded)
    table = shape.with_upserts(trips(("a", "sf", 1))).create()
    saved = table.services.savepoint()
    for number in range(4):
        table.upsert(trips((f"b{number}", "ny", 1)))

    def fail(*args: object, **names: object) -> None:
        raise StorageError("The store is away")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headwater.services.rebuild.Indexes.create", fail)
        table.services.restore(saved.instant)
    table.services.delete_savepoint(saved.instant)
    return table


TABLES: dict[Callable[[Path], hw.Table], tuple[Need, str]] = {
    # Each with what is wrong, and what the reason says of it.
    with_logs: (Need.LOGS, "have 3 log files"),
    with_many_logs: (Need.MANY_LOGS, "have 5 log files"),
    with_small_files: (Need.SMALL_FILES, "4 files would fit into 1"),
    unsorted: (Need.UNSORTED, "value may be in 3.5 files"),
    with_old_files: (Need.OBSOLETE_FILES, "files of"),
    with_long_timeline: (Need.LONG_TIMELINE, "has 10 instants"),
    with_failed_write: (Need.FAILED_WRITES, "1 writes"),
    with_metadata_logs: (Need.METADATA_LOGS, "commits in logs"),
    with_planned_index: (Need.UNFINISHED_INDEX, "column_stats"),
    without_index: (Need.MISSING_INDEX, "files"),
    with_waiting_plan: (Need.WAITING_PLAN, "The compaction"),
    with_cancelled_plan: (Need.CANCELLED_PLAN, "was cancelled"),
    with_failed_plan: (Need.FAILED_WRITES, "1 writes or plans"),
    with_unfinished_clean: (Need.UNFINISHED_CLEAN, "a clean finishes it"),
    with_dropped_index: (Need.DROPPED_INDEX, "files"),
    cancelled_again_and_again: (Need.SMALL_FILES, "cancelled it 3 times"),
}


@pytest.mark.parametrize("prepared", TABLES, ids=lambda prepared: prepared.__name__)
@pytest.mark.usefixtures("tables_with_a_lock")
def test_the_one_thing_that_is_wrong_is_named_first(
    tmp_path: Path, prepared: Callable[[Path], hw.Table]
) -> None:
    table = prepared(tmp_path)
    need, reason = TABLES[prepared]
    found = table.services.advise()
    assert found[0].need is need, found
    assert reason in found[0].why
    assert found[0].gain_bytes > 0
    assert found[0].call.startswith("t.")


class StopAfter:
    """Comes after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def is_set(self) -> bool:
        return self.left <= 0

    def wait(self, timeout: float) -> bool:
        self.left -= 1
        return self.is_set()


@pytest.mark.parametrize("prepared", TABLES, ids=lambda prepared: prepared.__name__)
@pytest.mark.usefixtures("tables_with_a_lock")
def test_following_the_advice_puts_it_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Callable[[Path], hw.Table]
) -> None:
    """And leaves the rows as they are."""
    monkeypatch.setattr(run, "LEFT_TO_ITS_MAKER_MS", -1)
    table = prepared(tmp_path)
    if prepared is without_index:
        table = reopened(table, hoodie_write_lock_provider="filesystem")
    before = table.read_arrow().sort_by("id")
    need, _ = TABLES[prepared]
    report = table.services.run_auto(StopAfter(1), pause_s=0)
    assert report.done[need] >= 1, report
    assert not report.failed
    assert need not in {one.need for one in table.services.advise()}
    assert table.read_arrow().sort_by("id") == before


def test_a_lock_that_its_holder_left_is_named(tmp_path: Path) -> None:
    """One of Apache Hudi's, which never renews: the age of the file tells."""
    options = {**LOCK, "hoodie.write.lock.filesystem.expire": "1"}
    table = a_table(tmp_path, table_type=COW, buckets=1, options=options).create()
    lock = tmp_path / "trips" / ".hoodie" / "lock"
    lock.write_text('{"lockCreateTime":"2026-01-01","lockThreadName":"main"}')
    os.utime(lock, (1, 1))
    (found,) = table.services.advise()
    assert (found.need, found.call) == (Need.EXPIRED_LOCK, "headwater lock break PATH")
    assert table.services.run_auto(StopAfter(1), pause_s=0).done.total() == 0


def test_a_table_in_order_needs_nothing(tmp_path: Path) -> None:
    shape = a_table(tmp_path, table_type=COW, partition_by="city", buckets=1)
    table = shape.with_commits(2).create()
    assert table.services.advise() == []
    assert table.services.run_auto(StopAfter(1), pause_s=0).done.total() == 0


def test_columns_of_the_caller_go_before_those_of_the_options(tmp_path: Path) -> None:
    table = in_files(tmp_path, [[1, 2, 3], [1, 2, 3]])
    assert "value" in table.services.advise(sort_by="value")[0].why
    with pytest.raises(InvalidInputError, match="nowhere"):
        table.services.advise(sort_by=["nowhere"])


def test_the_metadata_table_is_compacted_whenever_it_is_asked_for(tmp_path: Path) -> None:
    table = a_table(tmp_path, table_type=COW, buckets=1).with_commits(2).create()
    assert table.services.compact_metadata_table() is not None
    assert table.services.compact_metadata_table() is None
    without = {"hoodie.metadata.enable": "false"}
    bare = a_table(tmp_path / "bare", table_type=COW, buckets=1, options=without).create()
    assert bare.services.compact_metadata_table() is None


@pytest.mark.parametrize("has_index", [False, True])
def test_no_data_file_is_opened_but_for_footers_that_no_index_tells(
    tmp_path: Path, has_index: bool
) -> None:
    table = in_files(tmp_path, [[1, 9], [2, 8]], **LOCK)
    if has_index:
        table.indexes.create("column_stats")
    storage = CountingStorage(table.storage, keep_trace=True)
    counted = replace(table.reload().context, storage=storage)
    settings = rewrite_settings(counted, ["value"])
    (overlap,) = load_statistics(counted, settings).overlaps
    assert (overlap.file_count, overlap.depth) == (2, 2.0)
    opened = [path for _, path in storage.trace if path.endswith(".parquet")]
    assert len(opened) == (0 if has_index else 2)
    storage.reset()
    load_statistics(counted, rewrite_settings(counted))
    assert not any(path.endswith(".parquet") for _, path in storage.trace)


def test_a_plan_that_was_made_just_now_is_left_to_its_maker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LEFT_TO_ITS_MAKER_MS", 3_600_000)
    table = with_waiting_plan(tmp_path)
    assert table.services.run_auto(StopAfter(1), pause_s=0).done.total() == 0
    assert table.inspect.plans().num_rows == 1


def test_what_a_write_cancels_is_left_alone_and_the_rest_is_not(tmp_path: Path) -> None:
    """The write comes when a clustering of all four files is about to write them anew."""
    table = with_small_files(tmp_path)
    others = hw.open_table(table.uri, FAST)
    inner = table.context.engine_for

    def engine_for(size_bytes: int) -> Engine:
        others.upsert(trips(("k0", "sf", 100), ("k1", "sf", 100)))
        return inner(size_bytes)

    busy = Services(replace(table.context, engine_for=engine_for))
    report = busy.run_auto(StopAfter(3), pause_s=0)
    assert report.cancelled == {Need.SMALL_FILES: 1}, "it was tried again at once"
    assert report.done == {Need.SMALL_FILES: 1}, "files that were not written waited, too"
    assert not report.failed
    assert others.inspect.slices().num_rows == 3
    assert others.read_arrow().num_rows == 4
