"""Evaluating what looks into arrays, maps and structs, with the answers of Spark."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError, check
from headwater.expressions.nodes import Call, Function, Literal

ELEMENTS = frozenset({Function.ELEMENT, Function.ELEMENT_FROM_ONE})
"""They fail for an array that is too short."""
CONTAINER_CALLS = ELEMENTS | {
    Function.FIELD,
    Function.ELEMENT_OR_NULL,
    Function.VALUE,
    Function.SIZE,
    Function.ARRAY_CONTAINS,
    Function.MAP_CONTAINS_KEY,
}


def call_on_containers(node: Call, values: pa.Array) -> pa.Array:
    """Return what a function of a container gives for each of them."""
    match node.function:
        case Function.SIZE:
            found = pc.list_value_length(_as_list(values))
        case Function.FIELD:
            found = pc.struct_field(values, _constant(node))
        case Function.VALUE:
            key = pa.scalar(_constant(node), values.type.key_type)
            found = pc.map_lookup(values, query_key=key, occurrence="first")
        case Function.MAP_CONTAINS_KEY:
            keys = _keys(values)
            found = _contains(keys, pa.scalar(_constant(node), keys.type.value_type))
        case Function.ARRAY_CONTAINS:
            found = _contains(values, pa.scalar(_constant(node), values.type.value_type))
        case _:
            found = _elements(node, values)
    return found if found.type == node.type else found.cast(node.type)


def _constant(node: Call) -> Any:
    constant = node.operands[1]
    check(isinstance(constant, Literal), "What is looked for is a literal")
    return cast(Literal, constant).value


def _elements(node: Call, arrays: pa.Array) -> pa.Array:
    given = _constant(node)
    lengths = pc.list_value_length(arrays)
    is_from_one = node.function is Function.ELEMENT_FROM_ONE
    is_from_end = is_from_one and given < 0
    needed = -given if is_from_end else given if is_from_one else given + 1
    has = pc.and_(pc.fill_null(pc.greater_equal(lengths, needed), False), needed > 0)
    if node.function in ELEMENTS:
        is_short = pc.and_(pc.is_valid(arrays), pc.invert(has))
        if pc.any(is_short, min_count=0).as_py():
            shortest = pc.min(pc.filter(lengths, is_short)).as_py()
            raise InvalidInputError(
                f"The index {given} is outside of an array of {shortest}. Use get(array, index) "
                "for null in its place"
            )
    counts = pc.fill_null(lengths, 0)
    starts = pc.subtract(pc.cumulative_sum(counts), counts)
    inside = pc.subtract(counts, needed) if is_from_end else needed - 1
    places = pc.if_else(has, pc.add(starts, inside), pa.scalar(None, starts.type))
    return pc.list_flatten(arrays).take(places)


def _contains(arrays: pa.Array, wanted: pa.Scalar) -> pa.Array:
    """Return true for arrays with a value; else null for those with a null, or that are null."""
    inside = pc.list_flatten(arrays)
    owners = pc.list_parent_indices(arrays)
    equal = pc.equal(inside, wanted)
    if pa.types.is_floating(inside.type) and wanted.as_py() != wanted.as_py():
        equal = pc.is_nan(inside)
    has_it = _owns_one(owners, pc.fill_null(equal, False), len(arrays))
    has_null = _owns_one(owners, pc.is_null(inside), len(arrays))
    is_known = pc.or_(has_it, pc.and_not(pc.is_valid(arrays), has_null))
    return pc.if_else(is_known, has_it, pa.scalar(None, pa.bool_()))


def _owns_one(owners: pa.Array, holds: pa.Array, count: int) -> pa.Array:
    chosen = owners.filter(holds).cast(pa.int64())
    return pc.is_in(pa.array(np.arange(count)), value_set=chosen)


def _as_list(values: pa.Array) -> pa.Array:
    return _keys(values) if pa.types.is_map(values.type) else values


def _keys(maps: pa.MapArray) -> pa.Array:
    """Return the keys of maps as arrays."""
    # A copy of the offsets: those of a slice take no mask.
    offsets = pc.add(maps.offsets, 0)
    return pa.ListArray.from_arrays(offsets, maps.keys, mask=pc.is_null(maps))
