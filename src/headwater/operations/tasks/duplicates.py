"""Rows of an insert whose keys the table has, where they are to be dropped or refused.

All rows of a key have come to the task that has the slice of the key, so the slice is asked whether
the record is there: a key that an index still knows may be that of a record which is deleted.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.keys import KeyGenerator
from headwater.config.files import INSERT_DUPLICATES, DuplicatePolicy
from headwater.errors import ErrorKind, InvalidInputError
from headwater.model.files import FileSlice
from headwater.operations.plan import WritePlan
from headwater.slice.reader import SliceReader

_SHOWN_KEYS_MAX = 5


def without_existing(
    plan: WritePlan, reader: SliceReader, keys: KeyGenerator, file_slice: FileSlice, rows: pa.Table
) -> pa.Table:
    """Return the rows of an insert whose records are not in the slice that may have them.

    Raises:
        InvalidInputError: kind KEYS_EXIST, if the insert is to fail then.
        CorruptTableError: a file of the slice is missing or damaged.
    """
    if not plan.minds_duplicates or rows.num_rows == 0:
        return rows
    record_keys = keys.record_keys(rows)
    live = reader.live_keys(file_slice, record_keys)
    if len(live) and plan.files.duplicates is DuplicatePolicy.FAIL:
        shown = ", ".join(map(repr, live.slice(0, _SHOWN_KEYS_MAX).to_pylist()))
        raise InvalidInputError(
            f"Table {plan.config.name} has records of {len(live)} keys of an insert in partition "
            f"{file_slice.group.partition!r}, such as {shown}, and {INSERT_DUPLICATES.key}=fail "
            "refuses them. Nothing was written; use upsert, or the policy drop",
            kind=ErrorKind.KEYS_EXIST,
        )
    return rows.filter(pc.invert(pc.is_in(record_keys, value_set=live)))
