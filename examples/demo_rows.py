"""The rows of the demo: every batch is a function of its numbers, so the end is known.

A record is a function of its key and its ordering value, and no two batches share an ordering
value. So whoever knows which batches were acknowledged knows every row of the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("fare", pa.float64()),
        pa.field("ts", pa.int64()),
    ]
)
CITIES = pa.array(["la", "ny", "sf", "tokyo"])
WRITERS_MAX = 10


class Batch(NamedTuple):
    """One batch of one writer; of `key_count` keys it touches two thirds."""

    writer: int
    number: int
    key_count: int

    @property
    def ts(self) -> int:
        return self.number * WRITERS_MAX + self.writer

    @property
    def keys(self) -> np.ndarray:
        """Other ones in each batch, and most of them keys that the other writers have too."""
        every = np.arange(self.key_count)
        kept: np.ndarray = every[(every + self.ts) % 3 != 0]
        return kept

    def rows(self) -> pa.Table:
        return records(self.keys, np.full(len(self.keys), self.ts))


def records(keys: np.ndarray, ts: np.ndarray) -> pa.Table:
    """Return the record of each key as of an ordering value."""
    numbers = pc.utf8_lpad(pa.array(keys).cast(pa.string()), 7, "0")
    ids = pc.binary_join_element_wise("trip-", numbers, "")
    fares = pa.array((keys * 7 + ts * 13) % 1000 / 10 + 3)
    cities = CITIES.take(pa.array(keys % len(CITIES)))
    return pa.table([ids, cities, fares, pa.array(ts)], schema=SCHEMA)


def expected(batches: Iterable[Batch], key_count: int) -> pa.Table:
    """Return what a table holds that took these batches, in whatever order: the largest `ts` wins.

    Nothing of Headwater has a part in it.
    """
    newest = np.full(key_count, -1)
    for batch in batches:
        keys = batch.keys
        newest[keys] = np.maximum(newest[keys], batch.ts)
    keys = np.flatnonzero(newest >= 0)
    return records(keys, newest[keys])
