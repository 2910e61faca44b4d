"""What the logs of a file slice hold, as values the merge works on.

A list of parts is in merge order: a later part was written later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.meta_columns import RECORD_KEY
from headwater.arrow.record_marks import whole
from headwater.model.instant import InstantTime


@dataclass(frozen=True, slots=True)
class DataPart:
    """Rows of one data block: meta columns, then the data columns that were read.

    In a partial part a column that is absent keeps the older value of the row.
    """

    instant_time: InstantTime
    rows: pa.Table
    is_partial: bool = False

    @property
    def record_keys(self) -> pa.Array:
        return whole(self.rows[RECORD_KEY])

    def filter(self, is_kept: pa.Array) -> Self:
        return replace(self, rows=self.rows.filter(is_kept))


@dataclass(frozen=True, slots=True)
class DeletePart:
    """Keys of one delete block.

    `ordering` has one array per ordering field, as long as `record_keys`. A row whose values are
    all null, like every row of a part whose `ordering` is None, is a commit-time delete: it removes
    whatever came before it. The arrays have the types of the block, which may be narrower than the
    ordering columns, or the plain numbers of timestamps.
    """

    instant_time: InstantTime
    record_keys: pa.Array
    partition_paths: pa.Array
    ordering: tuple[pa.Array, ...] | None = None

    @property
    def ordered_keys(self) -> pa.Array:
        """The keys of deletes that have an ordering value, which records may still meet."""
        if not self.ordering:
            return self.record_keys.slice(0, 0)
        has_value = reduce(pc.or_, [column.is_valid() for column in self.ordering])
        return self.record_keys.filter(has_value)

    def filter(self, is_kept: pa.Array) -> Self:
        ordering = self.ordering
        return replace(
            self,
            record_keys=self.record_keys.filter(is_kept),
            partition_paths=self.partition_paths.filter(is_kept),
            ordering=None if ordering is None else tuple(one.filter(is_kept) for one in ordering),
        )


LogPart = DataPart | DeletePart
