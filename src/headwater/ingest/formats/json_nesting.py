"""Values within structs, arrays and maps of JSON, for what Arrow's JSON does not know itself.

A map is an array of objects with `key` and `value`, as its keys need not be text, and a date is
text. So they are parsed, and so `headwater table read` writes them.
"""

from __future__ import annotations

import pyarrow as pa

from headwater.errors import InvalidInputError

_KEY, _VALUE = "key", "value"


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return what stands for a type in JSON: one without maps and dates, however deep."""
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_map(kind):
        entry = {_KEY: plain_type(kind.key_type), _VALUE: plain_type(kind.item_type)}
        return pa.list_(pa.struct(entry))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(plain_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    return kind


def from_plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array of `plain_type(kind)` as the type itself.

    Raises:
        InvalidInputError, pa.ArrowInvalid: a value does not fit.
    """
    if array.type == kind:
        return array
    missing = array.is_null()
    if pa.types.is_map(kind):
        entries = array.values
        keys, values = entries.flatten()
        if _within(array, keys).null_count:
            raise InvalidInputError("A map is an array of objects, each with a key and a value")
        keys, values = from_plain(keys, kind.key_type), from_plain(values, kind.item_type)
        made = pa.MapArray.from_arrays(array.offsets, keys, values, mask=missing)
    elif pa.types.is_list(kind):
        values = from_plain(array.values, kind.value_type)
        made = pa.ListArray.from_arrays(array.offsets, values, mask=missing)
    elif pa.types.is_struct(kind):
        parts = zip(array.flatten(), kind, strict=True)
        children = [from_plain(part, field.type) for part, field in parts]
        made = pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)
    else:
        return array.cast(kind)
    return made.cast(kind)  # Names and nullability of what is within.


def _within(lists: pa.Array, values: pa.Array) -> pa.Array:
    """Return those of the values that the lists have; a slice of them has not all."""
    ends = lists.offsets
    first, last = ends[0].as_py(), ends[-1].as_py()
    return values.slice(first, last - first)
