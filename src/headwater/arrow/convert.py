"""Change the type of arrays without changing what they say.

Nested arrays are taken apart and put together again, by the names of their fields: Arrow's own
cast fills or renames fields only in some of the nestings that Avro has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


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


def convert_array(array: pa.Array, field: pa.Field, path: tuple[str, ...]) -> pa.Array:
    """Return an array as the type of `field`; fields that a struct lacks become null.

    Raises:
        InvalidInputError: a value does not fit the type, or is null where it must not be; the
            message has the column's path.
    """
    converted = _converted(array, field.type, path)
    if not field.nullable and converted.null_count:
        _raise_null(converted, path)
    return converted


def _converted(array: pa.Array, target: pa.DataType, path: tuple[str, ...]) -> pa.Array:
    if array.type == target:
        return array
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if isinstance(array, pa.RunEndEncodedArray):
        array = pc.run_end_decode(array)
    source = array.type
    if source == target:
        return array
    if pa.types.is_struct(target) and pa.types.is_struct(source):
        return _struct(array, target, path)
    if pa.types.is_map(target) and pa.types.is_map(source):
        return _map(array, target, path)
    if pa.types.is_list(target) and _is_list(source):
        return _list(array, target, path)
    # Avro reads an integer as a floating point number by rounding it.
    is_rounded = pa.types.is_integer(source) and pa.types.is_floating(target)
    try:
        return pc.cast(array, target, safe=not is_rounded)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"Column {'.'.join(path)} cannot be turned from {source} into {target}: {error}. "
            "Cast or correct it before writing"
        ) from error


def _struct(array: pa.StructArray, target: pa.StructType, path: tuple[str, ...]) -> pa.Array:
    children = []
    for field in target:
        inner = (*path, field.name)
        place = array.type.get_field_index(field.name)
        if place < 0:
            children.append(null_array(len(array), field, inner))
            continue
        child = _converted(array.field(place), field.type, inner)
        if not field.nullable and child.null_count:
            # What a null struct holds does not matter.
            is_lost = pc.and_(pc.is_null(child), pc.is_valid(array))
            if pc.any(is_lost).as_py():
                _raise_null(child, inner)
        children.append(child)
    return pa.StructArray.from_arrays(children, fields=list(target), mask=pc.is_null(array))


def _list(array: pa.Array, target: pa.ListType, path: tuple[str, ...]) -> pa.Array:
    if not pa.types.is_list(array.type):
        array = pc.cast(array, pa.list_(array.type.value_field))
    offsets, start, count = _rebased(array)
    values = array.values.slice(start, count)
    values = convert_array(values, target.value_field, (*path, "element"))
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=pc.is_null(array))


def _map(array: pa.MapArray, target: pa.MapType, path: tuple[str, ...]) -> pa.Array:
    offsets, start, count = _rebased(array)
    keys = convert_array(array.keys.slice(start, count), target.key_field, (*path, "key"))
    items = convert_array(array.items.slice(start, count), target.item_field, (*path, "value"))
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
        InvalidInputError: the column must not be null.
    """
    if not field.nullable:
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
