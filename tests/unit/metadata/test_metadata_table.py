"""What counts of the metadata table (INV-72), and that damage is never passed over."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.metadata.records import record_start
from headwater.format.metadata.schema import RecordType
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import METADATA
from headwater.kernel.timeline.active import instant_path
from headwater.metadata.bootstrap import (
    create_metadata_table,
    initialise_partition,
    write_base_files,
)
from headwater.metadata.files_partition import MetadataFiles, files_records
from headwater.metadata.log_files import encode_metadata_log
from headwater.metadata.partition_files import (
    BULK_INSERT,
    encode_metadata_commit,
)
from headwater.metadata.partition_kinds import file_id
from headwater.metadata.records import MetadataRecords
from headwater.metadata.records_by_group import split_by_group
from headwater.metadata.table_change import TableChange
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import parse_data_file
from headwater.model.instant import Action, InstantTime

MetadataBench = Any  # In conftest.py, which cannot be imported.

A = "city=sf/a-0_0-1-0_{T}.parquet"
B = "city=ny/b-0_0-1-0_{T}.parquet"
OWN_TIMELINE = ".hoodie/metadata/.hoodie/timeline"


def test_a_new_table_has_an_empty_index(metadata: MetadataBench) -> None:
    table = metadata.table()
    assert table.usable == {"files", "record_index"}
    assert table.is_behind is None
    assert table.uncovered("record_index") is None
    assert MetadataFiles(table).list_partitions() == []
    assert metadata.files() == []
    assert (table.group_count("files"), table.group_count("record_index")) == (1, 3)


def test_creators_of_one_table_leave_one_metadata_table(metadata: MetadataBench) -> None:
    before = {path: metadata.storage.read(path) for path in metadata.paths()}
    create_metadata_table(metadata.storage, metadata.config, metadata.partitions)
    assert {path: metadata.storage.read(path) for path in metadata.paths()} == before


def test_entries_of_an_instant_that_is_not_completed_do_not_count(metadata: MetadataBench) -> None:
    """INV-72: the process died between the metadata table's completed file and its own."""
    process = metadata.process()
    kept = process.commit(added=[A], told={"k": b"1"}).requested_time
    done = process.commit(added=[B], told={"k": b"2", "l": b"2"})
    metadata.storage.delete(instant_path(metadata.layout.timeline, done))
    assert metadata.files() == [A.format(T=kept)]
    assert metadata.keys() == {"k": b"1"}
    assert metadata.table().is_behind is None


def test_a_reader_sees_what_was_completed_when_it_listed_the_timeline(
    metadata: MetadataBench,
) -> None:
    process = metadata.process()
    first = process.commit(added=[A]).requested_time
    early = metadata.table()
    process.commit(added=[B])
    assert [file.path for file in MetadataFiles(early).list_data_files()] == [A.format(T=first)]
    assert early.is_behind is None


def test_of_two_attempts_the_one_counts_that_the_commit_names(metadata: MetadataBench) -> None:
    """M6: attempt 1 was taken over, and writes its logs after attempt 2 has completed."""
    process = metadata.process()
    write = process.begin()
    late = process.update(write, added=[A], told={"k": b"late", "x": b"late"})
    update = process.update(write, added=[B], told={"k": b"right"}, attempt=2)
    write.commit(encode_record(CommitMetadata()), update=update)
    late.prepare(late.seen)
    assert metadata.files() == [B.format(T=write.instant_time)]
    assert metadata.keys() == {"k": b"right"}


def test_a_table_that_is_ahead_of_its_index_is_noticed(metadata: MetadataBench) -> None:
    process = metadata.process()
    process.commit(added=[A])
    write = process.begin()
    write.commit(encode_record(CommitMetadata()))
    why = metadata.table().is_behind
    assert why is not None
    assert write.instant_time in why
    assert metadata.table().uncovered("record_index") is not None


def test_the_first_commit_without_a_counterpart_is_noticed(metadata: MetadataBench) -> None:
    write = metadata.process().begin()
    write.commit(encode_record(CommitMetadata()))
    assert metadata.table().is_behind is not None


def test_a_partition_that_is_not_listed_cannot_be_trusted(metadata: MetadataBench) -> None:
    assert metadata.table().uncovered("column_stats") is not None


def test_a_look_up_reads_what_it_needs_once(metadata: MetadataBench) -> None:
    process = metadata.process()
    for number in range(4):
        process.commit(added=[A], told={f"k{number}": b"1"})
    storage = metadata.storage
    metadata.storage = counting = CountingStorage(storage)
    table = metadata.table()
    counting.reset()
    files = MetadataFiles(table)
    assert len(files.list_data_files(["city=sf"])) == 4
    # A listing, the base file and four logs; the timeline was listed before.
    assert counting.counts == {"list_tree": 1, "read": 1, "read_many": 4}
    assert files.list_data_files(["city=ny"]) == []
    assert files.list_partitions() == ["city=sf"]
    assert counting.count() == 6


def test_look_ups_and_scans_agree_with_reading_all(metadata: MetadataBench) -> None:
    process = metadata.process()
    told = {f"{letter}{number}": b"v" for letter in "ab" for number in range(20)}
    process.commit(told=told)
    process.commit(told={"a3": None, "b4": b"new"})
    expected = {key: value for key, value in told.items() if key != "a3"} | {"b4": b"new"}
    assert metadata.keys() == expected
    table = metadata.table()
    found = table.look_up("record_index", ["a3", "a4", "b4", "b4", "nowhere"])
    assert metadata.told(found) == {"a4": b"v", "b4": b"new"}
    scanned = table.scan("record_index", "a")
    assert sorted(scanned.keys.to_pylist()) == sorted(key for key in expected if key[0] == "a")
    assert sorted(table.scan("record_index", ["a1", "b4"]).keys.to_pylist()) == sorted(
        key for key in expected if key.startswith(("a1", "b4"))
    )


def test_an_index_is_built(metadata: MetadataBench) -> None:
    """The parts that an index build is made of."""
    process = metadata.process()
    process.commit(told={"old": b"1"})
    storage = metadata.storage
    time = InstantTime("0" * 16 + "2")
    for info in storage.list_tree(f"{METADATA}/record_index"):
        storage.delete(info.path)
    initialise_partition(storage, "record_index", 2, time)
    content = [
        metadata.entries({"a": b"1", "b": b"2"}),
        metadata.entries({"c": b"3"}),
    ]
    stats = write_base_files(storage, "record_index", time, 1, content, 2)
    assert len(stats) == 2
    assert metadata.keys() == {}
    done = process.commit(told={"c": None})
    data = encode_metadata_commit(stats, BULK_INSERT, covered=["record_index"])
    storage.put(f"{OWN_TIMELINE}/{time}_{done.requested_time}.deltacommit", data)
    assert metadata.keys() == {"a": b"1", "b": b"2"}
    assert metadata.table().group_count("record_index") == 2


def test_a_record_index_kept_apart_by_partitions_is_asked_for_one_of_them(
    metadata: MetadataBench,
) -> None:
    """Such as Hudi makes them: one key may be in several partitions of the table."""
    storage = metadata.storage
    for info in storage.list_tree(f"{METADATA}/record_index"):
        storage.delete(info.path)
    done = metadata.process().commit(added=[A])
    time = done.requested_time
    for data_partition, group_total in (("city=sf", 1), ("city=ny", 2)):
        told = {f"k{number}": data_partition.encode() for number in range(6)}
        shared = split_by_group("record_index", metadata.entries(told), group_total)
        for group in range(group_total):
            name = file_id("record_index", group, data_partition)
            log = encode_metadata_log(shared[group], "record_index", time)
            path = f".hoodie/metadata/record_index/.{name}_{time}.log.1_0-1-0"
            storage.put(path, log)
    table = metadata.table()
    assert table.group_count("record_index") == 3
    one = table.look_up("record_index", ["k1", "k5"], data_partition="city=ny")
    assert metadata.told(one) == {"k1": b"city=ny", "k5": b"city=ny"}
    both = table.look_up("record_index", ["k1"])
    assert both.keys.to_pylist() == ["k1", "k1"]
    assert len(set(both.values.to_pylist())) == 2
    assert len(table.look_up("record_index", ["k1"], data_partition="city=la").keys) == 0


# Lists of files --------------------------------------------------------------------------------


def test_a_table_without_partitions_has_one_with_a_name_of_its_own() -> None:
    file = parse_data_file("a-0_0-1-0_20240101000000000.parquet", 5)
    assert file is not None
    change = TableChange(
        instant_time=InstantTime("20240101000000000"), action=Action.COMMIT, added=(file,)
    )
    assert files_records([change]).keys.to_pylist() == [".", "__all_partitions__"]


def test_a_clean_lists_no_partitions() -> None:
    file = parse_data_file("city=sf/a-0_0-1-0_20240101000000000.parquet")
    assert file is not None
    change = TableChange(
        instant_time=InstantTime("20240101000000009"), action=Action.CLEAN, removed=(file,)
    )
    assert files_records([change]).keys.to_pylist() == ["city=sf"]


# Damage ----------------------------------------------------------------------------------------


def answer_of(metadata: MetadataBench) -> list[tuple[str, int]] | ErrorKind | None:
    """Return the partitions and sizes of the listed files, what damage was told, or None for an
    index that is not trusted."""
    try:
        table = metadata.table()
        if table.is_behind is not None:
            return None
        return [(f.partition, f.size_bytes) for f in MetadataFiles(table).list_data_files()]
    except CorruptTableError as error:
        return error.kind


DAMAGED = ErrorKind.CORRUPT_METADATA_TABLE


def test_missing_logs_of_the_files_partition_are_noticed(metadata: MetadataBench) -> None:
    """A log that is listed and then gone, as under a very slow reader."""
    time = metadata.process().commit(added=[A]).requested_time
    table = metadata.table()
    assert table.is_behind is None
    for path in metadata.paths(time):
        if ".log." in path:
            metadata.storage.delete(path)
    with pytest.raises(CorruptTableError) as caught:
        MetadataFiles(table).list_data_files()
    assert caught.value.kind is ErrorKind.CORRUPT_METADATA_TABLE


def test_truncated_and_flipped_files_are_noticed(metadata: MetadataBench) -> None:
    metadata.process().commit(added=[A])
    whole = metadata.storage
    paths = [path for path in metadata.paths("files-0000-0") if "_0-0-0" not in path]
    paths += [path for path in metadata.paths("files-0000-0") if path.endswith(".hfile")]
    assert len(paths) == 2
    for path in paths:
        data = whole.read(path)
        for cut in (0, 1, len(data) // 2, len(data) - 1):
            metadata.storage = _with(whole, metadata, path, data[:cut])
            assert answer_of(metadata) is DAMAGED
        for at in range(0, len(data), max(len(data) // 60, 1)):
            flipped = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
            metadata.storage = _with(whole, metadata, path, flipped)
            # Many bytes mean nothing, such as paddings; but no answer may be another one.
            assert answer_of(metadata) in (DAMAGED, None, [("city=sf", 7)])


def _with(whole: Any, metadata: MetadataBench, path: str, data: bytes) -> MemoryStorage:
    copy = MemoryStorage(clock=metadata.clock)
    for info in whole.list_tree(""):
        copy.put(info.path, whole.read(info.path))
    copy.put(path, data)
    return copy


def test_a_missing_file_group_is_noticed(metadata: MetadataBench) -> None:
    metadata.process().commit(told={f"k{number}": b"1" for number in range(9)})
    for path in metadata.paths("record-index-0001-0"):
        metadata.storage.delete(path)
    with pytest.raises(CorruptTableError) as caught:
        metadata.table().uncovered("record_index")
    assert caught.value.kind is ErrorKind.CORRUPT_METADATA_TABLE


def test_no_files_at_all_is_noticed(metadata: MetadataBench) -> None:
    metadata.process().commit(added=[A])
    for path in metadata.paths():
        metadata.storage.delete(path)
    assert metadata.table().is_behind is not None


def test_two_completed_files_of_one_instant_are_noticed(metadata: MetadataBench) -> None:
    time = metadata.process().commit(added=[A]).requested_time
    metadata.storage.put(f"{OWN_TIMELINE}/{time}_{'9' * 17}.deltacommit", b"")
    assert answer_of(metadata) is DAMAGED


def test_a_record_that_is_no_list_is_noticed(metadata: MetadataBench) -> None:
    process = metadata.process()
    time = process.commit(added=[A]).requested_time
    (path,) = [path for path in metadata.paths(time) if ".log." in path]
    for junk in (b"junk", record_start(RecordType.FILE_LIST) + b"junk"):
        entries = MetadataRecords(
            pa.array(["city=sf"]), pa.array([junk], pa.binary()), pa.array([], pa.string())
        )
        metadata.storage.put(path, encode_metadata_log(entries, "files", time))
        assert answer_of(metadata) is DAMAGED


def test_a_file_of_another_partition_is_noticed(metadata: MetadataBench) -> None:
    time = metadata.process().commit(added=[A], told={"k": b"1"}).requested_time
    paths = [path for path in metadata.paths(time) if ".log." in path]
    (listed,) = [path for path in paths if "/files/" in path]
    (indexed,) = [path for path in paths if "/record_index/" in path]
    metadata.storage.put(listed, metadata.storage.read(indexed))
    assert answer_of(metadata) is DAMAGED


def test_removed_keys_of_another_partition_are_noticed(metadata: MetadataBench) -> None:
    time = metadata.process().commit(added=[A]).requested_time
    (listed,) = [path for path in metadata.paths(time) if ".log." in path]
    removed = metadata.entries({"k": None})
    log = encode_metadata_log(removed, "record_index", time)
    metadata.storage.put(listed, log)
    assert answer_of(metadata) is DAMAGED
