"""Keys in files whose records are gone: deleted by a log on top of the file.

A record that moves to another partition of a merge-on-read table leaves its key behind in a base
file, until compaction. Where the look-up finds a key in several slices, those count that have the
record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.files import FileSlice
from headwater.operations.plan import WritePlan
from headwater.operations.routing.key_summary import NOWHERE, Positions
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

    A key that no slice has the record of stays in the first.

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
    living: list[Positions] = []
    is_alive = np.zeros(len(keys), np.bool_)
    for number, positions in found:
        dead = _dead(reader, keys, positions[counts[positions] > 1], slices[number])
        living.append(np.setdiff1d(positions, dead, assume_unique=True))
        is_alive[living[-1]] = True
    kept: list[tuple[int, Positions]] = []
    for (number, positions), alive in zip(found, living, strict=True):
        orphans = positions[~is_alive[positions]]
        is_alive[orphans] = True
        kept.append((number, np.concatenate([alive, orphans])))
    return kept


def _dead(reader: SliceReader, keys: pa.StringArray, asked: Positions, one: FileSlice) -> Positions:
    if not len(asked) or not one.logs:
        return NOWHERE
    asked_keys = keys.take(pa.array(asked))
    is_alive = pc.is_in(asked_keys, value_set=reader.live_keys(one, asked_keys).combine_chunks())
    dead: Positions = asked[~is_alive.to_numpy(zero_copy_only=False)]
    return dead
