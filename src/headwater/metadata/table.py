"""Reading the metadata table: the entries of its partitions that count, merged.

One `MetadataTable` belongs to one listing of the data table's timeline and answers as of that
moment. What an instant said counts if the instant is completed on that timeline, or archived
(INV-72); what others committed since is passed over.

1. list the metadata table's timeline;
2. for a partition that is asked for, list its folder and cut its file groups into slices
   (`metadata_slices`);
3. read the logs of a group once, and of its base file what is asked for, and merge.

A log of an attempt that died and wrote late has the time of an instant that a later attempt
completed. Names show that there were several attempts, and then the metadata table's commit tells
which files are meant (M6).

Whatever is damaged, missing or behind the data table is never passed over in silence: reading
raises `CorruptTableError` of kind CORRUPT_METADATA_TABLE, and `is_behind` and `uncovered` say what
is not in there. Files may vanish under a reader that is slower than several compactions and cleans
of the metadata table; that is the same error, and whoever reads the data table then lists it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.table import TableConfig
from headwater.errors import (
    CorruptTableError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from headwater.files.hfiles import WHOLE_FILE_BYTES_MAX, open_hfile
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.hfile.reader import HFile
from headwater.format.metadata.index_definitions import IndexDefinition, IndexVersion
from headwater.format.timeline.records import decode_record
from headwater.kernel.index_definitions import load_index_definitions
from headwater.kernel.layout import HOODIE, METADATA
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import Timeline, instant_path, load_active
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.txn.index_births import births_of
from headwater.kernel.txn.index_plan import (
    changes_data_files,
    load_pending_plans,
)
from headwater.metadata.hfile_records import records_of_hfile
from headwater.metadata.merge_records import load_logged, merge_records
from headwater.metadata.partition_files import (
    covered_partitions,
    is_bootstrap_time,
    is_catchup_log,
    is_initial_log,
    is_of_birth,
    is_own,
)
from headwater.metadata.partition_kinds import (
    FILES,
    RECORD_INDEX,
    data_partition_of,
    group_count,
    group_number,
    groups_of_keys,
)
from headwater.metadata.records import MetadataRecords
from headwater.metadata.slices import MetadataSlice, newest_slices
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import BaseFile, DataFile, attempt_of, parse_data_file
from headwater.model.instant import Action, Instant, InstantTime
from headwater.seams.cached import cached_property
from headwater.seams.kept_objects import KeptObjects
from headwater.seams.prefetched_storage import PrefetchedStorage
from headwater.seams.storage import ObjectInfo, Storage
from headwater.seams.sub_storage import SubStorage

METADATA_TABLE_TIMELINE = f"{HOODIE}/timeline"
METADATA_TABLE_HISTORY = f"{HOODIE}/timeline/history"
"""Relative to the metadata table's own base."""
SLICES_KEPT = 2
"""As of how many compactions back the files of the metadata table are kept: a reader may hold a
view for as long as that many compactions take, some twenty commits."""


@dataclass(frozen=True, slots=True)
class _Partition:
    """The file groups of one partition, by the partition of the data table that they are for.

    Only a record index can be kept apart by partitions of the data table; the groups of every other
    index are under None.
    """

    groups: Mapping[str | None, tuple[MetadataSlice, ...]]

    @property
    def slices(self) -> tuple[MetadataSlice, ...]:
        return tuple(one for slices in self.groups.values() for one in slices)


def load_metadata_table(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    *,
    history: HistoryTimeline | None = None,
) -> MetadataTable:
    """Open the metadata table as of a listing of the data table's timeline: one listing.

    `storage` is the data table's. More is read when it is asked for.

    Raises:
        CorruptTableError: kind CORRUPT_METADATA_TABLE; its timeline is damaged.
    """
    return MetadataTable(storage, config, timeline, load_own_timeline(storage), history)


def before_compactions_since(own: Timeline, newest: InstantTime | None) -> Timeline:
    """Return the timeline of the metadata table as who saw the data table at a moment needs it.

    A compaction that came since has folded what that one does not know. Its input is still there,
    so it is passed over; if too many came for that, all of them are in the answer.

    Args:
        newest: the last completion time that was seen of the data table.
    """
    since = {
        i.requested_time
        for i in own.completed
        if i.action.completed_name is Action.COMMIT and i.requested_time > (newest or "")
    }
    if not since or len(since) > SLICES_KEPT:
        return own
    return Timeline(i for i in own.instants if i.requested_time not in since)


def load_own_timeline(storage: Storage) -> Timeline:
    """List the timeline of the metadata table inside a data table.

    Raises:
        CorruptTableError: kind CORRUPT_METADATA_TABLE; it is damaged.
    """
    inside = SubStorage(storage, METADATA)
    with _as_metadata_damage(inside):
        return load_active(inside, METADATA_TABLE_TIMELINE)


def list_own_files(storage: Storage, partition: str = "") -> list[DataFile]:
    """Return all files of the metadata table inside a data table, or of one partition of it."""
    return _data_files(SubStorage(storage, METADATA).list_tree(partition))


def _data_files(infos: Iterable[ObjectInfo]) -> list[DataFile]:
    parsed = (parse_data_file(info.path, info.size_bytes) for info in infos)
    return [file for file in parsed if file is not None]


def _small_files(slices: Iterable[MetadataSlice]) -> list[str]:
    files = (file for one in slices for file in (one.base, *one.logs) if file is not None)
    return [file.path for file in files if file.size_bytes <= WHOLE_FILE_BYTES_MAX]


class MetadataTable:
    """The metadata table as of one listing of the data table's timeline.

    Every method may raise `CorruptTableError` of kind CORRUPT_METADATA_TABLE.
    """

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        timeline: Timeline,
        own_timeline: Timeline,
        history: HistoryTimeline | None = None,
        files: Mapping[str, list[DataFile]] | None = None,
        kept: KeptObjects | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            files: those of partitions that were listed after the data table's timeline.
            kept: what this process knows of the partition of files, by paths of the metadata table.
        """
        self._data_storage = storage
        self._storage: Storage = SubStorage(storage, METADATA)
        self._config = config
        self._timeline = timeline
        self._history = history or HistoryTimeline(storage, table_layout(config).history)
        self._own_timeline = own_timeline
        self._own_history = HistoryTimeline(self._storage, METADATA_TABLE_HISTORY)
        self._completion_times: dict[InstantTime, InstantTime | None] = {}
        self._files: dict[str, list[DataFile]] = dict(files or {})
        self._kept = kept
        self._partitions: dict[str, _Partition] = {}
        self._base_files: dict[str, HFile] = {}
        self._logged: dict[tuple[str, str], list[MetadataRecords]] = {}
        self._commits: dict[InstantTime, CommitMetadata] = {}
        self._births = births_of(config)

    @property
    def uri(self) -> str:
        return self._storage.uri

    @property
    def storage(self) -> Storage:
        """The metadata table's own storage."""
        return self._storage

    @property
    def timeline(self) -> Timeline:
        """The metadata table's own timeline."""
        return self._own_timeline

    @cached_property
    def usable(self) -> frozenset[str]:
        """The partitions that may be read: in table config, and in no pending plan (INV-73)."""
        listed = frozenset(self._config.metadata_partitions)
        return listed - self.planned if listed else listed

    @cached_property
    def planned(self) -> frozenset[str]:
        """The partitions that pending index plans name."""
        folder = table_layout(self._config).timeline
        plans = load_pending_plans(self._data_storage, folder, self._timeline)
        return frozenset(one.partition for planned in plans.values() for one in planned)

    @cached_property
    def definitions(self) -> Mapping[str, IndexDefinition]:
        """The definitions of the indexes, by partition."""
        return load_index_definitions(self._data_storage, self._config)

    @cached_property
    def newest_compaction(self) -> InstantTime | None:
        """The requested time of the newest completed compaction of the metadata table.

        It has folded what completed before, so if this is later than every completion time of the
        data table's timeline that was given, it may have folded what that timeline does not know.
        """
        done = (i for i in self._own_timeline.completed if i.action.completed_name is Action.COMMIT)
        return max((instant.requested_time for instant in done), default=None)

    @property
    def is_behind(self) -> str | None:
        """Why the files partition cannot be trusted; None if it can."""
        return self.uncovered(FILES)

    def uncovered(self, partition: str) -> str | None:
        """Return why a partition cannot be trusted, or None if it can.

        It must be usable, have all its file groups, and hold what every instant said that completed
        since it was built. An instant that completed before all that are left on the metadata
        table's timeline is taken to be in there: only what was folded is archived. A base file that
        is lost needs no look: the one before it and the logs in between are still there.
        """
        if partition not in self.usable:
            return f"the index {partition} is not in use"
        slices = self._partition(partition).slices
        if not slices and self._has_no_records_yet(partition):
            return None
        if not slices:
            return f"the index {partition} has no files"
        empty = [one.file_id for one in slices if one.base is None and not one.logs]
        if self._is_partitioned(partition):
            empty = []  # Whoever has begun such a group is pending, and has told nothing yet.
        if empty or (partition == FILES and slices[0].base is None):
            return f"the index {partition} is not built"
        since = self._built(partition)
        for instant in self._timeline.completed_within_open_closed(since, None):
            if changes_data_files(instant) and not self._has_written_records(instant):
                return f"the metadata table has nothing of {instant}, which is completed"
        return self._lost_log(partition, slices)

    def group_count(self, partition: str) -> int:
        """Return over how many file groups a partition is spread."""
        return len(self._partition(partition).slices)

    def slices(
        self, partition: str, *, below: InstantTime | None = None
    ) -> tuple[MetadataSlice, ...]:
        """Return the newest slice of every file group of a partition, see `newest_slices`."""
        slices = self._partition(partition).slices
        if below is None:
            return slices
        files = list(self._committed(partition, self.list_files(partition)))
        lower = newest_slices(files, self._completion_times.get, below=below)
        return tuple(lower[one.file_id] for one in slices)

    def list_files(self, partition: str) -> list[DataFile]:
        """Return all files of a partition, whether they count or not.

        Those of an earlier index of the same name are none of it.
        """
        files = self._files.get(partition)
        if files is None:
            files = _data_files(self._storage.list_tree(partition))
            birth = self._births.get(partition)
            if birth is not None:
                files = [file for file in files if is_of_birth(file, birth)]
            self._files[partition] = files
        return files

    def unfolded_completion_times(self, partition: str) -> Iterator[InstantTime]:
        """Give the completion times of what lies in logs of a partition."""
        for one in self._partition(partition).slices:
            for log in one.logs:
                done = self._completion_times.get(log.instant_time)
                if done is not None and not is_initial_log(log):
                    yield done

    def completion_times(
        self, files: Iterable[DataFile]
    ) -> Callable[[InstantTime], InstantTime | None]:
        """Return when the instants of files completed, for those that count."""
        with _as_metadata_damage(self._storage):
            self._load_completion_times({file.instant_time for file in files})
        return self._completion_times.get

    def covered(self, time: InstantTime) -> frozenset[str]:
        """Return the partitions that an instant has told all it had to tell (H-48).

        One whose log files are gone, because the index was dropped meanwhile, is not among them.
        """
        found = self._own_timeline.find(time)
        if found is None or not found.is_completed:
            return frozenset()
        metadata = self._commit(found)
        stats = metadata.partition_to_write_stats or {}
        return frozenset(
            partition
            for partition in covered_partitions(metadata)
            if {stat.path for stat in stats.get(partition, ())}
            <= {file.path for file in self.list_files(partition)}
        )

    def look_up(
        self,
        partition: str,
        keys: pa.StringArray | Sequence[str],
        *,
        data_partition: str | None = None,
    ) -> MetadataRecords:
        """Return the entries of those keys that have one.

        `data_partition` is for a record index that is kept apart by partitions of the data table;
        without it such an index is asked for every one, and a key may have several entries.
        """
        wanted = keys if isinstance(keys, pa.Array) else pa.array(keys, pa.string())
        wanted = wanted.cast(pa.string()).drop_null().unique()
        asked = []
        for apart, slices in self._partition(partition).groups.items():
            if data_partition is not None and apart not in (None, data_partition):
                continue
            groups = groups_of_keys(partition, wanted, len(slices), self._version(partition))
            asked += [
                (slices[number], wanted.filter(pa.array(groups == number)))
                for number in sorted(set(groups.tolist()))
            ]
        look_up = partial(self._look_up_in, partition)
        return _joined(self._storage.at_once(lambda each: look_up(*each), asked))

    def told(self, partition: str, keys: Sequence[str] | None = None) -> list[MetadataRecords]:
        """Return what was said about some keys, by default about all, the oldest first, unmerged.

        Lists of files are read so: merged as records they would be encoded, to be decoded again.
        What logs say of other keys is among it: they say little, and who merges can pass it over.
        """
        wanted = None if keys is None else pa.array(keys, pa.string())
        found = []
        for one in self._partition(partition).slices:
            found.append(self._held_in_base(one, wanted))
            found += self._load_logged(partition, one)
        return found

    def scan(self, partition: str, prefix: str | Sequence[str]) -> MetadataRecords:
        """Return the entries whose keys begin with the prefix, or with one of several."""
        prefixes = [prefix] if isinstance(prefix, str) else list(prefix)
        scan = partial(self._scan_in, partition, prefixes)
        return _joined(self._storage.at_once(scan, self._partition(partition).slices))

    def read(
        self, partition: str, *, data_partition: str | None = None
    ) -> Iterator[MetadataRecords]:
        """Give all entries of a partition, one file group at a time.

        `data_partition` is for a record index that is kept apart by partitions of the data table.
        """
        for apart, slices in self._partition(partition).groups.items():
            if data_partition is None or apart == data_partition:
                for one in slices:
                    yield self.read_group(partition, one)

    def data_partitions(self, partition: str) -> frozenset[str]:
        """Return the partitions of the data table that an index is kept apart by; none if not."""
        groups = self._partition(partition).groups
        return frozenset(apart for apart in groups if apart is not None)

    def read_group(self, partition: str, one: MetadataSlice) -> MetadataRecords:
        """Return all entries of one file group. Nothing of its base file is kept."""
        with _as_metadata_damage(self._storage):
            parts, held = self._load_logged(partition, one), None
            if one.base is not None:
                base = open_hfile(self._storage, one.base.path, one.base.size_bytes)
                held = records_of_hfile(base, base.read_all())
            return merge_records(partition, parts, base=held)

    # What is visible -------------------------------------------------------------------------

    def _partition(self, partition: str) -> _Partition:
        known = self._partitions.get(partition)
        if known is None:
            with _as_metadata_damage(self._storage):
                known = self._partitions[partition] = self._load_partition(partition)
            if partition == FILES and (self._storage.is_distant or self._kept is not None):
                # Whoever asks for files needs all that is said of them.
                self._storage = PrefetchedStorage(
                    self._storage, _small_files(known.slices), self._kept
                )
        return known

    def _load_partition(self, partition: str) -> _Partition:
        files = self.list_files(partition)
        self._load_completion_times({file.instant_time for file in files})
        slices = newest_slices(self._committed(partition, files), self._completion_times.get)
        groups: dict[str | None, list[MetadataSlice]] = {}
        for one in sorted(slices.values(), key=lambda one: group_number(one.file_id)):
            apart = data_partition_of(one.file_id) if partition == RECORD_INDEX else None
            groups.setdefault(apart, []).append(one)
        for several in groups.values():
            group_count(one.file_id for one in several)
        return _Partition({apart: tuple(groups[apart]) for apart in groups})

    def _load_completion_times(self, times: set[InstantTime]) -> None:
        """Find out which instants count, and when they completed on the metadata table."""
        unknown = times - self._completion_times.keys()
        own = {time: self._own_timeline.find(time) for time in unknown}
        first = self._own_timeline.instants[0].requested_time if len(self._own_timeline) else None
        absent = [
            time
            for time in unknown
            if own[time] is None and (first is None or time < first or is_bootstrap_time(time))
        ]
        if absent:
            own |= self._own_history.find_all(absent)
        done = {
            time: instant
            for time, instant in own.items()
            if instant is not None and instant.is_completed
        }
        theirs = [
            time for time in done if not is_own(done[time]) and self._timeline.find(time) is None
        ]
        archived = self._history.find_all(theirs) if theirs else {}
        for time in unknown:
            completed = time in done and (
                is_own(done[time]) or time in archived or self._is_completed(time)
            )
            self._completion_times[time] = done[time].completion_time if completed else None

    def _is_completed(self, time: InstantTime) -> bool:
        instant = self._timeline.find(time)
        return instant is not None and instant.is_completed

    def _committed(self, partition: str, files: Iterable[DataFile]) -> Iterator[DataFile]:
        """Give the files without those of attempts that died (M6)."""
        attempts: dict[InstantTime, set[str]] = {}
        # Every instant tells the files partition, so its names show the attempts of all of them.
        for file in (*files, *(self.list_files(FILES) if partition != FILES else ())):
            if not _is_beside_attempts(file):
                attempts.setdefault(file.instant_time, set()).add(_attempt_text(file))
        for file in files:
            time = file.instant_time
            is_clear = _is_beside_attempts(file) or len(attempts[time]) == 1
            if (
                is_clear
                or self._completion_times.get(time) is None
                or file.path in self._written_paths(time)
            ):
                yield file

    def _written_paths(self, time: InstantTime) -> frozenset[str]:
        instant = self._own_timeline.find(time)
        metadata = self._archived_commit(time) if instant is None else self._commit(instant)
        return frozenset(stat.path or "" for stat in metadata.write_stats())

    def _commit(self, instant: Instant) -> CommitMetadata:
        (commit,) = self._load_commits([instant])
        return commit

    def _load_commits(self, instants: Sequence[Instant]) -> list[CommitMetadata]:
        unread = [i for i in instants if i.requested_time not in self._commits]
        with _as_metadata_damage(self._storage):
            contents = load_contents(self._storage, METADATA_TABLE_TIMELINE, unread)
            for instant, data in zip(unread, contents, strict=True):
                path = instant_path(METADATA_TABLE_TIMELINE, instant)
                self._commits[instant.requested_time] = decode_record(
                    CommitMetadata, data, path=path
                )
        return [self._commits[instant.requested_time] for instant in instants]

    def _archived_commit(self, time: InstantTime) -> CommitMetadata:
        known = self._commits.get(time)
        if known is None:
            archived = self._own_history.contents([time])[time]
            known = decode_record(CommitMetadata, archived.metadata, path=archived.path)
            self._commits[time] = known
        return known

    # What is covered -------------------------------------------------------------------------

    def _has_no_records_yet(self, partition: str) -> bool:
        """Whether an index that is kept apart has no file groups because the table has no rows."""
        return self._is_partitioned(partition) and not any(
            partition in (self._commit(instant).partition_to_write_stats or {})
            for instant in self._own_timeline.completed
        )

    def _built(self, partition: str) -> InstantTime | None:
        """Return when a partition was complete, as far as that can be told; see `uncovered`."""
        first = min(
            (
                i.completion_time
                for i in self._own_timeline.completed
                if not is_own(i) and i.completion_time is not None
            ),
            default=None,
        )
        begun = min(file.instant_time for file in self.list_files(partition))
        built = self._completion_times.get(begun)
        known = [time for time in (first, built) if time is not None]
        return max(known, default=None)

    def _lost_log(self, partition: str, slices: Sequence[MetadataSlice]) -> str | None:
        """Say what instants after the base files should have told a partition and is not there."""
        files = self.list_files(partition)
        folded = {one.file_id: self._folded_at(one.base) for one in slices}
        first = min(folded.values())  # Of an index that was built anew, this is when.
        told = self._times_in_files_partition() if partition == FILES else frozenset()
        unsure = [
            instant
            for instant in self._own_timeline.completed
            if not is_own(instant)
            and (instant.completion_time or "") >= first
            and instant.requested_time not in told
            and self._is_completed(instant.requested_time)
        ]
        paths = {file.path for file in files}
        for instant, metadata in zip(unsure, self._load_commits(unsure), strict=True):
            for stat in (metadata.partition_to_write_stats or {}).get(partition, ()):
                base = folded.get(stat.file_id or "", first)
                if stat.path not in paths and self._is_needed(stat.path or "", base):
                    return f"{stat.path}, which {instant} wrote, is missing"
        return None

    def _folded_at(self, base: BaseFile | None) -> InstantTime:
        """Return until when a base file takes in what was told; "" without one.

        Hudi makes an index of its own under a time that is none, of what the table has then.
        """
        if base is None:
            return InstantTime("")
        time = base.instant_time
        done = self._completion_times.get(time) if is_bootstrap_time(time) else None
        return done or time

    def _is_needed(self, path: str, base: str) -> bool:
        """Whether a file that a commit lists must be there beside a base file of a later time.

        What was folded may have been cleaned since. The commit of a build lists logs of other
        instants, which may have been taken back.
        """
        file = parse_data_file(path)
        if file is None:
            return True
        if isinstance(file, BaseFile):
            return file.instant_time >= base
        told = self._own_timeline.find(file.instant_time)
        if told is None or not self._is_completed(file.instant_time):
            return False
        return (told.completion_time or "") >= base

    def _times_in_files_partition(self) -> frozenset[InstantTime]:
        """Return the instants that are known to have told the list of files what they had to.

        It has one file group, so a log of it is all there is to be told. Builds write base files,
        which need no look, and those of other indexes tell it nothing.
        """
        logged = (file.instant_time for file in self.list_files(FILES))
        builds = (i.requested_time for i in self._timeline.instants if i.action is Action.INDEXING)
        return frozenset((*logged, *builds))

    def _has_written_records(self, instant: Instant) -> bool:
        found = self._own_timeline.find(instant.requested_time)
        if found is not None:
            return found.is_completed
        # Stock Hudi archives by requested times, so one that completed late may be archived.
        return self._own_history.find(instant.requested_time) is not None

    # What it says ----------------------------------------------------------------------------

    def _is_partitioned(self, partition: str) -> bool:
        definition = self.definitions.get(partition) if partition == RECORD_INDEX else None
        return definition is not None and definition.is_partitioned

    def _version(self, partition: str) -> IndexVersion:
        definition = self.definitions.get(partition) if partition != FILES else None
        return IndexVersion.V1 if definition is None else definition.version

    def _look_up_in(
        self, partition: str, one: MetadataSlice, keys: pa.StringArray
    ) -> MetadataRecords:
        said = [_with_keys(part, keys) for part in self._load_logged(partition, one)]
        with _as_metadata_damage(self._storage):
            return merge_records(partition, said, base=self._held_in_base(one, keys))

    def _scan_in(
        self, partition: str, prefixes: Sequence[str], one: MetadataSlice
    ) -> MetadataRecords:
        said = [_with_prefixes(part, prefixes) for part in self._load_logged(partition, one)]
        with _as_metadata_damage(self._storage):
            base = self._open_base(one)
            held = None if base is None else records_of_hfile(base, base.scan_prefixes(prefixes))
            return merge_records(partition, said, base=held)

    def _held_in_base(self, one: MetadataSlice, keys: pa.StringArray | None) -> MetadataRecords:
        with _as_metadata_damage(self._storage):
            base = self._open_base(one)
            if base is None:
                return MetadataRecords.none()
            held = base.read_all() if keys is None else base.look_up(keys)
            return records_of_hfile(base, held)

    def _open_base(self, one: MetadataSlice) -> HFile | None:
        if one.base is None:
            return None
        opened = self._base_files.get(one.base.path)
        if opened is None:
            opened = open_hfile(self._storage, one.base.path, one.base.size_bytes)
            self._base_files[one.base.path] = opened
        return opened

    def _load_logged(self, partition: str, one: MetadataSlice) -> list[MetadataRecords]:
        """Return what the logs of a group say, in merge order; each is read once."""
        logs = [log for log in one.logs if not is_initial_log(log)]
        place = (partition, "/".join(log.path for log in logs))
        known = self._logged.get(place)
        if known is None:
            with _as_metadata_damage(self._storage):
                known = load_logged(self._storage, logs)
            self._logged[place] = known
        return known


def _is_beside_attempts(file: DataFile) -> bool:
    """Whether no attempt of its instant wrote a file, so that the instant does not list it."""
    return is_initial_log(file) or is_catchup_log(file)


def _attempt_text(file: DataFile) -> str:
    number = attempt_of(file.write_token)
    return file.write_token if number is None else str(number)


def _with_keys(said: MetadataRecords, keys: pa.StringArray) -> MetadataRecords:
    is_meant = pc.is_in(said.keys, value_set=keys)
    is_gone = pc.is_in(said.removed, value_set=keys)
    return MetadataRecords(
        said.keys.filter(is_meant), said.values.filter(is_meant), said.removed.filter(is_gone)
    )


def _with_prefixes(said: MetadataRecords, prefixes: Sequence[str]) -> MetadataRecords:
    if "" in prefixes:
        return said
    is_meant = _begins_with(said.keys, prefixes)
    is_gone = _begins_with(said.removed, prefixes)
    return MetadataRecords(
        said.keys.filter(is_meant), said.values.filter(is_meant), said.removed.filter(is_gone)
    )


def _begins_with(keys: pa.StringArray, prefixes: Sequence[str]) -> pa.BooleanArray:
    masks = [pc.starts_with(keys, pattern=prefix) for prefix in prefixes]
    begins = pa.array([False] * len(keys), pa.bool_())
    for mask in masks:
        begins = pc.or_(begins, mask)
    return begins


def _joined(parts: Sequence[MetadataRecords]) -> MetadataRecords:
    return MetadataRecords(
        _chain([part.keys for part in parts], pa.string()),
        _chain([part.values for part in parts], pa.binary()),
        pa.array([], pa.string()),
    )


def _chain(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind)


@contextmanager
def _as_metadata_damage(storage: Storage) -> Iterator[None]:
    """Say of every kind of damage that it is the metadata table's."""
    try:
        yield
    except (
        CorruptTableError,
        InvalidInputError,
        MalformedAvroError,
        NotFoundError,
        UnsupportedError,
    ) as error:
        if isinstance(error, CorruptTableError) and error.kind is ErrorKind.CORRUPT_METADATA_TABLE:
            raise
        raise CorruptTableError(
            f"The metadata table {storage.uri} cannot be read: {error}. Drop its indexes and "
            "create them again",
            kind=ErrorKind.CORRUPT_METADATA_TABLE,
        ) from error
