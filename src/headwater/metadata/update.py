"""What one instant tells the indexes of its table, written before the instant completes.

1. `prepare` derives the entries of each partition of the metadata table from the files that the
   instant added and removed, and writes one log file for each file group that is concerned, all
   of them together;
2. the transaction that completes the instant compares the partitions with those that the table has
   by then (M9), and puts the delta commit on the metadata table's timeline right before the
   instant's own completed file;
3. if they differ, `prepare` is called again: it writes logs for what came, and deletes those for
   what went.

What a crash leaves behind, by the last write that landed:

    after                      who repairs
    some or all log files      the instant's rollback, or the next attempt of the plan: both delete
                               logs by the names, which tell instant and attempt
    files of the delta commit  the same; entries of an instant that is not completed count for
                               nothing until then (INV-72)
    the completed file         nothing to repair

No writer fails because of an index that is not in use yet, or whose files are gone: it gets no
entries, and is not among those that the instant says it has covered. One that is in use and cannot
be told is another matter, for readers would miss what it lacks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from headwater.errors import (
    FencedError,
    HeadwaterError,
    StorageError,
)
from headwater.format.metadata.index_definitions import IndexDefinition, IndexVersion
from headwater.kernel.layout import METADATA, TableLayout
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.index_births import IndexBirth
from headwater.kernel.txn.metadata_commit import MetadataCommit, newest_indexing
from headwater.kernel.view.commits import CompletedCommit
from headwater.metadata.files_partition import files_records
from headwater.metadata.log_files import encode_metadata_log
from headwater.metadata.partition_files import (
    FIRST_LOG_VERSION,
    UPSERT,
    encode_metadata_commit,
    list_groups,
    log_stat,
)
from headwater.metadata.partition_kinds import FILES, PartitionKind, kind_of
from headwater.metadata.records import MetadataRecords, PartitionedRecords
from headwater.metadata.records_by_group import share_out
from headwater.metadata.table_change import TableChange
from headwater.model.commit_metadata import CommitMetadata, WriteStat
from headwater.model.files import DataFile, FileGroupId, LogFile, write_token
from headwater.model.instant import Action, Instant, InstantTime
from headwater.seams.batched_puts import BatchedPuts
from headwater.seams.kept_objects import KeptObjects
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)


class Derivation(Protocol):
    """What changes of the table mean to its indexes, by the definitions of one moment."""

    @property
    def definitions(self) -> Mapping[str, IndexDefinition]: ...

    @property
    def births(self) -> Mapping[str, IndexBirth]: ...

    def of_changes(
        self, partition: str, changes: Sequence[TableChange]
    ) -> MetadataRecords | PartitionedRecords:
        """Say what changes mean to a partition of the metadata table other than `files`."""
        ...


class MetadataUpdate:
    """The log files by which one attempt of an instant tells the indexes what it did."""

    def __init__(
        self,
        storage: Storage,
        layout: TableLayout,
        change: TableChange,
        attempt: int,
        seen: Iterable[str],
        begin: Callable[[], Derivation],
        load_in_use: Callable[[], Collection[str]] | None = None,
        timeline: Timeline | None = None,
        kept: KeptObjects | None = None,
    ) -> None:
        """Prepare nothing yet.

        Args:
            storage: the data table's.
            seen: the partitions that there seem to be now.
            begin: reads what the indexes are now; asked once for each preparation.
            load_in_use: reads from table config which of them are in use; None stands for all.
            timeline: the data table's, if it was listed before. Whatever comes later is noticed
                in the transaction, so it may be as old as the write.
            kept: where to keep what is said of files, for the next view of this process.
        """
        self._storage = storage
        self._layout = layout
        self._change = change
        self._attempt = attempt
        self._seen = frozenset(seen)
        self._begin = begin
        self._load_in_use = load_in_use
        self._timeline = timeline
        self._kept = kept
        self._paths: set[str] = set()
        self._ahead: MetadataCommit | None = None

    @property
    def seen(self) -> frozenset[str]:
        return self._seen

    def take_over(self, earlier: MetadataUpdate) -> None:
        """Take back what an earlier update of the same attempt wrote and this one does not."""
        self._paths |= earlier._paths

    def prepare_ahead(self) -> None:
        """Prepare now what `prepare` is first asked for, if nothing but the files is indexed.

        Raises: as `prepare`.
        """
        if self._seen == {FILES}:
            self._ahead = self.prepare(self._seen)

    def prepare(self, partitions: frozenset[str]) -> MetadataCommit:
        """Write the logs for these partitions, and take back what an earlier call wrote for others.

        Everything is derived anew each time: an index may have been dropped and begun again under
        its name, and what a service removes depends on what others have completed.

        Raises:
            StorageError: storage did not take a log.
            HeadwaterError: whatever the deriving raised.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.partitions == partitions:
            return ahead
        if not partitions:
            self._delete_except(())
            return MetadataCommit(partitions)
        # Before anything is derived, so that whatever comes later is noticed in the transaction.
        timeline = self._timeline or load_active(self._storage, self._layout.timeline)
        self._timeline = None  # A second call has to look again.
        # Once for all of them: it reads table config and definitions.
        derivation = self._begin() if partitions - {FILES} else None
        puts = BatchedPuts(self._storage)
        stats: list[WriteStat] = []
        covered: list[str] = []
        for partition in sorted(partitions):
            birth = None if derivation is None else derivation.births.get(partition)
            groups = list_groups(self._storage, partition, birth)
            definition = None if derivation is None else derivation.definitions.get(partition)
            if not groups and (definition is None or not definition.is_partitioned):
                self._warn(partition, "it has no file groups")
                continue
            try:
                if derivation is None or partition == FILES:
                    entries: MetadataRecords | PartitionedRecords = files_records([self._change])
                else:
                    entries = derivation.of_changes(partition, [self._change])
                stats += self._write(partition, groups, definition, entries, puts)
            except (FencedError, StorageError):
                raise
            except HeadwaterError as error:
                if self._is_in_use(partition):
                    raise
                # Its plan was cancelled while we looked, and took its definition along; or else
                # its builder finds that this instant did not tell it, and tells it itself (N-37).
                self._warn(partition, str(error))
            else:
                covered.append(partition)
        puts.flush()
        self._delete_except(f"{METADATA}/{stat.path}" for stat in stats)
        newest = timeline.completed[-1].completion_time if timeline.completed else InstantTime("")
        return MetadataCommit(
            partitions,
            encode_metadata_commit(stats, UPSERT, covered=covered),
            indexing=newest_indexing(timeline),
            seen_until=newest if self._depends_on_others(partitions) else None,
        )

    def _depends_on_others(self, partitions: Iterable[str]) -> bool:
        """Whether what others complete meanwhile changes the entries.

        A service takes keys out of record and secondary indexes, and must leave those that somebody
        else has put there since. What it says about files never depends on others.
        """
        by_key = (PartitionKind.RECORD_INDEX, PartitionKind.SECONDARY_INDEX)
        return not self._change.has_seen_all and any(kind_of(one) in by_key for one in partitions)

    def _is_in_use(self, partition: str) -> bool:
        return self._load_in_use is None or partition in self._load_in_use()

    def _warn(self, partition: str, reason: str) -> None:
        time = self._change.instant_time
        log.warning(
            "nothing is told to an index index=%s instant=%s reason=%s", partition, time, reason
        )

    def _write(
        self,
        partition: str,
        groups: Sequence[str],
        definition: IndexDefinition | None,
        entries: MetadataRecords | PartitionedRecords,
        puts: BatchedPuts,
    ) -> list[WriteStat]:
        version = IndexVersion.V2 if definition is None else definition.version
        shares = share_out(partition, entries, groups, version)
        return [self._put(partition, file_id, n, part, puts) for file_id, n, part in shares]

    def _put(
        self, partition: str, file_id: str, group: int, entries: MetadataRecords, puts: BatchedPuts
    ) -> WriteStat:
        time = self._change.instant_time
        data = encode_metadata_log(entries, partition, time, remembers=True)
        file = LogFile(
            partition,
            file_id,
            time,
            FIRST_LOG_VERSION,
            write_token(group, self._attempt, 0),
            size_bytes=len(data),
        )
        path = f"{METADATA}/{file.path}"
        self._paths.add(path)
        # A log under this name is one of this very attempt, from an earlier call.
        puts.add(path, data)
        if self._kept is not None and partition == FILES:
            self._kept.keep({file.path: data})
        return log_stat(file, written=len(entries.keys), deleted=len(entries.removed))

    def _delete_except(self, paths: Iterable[str]) -> None:
        unwanted = sorted(self._paths.difference(paths))
        self._storage.delete_many(unwanted)
        self._paths.difference_update(unwanted)


def change_of_commit(
    instant: Instant,
    metadata: CommitMetadata,
    inputs: Mapping[FileGroupId, tuple[DataFile, ...]] | None = None,
    *,
    has_seen_all: bool = True,
) -> TableChange:
    """Return what an instant with this commit metadata does to the files of the table.

    Args:
        inputs: the files that the rewritten and replaced groups had, see `TableChange`.

    Raises:
        CorruptTableError: the metadata lists what is no data file.
    """
    commit = CompletedCommit(instant, metadata)
    return TableChange(
        instant_time=instant.requested_time,
        action=instant.action,
        added=commit.files,
        replaced=tuple(commit.replaced_groups()),
        inputs=inputs or {},
        has_seen_all=has_seen_all,
    )


def change_of_clean(time: InstantTime, files: Iterable[DataFile]) -> TableChange:
    """Return what a clean that deletes these files does to the table."""
    return TableChange(instant_time=time, action=Action.CLEAN, removed=tuple(files))
