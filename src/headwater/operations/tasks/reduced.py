"""One row a key of those that came to a file group, with the keys that they carry."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.keys import KeyGenerator, put_down
from headwater.arrow.merge_rule import MergeRule
from headwater.arrow.reduce import reduce_batch


def reduced(rows: pa.Table, keys: KeyGenerator, rule: MergeRule) -> pa.Table:
    """Return one row per key; see `reduce_batch`, whose functions see the columns of rows alone."""
    record_keys = keys.record_keys(rows)
    unique = reduce_batch(put_down(rows), record_keys, rule)
    # Keys are in the order in which they first appear.
    return keys.with_keys(unique, pc.unique(record_keys))
