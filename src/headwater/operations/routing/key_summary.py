"""What is known of the keys of a base file without reading them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.format.bloom import BloomFilter
from headwater.format.parquet.base_file import BaseFileReader

Positions: TypeAlias = npt.NDArray[np.int64]

NOWHERE: Positions = np.zeros(0, np.int64)
_SUMMARY_BYTES = 1_000
"""What a summary without bloom filter takes, about."""


@dataclass(frozen=True, slots=True)
class KeySummary:
    """The smallest and largest key of a base file, and the bloom filter over all of them."""

    row_count: int | None
    """None: not known."""
    key_range: tuple[str, str] | None
    bloom: BloomFilter | None

    @property
    def size_bytes(self) -> int:
        bits = () if self.bloom is None else self.bloom.rows
        return _SUMMARY_BYTES + sum(row.nbytes for row in bits)

    def candidates(self, keys: pa.Array) -> Positions:
        """Return the positions of the keys that the file may hold."""
        if self.row_count == 0:
            return NOWHERE
        positions = np.arange(len(keys))
        if self.key_range is not None:
            low, high = self.key_range
            is_within = pc.and_(pc.greater_equal(keys, low), pc.less_equal(keys, high))
            positions = np.flatnonzero(is_within.to_numpy(zero_copy_only=False))
        if self.bloom is not None and len(positions):
            positions = positions[self.bloom.might_contain(keys.take(pa.array(positions)))]
        return positions


def summary_of_footer(reader: BaseFileReader, *, has_bloom: bool) -> KeySummary:
    """Return what the footer of a base file says.

    Raises:
        CorruptTableError: its bloom filter is malformed.
    """
    bloom = reader.bloom_filter() if has_bloom else None
    return KeySummary(reader.row_count, reader.key_range, bloom)
