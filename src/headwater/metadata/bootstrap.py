"""Bringing the metadata table and its partitions into the world, and out of it (format rule 8.5).

A partition begins as a folder with one log file for each of its file groups, which says nothing:
from then on the number of groups is fixed (INV-75). What the table holds already comes as base
files under a bootstrap time, `00000000000000000` and up, which is smaller than the time of every
data instant, so that whatever an instant logs lies on top, however early it was requested.

**A new table** has nothing to index. `create_metadata_table` writes the same bytes under the same
names whoever runs it, before table config makes the location a table: of several creators, or
after one that died, all leave one and the same metadata table.

    dies after                    leaves                      who repairs
    properties, partition files   no table, an unused folder  the next creator writes them again
    the bootstrap commit          no table, an empty index    the next creator finds it right
    table config                  a table with its index      -

**An index of a table in use** is initialised by `initialise_partition` before its plan is
requested; a crash leaves files that no config and no plan names, and the next plan begins by wiping
them. `write_base_files` may die anywhere: its files carry the attempt and count for nothing until
the commit that names them completes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby

from headwater.config.table import TableConfig, table_checksum
from headwater.format.hfile.writer import HFileAssembly, encode_hfile, sort_entries
from headwater.format.metadata.index_definitions import IndexVersion
from headwater.format.metadata.schema import METADATA_SCHEMA
from headwater.format.partition_metadata import (
    encode_partition_metadata,
    partition_metadata_path,
)
from headwater.format.properties import encode_properties
from headwater.kernel.layout import HOODIE, METADATA, PROPERTIES
from headwater.kernel.timeline.names import file_name
from headwater.metadata.files_partition import no_partitions
from headwater.metadata.log_files import encode_initial_log
from headwater.metadata.partition_files import (
    BULK_INSERT,
    FIRST_BOOTSTRAP_TIME,
    FIRST_LOG_VERSION,
    INITIAL_TOKEN,
    base_stat,
    encode_metadata_commit,
)
from headwater.metadata.partition_kinds import FILES, file_id
from headwater.metadata.records import MetadataRecords
from headwater.metadata.sorted_records import EncodedPart, RecordSorter
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import BaseFile, LogFile, write_token
from headwater.model.instant import Action, InstantTime, State, instant_time_after
from headwater.seams.batched_puts import BatchedPuts
from headwater.seams.storage import Storage
from headwater.seams.sub_storage import SubStorage

_CREATED_COMPLETION_TIME = InstantTime("00000000000001000")
"""When the bootstrap instants of a new table completed: the same for every creator, later than
their own times and earlier than everything else."""

_GATHERED_GROUP_BYTES_MAX = 4 * 1024 * 1024
"""Small base files are put together. One of more records is written as these are encoded, and never
held."""
_BASE_FILE_EXTENSION = "hfile"
_FOLDER_MARK = ".keep"


def metadata_properties(config: TableConfig) -> dict[str, str]:
    """Return the properties of a table's metadata table (format rule 8.1)."""
    name = f"{config.name}_metadata"
    return {
        "hoodie.table.name": name,
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": str(config.version),
        "hoodie.table.initial.version": str(config.version),
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.base.file.format": "HFILE",
        "hoodie.populate.meta.fields": "false",
        "hoodie.table.recordkey.fields": "key",
        "hoodie.table.keygenerator.type": "HOODIE_TABLE_METADATA",
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
        "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
        "hoodie.datasource.write.drop.partition.columns": "false",
        # Times are those of the table, so they are in its zone.
        "hoodie.table.timeline.timezone": str(config.timeline_timezone),
        "hoodie.table.checksum": str(table_checksum(None, name)),
    }


def ensure_metadata_table(storage: Storage, config: TableConfig) -> None:
    """Create the metadata table, without partitions, unless it is there.

    `storage` is the data table's. Safe to run twice and at the same time.
    """
    inside = SubStorage(storage, METADATA)
    if PROPERTIES.removeprefix(f"{HOODIE}/") in inside.list_names(HOODIE):
        return
    inside.put(f"{HOODIE}/timeline/history/{_FOLDER_MARK}", b"")
    properties = metadata_properties(config)
    inside.put(PROPERTIES, encode_properties(properties, comment="Properties of a metadata table"))


def create_metadata_table(
    storage: Storage, config: TableConfig, partitions: Sequence[tuple[str, int]] = ((FILES, 1),)
) -> None:
    """Create the metadata table of a table that has no files yet.

    `storage` is the data table's. Run it before the table's own config is written: a table whose
    config names partitions must have them.

    Args:
        partitions: names, each with the number of its file groups.
    """
    ensure_metadata_table(storage, config)
    time = FIRST_BOOTSTRAP_TIME
    for partition, group_count in partitions:
        _put_initial_files(storage, partition, group_count, time)
        entries = [no_partitions()] if partition == FILES else []
        stats = write_base_files(storage, partition, time, 0, entries, group_count)
        content = encode_metadata_commit(stats, BULK_INSERT, covered=[partition])
        for name, data in bootstrap_writes(time, _CREATED_COMPLETION_TIME, content):
            storage.put(f"{METADATA}/{HOODIE}/timeline/{name}", data)
        time = instant_time_after(time)


def bootstrap_writes(
    time: InstantTime, completion_time: InstantTime, content: bytes
) -> Iterator[tuple[str, bytes]]:
    """Give the timeline files of a bootstrap instant, names and contents, in writing order."""
    action = Action.DELTA_COMMIT
    yield file_name(time, action, State.REQUESTED), b""
    yield file_name(time, action, State.INFLIGHT), b""
    yield file_name(time, action, State.COMPLETED, completion_time), content


def initialise_partition(
    storage: Storage, partition: str, group_count: int, time: InstantTime
) -> None:
    """Begin a partition: its file groups appear.

    `storage` is the data table's. Only while neither table config nor a pending plan names the
    partition: from then on writers add to it.

    Args:
        time: the time that the partition will be built under.
    """
    _put_initial_files(storage, partition, group_count, time)


def write_base_files(
    storage: Storage,
    partition: str,
    time: InstantTime,
    attempt: int,
    entries: Iterable[MetadataRecords],
    group_count: int,
    version: IndexVersion = IndexVersion.V2,
    data_partition: str | None = None,
) -> list[WriteStat]:
    """Write the first records of a partition, one base file for each of its file groups.

    `storage` is the data table's. Records come in any order; of those with the same key the last
    counts. How many there are is bounded by local disk, not by memory (`sorted_records`).

    Args:
        version: that of a secondary index.
        data_partition: the partition of the table whose groups are meant, of a record index that
            is kept apart.

    Returns:
        What the commit under `time` has to list, see `encode_metadata_commit`.
    """
    stats = []
    puts = BatchedPuts(storage)
    with RecordSorter(partition, group_count, version) as sorter:
        sorter.add_all(entries)
        for group, parts in _each_group(sorter.encoded(), group_count):
            name = file_id(partition, group, data_partition)
            file = BaseFile(partition, name, write_token(group, attempt, 0), time)
            file, written = _write_base_file(storage, puts, file, parts)
            stats.append(base_stat(file, written=written))
    puts.flush()
    return stats


def _each_group(
    encoded: Iterable[EncodedPart], group_count: int
) -> Iterator[tuple[int, Iterable[EncodedPart]]]:
    """Give every file group with its parts, those without records too."""
    following = 0
    for group, parts in groupby(encoded, lambda one: one.group):
        yield from ((empty, ()) for empty in range(following, group))
        yield group, parts
        following = group + 1
    yield from ((empty, ()) for empty in range(following, group_count))


def _write_base_file(
    storage: Storage, puts: BatchedPuts, file: BaseFile, parts: Iterable[EncodedPart]
) -> tuple[BaseFile, int]:
    """Write a base file, and return it with its size, and how many records it has.

    A file under this name is one of the same attempt: its reply got lost, or it is outdated.
    """
    path = f"{METADATA}/{file._replace(extension=_BASE_FILE_EXTENSION).path}"
    assembly = HFileAssembly(schema=METADATA_SCHEMA, is_base_file=True)
    coming = iter(parts)
    first = next(coming, None)
    if first is None or first.group_bytes <= _GATHERED_GROUP_BYTES_MAX:
        some = [] if first is None else [first, *coming]
        blocks = [block for one in some for block in assembly.add(one.part)]
        puts.add(path, b"".join([*blocks, assembly.end()]))
    else:
        storage.delete(path)
        with storage.open_output(path) as sink:
            for one in chain([first], coming):
                for block in assembly.add(one.part):
                    sink.write(block)
            sink.write(assembly.end())
    file = file._replace(extension=_BASE_FILE_EXTENSION, size_bytes=assembly.size_bytes)
    return file, assembly.entry_count


def encode_base_file(file: BaseFile, entries: MetadataRecords) -> tuple[BaseFile, bytes]:
    """Return the base file with these entries, its size known, and its bytes."""
    keys, values = sort_entries(entries.keys, entries.values)
    data = encode_hfile(keys, values, schema=METADATA_SCHEMA, is_base_file=True)
    return file._replace(extension=_BASE_FILE_EXTENSION, size_bytes=len(data)), data


def _put_initial_files(
    storage: Storage, partition: str, group_count: int, time: InstantTime
) -> None:
    path = f"{METADATA}/{partition_metadata_path(partition)}"
    storage.put(path, encode_partition_metadata(partition, time))
    logs = (
        LogFile(partition, file_id(partition, group), time, FIRST_LOG_VERSION, INITIAL_TOKEN)
        for group in range(group_count)
    )
    storage.put_many({f"{METADATA}/{log.path}": encode_initial_log(time) for log in logs})
