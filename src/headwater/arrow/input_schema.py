"""Bring rows as people have them to the types that tables store.

Arrow knows many types for one thing; Avro knows one. What says the same is converted: text and
bytes of any layout, dictionaries, small and unsigned integers, timestamps of any unit and zone.
What has no counterpart, or would lose digits, is refused by the column's name.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from headwater.arrow.convert import Rows, convert_array, convert_rows
from headwater.arrow.key_text import is_text
from headwater.errors import InvalidInputError

_AS_IT_IS = (
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
)
_STORED: Mapping[pa.DataType, pa.DataType] = {
    **{arrow: arrow for arrow in _AS_IT_IS},
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
_DECIMAL_PRECISION_MAX = 38
_NESTING_MAX = 100
"""More than any file has that Arrow reads, and below the depth at which Python's stack gives up."""


def stored_schema(schema: pa.Schema, table: pa.Schema | None = None) -> pa.Schema:
    """Return the types that tables store in place of those that rows have.

    Args:
        table: the columns of the table; a column without any value takes its type from there, or
            stays without one if the table does not have it.

    Raises:
        InvalidInputError: a type cannot be stored; the message has the column's path.
    """
    known = {} if table is None else {field.name: field.type for field in table}
    return pa.schema(
        [_stored_field(field, (field.name,), known.get(field.name)) for field in schema]
    )


def normalise_rows(rows: Rows, table: pa.Schema | None = None) -> Rows:
    """Return rows with the types that tables store; see `stored_schema`.

    Raises:
        InvalidInputError: a type cannot be stored, or a value does not fit; the message has the
            column's path.
    """
    schema = stored_schema(rows.schema, table)
    if rows.schema.equals(schema, check_metadata=True):
        return rows
    _check_distinct(rows.schema)

    def convert(array: pa.Array | None, field: pa.Field) -> pa.Array:
        return convert_array(array, field, (field.name,))

    return convert_rows(rows, schema, convert)


def check_values(rows: pa.RecordBatch | pa.Table) -> None:
    """Refuse text that is not UTF-8, and decimals with more digits than their type has.

    Arrow believes whoever makes an array, and its readers of Parquet, JSON and CSV make some that
    no other reader takes: a file with them would be called damaged.

    Raises:
        InvalidInputError: a value is not of its column's type.
    """
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not _is_believed(field.type):
            continue
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        try:
            for chunk in chunks:
                chunk.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"Column {field.name} holds what its type {field.type} does not allow: {error}. "
                "Correct the value, or give the column a type that has room for it, such as binary"
            ) from error


def _is_believed(arrow: pa.DataType) -> bool:
    """Whether an array of a type may hold what is no value of it."""
    if isinstance(arrow, pa.BaseExtensionType):
        return _is_believed(arrow.storage_type)
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return _is_believed(arrow.value_type)
    inner = (arrow.field(place).type for place in range(arrow.num_fields))
    return is_text(arrow) or pa.types.is_decimal(arrow) or any(map(_is_believed, inner))


def _stored_field(
    field: pa.Field, path: tuple[str, ...], known: pa.DataType | None, name: str | None = None
) -> pa.Field:
    # Metadata of fields belongs to the program that made the rows.
    stored = _stored_type(field.type, path, known)
    return pa.field(name or field.name, stored, nullable=field.nullable)


def _stored_type(
    arrow: pa.DataType, path: tuple[str, ...], known: pa.DataType | None
) -> pa.DataType:
    if len(path) > _NESTING_MAX:
        raise InvalidInputError(
            f"Column {'.'.join(path[:8])} is nested too deeply: it has more than {_NESTING_MAX} "
            "levels. Take some of them apart, or store it as text"
        )
    if arrow in _STORED:
        return _STORED[arrow]
    if pa.types.is_null(arrow):
        return arrow if known is None else known
    if isinstance(arrow, pa.BaseExtensionType):
        return _stored_type(arrow.storage_type, path, known)
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return _stored_type(arrow.value_type, path, known)
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", tz=None if arrow.tz is None else "UTC")
    if pa.types.is_fixed_size_binary(arrow) and not pa.types.is_decimal(arrow):
        return pa.binary()
    if pa.types.is_decimal(arrow):
        if arrow.precision > _DECIMAL_PRECISION_MAX or not 0 <= arrow.scale <= arrow.precision:
            raise _refused(path, arrow, "use decimal(p, s) with 0 <= s <= p <= 38")
        return pa.decimal128(arrow.precision, arrow.scale)
    if (
        pa.types.is_list(arrow)
        or pa.types.is_large_list(arrow)
        or pa.types.is_fixed_size_list(arrow)
    ):
        inner = known.value_type if known is not None and pa.types.is_list(known) else None
        return pa.list_(_stored_field(arrow.value_field, (*path, "element"), inner, name="element"))
    if pa.types.is_map(arrow):
        return _stored_map(arrow, path, known)
    if pa.types.is_struct(arrow):
        return _stored_struct(arrow, path, known)
    if pa.types.is_uint64(arrow):
        raise _refused(path, arrow, "cast it to int64 or decimal(20, 0)")
    if pa.types.is_time(arrow) or pa.types.is_duration(arrow):
        raise _refused(path, arrow, "store it as a number or as text")
    raise _refused(path, arrow, "cast it to a type of Avro")


def _stored_map(
    arrow: pa.DataType, path: tuple[str, ...], known: pa.DataType | None
) -> pa.DataType:
    key = _stored_type(arrow.key_type, (*path, "key"), None)
    if key != pa.string():
        raise _refused(path, arrow, "use string keys")
    inner = known.item_type if known is not None and pa.types.is_map(known) else None
    return pa.map_(key, _stored_field(arrow.item_field, (*path, "value"), inner, name="value"))


def _stored_struct(
    arrow: pa.DataType, path: tuple[str, ...], known: pa.DataType | None
) -> pa.DataType:
    if arrow.num_fields == 0:
        raise _refused(path, arrow, "give it a field, or leave the column out")
    inner = (
        {} if known is None or not pa.types.is_struct(known) else {f.name: f.type for f in known}
    )
    return pa.struct(
        [_stored_field(field, (*path, field.name), inner.get(field.name)) for field in arrow]
    )


def _check_distinct(schema: pa.Schema) -> None:
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise InvalidInputError(f"Column {name} comes twice; rename one")


def _refused(path: tuple[str, ...], arrow: pa.DataType, advice: str) -> InvalidInputError:
    return InvalidInputError(
        f"Column {'.'.join(path)} has the type {arrow}, which tables cannot store; {advice}"
    )
