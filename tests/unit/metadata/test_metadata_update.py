"""What an instant tells the indexes, and what is left when the indexes change meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from tests.support.counting_storage import CountingStorage

from headwater.errors import ConflictError, ErrorKind, InvalidInputError
from headwater.format.metadata.index_definitions import IndexDefinition
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.table_config import update_table_config
from headwater.kernel.txn.index_births import IndexBirth
from headwater.kernel.txn.metadata_commit import COVERED_KEY
from headwater.metadata.partition_files import covered_partitions
from headwater.metadata.partition_kinds import file_id
from headwater.metadata.records import MetadataRecords, PartitionedRecords
from headwater.metadata.table_change import TableChange
from headwater.metadata.update import MetadataUpdate
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.instant import Action

MetadataBench = Any  # In conftest.py, which cannot be imported.


@dataclass(frozen=True)
class Derived:
    """Says the same to every index."""

    entries: Callable[[], MetadataRecords | PartitionedRecords]
    definitions: Mapping[str, IndexDefinition] = field(default_factory=dict)

    @property
    def births(self) -> dict[str, IndexBirth]:
        return {}

    def of_changes(
        self, partition: str, changes: Sequence[TableChange]
    ) -> MetadataRecords | PartitionedRecords:
        return self.entries()


A = "city=sf/a-0_0-1-0_{T}.parquet"
B = "city=ny/b-0_0-1-0_{T}.parquet"
OWN_TIMELINE = ".hoodie/metadata/.hoodie/timeline"


def test_a_commit_tells_its_files_and_keys(metadata: MetadataBench) -> None:
    done = metadata.process().commit(added=[A, B], told={"k1": b"1", "k2": b"2"})
    time = done.requested_time
    assert metadata.files() == [B.format(T=time), A.format(T=time)]
    assert metadata.keys() == {"k1": b"1", "k2": b"2"}
    own = metadata.table().timeline.get(time)
    assert own.completion_time == done.completion_time
    assert metadata.table().covered(time) == {"files", "record_index"}


def test_names_and_metadata_are_as_other_engines_expect_them(metadata: MetadataBench) -> None:
    done = metadata.process().commit(added=[A], told={"k1": b"1"})
    time = done.requested_time
    logs = [path for path in metadata.paths(time) if ".log." in path]
    assert f".hoodie/metadata/files/.files-0000-0_{time}.log.1_0-1-0" in logs
    path = f"{OWN_TIMELINE}/{time}_{done.completion_time}.deltacommit"
    content = decode_record(CommitMetadata, metadata.storage.read(path), path=path)
    assert content.operation_type == "UPSERT_PREPPED"
    assert (content.extra_metadata or {})[COVERED_KEY] == "files,record_index"
    assert "HoodieMetadataRecord" in (content.extra_metadata or {})["schema"]
    sizes = {stat.path: stat.file_size_in_bytes for stat in content.write_stats()}
    assert sizes == {
        log.removeprefix(".hoodie/metadata/"): metadata.storage.info(log).size_bytes for log in logs
    }
    for suffix in ("requested", "inflight"):
        assert metadata.storage.read(f"{OWN_TIMELINE}/{time}.deltacommit.{suffix}") == b""


def test_a_partition_that_nothing_is_said_to_is_covered(metadata: MetadataBench) -> None:
    time = metadata.process().commit(added=[A]).requested_time
    assert metadata.table().covered(time) == {"files", "record_index"}
    assert not [path for path in metadata.paths(time) if "record-index" in path]


def test_another_engine_covers_what_it_writes_to() -> None:
    assert covered_partitions(CommitMetadata(partition_to_write_stats={"files": ()})) == {"files"}


def test_removed_files_and_keys_are_gone(metadata: MetadataBench) -> None:
    process = metadata.process()
    first = process.commit(added=[A, B], told={"k1": b"1", "k2": b"2"}).requested_time
    process.commit(removed=[A.format(T=first)], told={"k1": None})
    assert metadata.files() == [B.format(T=first)]
    assert metadata.keys() == {"k2": b"2"}


def test_a_small_commit_writes_and_reads_little(metadata_bench: Callable[..., Any]) -> None:
    """What `files` adds to a commit, in calls to storage."""
    with_index = _calls_of_a_commit(metadata_bench(partitions=(("files", 1),)), ["files"])
    without = _calls_of_a_commit(metadata_bench(partitions=(("files", 1),)), None)
    assert with_index - without <= 8


def _calls_of_a_commit(bench: MetadataBench, partitions: list[str] | None) -> int:
    storage = CountingStorage(bench.storage)
    process = bench.process(storage=storage)
    process.commit(added=[A])
    storage.reset()
    write = process.begin()
    update = None if partitions is None else process.update(write, added=[A])
    write.commit(encode_record(CommitMetadata()), update=update)
    return storage.count()


def test_indexes_that_went_leave_no_logs(metadata: MetadataBench) -> None:
    """M9: the transaction refuses, and the commit prepares again for what there is then."""
    process = metadata.process()
    write = process.begin()
    update_table_config(
        metadata.storage,
        process.components.locks,
        metadata.clock,
        {"hoodie.table.metadata.partitions": "files"},
        lock_timeout_ms=1_000,
    )
    done = process.commit(write, added=[A], told={"k1": b"1"})
    logs = [path for path in metadata.paths(done.requested_time) if ".log." in path]
    assert [path.split("/")[2] for path in logs] == ["files"]
    assert metadata.table().covered(done.requested_time) == {"files"}


def test_an_index_that_came_is_told_too(metadata: MetadataBench) -> None:
    process = metadata.process()
    done = process.commit(added=[A], told={"k1": b"1"}, seen=["files"])
    assert metadata.table().covered(done.requested_time) == {"files", "record_index"}
    assert metadata.keys() == {"k1": b"1"}


def test_an_index_whose_files_are_gone_fails_no_writer(
    metadata: MetadataBench, caplog: pytest.LogCaptureFixture
) -> None:
    for path in metadata.paths("record-index"):
        metadata.storage.delete(path)
    done = metadata.process().commit(added=[A], told={"k1": b"1"})
    assert metadata.table().covered(done.requested_time) == {"files"}
    assert "no file groups" in caplog.text
    assert metadata.table().uncovered("record_index") is not None


def test_an_index_that_cannot_be_told_fails_only_who_relies_on_it(
    metadata: MetadataBench, caplog: pytest.LogCaptureFixture
) -> None:
    """N-37: the definition of a planned index may go with its plan at any moment."""
    write = metadata.process().begin()

    def fail() -> MetadataRecords:
        raise InvalidInputError("no definition")

    def update(in_use: list[str]) -> MetadataUpdate:
        change = TableChange(instant_time=write.instant_time, action=Action.COMMIT)
        seen = ["files", "record_index"]
        storage, layout = metadata.storage, metadata.layout
        return MetadataUpdate(
            storage, layout, change, 1, seen, lambda: Derived(fail), load_in_use=lambda: in_use
        )

    planned = update(["files"])
    prepared = planned.prepare(planned.seen)
    assert prepared.partitions == {"files", "record_index"}
    content = decode_record(CommitMetadata, prepared.content, path="")
    assert covered_partitions(content) == {"files"}
    assert "no definition" in caplog.text
    with pytest.raises(InvalidInputError):
        update(["files", "record_index"]).prepare(planned.seen)


def test_an_index_that_is_kept_apart_by_partitions_begins_groups_under_known_names(
    metadata: MetadataBench,
) -> None:
    write = metadata.process().begin()
    change = TableChange(instant_time=write.instant_time, action=Action.COMMIT)
    apart = IndexDefinition(
        index_name="record_index",
        index_type="record_index",
        index_options={"isPartitioned": "true"},
    )
    keys, none = pa.array(["a"]), pa.array([], pa.string())
    told = PartitionedRecords(
        {
            city: MetadataRecords(keys, pa.array([city.encode()]), none)
            for city in ("city=x", "city=y")
        }
    )
    update = MetadataUpdate(
        metadata.storage,
        metadata.layout,
        change,
        1,
        ["record_index"],
        lambda: Derived(lambda: told, {"record_index": apart}),
    )
    update.prepare(update.seen)
    names = [path.rpartition("/")[2] for path in metadata.paths(write.instant_time)]
    assert sorted(name.partition("_")[0] for name in names if "record-index" in name) == [
        f".{file_id('record_index', 0, 'city=x')}",
        f".{file_id('record_index', 0, 'city=y')}",
    ]


def test_without_indexes_nothing_is_written(metadata: MetadataBench) -> None:
    process = metadata.process()
    write = process.begin()
    prepared = process.update(write, added=[A]).prepare(frozenset())
    assert (prepared.partitions, prepared.content) == (frozenset(), b"")
    assert metadata.paths(write.instant_time) == []


def test_a_service_is_told_again_what_completed_since(metadata: MetadataBench) -> None:
    """The removals of a compaction depend on what others have completed."""
    process = metadata.process()
    write = process.begin()
    update = process.update(write, added=[A], has_seen_all=False)
    prepared = update.prepare(update.seen)
    metadata.process("other").commit(added=[B])
    with pytest.raises(ConflictError) as caught:
        write.commit(b"", update=_Prepared(prepared, update.seen))
    assert caught.value.kind is ErrorKind.INDEXES_CHANGED


def test_a_service_that_says_nothing_of_keys_waits_for_nobody(
    metadata_bench: Callable[..., Any],
) -> None:
    metadata = metadata_bench(partitions=(("files", 1),))
    process = metadata.process()
    write = process.begin()
    update = process.update(write, added=[A], has_seen_all=False)
    prepared = update.prepare(update.seen)
    metadata.process("other").commit(added=[B])
    write.commit(encode_record(CommitMetadata()), update=_Prepared(prepared, update.seen))
    assert len(metadata.files()) == 2


class _Prepared:
    """An update that is never prepared again."""

    def __init__(self, prepared: Any, seen: frozenset[str]) -> None:
        self._prepared = prepared
        self.seen = seen

    def prepare(self, partitions: frozenset[str]) -> Any:
        return self._prepared
