"""Log compaction: many logs become one that stands for them (INV-51)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.answers import answers_of
from tests.support.tables import a_table, columns, rows_of

import headwater as hw
from headwater.config.compaction import CompactionConfig
from headwater.format.log.frames import BlockType, HeaderKey, iter_blocks
from headwater.metadata.view import load_view
from headwater.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from headwater.model.instant import Action, InstantTime
from headwater.model.plan_flags import PlanFlags
from headwater.services.log_compaction import plan_log_compaction
from headwater.table import Table

SCHEMA = columns("id string not null, ts long, value long, _hoodie_is_deleted boolean")

NON_BLOCKING = {
    "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
    "hoodie.write.lock.provider": "in_process",
}


rows = rows_of(SCHEMA, _hoodie_is_deleted=False)


@pytest.fixture
def new_table(tmp_path: Path) -> Callable[..., Table]:
    def make(ordering: str | None = "ts", options: Mapping[str, str] | None = None) -> Table:
        shape = a_table(tmp_path, SCHEMA, ordering=ordering, buckets=1, table_type="MERGE_ON_READ")
        shape = shape.with_options({"hoodie.log.compaction.blocks.threshold": "2"})
        return shape.with_options(options or {}).create()

    return make


def logs_of(table: Table) -> tuple[LogFile, ...]:
    (one,) = load_view(table.storage, table.config).slices()
    return one.logs


def values(table: Table) -> dict[str, int]:
    return {row["id"]: row["value"] for row in table.read_arrow().to_pylist()}


def test_only_groups_with_enough_logs_are_planned() -> None:
    def a_slice(name: str, logs: int) -> FileSlice:
        group = FileGroupId("", name)
        base = BaseFile(*group, "0-1-0", InstantTime("1"))
        files = (LogFile(*group, InstantTime(str(n + 2)), 1, "0-1-0") for n in range(logs))
        return FileSlice(group, InstantTime("1"), base, tuple(files))

    slices = a_slice("a", 2), a_slice("b", 3), a_slice("c", 4)
    config = CompactionConfig(log_compaction_files_min=3)
    plan = plan_log_compaction(slices, closed={slices[2].group}, config=config, flags=PlanFlags())
    assert plan is not None
    assert [one.file_id for one in plan.operations or ()] == ["b"]
    none = plan_log_compaction(slices[:1], closed=(), config=config, flags=PlanFlags())
    assert none is None


def test_one_log_takes_the_place_of_all_and_says_for_whom_it_stands(
    new_table: Callable[..., Table],
) -> None:
    table = new_table()
    table.upsert(rows(("a", 0, 0), ("b", 0, 0)))
    table.upsert(rows(("a", 1, 1), ("b", 1, 1)))
    table.upsert(rows(("a", 2, 2), ("b", 3, 0, True)))
    inputs = logs_of(table)
    assert len(inputs) == 2
    done = table.services.log_compact()
    assert done is not None
    (output,) = logs_of(table)
    assert output.instant_time == done.instant
    blocks = list(iter_blocks(table.storage.read(output.path), path=output.path))
    assert [block.type for block in blocks] == [BlockType.PARQUET_DATA, BlockType.DELETE]
    expected = ",".join(log.instant_time for log in inputs)
    assert {block.header[HeaderKey.COMPACTED_BLOCK_TIMES] for block in blocks} == {expected}
    commit = load_view(table.storage, table.config).commits[-1]
    assert commit.metadata.operation_type == "LOG_COMPACT"
    assert commit.instant.action.completed_name is Action.DELTA_COMMIT
    (stat,) = commit.metadata.write_stats()
    assert (stat.num_writes, stat.num_deletes, stat.total_log_files_compacted) == (1, 1, 2)
    assert values(table) == {"a": 2}


def test_what_completes_while_it_runs_comes_after_it(new_table: Callable[..., Table]) -> None:
    table = new_table(None, NON_BLOCKING)
    table.upsert(rows(("a", 1, 1)))
    table.upsert(rows(("a", 1, 2)))
    plan = table.services.schedule_log_compaction()
    table.upsert(rows(("a", 1, 3)))
    table.services.log_compact(plan)
    assert [log.instant_time == plan for log in logs_of(table)] == [True, False]
    assert values(table) == {"a": 3}


def test_a_log_compaction_takes_in_the_one_before(new_table: Callable[..., Table]) -> None:
    table = new_table()
    commits = [table.upsert(rows(("a", number, number))) for number in (1, 2, 3)]
    assert table.services.log_compact() is not None
    commits.append(table.upsert(rows(("a", 4, 4), ("b", 1, 1))))
    times = [commit.completion_time for commit in commits]
    before = answers_of(table, times)
    assert table.services.log_compact() is not None
    assert len(logs_of(table)) == 1
    assert answers_of(table, times) == before


def test_inv_51_no_group_is_in_a_compaction_and_a_log_compaction_at_once(
    new_table: Callable[..., Table],
) -> None:
    table = new_table()
    for number in (1, 2, 3):
        table.upsert(rows(("a", number, number)))
    plan = table.services.schedule_log_compaction()
    assert plan is not None
    assert table.services.schedule_compaction() is None
    assert table.services.schedule_clustering(sort_by="value") is None
    table.services.log_compact(plan)
    table.upsert(rows(("a", 4, 4)))
    plan = table.services.schedule_compaction()
    assert plan is not None
    assert table.services.schedule_log_compaction() is None
    table.services.compact(plan)
    assert values(table) == {"a": 4}


def test_a_compaction_takes_in_the_log_that_stands_for_others(
    new_table: Callable[..., Table],
) -> None:
    table = new_table()
    commits = [table.upsert(rows(("a", number, number))) for number in (1, 2, 3)]
    assert table.services.log_compact() is not None
    times = [commit.completion_time for commit in commits]
    before = answers_of(table, times)
    done = table.services.compact()
    assert done is not None
    assert logs_of(table) == ()
    (stat,) = load_view(table.storage, table.config).commits[-1].metadata.write_stats()
    assert stat.total_log_files_compacted == 1
    assert answers_of(table, times) == before


def test_deletes_that_a_compaction_kept_stay_in_front(new_table: Callable[..., Table]) -> None:
    table = new_table()
    table.upsert(rows(("a", 1, 1)))
    table.upsert(rows(("a", 7, 0, True)))
    table.services.compact()
    table.delete(rows(("a", 0, 0)))
    table.upsert(rows(("a", 3, 3)))
    before = values(table)
    assert len(logs_of(table)) == 3
    assert table.services.log_compact() is not None
    assert len(logs_of(table)) == 2
    assert values(table) == before


def test_records_that_bring_some_columns_only_are_kept_block_by_block(
    new_table: Callable[..., Table],
) -> None:
    table = new_table()
    commits = [table.upsert(rows(("a", number, 1), ("b", number, 1))) for number in (0, 1)]
    some = pa.table({"id": ["a", "b"], "ts": pa.array([3, 0], pa.int64())})
    commits.append(table.upsert(some, partial=True))
    commits.append(table.delete(rows(("b", 0, 0))))
    times = [commit.completion_time for commit in commits]
    before = answers_of(table, times)
    assert table.services.log_compact() is not None
    (log,) = logs_of(table)
    blocks = list(iter_blocks(table.storage.read(log.path), path=log.path))
    assert [HeaderKey.IS_PARTIAL in block.header for block in blocks] == [False, True, False]
    assert answers_of(table, times) == before


@pytest.mark.parametrize("ordering", ["ts", None])
@pytest.mark.parametrize("block_format", ["parquet", "avro"])
@pytest.mark.some(2)
def test_inv_48_no_reader_notices(
    new_table: Callable[..., Table], ordering: str | None, block_format: str
) -> None:
    table = new_table(ordering, {"hoodie.logfile.data.block.format": block_format})
    commits = [
        table.upsert(rows(("a", 5, 1), ("b", 1, 1), ("c", 1, 1))),
        table.upsert(rows(("a", 3, 2), ("b", 2, 2))),
    ]
    table.services.compact()
    commits += [
        table.upsert(rows(("b", 9, 0, True), ("d", 1, 4))),
        table.delete(rows(("c", 0, 0))),
        table.upsert(rows(("b", 4, 4), ("c", 1, 5))),
    ]
    times = [commit.completion_time for commit in commits]
    before = answers_of(table, times)
    assert table.services.log_compact() is not None
    assert len(logs_of(table)) == 1
    assert answers_of(table, times) == before


@pytest.mark.parametrize("has_index", [True, False], ids=["metadata table", "listing"])
def test_n_174_inputs_that_were_archived_and_cleaned_are_known(
    new_table: Callable[..., Table], has_index: bool
) -> None:
    retention = {
        "hoodie.clean.commits.retained": "2",
        "hoodie.keep.min.commits": "4",
        "hoodie.keep.max.commits": "5",
        "hoodie.metadata.enable": str(has_index).lower(),
    }
    table = new_table(options=retention)
    table.upsert(rows(("a", 0, 0)))
    table.services.compact()
    table.upsert(rows(("b", 1, 1)))
    table.upsert(rows(("c", 2, 2)))
    assert table.services.log_compact() is not None
    table.services.compact()
    table.upsert(rows(("d", 3, 3)))
    table.services.compact()
    table.services.clean()
    table.services.archive()
    left = {instant.action for instant in table.context.load_timeline().completed}
    assert Action.LOG_COMPACTION in left
    for options in ({}, {"hoodie.metadata.enable": "false"}):
        found = hw.open_table(table.uri, options)
        assert values(found) == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert table.inspect.problems().num_rows == 0
    table.upsert(rows(("a", 4, 4)))
    table.indexes.create("column_stats")
    assert values(table)["a"] == 4
