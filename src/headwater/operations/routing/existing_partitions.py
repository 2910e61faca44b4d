"""Partitions of records that stay where they are.

In a table whose index is one of the whole table a record stays in the partition that it was first
written to. A row for it that claims another partition gets the partition columns of the one where
the record is: readers skip partitions by these columns, so a row must have those of its path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.key_text import value_of_text
from headwater.arrow.keys import KeyGenerator
from headwater.operations.plan import WritePlan

Numbers = npt.NDArray[np.signedinteger[Any]]


def existing_partitions(
    plan: WritePlan, own: pa.DictionaryArray, tags: Numbers
) -> pa.DictionaryArray:
    """Return the partition that each row is written to: that of its slice, else its own."""
    places = {path: code for code, path in enumerate(own.dictionary.to_pylist())}
    numbers = {
        number: places.setdefault(partition, len(places))
        for partition, slices in plan.groups.slices.items()
        for number in slices
    }
    code_of = np.zeros(max(numbers, default=0) + 1, np.int32)
    code_of[list(numbers)] = list(numbers.values())
    codes = own.indices.to_numpy(zero_copy_only=False)
    codes = np.where(tags >= 0, code_of[np.maximum(tags, 0)], codes)
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32)), pa.array(list(places), pa.string())
    )


def with_existing_partitions(
    keys: KeyGenerator, rows: pa.RecordBatch, homes: pa.DictionaryArray
) -> pa.RecordBatch:
    """Return the rows with the partition columns that the paths of their homes tell.

    A column whose value the path does not tell, such as a formatted time, is left alone.
    """
    own = keys.partition_dictionary(rows).cast(pa.string())
    is_away = pc.not_equal(own, homes.cast(pa.string()))
    if not pc.any(is_away).as_py():
        return rows
    away = is_away.to_numpy(zero_copy_only=False)
    codes = homes.indices.to_numpy(zero_copy_only=False)
    for code in np.unique(codes[away]).tolist():
        mask = pa.array(away & (codes == code))
        for column, text in keys.partition_values(homes.dictionary[code].as_py()).items():
            if column in rows.schema.names:
                rows = _set_where(rows, column, text, mask)
    return rows


def _set_where(
    rows: pa.RecordBatch, column: str, text: str | None, mask: pa.BooleanArray
) -> pa.RecordBatch:
    at = rows.schema.get_field_index(column)
    held = rows.column(at)
    value = value_of_text(text, held.type)
    if value is None:
        return rows
    return rows.set_column(at, rows.schema.field(at), pc.if_else(mask, value[0], held))
