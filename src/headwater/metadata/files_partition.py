"""The `files` partition of the metadata table: which files the table has (format rule 8.4).

One record, `__all_partitions__`, lists the partitions; each partition has one that lists its data
files with their sizes. An instant says only what it added or removed, and the records of all
instants together are what a listing of the table would show of committed files (INV-71).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.metadata.records import FileInfo, encode_files
from headwater.format.metadata.schema import RecordType
from headwater.metadata.merge_records import merge_lists
from headwater.metadata.partition_kinds import FILES
from headwater.metadata.records import MetadataRecords
from headwater.metadata.table import MetadataTable
from headwater.metadata.table_change import TableChange
from headwater.model.files import DataFile, parse_data_file
from headwater.seams.collector import collector_paused

ALL_PARTITIONS = "__all_partitions__"
NO_PARTITION = "."
"""The key of the only partition of a table without partitions."""

_GONE = FileInfo(0, is_deleted=True)
_PARTITION = FileInfo(0)


def files_records(changes: Iterable[TableChange]) -> MetadataRecords:
    """Return what changes of the table, one after the other, say to the files partition."""
    lists: dict[str, dict[str, FileInfo]] = {}
    touched: set[str] = set()
    for change in changes:
        for file in change.added:
            lists.setdefault(_key_of(file.partition), {})[file.name] = FileInfo(file.size_bytes)
            touched.add(_key_of(file.partition))
        for file in change.removed:
            lists.setdefault(_key_of(file.partition), {})[file.name] = _GONE
    return _entries(sorted(touched), lists)


def records_of_files(partitions: Iterable[str], files: Iterable[DataFile]) -> MetadataRecords:
    """Return the whole content of the files partition of a table with these files."""
    lists: dict[str, dict[str, FileInfo]] = {_key_of(partition): {} for partition in partitions}
    for file in files:
        lists.setdefault(_key_of(file.partition), {})[file.name] = FileInfo(file.size_bytes)
    listed = _entries(sorted(lists), lists)
    return listed if len(listed) else no_partitions()


def no_partitions() -> MetadataRecords:
    """Return the content of the files partition of a table that has no files."""
    value = encode_files({}, RecordType.PARTITION_LIST)
    return _arrays({ALL_PARTITIONS: value})


class MetadataFiles:
    """A file index (`kernel.view.file_index`) that asks the files partition.

    The answer holds the files of all instants that count for the metadata table it asks.
    """

    def __init__(self, table: MetadataTable) -> None:
        self._table = table
        self._last: tuple[Sequence[str], dict[str, dict[str, FileInfo]]] | None = None
        """What was asked for last: names and files of the same partitions are asked for in turn."""

    def list_partitions(self) -> list[str]:
        """Return the partition paths in order.

        Raises:
            CorruptTableError: kind CORRUPT_METADATA_TABLE.
        """
        partitions = self._lists([ALL_PARTITIONS]).get(ALL_PARTITIONS)
        if partitions is None:
            raise _corrupt(f"{self._table.uri} has no list of partitions")
        return sorted(_partition_of(key) for key in partitions)

    def list_data_files(self, partitions: Iterable[str] | None = None) -> list[DataFile]:
        """Return the data files of some partitions, by default of all.

        Raises:
            CorruptTableError: kind CORRUPT_METADATA_TABLE.
        """
        keys = None if partitions is None else [_key_of(one) for one in sorted(set(partitions))]
        files: list[DataFile] = []
        # A hundred thousand tuples at once are all kept, and the collector would look at each.
        with collector_paused():
            for key, listed in self._lists(keys).items():
                if key != ALL_PARTITIONS:
                    files += self._files_of(_partition_of(key), listed)
        return files

    def list_names(self, partitions: Iterable[str]) -> dict[str, Mapping[str, FileInfo]]:
        """Return the same by partition and name.

        Raises:
            CorruptTableError: kind CORRUPT_METADATA_TABLE.
        """
        chosen = sorted(set(partitions))
        keys = [_key_of(partition) for partition in chosen]
        lists = self._lists(keys)
        return {partition: lists.get(_key_of(partition), {}) for partition in chosen}

    def _files_of(self, partition: str, listed: Mapping[str, FileInfo]) -> list[DataFile]:
        prefix = f"{partition}/" if partition else ""
        found = []
        for name, info in listed.items():
            file = parse_data_file(prefix + name, info.size_bytes)
            if file is None:
                raise _corrupt(
                    f"{self._table.uri} lists {name!r} in partition {partition!r}, which is no name"
                    " of a data file"
                )
            found.append(file)
        return found

    def _lists(self, keys: Sequence[str] | None) -> dict[str, dict[str, FileInfo]]:
        if self._last is not None and self._last[0] == keys:
            return self._last[1]
        try:
            lists = merge_lists(self._table.told(FILES, keys), keys)
        except MalformedAvroError as error:
            raise _corrupt(f"A list of files of {self._table.uri} is damaged: {error}") from error
        # Those of a whole table may be a million.
        self._last = None if keys is None else (keys, lists)
        return lists


def _entries(partitions: list[str], lists: dict[str, dict[str, FileInfo]]) -> MetadataRecords:
    values = {key: encode_files(files, RecordType.FILE_LIST) for key, files in lists.items()}
    if partitions:
        listed = dict.fromkeys(partitions, _PARTITION)
        values[ALL_PARTITIONS] = encode_files(listed, RecordType.PARTITION_LIST)
    return _arrays(values)


def _arrays(values: dict[str, bytes]) -> MetadataRecords:
    return MetadataRecords(
        pa.array(list(values), pa.string()),
        pa.array(list(values.values()), pa.binary()),
        pa.array([], pa.string()),
    )


def _key_of(partition: str) -> str:
    return partition or NO_PARTITION


def _partition_of(key: str) -> str:
    return "" if key == NO_PARTITION else key


def _corrupt(problem: str) -> CorruptTableError:
    return CorruptTableError(
        f"{problem}. Drop the index `files` and create it again",
        kind=ErrorKind.CORRUPT_METADATA_TABLE,
    )
