"""Which data files a table has in storage.

An index answers with what is there, committed or not; `table_view` decides what of it is visible.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from headwater.kernel.layout import HOODIE
from headwater.model.files import DataFile, parse_data_file
from headwater.seams.storage import ObjectInfo, Storage

PARTITION_METADATA = ".hoodie_partition_metadata"
"""The file that makes a folder a partition."""


class FileIndex(Protocol):
    """Partitions and data files of one table.

    An answer holds every file that was committed before the call and not cleaned since.
    """

    def list_partitions(self) -> list[str]:
        """Return the partition paths in order; a table without partitions has one, empty."""
        ...

    def list_data_files(self, partitions: Iterable[str] | None = None) -> list[DataFile]:
        """Return the data files of some partitions, by default of all."""
        ...


class ListingFileIndex:
    """A file index that lists storage: one call for the whole table, or one a partition."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def list_partitions(self) -> list[str]:
        splits = (info.path.rpartition("/") for info in self._list_table())
        return sorted(folder for folder, _, name in splits if name == PARTITION_METADATA)

    def list_data_files(self, partitions: Iterable[str] | None = None) -> list[DataFile]:
        if partitions is None:
            return _data_files(self._list_table())
        files = []
        for partition in sorted(set(partitions)):
            infos = self._storage.list_tree(partition) if partition else self._list_table()
            # A partition may lie below another one, as a table's base lies above all of them.
            files += [file for file in _data_files(infos) if file.partition == partition]
        return files

    def _list_table(self) -> list[ObjectInfo]:
        below_hoodie = f"{HOODIE}/"
        return [
            info for info in self._storage.list_tree("") if not info.path.startswith(below_hoodie)
        ]


def _data_files(infos: Iterable[ObjectInfo]) -> list[DataFile]:
    parsed = (parse_data_file(info.path, info.size_bytes) for info in infos)
    return [file for file in parsed if file is not None]
