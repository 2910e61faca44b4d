"""Sharing entries out among the file groups of a partition of the metadata table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.kernel.format.index_definitions import IndexVersion
from headwater.kernel.index.entries import Entries, EntriesApart
from headwater.kernel.index.partition_kinds import data_partition_of, file_id, groups_of_keys


def share_out(
    partition: str,
    entries: Entries | EntriesApart,
    file_ids: Sequence[str],
    version: IndexVersion = IndexVersion.V2,
) -> Iterator[tuple[str, int, Entries]]:
    """Give the file ids of the file groups that entries concern, their numbers and their share.

    A partition of the table that a record index kept apart does not know yet begins with one file
    group. Whoever is the first to write to it makes it, under a name that follows from the
    partition: of two who are first at once, both write to the same one (INV-75).

    Args:
        file_ids: those of the file groups that there are, by their numbers.
        version: that of a secondary index.
    """
    if isinstance(entries, Entries):
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
    entries: Entries,
    group_count: int,
    version: IndexVersion = IndexVersion.V2,
) -> dict[int, Entries]:
    """Return what entries say to each file group, by the numbers of those that are concerned.

    `version` is that of a secondary index.
    """
    if not len(entries):
        return {}
    if group_count == 1:
        return {0: entries}
    kept = _positions(groups_of_keys(partition, entries.keys, group_count, version))
    gone = _positions(groups_of_keys(partition, entries.removed, group_count, version))
    nowhere = pa.array([], pa.int64())
    return {
        group: Entries(
            entries.keys.take(kept.get(group, nowhere)),
            entries.values.take(kept.get(group, nowhere)),
            entries.removed.take(gone.get(group, nowhere)),
        )
        for group in sorted({*kept, *gone})
    }


def _positions(groups: npt.NDArray[np.int64]) -> dict[int, pa.Int64Array]:
    """Return by group the positions that belong to it, in order."""
    order = np.argsort(groups, kind="stable")
    numbers, starts = np.unique(groups[order], return_index=True)
    parts = np.split(order, starts[1:]) if len(numbers) else []
    return {int(number): pa.array(part) for number, part in zip(numbers, parts, strict=True)}
