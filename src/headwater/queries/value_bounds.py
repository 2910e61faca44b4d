"""What the smallest and largest value of a column say about conditions on it.

A set of values, those of one file or one partition, may hold a value that satisfies a condition, or
it cannot. The answer "cannot" is safe for rows that are merged of several files: each value of a
merged row is a value of one of them, so if none of them can satisfy the condition, no row does.

- Bounds leave NaN out, which is larger than every number: nothing follows for > and >= on floats.
- Null satisfies no comparison, so a column of nulls alone cannot match.
- Sets without values, such as a log of deletes, cannot match anything.
- Whatever is not known may match.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.queries.predicate import Comparison, Condition, Literal
from headwater.queries.row_filter import matching_values

Mask: TypeAlias = npt.NDArray[np.bool_]

LITERALS_MAX = 1_000
"""Of an IN list; a longer one spreads over most files anyway."""


@dataclass(frozen=True, slots=True)
class ValueBounds:
    """Bounds of a column in some sets of values, of the type the column has in the table.

    A null bound is one that is not known, or that of a set of nulls; the counts tell.
    """

    low: pa.Array
    high: pa.Array
    value_count: pa.Array
    """Nulls are counted. Null: not known."""
    null_count: pa.Array
    """Null: not known."""

    def __len__(self) -> int:
        return len(self.low)


def may_match(bounds: ValueBounds, condition: Condition) -> Mask:
    """Return for each set whether one of its values may satisfy a condition."""
    if condition.comparison is Comparison.IS_NULL:
        return ~_is_true(pc.equal(bounds.null_count, 0))
    has_values = ~_is_true(pc.equal(bounds.null_count, bounds.value_count))
    if condition.comparison is Comparison.IS_NOT_NULL:
        return has_values
    return has_values & ~_is_outside(bounds, condition)


def _is_outside(bounds: ValueBounds, condition: Condition) -> Mask:
    """Return for each set whether both bounds are known and the condition lies outside of them."""
    literals, column = condition.literals, condition.column
    nothing = np.zeros(len(bounds), np.bool_)
    is_floating = pa.types.is_floating(bounds.low.type)
    match condition.comparison:
        case Comparison.EQUAL:
            return _excludes(bounds, column, literals[0], literals[0])
        case Comparison.IN if 0 < len(literals) <= LITERALS_MAX:
            every: Mask = np.ones(len(bounds), np.bool_)
            for literal in literals:
                every &= _excludes(bounds, column, literal, literal)
            return every
        case Comparison.BETWEEN:
            return _excludes(bounds, column, literals[0], literals[1])
        case Comparison.LESS | Comparison.LESS_EQUAL:
            return _is_false(matching_values(bounds.low, condition))
        case Comparison.GREATER | Comparison.GREATER_EQUAL if not is_floating:
            return _is_false(matching_values(bounds.high, condition))
        case _:
            return nothing


def _excludes(bounds: ValueBounds, column: str, first: Literal, last: Literal) -> Mask:
    """Return where all values are below `first` or above `last`."""
    is_above = matching_values(bounds.low, Condition(column, Comparison.LESS_EQUAL, (last,)))
    is_below = matching_values(bounds.high, Condition(column, Comparison.GREATER_EQUAL, (first,)))
    return _is_false(is_above) | _is_false(is_below)


def _is_true(holds: pa.Array) -> Mask:
    return _numpy(pc.fill_null(holds, False))


def _is_false(holds: pa.Array) -> Mask:
    return ~_numpy(pc.fill_null(holds, True))


def _numpy(values: pa.Array | pa.ChunkedArray) -> Mask:
    mask: Mask = np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)
    return mask
