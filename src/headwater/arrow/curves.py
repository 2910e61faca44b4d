"""Orders of rows: by columns one after the other, or along a curve through all of them.

A curve keeps rows together that are near in every column, so that a filter on any of them leaves
out most files. Columns count by the rank of their values and not by the values themselves: ranks
are spread evenly whatever the values are, and every type that sorts has them. The z-order takes
bits from the ranks in turn; the Hilbert curve also turns the ranks on the way, so that two rows
next to each other on the curve are next to each other in space.

Nulls come last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.clustering import RowOrder
from headwater.errors import InvalidInputError

CURVE_COLUMNS_MAX = 16
"""More columns would leave fewer than four bits to each of them."""

_KEY_BITS = 63
_RANK_BITS_MAX = 20
"""A million steps in each column, more than any file has room for."""

_Places = Sequence[npt.NDArray[np.uint64]]


def sorted_positions(rows: pa.Table, columns: Sequence[str], order: RowOrder) -> pa.Array:
    """Return the positions of the rows in order; equal rows stay as they are to each other.

    Raises:
        InvalidInputError: see `check_sortable`.
    """
    check_sortable(rows.schema, columns, order)
    values = [_plain(rows[name]) for name in columns]
    if order is RowOrder.LINEAR or len(columns) == 1:
        keyed = pa.table(values, names=list(columns))
        # Arrow's sort is not stable: the place of a row decides last.
        keyed = keyed.append_column("", pa.array(np.arange(rows.num_rows)))
        keys = [(name, "ascending") for name in (*columns, "")]
        return pc.sort_indices(keyed, sort_keys=keys)
    bits = min(_RANK_BITS_MAX, _KEY_BITS // len(columns))
    places = [_scaled_ranks(column, bits) for column in values]
    if order is RowOrder.HILBERT:
        places = hilbert_transpose(places, bits)
    return pa.array(np.argsort(interleave(places, bits), kind="stable"))


def check_sortable(schema: pa.Schema, columns: Sequence[str], order: RowOrder) -> None:
    """Raise unless rows can be sorted by these columns.

    Raises:
        InvalidInputError: a column is missing, named twice or of a nested type, or a curve has too
            many of them.
    """
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise InvalidInputError(
            f"Rows cannot be sorted by {', '.join(unknown)}: the columns are "
            f"{', '.join(schema.names)}"
        )
    nested = [name for name in columns if pa.types.is_nested(schema.field(name).type)]
    if nested:
        raise InvalidInputError(
            f"Rows cannot be sorted by {', '.join(nested)}, whose values have no order. Choose "
            "columns of plain values"
        )
    if len(set(columns)) < len(columns):
        raise InvalidInputError(f"A column to sort by comes twice: {', '.join(columns)}")
    if order is not RowOrder.LINEAR and len(columns) > CURVE_COLUMNS_MAX:
        raise InvalidInputError(
            f"A {order} curve goes through {CURVE_COLUMNS_MAX} columns at most, got {len(columns)}"
        )


def interleave(places: _Places, bits: int) -> npt.NDArray[np.uint64]:
    """Return one number per row that takes the bits of its places in turn, highest first."""
    keys = np.zeros(len(places[0]), np.uint64)
    one = np.uint64(1)
    for bit in reversed(range(bits)):
        for column in places:
            keys = (keys << one) | ((column >> np.uint64(bit)) & one)
    return keys


def hilbert_transpose(places: _Places, bits: int) -> list[npt.NDArray[np.uint64]]:
    """Return places whose interleaved bits count along the Hilbert curve.

    The method is Skilling's: undo the turns of each level from the largest to the smallest, then
    take the Gray code of the result.
    """
    axes = [column.copy() for column in places]
    last = len(axes) - 1
    levels = [np.uint64(1 << bit) for bit in reversed(range(1, bits))]
    for level in levels:
        below = level - np.uint64(1)
        for number, axis in enumerate(axes):
            is_set = (axis & level) != 0
            swapped = np.where(is_set, np.uint64(0), (axes[0] ^ axis) & below)
            axes[0] = axes[0] ^ np.where(is_set, below, swapped)
            if number:
                axes[number] = axis ^ swapped
    for number in range(1, len(axes)):
        axes[number] = axes[number] ^ axes[number - 1]
    flips = np.zeros_like(axes[0])
    for level in levels:
        flips ^= np.where((axes[last] & level) != 0, level - np.uint64(1), np.uint64(0))
    return [axis ^ flips for axis in axes]


def _scaled_ranks(column: pa.ChunkedArray, bits: int) -> npt.NDArray[np.uint64]:
    """Return the rank of each value among the distinct ones, spread over so many bits."""
    ranks = pc.rank(column, "ascending", tiebreaker="dense")
    numbers: npt.NDArray[np.uint64] = ranks.to_numpy().astype(np.uint64) - np.uint64(1)
    distinct = int(numbers.max(initial=0)) + 1
    if distinct <= 1 << bits:
        # Small ranks go to the highest bits, where the other columns have theirs.
        return numbers << np.uint64(bits - max(1, (distinct - 1).bit_length()))
    return (numbers.astype(np.float64) * ((1 << bits) / distinct)).astype(np.uint64)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values in place of a dictionary, whose places have an order of their own."""
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column
