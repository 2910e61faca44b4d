"""Keys in files whose records are gone: deleted by a log on top of the file.

A record that moves to another partition of a merge-on-read table leaves its key behind in a base
file, until compaction. Where the look-up finds a key in several slices, those count that have the
record; and if none has, the one that has a delete which records of the key must meet (INV-50).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.ordering import to_numpy
from headwater.model.files import FileSlice
from headwater.operations.plan import Operation, WritePlan
from headwater.operations.routing.key_summary import Positions
from headwater.seams.storage import Storage
from headwater.slice.reader import SliceReader

Found = Sequence[tuple[int, Positions]]
"""Numbers of slices, with the positions of the keys that they hold."""


def without_deleted_keys(
    storage: Storage,
    plan: WritePlan,
    keys: pa.StringArray,
    slices: Mapping[int, FileSlice],
    found: Found,
) -> Found:
    """Return where keys were found, without the slices that lost the record of one in several.

    A row that is written goes to the slices that have the record of its key, else to the first that
    has a delete it must meet, else to the first. A delete by key goes to all that have either.

    Args:
        found: see `KeyLookup.find`.

    Raises:
        CorruptTableError: a file is missing or damaged.
    """
    counts = np.zeros(len(keys), np.int64)
    for _, positions in found:
        counts[positions] += 1
    if counts.max(initial=0) <= 1:
        return found
    reader = plan.slice_reader(storage)
    claims = [
        _claims(reader, keys, positions, counts[positions] > 1, slices[number])
        for number, positions in found
    ]
    if plan.operation is Operation.DELETE:
        return [
            (number, positions[claim > _NOTHING])
            for (number, positions), claim in zip(found, claims, strict=True)
        ]
    best = np.full(len(keys), -1, np.int64)
    for (_, positions), claim in zip(found, claims, strict=True):
        best[positions] = np.maximum(best[positions], claim)
    is_taken = np.zeros(len(keys), np.bool_)
    kept: list[tuple[int, Positions]] = []
    for (number, positions), claim in zip(found, claims, strict=True):
        is_first = ~is_taken[positions] & (claim == best[positions])
        chosen = positions[is_first | (claim == _RECORD)]
        is_taken[chosen] = True
        kept.append((number, chosen))
    return kept


_NOTHING, _TOMBSTONE, _RECORD = range(3)


def _claims(
    reader: SliceReader,
    keys: pa.StringArray,
    positions: Positions,
    is_asked: npt.NDArray[np.bool_],
    one: FileSlice,
) -> Positions:
    """Return what a slice has of each of some keys that it names."""
    claims = np.full(len(positions), _RECORD, np.int64)
    if not is_asked.any() or not one.logs:
        return claims
    asked = keys.take(pa.array(positions[is_asked]))
    is_alive = pc.is_in(asked, value_set=reader.live_keys(one, asked).combine_chunks())
    is_deleted = pc.is_in(asked, value_set=reader.tombstones(one, asked).record_keys)
    claims[is_asked] = np.where(
        to_numpy(is_alive), _RECORD, np.where(to_numpy(is_deleted), _TOMBSTONE, _NOTHING)
    )
    return claims
