"""Change the type of arrays without changing what they say.

Nested arrays are taken apart and put together again, by the names of their fields: Arrow's own
cast fills or renames fields only in some of the nestings that Avro has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.files import ALLOW_LOSSY_WIDENING
from headwater.errors import InvalidInputError

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

_EXACT_MAX: Mapping[pa.DataType, int] = {
    pa.float16(): 2**11 - 1,
    pa.float32(): 2**24 - 1,
    pa.float64(): 2**53 - 1,
}
"""The largest integer that shares its floating point number with no other."""


def convert_rows(
    rows: Rows, schema: pa.Schema, convert: Callable[[pa.Array | None, pa.Field], pa.Array]
) -> Rows:
    """Return rows with the columns of `schema`, each made by `convert`.

    Args:
        convert: gets a piece of the column of that name, or None if the rows have none.
    """
    columns = []
    for field in schema:
        column = rows.column(field.name) if field.name in rows.schema.names else None
        if column is None:
            filled = convert(None, field)
            columns.append(filled)
        elif isinstance(column, pa.ChunkedArray):
            chunks = [convert(chunk, field) for chunk in column.chunks]
            columns.append(pa.chunked_array(chunks, type=field.type))
        else:
            columns.append(convert(column, field))
    if not columns:
        # Without columns Arrow would forget how many rows there are.
        return rows.select([])
    return type(rows).from_arrays(columns, schema=schema)


def convert_array(
    array: pa.Array, field: pa.Field, path: tuple[str, ...], *, rounds: bool = True
) -> pa.Array:
    """Return an array as the type of `field`; fields that a struct lacks become null.

    Args:
        rounds: whether an integer that a floating point number cannot hold becomes the nearest one,
            as Avro reads it. Floating point numbers never become other integers than they are.

    Raises:
        InvalidInputError: a value does not fit the type, or is null where it must not be; the
            message has the column's path.
    """
    converted = _converted(array, field.type, path, rounds)
    if not field.nullable and converted.null_count:
        _raise_null(converted, path)
    return converted


def _converted(
    array: pa.Array, target: pa.DataType, path: tuple[str, ...], rounds: bool
) -> pa.Array:
    if array.type == target:
        return array
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.DictionaryArray):
        array = _with_plain_values(array).dictionary_decode()
    if isinstance(array, pa.RunEndEncodedArray):
        array = pc.run_end_decode(array)
    source = array.type
    if source == target:
        return array
    if pa.types.is_struct(target) and pa.types.is_struct(source):
        return _struct(array, target, path, rounds)
    if pa.types.is_map(target) and pa.types.is_map(source):
        return _map(array, target, path, rounds)
    if pa.types.is_list(target) and _is_list(source):
        return _list(array, target, path, rounds)
    is_rounded = pa.types.is_integer(source) and pa.types.is_floating(target)
    is_cut = pa.types.is_floating(source) and pa.types.is_integer(target)
    if is_cut or (is_rounded and not rounds):
        _check_exact(array, target, path)
    try:
        return pc.cast(array, target, safe=not is_rounded)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"Column {'.'.join(path)} cannot be turned from {source} into {target}: {error}. "
            "Cast or correct it before writing"
        ) from error


def _with_plain_values(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return an array without views in its dictionary, as Polars makes them: Arrow takes none."""
    kind = array.dictionary.type
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(kind)
    if plain is None:
        return array
    return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(plain))


def _check_exact(array: pa.Array, target: pa.DataType, path: tuple[str, ...]) -> None:
    """Refuse numbers that would become others, or may have become others before they came here.

    Beyond `_EXACT_MAX` neighbouring integers share one floating point number.
    """
    is_cut = pa.types.is_floating(array.type)
    most = _EXACT_MAX[array.type if is_cut else target]
    if not is_cut and 2**array.type.bit_width <= most:
        return  # No value of so short a type is that large.
    is_lost = pc.greater(array, pa.scalar(most, array.type))
    if not pa.types.is_unsigned_integer(array.type):
        is_lost = pc.or_(is_lost, pc.less(array, pa.scalar(-most, array.type)))
    if is_cut:
        is_lost = pc.or_(is_lost, pc.not_equal(pc.floor(array), array))
    row = pc.index(is_lost, True).as_py()
    if row >= 0:
        raise InvalidInputError(
            f"Column {'.'.join(path)} is {target} in the table but {array.type} in the rows, where "
            f"the value {array[row].as_py()} at position {row} is not sure to stay what it is: "
            f"only whole numbers from -{most} to {most} are the same in both types. Cast the "
            f"column to {target} before writing, correct the value, or accept that values are "
            f"rounded with {ALLOW_LOSSY_WIDENING.key}=true"
        )


def _struct(
    array: pa.StructArray, target: pa.StructType, path: tuple[str, ...], rounds: bool
) -> pa.Array:
    children = []
    for field in target:
        inner = (*path, field.name)
        place = array.type.get_field_index(field.name)
        if place < 0:
            children.append(null_array(len(array), field, inner))
            continue
        child = _converted(array.field(place), field.type, inner, rounds)
        if not field.nullable and child.null_count:
            # What a null struct holds does not matter.
            is_lost = pc.and_(pc.is_null(child), pc.is_valid(array))
            if pc.any(is_lost).as_py():
                _raise_null(child, inner)
        children.append(child)
    return pa.StructArray.from_arrays(children, fields=list(target), mask=pc.is_null(array))


def _list(array: pa.Array, target: pa.ListType, path: tuple[str, ...], rounds: bool) -> pa.Array:
    if not pa.types.is_list(array.type):
        array = pc.cast(array, pa.list_(array.type.value_field))
    offsets, start, count = _rebased(array)
    values = array.values.slice(start, count)
    values = convert_array(values, target.value_field, (*path, "element"), rounds=rounds)
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=pc.is_null(array))


def _map(array: pa.MapArray, target: pa.MapType, path: tuple[str, ...], rounds: bool) -> pa.Array:
    offsets, start, count = _rebased(array)
    keys = convert_array(
        array.keys.slice(start, count), target.key_field, (*path, "key"), rounds=rounds
    )
    items = convert_array(
        array.items.slice(start, count), target.item_field, (*path, "value"), rounds=rounds
    )
    return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=pc.is_null(array))


def _rebased(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Return offsets that begin at 0, and the span of the values they refer to.

    A slice shares offsets and values with its whole, which Arrow cannot combine with a mask.
    """
    offsets = array.offsets
    start, end = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    return pc.subtract(offsets, pa.scalar(start, offsets.type)), start, end - start


def _is_list(arrow: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(arrow)
        or pa.types.is_large_list(arrow)
        or pa.types.is_fixed_size_list(arrow)
    )


def null_array(count: int, field: pa.Field, path: tuple[str, ...]) -> pa.Array:
    """Return nulls for a column that rows do not have.

    Raises:
        InvalidInputError: the column must not be null, and there are rows.
    """
    if count and not field.nullable:
        raise InvalidInputError(
            f"Column {'.'.join(path)} is missing, and it must not be null. Add the column"
        )
    return pa.nulls(count, field.type)


def _raise_null(array: pa.Array, path: tuple[str, ...]) -> None:
    row = pc.index(pc.is_null(array), True).as_py()
    raise InvalidInputError(
        f"Column {'.'.join(path)} must not be null, but {array.null_count} of {len(array)} "
        f"value(s) are, the first at position {row}. Give each a value"
    )
