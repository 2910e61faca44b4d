"""What `t.inspect.files()` and `.slices()` say of real tables on local disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.tables import a_table

import headwater as hw
from headwater.format.timeline.records import encode_record
from headwater.inspect import data_files as files
from headwater.inspect import slices
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import instant_path, load_active
from headwater.kernel.timeline.history.write import archive_instants
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import CompactionOperation, CompactionPlan

Row = dict[str, Any]

FIRST = pa.table({"id": ["a", "b"], "city": ["sf", "la"], "ts": [1, 1]})
NEWER_A = pa.table({"id": ["a"], "city": ["sf"], "ts": [2]})


def new_table(path: Path, table_type: str = "MERGE_ON_READ", **options: str) -> hw.Table:
    shape = a_table(path, "id string, city string, ts long", partition_by="city", ordering="ts")
    return shape.having(table_type=table_type, buckets=1, options=options).create()


def of_partition(table: pa.Table, partition: str) -> list[Row]:
    return [row for row in table.to_pylist() if row["partition"] == partition]


def size_of(table: hw.Table, path: str) -> int:
    return Path(table.uri.removeprefix("file://"), path).stat().st_size


def test_a_table_without_commits_has_no_files(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    assert table.inspect.files() == files.SCHEMA.empty_table()
    assert table.inspect.slices() == slices.SCHEMA.empty_table()


class TestMergeOnRead:
    def test_a_slice_is_a_base_file_and_its_logs(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        first = table.bulk_insert(FIRST)
        second = table.upsert(NEWER_A)

        base, log = of_partition(table.inspect.files(), "city=sf")
        assert (base["kind"], base["version"]) == ("base", None)
        assert (base["requested_time"], base["completion_time"]) == (
            first.instant,
            first.completion_time,
        )
        assert (log["kind"], log["version"], log["write_token"]) == ("log", 1, "0-1-0")
        assert (log["requested_time"], log["completion_time"]) == (
            second.instant,
            second.completion_time,
        )
        for file in (base, log):
            assert file["size_bytes"] == size_of(table, file["path"])
            assert (file["base_instant"], file["is_latest"]) == (first.instant, True)

        la, sf = table.inspect.slices().to_pylist()
        assert sf == {
            "partition": "city=sf",
            "file_id": base["file_id"],
            "base_instant": first.instant,
            "base_file": base["path"],
            "base_size_bytes": base["size_bytes"],
            "log_count": 1,
            "log_size_bytes": log["size_bytes"],
            "latest_completion_time": second.completion_time,
        }
        assert (la["partition"], la["log_count"], la["log_size_bytes"]) == ("city=la", 0, 0)
        assert la["latest_completion_time"] == first.completion_time

    def test_a_slice_may_be_logs_alone(self, tmp_path: Path) -> None:
        non_blocking = {
            "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
            "hoodie.write.lock.provider": "in_process",
        }
        table = new_table(tmp_path, **non_blocking)
        first = table.insert(NEWER_A)
        table.upsert(NEWER_A)
        (only,) = table.inspect.slices().to_pylist()
        assert (only["base_file"], only["base_size_bytes"]) == (None, None)
        assert (only["base_instant"], only["log_count"]) == (first.instant, 2)

    @pytest.mark.usefixtures("tables_with_a_lock")
    def test_logs_above_a_pending_compaction_are_latest_as_is_what_lies_below(
        self, tmp_path: Path
    ) -> None:
        table = new_table(tmp_path)
        first = table.bulk_insert(NEWER_A)
        compaction = InstantTime(str(int(first.completion_time) + 1))
        (base,) = table.inspect.files().to_pylist()
        operation = CompactionOperation(
            base_instant_time=first.instant,
            data_file_path=base["path"].rpartition("/")[2],
            file_id=base["file_id"],
            partition_path=base["partition"],
        )
        requested = Instant(compaction, Action.COMPACTION, State.REQUESTED)
        table.storage.put(
            instant_path(table_layout(table.config).timeline, requested),
            encode_record(CompactionPlan(operations=(operation,))),
        )
        table.upsert(NEWER_A)

        rows = table.inspect.files().to_pylist()
        assert [(row["kind"], row["base_instant"], row["is_latest"]) for row in rows] == [
            ("base", first.instant, True),
            ("log", compaction, True),
        ]
        (only,) = table.inspect.slices().to_pylist()
        assert (only["base_instant"], only["log_count"]) == (first.instant, 1)


def test_older_base_files_are_listed_and_not_latest(tmp_path: Path) -> None:
    table = new_table(tmp_path, "COPY_ON_WRITE")
    first = table.upsert(FIRST)
    second = table.upsert(NEWER_A)
    older, newer = of_partition(table.inspect.files(), "city=sf")
    assert (older["requested_time"], older["is_latest"]) == (first.instant, False)
    assert (newer["requested_time"], newer["is_latest"]) == (second.instant, True)
    assert older["file_id"] == newer["file_id"]
    (current,) = of_partition(table.inspect.slices(), "city=sf")
    assert current["base_file"] == newer["path"]


def test_replaced_file_groups_are_gone(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.bulk_insert(FIRST)
    last = table.overwrite(NEWER_A)
    for answer in (table.inspect.files(), table.inspect.slices()):
        (only,) = answer.to_pylist()
        assert (only["partition"], only["base_instant"]) == ("city=sf", last.instant)


def test_files_of_no_commit_are_no_part_of_the_table(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.bulk_insert(FIRST)
    before = table.inspect.files()
    orphan = before.to_pylist()[0]["path"].replace("_0-1-0_", "_9-1-9_")
    table.storage.put(orphan, b"of a task that ran twice")
    assert table.inspect.files() == before


@pytest.mark.parametrize("question", ["files", "slices"])
def test_completion_times_of_archived_commits_are_known(tmp_path: Path, question: str) -> None:
    table = new_table(tmp_path)
    first = table.bulk_insert(FIRST)
    table.upsert(NEWER_A)
    before = getattr(table.inspect, question)()
    layout = table_layout(table.config)
    archived = load_active(table.storage, layout.timeline).get(first.instant)
    archive_instants(table.storage, layout, [archived])
    assert load_active(table.storage, layout.timeline).find(first.instant) is None
    assert getattr(table.inspect, question)() == before
