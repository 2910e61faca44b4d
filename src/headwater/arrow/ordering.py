"""Ordering values: columns compared left to right, null before everything else.

Numbers compare as Java compares them, so NaN is the largest value and -0.0 is less than 0.0. Text
compares by its UTF-8 bytes; Java compares UTF-16 units, which differs only between characters
outside the basic plane and those from U+E000 to U+FFFF.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError

Mask: TypeAlias = npt.NDArray[np.bool_]
Positions: TypeAlias = npt.NDArray[np.int64]


def ordering_ranks(columns: Sequence[pa.Array], row_count: int) -> Positions:
    """Return numbers from 0 that compare as the rows' ordering values do, equal for equal values.

    Raises:
        InvalidInputError: a column's type has no order.
    """
    ranks = np.zeros(row_count, np.int64)
    for column in columns:
        comparable = _comparable(column)
        rank = to_numpy(pc.rank(comparable, "ascending", tiebreaker="dense")).astype(np.int64)
        if comparable.null_count:
            rank[to_numpy(comparable.is_null())] = 0
        if ranks.any():
            # Two columns' ranks are folded into one, which is made dense again so that many
            # columns do not overflow it.
            paired = ranks * (rank.max(initial=0) + 1) + rank
            rank = np.unique(paired, return_inverse=True)[1].astype(np.int64)
        ranks = rank
    return ranks


def is_not_less(new: Sequence[pa.Array], old: Sequence[pa.Array], row_count: int) -> Mask:
    """Return, row by row, whether the new ordering value is at least the old one.

    Raises:
        InvalidInputError: a column's type has no order.
    """
    result = np.ones(row_count, np.bool_)
    for new_column, old_column in zip(reversed(new), reversed(old), strict=True):
        a, b = _comparable(new_column), _comparable(old_column)
        greater, equal = to_mask(pc.greater(a, b)), to_mask(pc.equal(a, b))
        if a.null_count or b.null_count:
            a_null, b_null = to_numpy(a.is_null()), to_numpy(b.is_null())
            greater |= b_null & ~a_null
            equal |= a_null & b_null
        result = greater | (equal & result)
    return result


def is_all_null(columns: Sequence[pa.Array], row_count: int) -> Mask:
    """Return which rows have no ordering value at all."""
    result = np.ones(row_count, np.bool_)
    for column in columns:
        result &= to_numpy(column.is_null())
    return result


def to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    """Return an array without nulls as numpy, without a copy where Arrow allows it."""
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def to_mask(array: pa.Array) -> Mask:
    """Return a boolean array as a mask of its own, with null as false."""
    return to_numpy(pc.fill_null(array, False) if array.null_count else array).astype(np.bool_)


def _comparable(column: pa.Array) -> pa.Array:
    """Return the column as a type that Arrow ranks and compares in the format's order."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _comparable(column.cast(kind.value_type))
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_floating(kind):
        return _float_as_integer(column.cast(pa.float64()))
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise InvalidInputError(
            f"Values of type {kind} have no order, so they cannot order records. Choose an "
            "ordering column of numbers, text, dates or timestamps"
        )
    return column


def _float_as_integer(column: pa.Array) -> pa.Array:
    """Return integers that compare as Java compares the doubles."""
    values = to_numpy(pc.fill_null(column, 0.0))
    values = np.where(np.isnan(values), np.nan, values)
    bits = values.view(np.int64)
    # The bits of a negative double grow with its distance from zero, so they are turned round.
    ordered = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
    return pa.array(ordered, mask=to_numpy(column.is_null()))
