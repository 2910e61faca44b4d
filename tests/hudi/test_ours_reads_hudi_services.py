"""Tables on which Apache Hudi ran its table services, as we read them and write to them.

Every file that a service leaves on the timeline is decoded by our model and encoded again: the
bytes must be Hudi's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.hudi_bytes import (
    check_log_bytes,
    check_timeline_bytes,
    log_blocks,
    record_bytes_checked,
    record_positions,
    row_count,
)
from tests.support.hudi_peer import HudiError, HudiPeer
from tests.support.hudi_tables import HudiTable

from headwater.arrow.log_parts import DeletePart
from headwater.config.lock import STORAGE_RENEW_INTERVAL
from headwater.errors import ConflictError, ErrorKind, NotFoundError, UnsupportedError
from headwater.format.log.blocks import decode_part
from headwater.format.log.frames import BlockType, HeaderKey, LogBlock
from headwater.kernel.timeline.history.archived_files import load_newest_manifest, load_pointer
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.txn.locks.lease import CLOCK_DRIFT_MS
from headwater.model.instant import Action, State
from headwater.seams.local import LocalStorage

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
SIMPLE = {"hoodie.index.type": "SIMPLE"}
NO_COMPACTION = {"hoodie.compact.inline.max.delta.commits": "1000"}
COMPACTION = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
TIMELINE = ".hoodie/timeline"

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("fare", pa.int32()),
        pa.field("note", pa.string()),
    ]
)


def rows(*values: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=False)) for row in values], schema=schema
    )


FIRST = rows(("a", "sf", 1, 1), ("b", "sf", 1, 2), ("c", "ny", 1, 3))


def a_table(
    hudi: HudiPeer, path: Path, table_type: str = MOR, partition_by: str = "", **options: str
) -> HudiTable:
    return HudiTable(
        hudi,
        path,
        {
            "hoodie.datasource.write.table.type": table_type,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": partition_by,
            "hoodie.table.ordering.fields": "ts",
            **SIMPLE,
            **NO_COMPACTION,
            **options,
        },
    )


@pytest.fixture
def sql(hudi: HudiPeer) -> Iterator[HudiPeer]:
    """Hudi whose statements make no metadata table; they take options from the session."""
    hudi.execute("set hoodie.metadata.enable=false")
    yield hudi
    hudi.execute("reset hoodie.metadata.enable")


def register(table: HudiTable, name: str) -> None:
    """Let statements know the table by a name."""
    table.hudi.execute(f"drop table if exists {name}")
    table.hudi.execute(f"create table {name} using hudi location '{table.uri}'")


def fares(found: list[dict[str, Any]]) -> dict[str, int]:
    return {row["id"]: row["fare"] for row in found}


def check_ours_writes_on(table: HudiTable, key: str, city: str) -> None:
    """Check that Hudi reads what we write to its table, and finds it by its index."""
    ts = 1_000 + len(table.completion_times())
    table.open(SIMPLE).upsert(rows((key, city, ts, ts), ("ours", city, ts, 1)))
    before = fares(table.check_snapshot("our upsert"))
    assert (before[key], before["ours"]) == (ts, 1)
    table.write(rows((key, city, ts + 1, ts + 1), ("ours", city, ts + 1, 2)))
    after = fares(table.check_snapshot("Hudi's update of our rows"))
    assert after == {**before, key: ts + 1, "ours": 2}


def requested_times(table: HudiTable, action: str) -> list[str]:
    instants = table.open().inspect.timeline().to_pylist()
    return [str(each["requested_time"]) for each in instants if each["action"] == action]


# Services --------------------------------------------------------------------------------------


def test_compaction_savepoint_rollback_restore_and_clean(sql: HudiPeer, tmp_path: Path) -> None:
    table = a_table(sql, tmp_path / "t", partition_by="city")
    table.write(FIRST, "insert")
    table.write(rows(("a", "sf", 2, 10)))
    table.write(rows(("b", "sf", 2, 20)), options=COMPACTION)
    table.check_snapshot("compaction")
    table.write(FIRST.slice(2), "delete")
    check_ours_writes_on(table, "a", "sf")
    register(table, "services")
    saved = requested_times(table, "deltacommit")[-1]
    sql.execute(f"call create_savepoint(table => 'services', commit_time => '{saved}')")
    at_savepoint = table.check_snapshot("savepoint")
    table.write(rows(("a", "sf", 5_000, 30)))
    table.write(rows(("d", "sf", 3, 30)))
    last = requested_times(table, "deltacommit")[-1]
    sql.execute(f"call rollback_to_instant(table => 'services', instant_time => '{last}')")
    assert "d" not in fares(table.check_snapshot("rollback"))
    # The restore takes the rollback off the timeline with the rest.
    found = check_timeline_bytes(table.path / TIMELINE)
    sql.execute(f"call rollback_to_savepoint(table => 'services', instant_time => '{saved}')")
    assert table.check_snapshot("restore") == at_savepoint
    assert not requested_times(table, "rollback")
    check_ours_writes_on(table, "b", "sf")
    table.write(rows(("a", "sf", 6_000, 31)), options=COMPACTION)
    table.write(rows(("a", "sf", 6_001, 32)), options=COMPACTION)
    sql.execute("call run_clean(table => 'services', retain_commits => 1)")
    sql.execute(
        "call run_clean(table => 'services', clean_policy => 'KEEP_LATEST_FILE_VERSIONS', "
        "file_versions_retained => 1)"
    )
    table.check_snapshot("clean")
    with pytest.raises(NotFoundError, match="cleaning deleted files that were current then"):
        table.open().read_arrow(as_of=table.completion_times()[0])
    check_ours_writes_on(table, "b", "sf")
    found |= check_timeline_bytes(table.path / TIMELINE)
    kinds = set(found)
    assert kinds >= {
        "deltacommit.requested=",
        "deltacommit.inflight=CommitMetadata",
        "deltacommit.completed=CommitMetadata",
        "compaction.requested=CompactionPlan",
        "compaction.inflight=",
        "commit.completed=CommitMetadata",
        "savepoint.inflight=",
        "savepoint.completed=SavepointMetadata",
        "rollback.requested=RollbackPlan",
        "rollback.inflight=",
        "rollback.completed=RollbackMetadata",
        "restore.requested=RestorePlan",
        "restore.inflight=",
        "restore.completed=RestoreMetadata",
        "clean.requested=CleanerPlan",
        "clean.inflight=",
        "clean.completed=CleanMetadata",
    }
    assert "clean.inflight=CleanerPlan" not in kinds
    check_log_bytes(table.path)


def test_clustering_done_and_pending(sql: HudiPeer, tmp_path: Path) -> None:
    table = a_table(sql, tmp_path / "t", COW, "city", **{"hoodie.parquet.small.file.limit": "0"})
    table.write(FIRST, "insert")
    table.write(rows(("d", "sf", 1, 4), ("e", "sf", 1, 5)), "insert")
    table.write(rows(("a", "sf", 2, 9)))
    register(table, "clustered")
    plan = "options => 'hoodie.clustering.plan.strategy.small.file.limit=629145600'"
    sql.execute(f"call run_clustering(table => 'clustered', order => 'fare', {plan})")
    table.check_snapshot("clustering")
    table.check_history(is_merge_on_read=False)
    check_ours_writes_on(table, "a", "sf")
    sql.execute(f"call run_clustering(table => 'clustered', op => 'schedule', {plan})")
    before = table.check_snapshot("a planned clustering")
    with pytest.raises(ConflictError, match="touch the same file groups"):
        table.open(SIMPLE).upsert(rows(("a", "sf", 5_000, 1)))
    assert table.check_snapshot("our refused upsert") == before
    kinds = set(check_timeline_bytes(table.path / TIMELINE))
    assert kinds >= {
        "clustering.requested=RequestedReplace",
        "clustering.inflight=",
        "replacecommit.completed=ReplaceCommitMetadata",
        "commit.inflight=CommitMetadata",
    }


def test_a_compaction_that_is_only_planned(sql: HudiPeer, tmp_path: Path) -> None:
    """We write on top of it. Hudi's own batch writes would first carry it out."""
    table = a_table(sql, tmp_path / "t")
    table.write(FIRST, "insert")
    table.write(rows(("a", "sf", 2, 10)))
    register(table, "planned")
    sql.execute(
        "call run_compaction(op => 'schedule', table => 'planned', "
        "options => 'hoodie.compact.inline.max.delta.commits=1')"
    )
    assert pending(table) == [("compaction", "requested")]
    table.check_snapshot("a planned compaction")
    table.open(SIMPLE).upsert(rows(("a", "sf", 3, 11), ("b", "sf", 2, 20)))
    expected = table.check_snapshot("our upsert on top of it")
    assert fares(expected) == {"a": 11, "b": 20, "c": 3}
    table.check_history(is_merge_on_read=True)
    sql.execute("call run_compaction(op => 'run', table => 'planned')")
    assert not pending(table)
    assert table.check_snapshot("the compaction") == expected
    check_ours_writes_on(table, "c", "ny")


def pending(table: HudiTable) -> list[tuple[str, str]]:
    instants = table.open().inspect.timeline().to_pylist()
    return [(i["action"], i["state"]) for i in instants if i["completion_time"] is None]


def test_log_compaction(hudi: HudiPeer, tmp_path: Path) -> None:
    """Its log holds a data and a delete block, both naming the instants that they stand for."""
    table = a_table(hudi, tmp_path / "t")
    table.write(FIRST, "insert")
    for ts in (2, 3):
        table.write(rows(("a", "sf", ts, 10 * ts), ("b", "sf", ts, ts)))
    table.write(FIRST.slice(2), "delete")
    table.write(
        rows(("a", "sf", 20, 200)),
        options={
            "hoodie.log.compaction.enable": "true",
            "hoodie.log.compaction.inline": "true",
            "hoodie.log.compaction.blocks.threshold": "2",
        },
    )
    assert fares(table.check_snapshot("log compaction")) == {"a": 200, "b": 3}
    (instant,) = requested_times(table, "logcompaction")
    compacted = [
        (block.type, block.header[HeaderKey.COMPACTED_BLOCK_TIMES].split(","))
        for path, block in log_blocks(table.path)
        if f"_{instant}.log." in path.name
    ]
    times = requested_times(table, "deltacommit")[1:]
    assert compacted == [(BlockType.AVRO_DATA, times), (BlockType.DELETE, times)]
    check_log_bytes(table.path)
    table.write(rows(("b", "sf", 30, 300)))
    table.check_snapshot("a write after log compaction")
    check_ours_writes_on(table, "a", "sf")
    kinds = set(check_timeline_bytes(table.path / TIMELINE))
    assert kinds >= {"logcompaction.requested=CompactionPlan", "logcompaction.inflight="}


def test_the_archived_timeline(hudi: HudiPeer, tmp_path: Path) -> None:
    """Many small commits, so that Hudi archives, merges its archive files and deletes old ones."""
    table = a_table(
        hudi,
        tmp_path / "t",
        COW,
        **{
            "hoodie.archive.automatic": "true",
            "hoodie.archive.async": "false",
            "hoodie.keep.min.commits": "2",
            "hoodie.keep.max.commits": "3",
            "hoodie.clean.automatic": "true",
            "hoodie.clean.commits.retained": "1",
            "hoodie.timeline.compaction.batch.size": "2",
        },
    )
    completions: dict[str, str] = {}
    for number in range(9):
        table.write(rows((f"k{number}", "sf", 1, number), ("k0", "sf", number, number)))
        for each in table.open().inspect.timeline().to_pylist():
            completions[each["requested_time"]] = each["completion_time"]
    assert len(table.check_snapshot("archival")) == 9
    storage, folder = LocalStorage(table.path), f"{TIMELINE}/history"
    manifest = load_newest_manifest(storage, folder)
    assert manifest.version == load_pointer(storage, folder)
    assert {file.level for file in manifest.files} - {0}, "no archive file was merged"
    for file in manifest.files:
        assert (table.path / folder / file.name).stat().st_size == file.size_bytes
    history = HistoryTimeline(storage, folder)
    archived = {str(each.requested_time): each for each in history.instants()}
    active = {str(each["requested_time"]) for each in table.open().inspect.timeline().to_pylist()}
    assert archived.keys() | active == completions.keys()
    assert {time: each.completion_time for time, each in archived.items()} == {
        time: completions[time] for time in archived
    }
    assert {each.action for each in archived.values()} == {Action.COMMIT, Action.CLEAN}
    for time, contents in history.contents(
        each.requested_time for each in history.instants()
    ).items():
        action = archived[time].action
        record_bytes_checked(action, State.COMPLETED, contents.metadata, contents.path)
        assert bool(contents.plan) == (action is Action.CLEAN)
        if contents.plan:
            record_bytes_checked(action, State.REQUESTED, contents.plan, contents.path)
    check_ours_writes_on(table, "k0", "sf")


# Log blocks ------------------------------------------------------------------------------------


def test_record_positions(hudi: HudiPeer, tmp_path: Path) -> None:
    """They are there by default: row numbers in the base file, one per record, in order."""
    table = a_table(hudi, tmp_path / "t")
    table.write(FIRST, "insert")
    (base,) = requested_times(table, "deltacommit")
    table.write(rows(("c", "sf", 2, 30), ("a", "sf", 2, 10)))
    table.write(FIRST.slice(1, 1), "delete")
    blocks = [block for _, block in log_blocks(table.path)]
    assert [record_positions(block) for block in blocks] == [[0, 2], [1]]
    assert [row_count(block) for block in blocks] == [2, 1]
    key = HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS
    assert {block.header[key] for block in blocks} == {base}
    assert fares(table.check_snapshot("positions")) == {"a": 10, "c": 30}
    check_ours_writes_on(table, "a", "sf")
    table.write(rows(("a", "sf", 9_000, 1)), options={"hoodie.write.record.positions": "false"})
    table.check_snapshot("a write without positions")
    check_log_bytes(table.path)


def test_partial_updates_by_merge_into(sql: HudiPeer, tmp_path: Path) -> None:
    table = a_table(sql, tmp_path / "t")
    table.write(FIRST, "insert")
    register(table, "merged")
    for columns in ("5L as ts, 50 as fare", "6L as ts, 'noted' as note"):
        names = [column.split()[-1] for column in columns.split(", ")]
        changes = ", ".join(f"{name} = s.{name}" for name in names)
        sql.execute(
            f"merge into merged t using (select 'a' as id, {columns}) s on t.id = s.id "
            f"when matched then update set {changes}"
        )
    partial = [block.header.get(HeaderKey.IS_PARTIAL) for _, block in log_blocks(table.path)]
    assert partial == ["true", "true"]
    columns_of_blocks = [
        [each["name"] for each in json.loads(block.header[HeaderKey.SCHEMA])["fields"]]
        for _, block in log_blocks(table.path)
    ]
    assert [each[5:] for each in columns_of_blocks] == [["ts", "fare"], ["ts", "note"]]
    found = table.check_snapshot("partial updates")
    assert [(row["ts"], row["fare"], row["note"]) for row in found if row["id"] == "a"] == [
        (6, 50, "noted")
    ]
    check_ours_writes_on(table, "b", "sf")
    check_log_bytes(table.path)


DELETABLE = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))


@pytest.mark.parametrize(
    ("ordering", "expected"), [("", None), ("ts", [[7]]), ("ts,fare", [[7], [1]])]
)
def test_deletes_with_ordering_values(
    hudi: HudiPeer, tmp_path: Path, ordering: str, expected: list[list[int]] | None
) -> None:
    """A record marked as deleted keeps its ordering values; a delete by key has none."""
    table = a_table(hudi, tmp_path / "t", **{"hoodie.table.ordering.fields": ordering})
    table.write(
        rows(("a", "sf", 1, 1, None, False), ("b", "sf", 1, 1, None, False), schema=DELETABLE),
        "insert",
    )
    table.write(rows(("a", "sf", 7, 1, None, True), schema=DELETABLE))
    table.write(rows(("b", "sf", 1, 1, None, False), schema=DELETABLE), "delete")
    marked, by_key = [delete_ordering(block) for _, block in log_blocks(table.path)]
    assert (marked, by_key) == (expected, None)
    assert table.check_snapshot("deletes") == []
    assert check_log_bytes(table.path) == {BlockType.DELETE: 2}


def delete_ordering(block: LogBlock) -> list[list[int]] | None:
    part = decode_part(block, path="")
    assert isinstance(part, DeletePart)
    return None if part.ordering is None else [column.to_pylist() for column in part.ordering]


# Change data -----------------------------------------------------------------------------------


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("mode", ["DATA_BEFORE_AFTER", "DATA_BEFORE", "OP_KEY_ONLY"])
def test_change_data(hudi: HudiPeer, tmp_path: Path, table_type: str, mode: str) -> None:
    table = a_table(
        hudi,
        tmp_path / "t",
        table_type,
        "city",
        **{
            "hoodie.table.cdc.enabled": "true",
            "hoodie.table.cdc.supplemental.logging.mode": mode,
        },
    )
    table.write(FIRST, "insert")
    table.write(rows(("a", "sf", 2, 10), ("b", "sf", 0, 77)))
    table.write(FIRST.slice(1, 1), "delete")
    table.write(rows(("a", "sf", 3, 11), ("d", "sf", 1, 4)))
    table.write(rows(("x", "ny", 1, 5)), "insert_overwrite")
    times = table.completion_times()
    for after, until in (("000", times[-1]), (times[0], times[3]), (times[1], times[2])):
        theirs = changes_by_hudi(table, after, until)
        feed = table.open().changes_arrow(after, until, cdc=True).to_pylist()
        ours = sorted(((row["op"], row["before"], row["after"]) for row in feed), key=repr)
        assert ours == theirs, f"the changes of ({after}, {until}] differ"
    table.check_snapshot("changes")
    # What goes to logs can be told from them later, so it leaves no change logs.
    assert (BlockType.CDC_DATA in check_log_bytes(table.path)) == (table_type == COW)
    with pytest.raises(UnsupportedError, match="change logs, which this release reads but") as no:
        table.open(SIMPLE).upsert(rows(("a", "sf", 9, 9)))
    assert no.value.kind is ErrorKind.UNSUPPORTED_OPTION


def changes_by_hudi(table: HudiTable, after: str, until: str) -> list[tuple[Any, ...]]:
    """Return what Hudi's change query says; its images are JSON, some with meta columns."""
    found = table.hudi.read(
        table.uri,
        {
            "hoodie.metadata.enable": "false",
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.query.incremental.format": "cdc",
            "hoodie.datasource.read.begin.instanttime": after,
            "hoodie.datasource.read.end.instanttime": until,
        },
    )
    images = ((row["op"], image(row["before"]), image(row["after"])) for row in found.to_pylist())
    return sorted(images, key=repr)


def image(text: str | None) -> dict[str, Any] | None:
    values = None if text is None else json.loads(text)
    return None if values is None else {name: values.get(name) for name in SCHEMA.names}


# What others left behind -----------------------------------------------------------------------


def test_a_metadata_table_is_never_left_behind(hudi: HudiPeer, tmp_path: Path) -> None:
    """Hudi lists files through it, so a write that it does not know of would be lost to Hudi."""
    with_index = {
        "hoodie.metadata.enable": "true",
        "hoodie.index.type": "RECORD_INDEX",
        "hoodie.metadata.record.index.enable": "true",
    }
    table = a_table(hudi, tmp_path / "t", partition_by="city", **with_index)
    table.write(FIRST, "insert")
    table.write(rows(("a", "sf", 2, 10), ("d", "ny", 1, 4)))
    table.write(FIRST.slice(1, 1), "delete")
    table.check_snapshot("writes with a metadata table", {"hoodie.metadata.enable": "true"})
    table.check_history(is_merge_on_read=True)
    assert table.open().inspect.timeline().num_rows == 3
    assert "record_index" in table.open().config.metadata_partitions
    kinds = check_timeline_bytes(table.path / ".hoodie/metadata" / TIMELINE)
    assert set(kinds) == {
        "deltacommit.requested=",
        "deltacommit.inflight=",
        "deltacommit.inflight=CommitMetadata",
        "deltacommit.completed=CommitMetadata",
    }
    table.open({"hoodie.index.type": "RECORD_INDEX"}).upsert(rows(("a", "sf", 3, 9)))
    found = fares(table.check_snapshot("our upsert", {"hoodie.metadata.enable": "true"}))
    assert found["a"] == 9
    assert table.open().inspect.validate_metadata().num_rows == 0
    table.write(rows(("a", "sf", 4, 11)), options={"hoodie.metadata.enable": "false", **SIMPLE})
    table.options |= {"hoodie.metadata.enable": "false", **SIMPLE}
    assert table.open().config.metadata_partitions == ()
    check_ours_writes_on(table, "a", "sf")


LISTS = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("ts", pa.int64()), ("l", pa.list_(pa.int32()))]
)


@pytest.mark.parametrize("markers", ["DIRECT", "TIMELINE_SERVER_BASED"])
def test_a_write_that_failed_half_way(hudi: HudiPeer, tmp_path: Path, markers: str) -> None:
    """Hudi cannot write null elements of lists by default, and notices inside the task."""
    has_server = str(markers != "DIRECT").lower()
    table = a_table(
        hudi,
        tmp_path / "t",
        **{
            "hoodie.write.markers.type": markers,
            "hoodie.embed.timeline.server": has_server,
            "hoodie.logfile.data.block.format": "parquet",
        },
    )
    table.write(rows(("a", 1, [1]), ("b", 1, [2]), schema=LISTS), "insert")
    with pytest.raises(HudiError, match="Array contains a null element"):
        table.write(rows(("a", 2, [1, None]), schema=LISTS))
    assert pending(table) == [("deltacommit", "inflight")]
    folder = table.path / ".hoodie/.temp" / requested_times(table, "deltacommit")[-1]
    if markers == "DIRECT":
        (marker,) = [path.name for path in folder.rglob("*.marker.*") if path.suffix != ".crc"]
    else:
        assert (folder / "MARKERS.type").read_text() == markers
        (marker,) = (folder / "MARKERS0").read_text().splitlines()
    assert ".log.1_" in marker
    assert marker.endswith(".marker.CREATE")
    table.check_snapshot("a failed write")
    table.open(SIMPLE).upsert(rows(("a", 3, [3]), schema=LISTS))
    expected = table.check_snapshot("our write past it")
    # A single writer of Hudi rolls back first, and never what lies below a later commit.
    with pytest.raises(HudiError, match="Found commits after time"):
        table.write(rows(("b", 3, [4]), schema=LISTS))
    lazy = {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.write.lock.provider": (
            "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
        ),
    }
    table.write(rows(("b", 3, [4]), schema=LISTS), options=lazy)
    found = table.check_snapshot("Hudi's write past it")
    assert len(found) == len(expected) == 2


def test_constants_of_locks_and_heartbeats(hudi: HudiPeer) -> None:
    """They are not in any file, so Hudi's own classes are asked."""
    found = hudi.run(
        """
loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
def value(of, field):
    found = spark._jvm.java.lang.Class.forName(of, True, loader).getDeclaredField(field)
    found.setAccessible(True)
    return found.get(None)
def option(of, field):
    found = value(of, field)
    return [found.key(), str(found.defaultValue())]
locks = "org.apache.hudi.config.StorageBasedLockConfig"
writes = "org.apache.hudi.config.HoodieWriteConfig"
result = {
    "drift": value(
        "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider", "CLOCK_DRIFT_BUFFER_MS"
    ),
    "validity": option(locks, "VALIDITY_TIMEOUT_SECONDS"),
    "renewal": option(locks, "RENEW_INTERVAL_SECS"),
    "interval": option(writes, "CLIENT_HEARTBEAT_INTERVAL_IN_MS"),
    "misses": option(writes, "CLIENT_HEARTBEAT_NUM_TOLERABLE_MISSES"),
    "positions": option(writes, "WRITE_RECORD_POSITIONS"),
}
"""
    )
    assert found == {
        "drift": CLOCK_DRIFT_MS,
        "validity": ["hoodie.write.lock.storage.validity.timeout.secs", "300"],
        "renewal": ["hoodie.write.lock.storage.renew.interval.secs", "30"],
        "interval": ["hoodie.client.heartbeat.interval_in_ms", "60000"],
        "misses": ["hoodie.client.heartbeat.tolerable.misses", "2"],
        "positions": ["hoodie.write.record.positions", "True"],
    }
    assert STORAGE_RENEW_INTERVAL.key == found["renewal"][0]
