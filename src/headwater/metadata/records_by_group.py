"""Sharing entries out among the file groups of a partition of the metadata table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.format.metadata.index_definitions import IndexVersion
from headwater.metadata.partition_kinds import data_partition_of, file_id, groups_of_keys
from headwater.metadata.records import MetadataRecords, PartitionedRecords


def share_out(
    partition: str,
    entries: MetadataRecords | PartitionedRecords,
    file_ids: Sequence[str],
    version: IndexVersion = IndexVersion.V2,
) -> Iterator[tuple[str, int, MetadataRecords]]:
    """Give the file ids of the file groups that entries concern, their numbers and their share.

    A partition of the table that a record index kept apart does not know yet begins with one file
    group. Whoever is the first to write to it makes it, under a name that follows from the
    partition: of two who are first at once, both write to the same one (INV-75).

    Args:
        file_ids: those of the file groups that there are, by their numbers.
        version: that of a secondary index.
    """
    if isinstance(entries, MetadataRecords):
        for number, part in split_by_group(partition, entries, len(file_ids), version).items():
            yield file_ids[number], number, part
        return
    known: dict[str | None, list[str]] = {}
    for one in file_ids:
        known.setdefault(data_partition_of(one), []).append(one)
    for apart, some in entries.by_partition.items():
        groups = known.get(apart) or [file_id(partition, 0, apart)]
        for number, part in split_by_group(partition, some, len(groups), version).items():
            yield groups[number], number, part


def split_by_group(
    partition: str,
    entries: MetadataRecords,
    group_count: int,
    version: IndexVersion = IndexVersion.V2,
) -> dict[int, MetadataRecords]:
    """Return what entries say to each file group, by the numbers of those that are concerned.

    `version` is that of a secondary index.
    """
    if not len(entries):
        return {}
    if group_count == 1:
        return {0: entries}
    kept = _runs(groups_of_keys(partition, entries.keys, group_count, version))
    gone = _runs(groups_of_keys(partition, entries.removed, group_count, version))
    # Once in the order of the groups; what one of them gets is a part of that.
    keys, values = entries.keys.take(kept.order), entries.values.take(kept.order)
    removed = entries.removed.take(gone.order)
    nowhere = slice(0, 0)
    return {
        group: MetadataRecords(
            keys[kept.places.get(group, nowhere)],
            values[kept.places.get(group, nowhere)],
            removed[gone.places.get(group, nowhere)],
        )
        for group in sorted({*kept.places, *gone.places})
    }


class _Runs(NamedTuple):
    order: pa.Int64Array
    """Positions by groups, those of a group in their order."""
    places: dict[int, slice]
    """Where each group is in that order."""


def _runs(groups: npt.NDArray[np.int64]) -> _Runs:
    order = np.argsort(groups, kind="stable")
    numbers, starts = np.unique(groups[order], return_index=True)
    bounds = pairwise([*starts.tolist(), len(groups)])
    places = {number: slice(*run) for number, run in zip(numbers.tolist(), bounds, strict=True)}
    return _Runs(pa.array(order), places)
