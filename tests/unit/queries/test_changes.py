"""Incremental queries and the change feed over tables made by hand, file by file.

Times are small numbers here, written as instant times. Rows are key -> value.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.arrow.meta_columns import (
    COMMIT_TIME,
    add_meta_columns,
    schema_with_meta_columns,
)
from headwater.context import TableContext
from headwater.errors import (
    CorruptTableError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from headwater.format.avro.columns import encode_records
from headwater.format.avro.schema import encode_avro_schema
from headwater.format.log.blocks import encode_data_block, encode_delete_block, log_file_bytes
from headwater.format.log.frames import BlockType, HeaderKey, encode_block
from headwater.format.parquet.base_file import write_base_file
from headwater.format.timeline.records import encode_record
from headwater.format.timeline.schemas import Record
from headwater.kernel.layout import TableLayout
from headwater.kernel.new_table import NewTable, plan_table_config
from headwater.kernel.timeline.active import instant_path
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata, WriteStat
from headwater.model.files import BaseFile, DataFile, FileGroupId, LogFile
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import CompactionOperation, CompactionPlan
from headwater.model.service_metadata import CleanMetadata
from headwater.queries.cdc import plan_change_feed
from headwater.queries.change_images import read_changes
from headwater.queries.incremental import IncrementalPlan, Window, parse_window, plan_incremental
from headwater.queries.slice_query import read_slice, read_slices
from headwater.seams.clock import SystemClock
from headwater.seams.ids import SystemIds
from headwater.seams.open_storage import open_storage

COLUMNS = pa.schema([("id", pa.string()), ("v", pa.int64())])
GROUP = FileGroupId("", "f")
OTHER = FileGroupId("", "g")

Rows = Mapping[str, int]
Change = tuple[str, int, dict[str, Any] | None, dict[str, Any] | None]


def at(number: int) -> InstantTime:
    return InstantTime(f"{number:017d}")


class HandMade:
    """A merge-on-read table, written file by file."""

    def __init__(self, path: Path) -> None:
        self.storage = open_storage(str(path), {})
        new = NewTable(
            location="orders", schema=COLUMNS, record_key=["id"], table_type="MERGE_ON_READ"
        )
        self.config = plan_table_config(new, {})

    def base(
        self, requested: int, rows: Mapping[str, tuple[int, int]], group: FileGroupId = GROUP
    ) -> BaseFile:
        """Write a base file: key -> (instant that wrote the row, value)."""
        file = BaseFile(*group, "0-0-0", at(requested))
        tables = [self._rows({key: value}, time, file.name) for key, (time, value) in rows.items()]
        with self.storage.open_output(file.path) as sink:
            write_base_file(tables, schema_with_meta_columns(COLUMNS), sink=sink)
        return file

    def log(
        self, requested: int, rows: Rows, deletes: Iterable[str] = (), group: FileGroupId = GROUP
    ) -> LogFile:
        file = LogFile(*group, at(requested), 1, "0-0-0")
        schema = encode_avro_schema(schema_with_meta_columns(COLUMNS), table="orders")
        blocks = []
        if rows:
            written = self._rows(rows, requested, file.file_id)
            blocks.append(
                encode_data_block(written, instant_time=at(requested), avro_schema_json=schema)
            )
        keys = pa.array(list(deletes), pa.string())
        if len(keys):
            paths = pa.array([""] * len(keys))
            blocks.append(
                encode_delete_block(
                    keys, paths, None, instant_time=at(requested), avro_schema_json=schema
                )
            )
        self.storage.put(file.path, log_file_bytes(blocks))
        return file

    def cdc_log(self, requested: int, schema: dict[str, Any], rows: pa.Table) -> LogFile:
        file = LogFile(*GROUP, at(requested), 1, "0-0-0", is_cdc=True)
        text = json.dumps(schema)
        header = {HeaderKey.INSTANT_TIME: at(requested), HeaderKey.SCHEMA: text}
        content = (
            (3).to_bytes(4, "big") + rows.num_rows.to_bytes(4, "big") + encode_records(rows, text)
        )
        self.storage.put(file.path, encode_block(BlockType.CDC_DATA, header, content))
        return file

    def commit(
        self,
        requested: int,
        completed: int,
        *files: DataFile,
        action: Action = Action.DELTA_COMMIT,
        operation: str = "UPSERT",
        replaced: Iterable[FileGroupId] = (),
    ) -> None:
        stats: dict[str, tuple[WriteStat, ...]] = {}
        for file in files:
            is_cdc = isinstance(file, LogFile) and file.is_cdc
            stat = (
                WriteStat(file_id=file.file_id, cdc_stats={file.path: 1})
                if is_cdc
                else WriteStat(file_id=file.file_id, path=file.path)
            )
            stats[file.partition] = (*stats.get(file.partition, ()), stat)
        metadata = CommitMetadata(partition_to_write_stats=stats, operation_type=operation)
        if action.completed_name is Action.REPLACE_COMMIT:
            ids = tuple(group.file_id for group in replaced)
            metadata = ReplaceCommitMetadata(
                partition_to_write_stats=stats,
                operation_type=operation,
                partition_to_replace_file_ids={"": ids},
            )
        self.complete(requested, completed, action, metadata)

    def complete(self, requested: int, completed: int, action: Action, record: Record) -> None:
        instant = Instant(at(requested), action, State.COMPLETED, at(completed))
        path = instant_path(TableLayout().timeline, instant)
        self.storage.put(path, encode_record(record))

    def compaction(self, requested: int, completed: int, base: BaseFile, *inputs: DataFile) -> None:
        operation = CompactionOperation(
            base_instant_time=at(1),
            delta_file_paths=tuple(file.name for file in inputs if isinstance(file, LogFile)),
            file_id=base.file_id,
            partition_path=base.partition,
        )
        plan = Instant(at(requested), Action.COMPACTION, State.REQUESTED)
        self.storage.put(
            instant_path(TableLayout().timeline, plan),
            encode_record(CompactionPlan(operations=(operation,))),
        )
        self.commit(requested, completed, base, action=Action.COMPACTION, operation="COMPACT")

    @property
    def context(self) -> TableContext:
        return TableContext(
            storage=self.storage,
            clock=SystemClock(),
            ids=SystemIds(),
            stored_config=self.config,
        )

    def plan(self, after: int | None, until: int | None) -> IncrementalPlan:
        return plan_incremental(self.context, window(after, until))

    def incr(self, after: int | None, until: int | None) -> dict[str, int]:
        plan = self.plan(after, until)
        rows = pa.Table.from_batches(
            read_slices(plan.query, list(plan.slices)), plan.query.result_schema
        )
        return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))

    def feed(self, after: int | None, until: int | None) -> list[Change]:
        plan = plan_change_feed(self.context, window(after, until))
        # What Spark ships to its executors must survive the journey.
        plan = pickle.loads(pickle.dumps(plan))
        changes = pa.Table.from_batches(read_changes(plan.query, plan.tasks), plan.result_schema)
        return [
            (row["op"], int(row["ts"]), row["before"], row["after"]) for row in changes.to_pylist()
        ]

    def _rows(self, rows: Rows, requested: int, file_name: str) -> pa.Table:
        data = pa.table({"id": list(rows), "v": list(rows.values())}, COLUMNS)
        return add_meta_columns(
            data,
            instant_time=at(requested),
            task=0,
            first_row=0,
            record_keys=data["id"].combine_chunks(),
            partition_path="",
            file_name=file_name,
            encodes_constants=False,
        )


def window(after: int | None, until: int | None) -> Window:
    return Window(None if after is None else at(after), None if until is None else at(until))


def row(id: str, v: int) -> dict[str, Any]:
    return {"id": id, "v": v}


@pytest.fixture
def table(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path)


@pytest.fixture
def demo(table: HandMade) -> HandMade:
    """The demo of invariants 5.7: F10 [10,20], l1 [21,40], l2 [30,50], F60 [60,80], l3 [35,90]."""
    f10 = table.base(10, {"a": (10, 1), "b": (10, 1), "c": (10, 1), "d": (10, 1)})
    table.commit(10, 20, f10)
    l1 = table.log(21, {"a": 21, "e": 21})
    table.commit(21, 40, l1)
    l2 = table.log(30, {"b": 30, "e": 30}, deletes=["d"])
    table.commit(30, 50, l2)
    f60 = table.base(60, {"a": (21, 21), "b": (30, 30), "c": (10, 1), "e": (30, 30)})
    table.compaction(60, 80, f60, f10, l1, l2)
    l3 = table.log(35, {"a": 35, "f": 35}, deletes=["c"])
    table.commit(35, 90, l3)
    return table


class TestIncremental:
    """Rows of invariants 5.7, and INV-54, INV-56."""

    def test_rows_are_found_inside_a_compacted_base_file(self, demo: HandMade) -> None:
        assert demo.incr(45, 85) == {"b": 30, "e": 30}

    def test_a_write_is_shown_when_it_completes_not_when_it_was_requested(
        self, demo: HandMade
    ) -> None:
        assert demo.incr(85, 100) == {"a": 35, "f": 35}
        assert demo.incr(32, 40) == {"a": 21, "e": 21}

    def test_both_ends_of_the_window(self, demo: HandMade) -> None:
        assert demo.incr(40, 50) == {"b": 30, "e": 30}
        assert demo.incr(39, 49) == {"a": 21, "e": 21}
        assert demo.incr(90, None) == {}

    def test_a_compaction_contributes_nothing(self, demo: HandMade) -> None:
        assert demo.incr(50, 89) == {}
        assert demo.plan(50, 89).slices == ()

    def test_the_beginning_and_now(self, demo: HandMade) -> None:
        assert demo.incr(None, None) == {"a": 35, "b": 30, "e": 30, "f": 35}
        assert demo.incr(None, 20) == {"a": 1, "b": 1, "c": 1, "d": 1}

    def test_the_end_of_the_window_decides_which_version_is_shown(self, demo: HandMade) -> None:
        assert demo.incr(20, 45) == {"a": 21, "e": 21}
        assert demo.incr(20, 60) == {"a": 21, "b": 30, "e": 30}
        assert demo.incr(20, 95) == {"a": 35, "b": 30, "e": 30, "f": 35}

    def test_the_instants_of_the_plan_are_the_writes_of_the_window(self, demo: HandMade) -> None:
        assert demo.plan(20, 95).instants == (at(21), at(30), at(35))

    def test_only_groups_that_changed_are_read(self, demo: HandMade) -> None:
        demo.commit(100, 110, demo.log(100, {"x": 1}, group=OTHER))
        assert [each.group for each in demo.plan(95, None).slices] == [OTHER]
        assert demo.incr(95, None) == {"x": 1}

    def test_rows_are_found_where_clustering_put_them(self, demo: HandMade) -> None:
        moved = demo.base(95, {"a": (35, 35), "b": (30, 30), "e": (30, 30), "f": (35, 35)}, OTHER)
        demo.commit(95, 96, moved, action=Action.CLUSTERING, operation="CLUSTER", replaced=[GROUP])
        assert demo.incr(85, None) == {"a": 35, "f": 35}
        assert demo.incr(90, None) == {}
        assert demo.feed(90, None) == []

    def test_a_table_without_meta_columns_cannot_tell(self, table: HandMade) -> None:
        table.config = replace(table.config, has_meta_fields=False)
        with pytest.raises(UnsupportedError, match=r"hoodie\.populate\.meta\.fields"):
            table.incr(None, None)
        with pytest.raises(UnsupportedError, match=r"hoodie\.populate\.meta\.fields"):
            table.feed(None, None)

    def test_an_empty_table_has_no_changes(self, table: HandMade) -> None:
        assert table.incr(None, None) == {}
        assert table.feed(None, None) == []

    def test_a_missing_file_is_noticed(self, demo: HandMade) -> None:
        demo.storage.delete(LogFile(*GROUP, at(35), 1, "0-0-0").path)
        with pytest.raises(CorruptTableError) as caught:
            demo.incr(85, None)
        assert caught.value.kind is ErrorKind.MISSING_DATA_FILE

    def test_the_filter_travels_with_the_query(self, demo: HandMade) -> None:
        query = pickle.loads(pickle.dumps(demo.plan(85, None))).query
        assert query.where.columns == {COMMIT_TIME}


def test_records_of_some_keys_can_be_read_alone(demo: HandMade) -> None:
    plan = demo.plan(None, None)
    (file_slice,) = plan.slices
    assert file_slice.base is not None
    assert file_slice.logs
    keys = pa.array(["a", "b", "c", "nobody"])
    batches = read_slice(demo.storage, replace(plan.query, where=None), file_slice, keys)
    rows = pa.Table.from_batches(batches, plan.query.result_schema)
    assert sorted(rows["id"].to_pylist()) == ["a", "b"]


class TestWindow:
    def test_forms_of_times(self) -> None:
        assert parse_window("2024-01-31", "2024-01-31 09:30:00") == Window(
            InstantTime("20240131000000000"), InstantTime("20240131093000999")
        )

    def test_a_datetime_is_what_it_is_as_of_a_time(self) -> None:
        local = datetime(2024, 1, 31, 9, 30, 0, 123456)
        away = datetime(2024, 1, 31, 9, 30, tzinfo=timezone(timedelta(hours=2)))
        assert parse_window(away, local) == Window(
            InstantTime("20240131073000000"), InstantTime("20240131093000123")
        )

    @pytest.mark.parametrize("beginning", [None, "0", "000", "00000000000000000"])
    def test_the_beginning(self, beginning: str | None) -> None:
        assert parse_window(beginning, None) == Window(None, None)

    @pytest.mark.parametrize(
        ("after", "until"),
        [("", None), ("yesterday", None), ("2024-01-02", "2024-01-01"), (5, None), (None, "000")],
    )
    def test_what_is_no_window(self, after: Any, until: str | None) -> None:
        with pytest.raises(InvalidInputError):
            parse_window(after, until)


class TestChangeFeed:
    def test_logs_are_compared_with_what_they_change(self, demo: HandMade) -> None:
        assert demo.feed(20, 85) == [
            ("u", 40, row("a", 1), row("a", 21)),
            ("i", 40, None, row("e", 21)),
            ("d", 50, row("d", 1), None),
            ("u", 50, row("b", 1), row("b", 30)),
            ("u", 50, row("e", 21), row("e", 30)),
        ]

    def test_a_log_on_top_of_a_compaction(self, demo: HandMade) -> None:
        assert demo.feed(85, None) == [
            ("d", 90, row("c", 1), None),
            ("u", 90, row("a", 21), row("a", 35)),
            ("i", 90, None, row("f", 35)),
        ]

    def test_a_new_group_is_inserts(self, demo: HandMade) -> None:
        assert demo.feed(None, 20) == [("i", 20, None, row(key, 1)) for key in "abcd"]

    def test_a_replaced_group_is_deletes_and_comes_first(self, demo: HandMade) -> None:
        new = demo.base(100, {"a": (100, 7)}, OTHER)
        demo.commit(
            100,
            110,
            new,
            action=Action.REPLACE_COMMIT,
            operation="INSERT_OVERWRITE_TABLE",
            replaced=[GROUP],
        )
        changes = demo.feed(95, None)
        assert changes[-1] == ("i", 110, None, row("a", 7))
        gone = {"a": 35, "b": 30, "e": 30, "f": 35}
        assert sorted(changes[:-1], key=str) == [
            ("d", 110, row(key, value), None) for key, value in gone.items()
        ]

    def test_deleting_what_is_not_there_is_no_change(self, demo: HandMade) -> None:
        demo.commit(100, 110, demo.log(100, {}, deletes=["nobody"]))
        assert demo.feed(95, None) == []

    def test_a_rewritten_base_file_is_compared_whole(self, table: HandMade) -> None:
        commit = Action.COMMIT
        table.commit(
            10, 20, table.base(10, {"a": (10, 1), "b": (10, 1), "c": (10, 1)}), action=commit
        )
        rewritten = {"a": (10, 1), "b": (30, 2), "d": (30, 2)}
        table.commit(30, 40, table.base(30, rewritten), action=commit)
        assert table.feed(20, None) == [
            ("d", 40, row("c", 1), None),
            ("u", 40, row("b", 1), row("b", 2)),
            ("i", 40, None, row("d", 2)),
        ]

    def test_a_window_that_begins_before_retention_is_refused(self, demo: HandMade) -> None:
        demo.complete(
            95,
            96,
            Action.CLEAN,
            CleanMetadata(
                start_clean_time=at(95),
                time_taken_in_millis=1,
                total_files_deleted=1,
                earliest_commit_to_retain=at(60),
                last_completed_commit_timestamp=at(35),
                partition_metadata={},
            ),
        )
        for after in (None, 20):
            with pytest.raises(NotFoundError) as caught:
                demo.feed(after, None)
            assert caught.value.kind is ErrorKind.OUTSIDE_RETENTION
        assert len(demo.feed(80, None)) == 3
        # Up to the first write there is a compaction alone, which changed nothing.
        assert demo.feed(50, None) == demo.feed(80, None)
        # Plain incremental needs only the end of the window.
        assert demo.incr(20, None) == {"a": 35, "b": 30, "e": 30, "f": 35}

    def test_missing_files_are_noticed(self, demo: HandMade) -> None:
        demo.storage.delete(BaseFile(*GROUP, "0-0-0", at(10)).path)
        assert demo.feed(85, None)
        with pytest.raises(CorruptTableError) as caught:
            demo.feed(20, None)
        assert caught.value.kind is ErrorKind.MISSING_DATA_FILE


IMAGE = {
    "type": "record",
    "name": "orders_record",
    "namespace": "hoodie.orders",
    "fields": [
        {"name": "id", "type": ["null", "string"], "default": None},
        {"name": "v", "type": ["null", "int"], "default": None},
    ],
}


def cdc_schema(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "CDC",
        "namespace": "hoodie.orders",
        "fields": [
            {"name": name, "type": ["null", kind], "default": None} for name, kind in fields.items()
        ],
    }


class TestCdcLogs:
    """Logs as Hudi writes them: what they say is shown, not what a comparison would find."""

    @pytest.fixture
    def rewritten(self, table: HandMade) -> HandMade:
        table.commit(10, 20, table.base(10, {"a": (10, 1), "b": (10, 1)}), action=Action.COMMIT)
        return table

    def commit(self, table: HandMade, schema: dict[str, Any], rows: pa.Table) -> None:
        base = table.base(30, {"a": (30, 2), "c": (30, 3)})
        table.commit(30, 40, base, table.cdc_log(30, schema, rows), action=Action.COMMIT)

    def test_both_images(self, rewritten: HandMade) -> None:
        image = pa.struct([("id", pa.string()), ("v", pa.int32())])
        schema = cdc_schema(op="string", ts_ms="string", before=IMAGE, after="orders_record")
        rows = pa.table(
            {
                "op": ["u", "d", "i"],
                "ts_ms": [at(30)] * 3,
                "before": pa.array([row("a", 100), row("b", 100), None], image),
                "after": pa.array([row("a", 2), None, row("c", 3)], image),
            }
        )
        self.commit(rewritten, schema, rows)
        # The images of the log, in the types of the table, deletes first; 100 is in no data file.
        assert rewritten.feed(20, None) == [
            ("d", 40, row("b", 100), None),
            ("u", 40, row("a", 100), row("a", 2)),
            ("i", 40, None, row("c", 3)),
        ]

    def test_keys_only(self, rewritten: HandMade) -> None:
        schema = cdc_schema(op="string", record_key="string")
        rows = pa.table({"op": ["u", "d", "i"], "record_key": ["a", "b", "c"]})
        self.commit(rewritten, schema, rows)
        assert sorted(rewritten.feed(20, None), key=str) == [
            ("d", 40, row("b", 1), None),
            ("i", 40, None, row("c", 3)),
            ("u", 40, row("a", 1), row("a", 2)),
        ]

    def test_the_log_is_no_part_of_the_table(self, rewritten: HandMade) -> None:
        schema = cdc_schema(op="string", record_key="string")
        self.commit(rewritten, schema, pa.table({"op": ["i"], "record_key": ["zzz"]}))
        assert rewritten.incr(None, None) == {"a": 2, "c": 3}

    def test_a_missing_log_is_noticed(self, rewritten: HandMade) -> None:
        schema = cdc_schema(op="string", record_key="string")
        self.commit(rewritten, schema, pa.table({"op": ["u"], "record_key": ["a"]}))
        log = LogFile(*GROUP, at(30), 1, "0-0-0", is_cdc=True)
        rewritten.storage.delete(log.path)
        with pytest.raises(CorruptTableError, match=r"\.cdc"):
            rewritten.feed(20, None)
