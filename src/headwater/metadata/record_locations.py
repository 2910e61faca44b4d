"""Records of `record_index` and `secondary_index_*`: index keys of rows, see `metadata.row_keys`.

The record index maps a key to one place. Where a table holds a key twice, which tables allow whose
own index looks within a partition only, the entry names one of the places: the one that was told
last, and within one instant the last by partition and file id. So a key that is missing in the
index is missing in the table, while other places may hold a key that is there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.format.metadata.records import (
    decode_record_locations,
    encode_record_locations,
    encode_secondary,
)
from headwater.metadata.index_keys import split_secondary_keys
from headwater.metadata.records import MetadataRecords
from headwater.model.files import FileGroupId
from headwater.model.instant import InstantTime, epoch_ms


@dataclass(frozen=True, slots=True)
class LocatedKeys:
    """Keys of rows in one file group."""

    group: FileGroupId
    index_keys: pa.StringArray
    instant_times: pa.StringArray | InstantTime
    """When the rows came there: of each, or of all."""


def record_index_records(
    placed: Collection[LocatedKeys], removed: pa.StringArray, *, is_utc: bool
) -> MetadataRecords:
    """Return the entries of the record index that say where records are, and which are gone.

    Args:
        placed: in the order of partition and file id.
        removed: keys that are not among those placed.
        is_utc: whether instant times are digits in UTC, or in the zone of this process.
    """
    if not any(len(each.index_keys) for each in placed):
        return MetadataRecords(pa.array([], pa.string()), pa.array([], pa.binary()), removed)
    keys = pa.concat_arrays([each.index_keys for each in placed])
    values = pa.concat_arrays(
        [
            encode_record_locations(
                each.group.partition,
                each.group.file_id,
                _epoch_ms_of_all(each.instant_times, len(each.index_keys), is_utc=is_utc),
            )
            for each in placed
            if len(each.index_keys)
        ]
    )
    keys, values = _last_of_each(keys, values)
    return MetadataRecords(keys, values, removed)


def built_record_index_records(placed: Collection[LocatedKeys], *, is_utc: bool) -> MetadataRecords:
    """Return the entries of a build, where a key may come again: the last of all counts then."""
    keys, indices, values = [], [], []
    value_count = 0
    for each in placed:
        times = _epoch_ms_of_all(each.instant_times, len(each.index_keys), is_utc=is_utc)
        keys.append(each.index_keys)
        indices.append(np.asarray(times.indices) + np.int32(value_count))
        values.append(
            encode_record_locations(each.group.partition, each.group.file_id, times.dictionary)
        )
        value_count += len(values[-1])
    return MetadataRecords(
        pa.concat_arrays(keys),
        pa.DictionaryArray.from_arrays(np.concatenate(indices), pa.concat_arrays(values)),
        pa.array([], pa.string()),
    )


def built_secondary_index_records(placed: Collection[LocatedKeys]) -> MetadataRecords:
    """Return the entries of a build of a secondary index, where a key may come again."""
    keys = pa.concat_arrays([each.index_keys for each in placed])
    alike = pa.DictionaryArray.from_arrays(np.zeros(len(keys), np.int32), encode_secondary(1))
    return MetadataRecords(keys, alike, pa.array([], pa.string()))


def secondary_index_records(index_keys: pa.StringArray, removed: pa.StringArray) -> MetadataRecords:
    """Return the entries of a secondary index; no index key is in both, and each there once."""
    return MetadataRecords(index_keys, encode_secondary(len(index_keys)), removed)


def gone_for_good(
    index_keys: pa.StringArray,
    held: MetadataRecords,
    *,
    groups: Collection[FileGroupId],
    unseen: Collection[InstantTime],
    is_secondary: bool,
    is_utc: bool,
) -> pa.StringArray:
    """Return those of the index keys which vanished from some file groups that an index may lose.

    A record may have gone to another file group, or come back by an instant that whoever read the
    groups did not see. The record index tells: it has the place and time that were told last.

    Args:
        index_keys: of the index in question, each once.
        held: what the record index has of their record keys.
        groups: the file groups that the index keys vanished from.
        unseen: instants that completed since, or that are not complete.
        is_secondary: whether the index keys are of a secondary index. Such an index key may also go
        if the
            record index does not know its record at all.
    """
    if not len(index_keys):
        return index_keys
    places = decode_record_locations(held.values)
    here = pc.is_in(
        _group_texts(places["partition_path"], places["file_id"]),
        value_set=_group_texts(
            pa.array([group.partition for group in groups], pa.string()),
            pa.array([group.file_id for group in groups], pa.string()),
        ),
    )
    late = pa.array([epoch_ms(time, is_utc=is_utc) for time in unseen], pa.int64())
    may_go = pc.and_(here, pc.invert(pc.is_in(places["instant_ms"], value_set=late)))
    record_keys = split_secondary_keys(index_keys)[1] if is_secondary else index_keys
    # A record index that is kept apart may have a key in several places.
    blocked = held.keys.filter(_one_piece(pc.invert(may_go)))
    allowed = pc.invert(pc.is_in(record_keys, value_set=blocked))
    if not is_secondary:
        allowed = pc.and_(allowed, pc.is_in(record_keys, value_set=held.keys))
    return index_keys.filter(allowed)


def _epoch_ms_of_all(
    times: pa.StringArray | InstantTime, count: int, *, is_utc: bool
) -> pa.DictionaryArray:
    if isinstance(times, str):
        zeros = pa.array(np.zeros(count, np.int32))
        return pa.DictionaryArray.from_arrays(
            zeros, pa.array([epoch_ms(InstantTime(times), is_utc=is_utc)], pa.int64())
        )
    encoded = times.dictionary_encode()
    distinct = [
        epoch_ms(InstantTime(time), is_utc=is_utc) for time in encoded.dictionary.to_pylist()
    ]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(distinct, pa.int64()))


def _last_of_each(
    keys: pa.StringArray, values: pa.BinaryArray
) -> tuple[pa.StringArray, pa.BinaryArray]:
    encoded = keys.dictionary_encode()
    if len(encoded.dictionary) == len(keys):
        return keys, values
    last = np.zeros(len(encoded.dictionary), np.int64)
    # Of several writes to one place numpy keeps the last.
    last[np.asarray(encoded.indices)] = np.arange(len(keys))
    return encoded.dictionary, values.take(pa.array(last))


def _group_texts(partitions: pa.Array, file_ids: pa.Array) -> pa.Array:
    return _one_piece(pc.binary_join_element_wise(file_ids, partitions, "/"))


def _one_piece(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column
