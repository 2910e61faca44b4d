"""Merging what several instants said to one file group of the metadata table (format rule 8.6).

Lists of files are united, statistics are widened unless the newer ones are tight, and of every
other record the newest counts. A record that says that it is deleted is as good as a removed key.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.metadata.merge import standing_of, widen_column_stats
from headwater.format.metadata.records import (
    FileInfo,
    decode_files,
    encode_files,
    fold_files,
)
from headwater.format.metadata.schema import RecordType
from headwater.metadata.index_keys import ALL_PARTITIONS
from headwater.metadata.log_files import load_metadata_logs
from headwater.metadata.partition_kinds import PartitionKind, kind_of
from headwater.metadata.records import MetadataRecords
from headwater.model.files import LogFile
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage

# What a commit says about a few files, every commit after it hears again.
_REMEMBERED_COUNT = 1024
_REMEMBERED_BYTES_MAX = 1024

# So it hears what a base file holds, until the next one.
_REMEMBERED_LONG_COUNT = 4
_REMEMBERED_LONG_BYTES_MAX = 1024 * 1024

_STATISTICS = (PartitionKind.COLUMN_STATS, PartitionKind.PARTITION_STATS)
_SAYING_DELETED = (*_STATISTICS, PartitionKind.BLOOM_FILTERS, PartitionKind.SECONDARY_INDEX)


def load_logged(storage: Storage, logs: Sequence[LogFile]) -> list[MetadataRecords]:
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


def merge_records(
    partition: str, logged: Sequence[MetadataRecords], *, base: MetadataRecords | None = None
) -> MetadataRecords:
    """Return what holds after entries were said one after the other, the oldest first.

    The answer has no removed keys. Keys come in any order, each once.

    Args:
        base: what was said before all of them, merged already.

    Raises:
        MalformedAvroError: a record that has to be looked into is damaged.
    """
    said = [part for part in logged if len(part)]
    held = MetadataRecords.none() if base is None else base
    if not said:
        return held
    # A base file may be large, and little is said about what it holds.
    is_told = pc.is_in(held.keys, value_set=pa.concat_arrays(_keys_said(said)))
    told, untold = _filtered(held, is_told), _filtered(held, pc.invert(is_told))
    kind = kind_of(partition)
    is_lists = kind is PartitionKind.FILES
    merged = _united([told, *said]) if is_lists else _merged([told, *said], kind)
    return MetadataRecords(
        pa.concat_arrays([untold.keys, merged.keys]),
        pa.concat_arrays([untold.values, merged.values]),
        pa.array([], pa.string()),
    )


def merge_lists(
    said: Iterable[MetadataRecords], keys: Container[str] | None = None
) -> dict[str, dict[str, FileInfo]]:
    """Return the lists of the files partition, by key, after all that was said, the oldest first.

    With `keys` those of other keys are left out.

    Raises:
        MalformedAvroError: a list is damaged.
    """
    lists: dict[str, dict[str, FileInfo]] = {}
    for part in said:
        for key in part.removed.to_pylist():
            lists.pop(key, None)
        for key, value in zip(part.keys.to_pylist(), part.values.to_pylist(), strict=True):
            if keys is not None and key not in keys:
                continue
            files = _decoded(value)
            if key in lists:
                fold_files(lists[key], files)
            else:
                lists[key] = dict(files)  # What was decoded is remembered as it is.
    # Everything older is in here, so a file that is gone needs no mention any more.
    return {
        key: {name: info for name, info in files.items() if not info.is_deleted}
        for key, files in lists.items()
    }


def _decoded(value: bytes) -> Mapping[str, FileInfo]:
    if len(value) <= _REMEMBERED_BYTES_MAX:
        return _remembered(value)
    is_remembered = len(value) <= _REMEMBERED_LONG_BYTES_MAX
    return _remembered_long(value) if is_remembered else decode_files(value)


@lru_cache(_REMEMBERED_COUNT)
def _remembered(value: bytes) -> Mapping[str, FileInfo]:
    return decode_files(value)


@lru_cache(_REMEMBERED_LONG_COUNT)
def _remembered_long(value: bytes) -> Mapping[str, FileInfo]:
    return decode_files(value)


def _filtered(entries: MetadataRecords, mask: pa.BooleanArray) -> MetadataRecords:
    return MetadataRecords(entries.keys.filter(mask), entries.values.filter(mask), entries.removed)


def _keys_said(parts: Iterable[MetadataRecords]) -> list[pa.StringArray]:
    return [keys for part in parts for keys in (part.removed, part.keys)]


def _merged(parts: Sequence[MetadataRecords], kind: PartitionKind) -> MetadataRecords:
    """Merge records of any kind but lists of files, all at once."""
    encoded = pa.concat_arrays(_keys_said(parts)).dictionary_encode()
    # A key is removed by saying it without a value.
    values = pa.concat_arrays(
        [said for part in parts for said in (pa.nulls(len(part.removed), pa.binary()), part.values)]
    )
    is_gone = np.array(values.is_null())
    replaces = np.ones(len(values), np.bool_)
    if kind in _SAYING_DELETED:
        standing = standing_of(values.drop_null())
        replaces[~is_gone] = standing.replaces
        is_gone[~is_gone] = standing.is_gone
    keys = np.asarray(encoded.indices)
    order = np.arange(len(keys))
    since = np.zeros(len(encoded.dictionary), np.int64)
    # Of several writes to one place numpy keeps the last.
    since[keys[replaces]] = order[replaces]
    counting = order[~is_gone & (order >= since[keys])]
    counting = counting[np.argsort(keys[counting], kind="stable")]
    left, subjects = np.unique(keys[counting], return_inverse=True)
    merged = values.take(pa.array(counting))
    if kind in _STATISTICS:
        merged = widen_column_stats(merged, subjects)
    return MetadataRecords(
        encoded.dictionary.take(pa.array(left)), merged, pa.array([], pa.string())
    )


def _united(parts: Iterable[MetadataRecords]) -> MetadataRecords:
    """Merge lists of files."""
    lists = merge_lists(parts)
    values = [encode_files(files, _list_type(key)) for key, files in lists.items()]
    return MetadataRecords(
        pa.array(list(lists), pa.string()),
        pa.array(values, pa.binary()),
        pa.array([], pa.string()),
    )


def _list_type(key: str) -> RecordType:
    return RecordType.PARTITION_LIST if key == ALL_PARTITIONS else RecordType.FILE_LIST
