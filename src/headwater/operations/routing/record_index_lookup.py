"""Which file slices of a plan hold which record keys, by the record index of the metadata table.

An entry may be stale: one that names a file group which the plan does not have, because it was
replaced or is gone, counts as none. One that names a group in which the key is no longer found
does no harm: the row is written there as if it were new.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import load_active
from headwater.metadata.record_lookup import find_locations, find_locations_by_partition
from headwater.metadata.table import MetadataTable, load_metadata_table
from headwater.operations.plan import WritePlan
from headwater.operations.routing.partition_rows import rows_by_partition
from headwater.seams.cached import cached_property
from headwater.seams.storage import Storage

Numbers: TypeAlias = npt.NDArray[np.int64]

NO_SLICE = -1
_SEPARATOR = "\0"


def keys_by_partition(keys: pa.StringArray, paths: pa.DictionaryArray) -> dict[str, pa.StringArray]:
    """Return the keys of rows by the partitions of the rows."""
    return {path: keys.take(pa.array(rows)) for path, rows in rows_by_partition(paths)}


class RecordIndexLookup:
    """Looks keys up for one task."""

    def __init__(self, storage: Storage, plan: WritePlan, located: pa.Table | None = None) -> None:
        """Make a look-up.

        Args:
            located: where the keys are, if all were looked up before; see `find_locations`.
        """
        self._storage = storage
        self._plan = plan
        self._located = located
        self._number_of = {
            f"{one.group.partition}{_SEPARATOR}{one.group.file_id}": number
            for slices in plan.groups.slices.values()
            for number, one in slices.items()
        }

    def find(self, keys: pa.StringArray, paths: pa.DictionaryArray | None = None) -> Numbers:
        """Return for each key the number of the slice that holds it, `NO_SLICE` where none does.

        Args:
            paths: the partition of each row, in which an index that is kept apart by partitions
                looks its key up; None if the index is one of the whole table.

        Raises:
            CorruptTableError: the metadata table is missing or damaged.
        """
        found = self._located
        if found is None:
            found = (
                find_locations(self._table, keys)
                if paths is None
                else find_locations_by_partition(self._table, keys_by_partition(keys, paths))
            )
        known_keys = found["key"]
        if paths is not None:
            keys = pc.binary_join_element_wise(paths.cast(pa.string()), keys, _SEPARATOR)
            places = found["partition_path"].cast(pa.string())
            known_keys = pc.binary_join_element_wise(places, known_keys, _SEPARATOR)
        at = pc.index_in(keys.cast(pa.string()), value_set=known_keys)
        # Many keys are in few groups, and nothing is done for each key.
        partitions = found["partition_path"].cast(pa.string())
        groups = pc.binary_join_element_wise(partitions, found["file_id"], _SEPARATOR)
        encoded = groups.combine_chunks().dictionary_encode()
        known = [self._number_of.get(group, NO_SLICE) for group in encoded.dictionary.to_pylist()]
        numbers = np.array([*known, NO_SLICE], np.int64)
        owners: Numbers = numbers[encoded.indices.take(at).fill_null(len(known)).to_numpy()]
        return owners

    @cached_property
    def _table(self) -> MetadataTable:
        config = self._plan.config
        timeline = load_active(self._storage, table_layout(config).timeline)
        return load_metadata_table(self._storage, config, timeline)
