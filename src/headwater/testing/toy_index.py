"""An index as small as an index can be: it knows which data files the table has.

Its entries are JSON, paths that came and paths that went. Names, groups, slices and who counts are
the product's: the scenarios of index builds are about these, and not about contents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from zlib import crc32

from headwater.config.table import TableConfig
from headwater.format.properties import parse_properties
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.journal.storage import find_journal
from headwater.kernel.layout import METADATA, PROPERTIES
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.index_births import IndexBirth, births_of
from headwater.kernel.txn.index_plan import PlannedIndex, run_time, taken_in
from headwater.kernel.txn.metadata_commit import COVERED_KEY, MetadataCommit, newest_indexing
from headwater.metadata.indexing import Report
from headwater.metadata.partition_files import catchup_token, covered_partitions, list_groups
from headwater.metadata.partition_kinds import COLUMN_STATS, FILES, file_id
from headwater.metadata.table import METADATA_TABLE_TIMELINE, load_metadata_table
from headwater.model.commit_metadata import CommitMetadata, WriteStat
from headwater.model.files import BaseFile, DataFile, LogFile, write_token
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import CompactionPlan
from headwater.model.service_metadata import CleanMetadata
from headwater.seams.storage import Storage
from headwater.testing.rows import files_of
from headwater.testing.table import TIMELINE

INDEX = COLUMN_STATS
"""The partition under whose name the toy lives."""


def encode_toy(added: Iterable[str], removed: Iterable[str] = ()) -> bytes:
    return json.dumps([sorted(added), sorted(removed)]).encode()


@lru_cache(maxsize=10_000)
def decode_toy(data: bytes) -> tuple[frozenset[str], frozenset[str]]:
    added, removed = json.loads(data)
    return frozenset(added), frozenset(removed)


def change_of(storage: Storage, instant: Instant) -> tuple[list[str], list[str]]:
    """Return the data files that came and went with a completed instant."""
    (data,) = load_contents(storage, TIMELINE, [instant])
    return change_in(instant, data)


def change_in(instant: Instant, data: bytes) -> tuple[list[str], list[str]]:
    """Return the data files that came and went, as a completed file says."""
    if instant.action is Action.CLEAN:
        return [], list(_cleaned(data))
    return (files_of(data), []) if instant.action.completed_name.is_ingestion else ([], [])


@lru_cache(maxsize=10_000)
def _cleaned(data: bytes) -> tuple[str, ...]:
    metadata = decode_record(CleanMetadata, data, path="")
    return tuple(
        f"{partition}/{name}"
        for partition, cleaned in metadata.partition_metadata.items()
        for name in cleaned.success_delete_files
    )


def encode_toy_commit(stats: Iterable[WriteStat], covered: Iterable[str]) -> bytes:
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in stats:
        by_partition.setdefault(stat.partition_path or "", []).append(stat)
    return encode_record(
        CommitMetadata(
            partition_to_write_stats={name: tuple(by_partition[name]) for name in by_partition},
            extra_metadata={COVERED_KEY: ",".join(sorted(covered))},
            operation_type="UPSERT_PREPPED",
        )
    )


@lru_cache(maxsize=10_000)
def covered_in(data: bytes) -> frozenset[str]:
    """Return the partitions that a commit of the metadata table says it has covered."""
    return covered_partitions(decode_record(CommitMetadata, data, path=""))


def _put(storage: Storage, file: DataFile, data: bytes) -> WriteStat:
    storage.put(f"{METADATA}/{file.path}", data)
    return _stat(file, data)


def _stat(file: DataFile, data: bytes) -> WriteStat:
    return WriteStat(
        file_id=file.file_id,
        path=file.path,
        partition_path=file.partition,
        file_size_in_bytes=len(data),
    )


def _share(paths: Iterable[str], group: int, count: int) -> list[str]:
    return [path for path in paths if crc32(path.encode()) % count == group]


def births_in(storage: Storage) -> Mapping[str, IndexBirth]:
    """Return the plans that indexes of a fenced table are of."""
    if find_journal(storage)[0] is None:
        return {}
    properties = parse_properties(storage.read(PROPERTIES), path=PROPERTIES)
    return births_of(TableConfig.from_properties(properties, path=PROPERTIES))


def put_logs(
    storage: Storage,
    partition: str,
    time: InstantTime,
    token: Callable[[int], str],
    change: tuple[Sequence[str], Sequence[str]],
    birth: IndexBirth | None,
) -> list[WriteStat]:
    """Write what an instant says to the groups that the folder shows, or table config."""
    groups = list_groups(storage, partition, birth)
    stats = []
    for number, group in enumerate(groups):
        parts = [_share(paths, number, len(groups)) for paths in change]
        if any(parts):
            log = LogFile(partition, group, time, 1, token(number))
            stats.append(_put(storage, log, encode_toy(*parts)))
    return stats


@dataclass(frozen=True, slots=True)
class ToyContent:
    """What the product's index builds ask for, with toy entries."""

    storage: Storage

    def initialise(self, planned: PlannedIndex, time: InstantTime) -> None:
        for group in range(planned.group_count):
            name = file_id(planned.partition, group)
            log = LogFile(planned.partition, name, time, 1, write_token(0, 0, 0))
            _put(self.storage, log, encode_toy(()))

    def build(
        self, planned: PlannedIndex, attempt: Attempt, check: Callable[[], None], report: Report
    ) -> Sequence[WriteStat]:
        timeline = load_active(self.storage, TIMELINE)
        held: set[str] = set()
        for instant in taken_in(timeline, attempt.instant):
            added, removed = change_of(self.storage, instant)
            held = (held | set(added)) - set(removed)
        stats = []
        for group in range(planned.group_count):
            file = BaseFile(
                planned.partition,
                file_id(planned.partition, group),
                write_token(group, attempt.attempt, 0),
                attempt.instant,
                "hfile",
            )
            share = _share(held, group, planned.group_count)
            stats.append(_put(self.storage, file, encode_toy(share)))
        return stats

    def catch_up(
        self,
        partitions: frozenset[str],
        run: Sequence[Instant],
        timeline: Timeline,
        attempt: Attempt,
    ) -> Iterator[tuple[int, Sequence[WriteStat]]]:
        came: set[str] = set()
        went: set[str] = set()
        for instant in run:
            added, removed = change_of(self.storage, instant)
            came, went = (came | set(added)) - set(removed), went | set(removed)
        stats: list[WriteStat] = []
        births = births_in(self.storage)
        is_fenced = find_journal(self.storage)[0] is not None
        token = partial(catchup_token, attempt=attempt if is_fenced else None)
        for partition in sorted(partitions):
            change, birth = (sorted(came), sorted(went)), births.get(partition)
            stats += put_logs(self.storage, partition, run_time(run), token, change, birth)
        yield len(run), stats

    def encode_commit(self, stats: Sequence[WriteStat], covered: frozenset[str]) -> bytes:
        return encode_toy_commit(stats, covered)


@dataclass(frozen=True, slots=True)
class ToyUpdate:
    """What one attempt of an instant tells the toy; `files` is covered and told nothing."""

    storage: Storage
    time: InstantTime
    attempt: int
    change: tuple[Sequence[str], Sequence[str]]
    seen: frozenset[str]

    def prepare(self, partitions: frozenset[str]) -> MetadataCommit:
        newest = newest_indexing(load_active(self.storage, TIMELINE))

        def token(group: int) -> str:
            return write_token(group, self.attempt, 0)

        stats: list[WriteStat] = []
        births = births_in(self.storage) if partitions - {FILES} else {}
        for partition in sorted(partitions - {FILES}):
            birth = births.get(partition)
            stats += put_logs(self.storage, partition, self.time, token, self.change, birth)
        return MetadataCommit(partitions, encode_toy_commit(stats, partitions), indexing=newest)


@dataclass(frozen=True, slots=True)
class ToyFold:
    """The work of a compaction of the metadata table; `storage` is that table's own."""

    storage: Storage

    def undo_before(self, attempt: Attempt) -> None:
        """Undo nothing: the scenarios execute a plan once."""

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        name = file_name(attempt.instant, Action.COMPACTION, State.REQUESTED)
        data = self.storage.read(f"{METADATA_TABLE_TIMELINE}/{name}")
        stats = []
        for one in decode_record(CompactionPlan, data, path="").operations or ():
            partition, held = one.partition_path or "", frozenset[str]()
            for file in (one.data_file_path, *(one.delta_file_paths or ())):
                if file:
                    added, removed = decode_toy(self.storage.read(f"{partition}/{file}"))
                    held = (held | added) - removed
            token = write_token(0, attempt.attempt, 0)
            base = BaseFile(partition, one.file_id or "", token, attempt.instant, "hfile")
            self.storage.put(base.path, encode_toy(held))
            stats.append(_stat(base, encode_toy(held)))
        return encode_toy_commit(stats, ())


def look_up_all(storage: Storage, config: TableConfig, partition: str = INDEX) -> frozenset[str]:
    """Return the paths that a partition holds, by the product's slices."""
    timeline = load_active(storage, TIMELINE)
    held: frozenset[str] = frozenset()
    for one in load_metadata_table(storage, config, timeline).slices(partition):
        files: list[DataFile] = [] if one.base is None else [one.base]
        for file in (*files, *one.logs):
            added, removed = decode_toy(storage.read(f"{METADATA}/{file.path}"))
            held = (held | added) - removed
    return held


def rebuild(storage: Storage) -> frozenset[str]:
    """Return what the index must hold: the data files of the table."""
    held: frozenset[str] = frozenset()
    for instant in load_active(storage, TIMELINE).completed:
        added, removed = change_of(storage, instant)
        held = (held | frozenset(added)) - frozenset(removed)
    return held
