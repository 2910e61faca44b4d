"""Merging what several instants said to one file group of the metadata table (format rule 8.6).

Lists of files are united, statistics are widened unless the newer ones are tight, and of every
other record the newest counts. A record that says that it is deleted is as good as a removed key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptTableError, ErrorKind
from headwater.kernel.format.metadata_log import load_metadata_logs
from headwater.kernel.format.metadata_records import (
    FileInfo,
    decode_files,
    encode_files,
    merge_files,
)
from headwater.kernel.format.metadata_schema import RecordType
from headwater.kernel.format.record_merge import deleted_mask, merge_column_stats
from headwater.kernel.index.entries import Entries
from headwater.kernel.index.index_keys import ALL_PARTITIONS
from headwater.kernel.index.partition_kinds import PartitionKind, kind_of
from headwater.model.files import LogFile
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage

_STATISTICS = (PartitionKind.COLUMN_STATS, PartitionKind.PARTITION_STATS)
_SAYING_DELETED = (*_STATISTICS, PartitionKind.BLOOM_FILTERS, PartitionKind.SECONDARY_INDEX)


def load_logged(storage: Storage, logs: Sequence[LogFile]) -> list[Entries]:
    """Load what logs of completed instants say, in their order.

    `storage` is the metadata table's own.

    Raises:
        CorruptTableError: a log is missing or damaged, or has a block of an instant that is none of
            theirs: passing it over would lose entries.
        UnsupportedError: a block of a kind that the metadata table does not have.
    """
    times = {log.instant_time for log in logs}

    def is_theirs(time: InstantTime) -> bool:
        if time in times:
            return True
        raise CorruptTableError(
            f"A log of the metadata table {storage.uri} has a block of instant {time}, and none of "
            f"{', '.join(log.name for log in logs)} is of that instant. Drop the index and create "
            "it again",
            kind=ErrorKind.CORRUPT_METADATA_TABLE,
        )

    return load_metadata_logs(storage, logs, is_visible_instant=is_theirs)


def merge_entries(
    partition: str, logged: Sequence[Entries], *, base: Entries | None = None
) -> Entries:
    """Return what holds after entries were said one after the other, the oldest first.

    The answer has no removed keys. Keys come in any order, each once.

    Args:
        base: what was said before all of them, merged already.

    Raises:
        MalformedAvroError: a record that has to be looked into is damaged.
    """
    said = [part for part in logged if len(part)]
    held = Entries.none() if base is None else base
    kind = kind_of(partition)
    if kind is PartitionKind.FILES:
        return _merge_lists([held, *said]) if said else held
    for part in said:
        newer = _deleted_as_removed(part) if kind in _SAYING_DELETED else part
        if kind in _STATISTICS:
            newer = _widened(held, newer)
        held = _laid_over(held, newer)
    return held


def _laid_over(older: Entries, newer: Entries) -> Entries:
    said = pa.concat_arrays([newer.keys, newer.removed])
    is_kept = pc.invert(pc.is_in(older.keys, value_set=said))
    return Entries(
        pa.concat_arrays([older.keys.filter(is_kept), newer.keys]),
        pa.concat_arrays([older.values.filter(is_kept), newer.values]),
        pa.array([], pa.string()),
    )


def _widened(older: Entries, newer: Entries) -> Entries:
    """Return the newer statistics, widened by those that were known before."""
    before = older.values.take(pc.index_in(newer.keys, value_set=older.keys))
    return Entries(newer.keys, merge_column_stats(before, newer.values), newer.removed)


def _deleted_as_removed(part: Entries) -> Entries:
    is_deleted = deleted_mask(part.values)
    if not pc.any(is_deleted).as_py():
        return part
    is_kept = pc.invert(is_deleted)
    return Entries(
        part.keys.filter(is_kept),
        part.values.filter(is_kept),
        pa.concat_arrays([part.removed, part.keys.filter(is_deleted)]),
    )


def _merge_lists(parts: Iterable[Entries]) -> Entries:
    """Merge lists of files, which are few and long."""
    lists: dict[str, dict[str, FileInfo]] = {}
    alone: dict[str, bytes] = {}  # Lists that nothing was said about since, as they are.
    for part in parts:
        for key in part.removed.to_pylist():
            lists.pop(key, None)
            alone.pop(key, None)
        for key, value in zip(part.keys.to_pylist(), part.values.to_pylist(), strict=True):
            if key in alone:
                lists[key] = decode_files(alone.pop(key))
            if key in lists:
                lists[key] = merge_files(lists[key], decode_files(value))
            else:
                alone[key] = value
    values = dict(alone)
    for key, files in lists.items():
        # Everything older is in here, so a file that is gone needs no mention any more.
        living = {name: info for name, info in files.items() if not info.is_deleted}
        is_partitions = key == ALL_PARTITIONS
        record_type = RecordType.PARTITION_LIST if is_partitions else RecordType.FILE_LIST
        values[key] = encode_files(living, record_type)
    return Entries(
        pa.array(list(values), pa.string()),
        pa.array(list(values.values()), pa.binary()),
        pa.array([], pa.string()),
    )
