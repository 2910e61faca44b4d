"""How a table's columns follow those of the rows that are written.

A column may be added, at the end, also inside structs; it is nullable, as older rows lack it, and
so is what is inside of it: that a batch has no nulls, or that Spark knows of a literal that it is
none, is no promise for the rows to come. A type may grow as Avro promotes types, so that older
files and other readers still make sense:

| stored | written | becomes |
|---|---|---|
| int | long | long |
| float | int, long or double | double |
| decimal(p, s) | decimal(q, s) | decimal(max(p, q), s) |

The other way round the rows grow: what is narrower than the table is widened on the way in.

A column of integers stays one. Rows may have floating point numbers for it, as pandas does where
integers are missing, if all of them are whole; whoever writes them finds out, in every task alike.
Avro would promote the column to double, which rounds each large integer that the table has. Only
who asks for that (`headwater.schema.allow.lossy.widening`) gets it: then int or long next to float
or double become double. Names are case-sensitive; two that differ by case alone are
refused, because engines that fold case could not tell them apart.
"""

from __future__ import annotations

import pyarrow as pa

from headwater.arrow.convert import Rows, convert_array, convert_rows, null_array
from headwater.errors import InvalidInputError

_INTEGERS = (pa.int32(), pa.int64())
_NUMBERS = (*_INTEGERS, pa.float32(), pa.float64())


def evolve_schema(table: pa.Schema, rows: pa.Schema, *, allows_loss: bool = False) -> pa.Schema:
    """Return the table's schema after rows of another schema are written.

    Args:
        table: the columns of the table so far, with types of Avro.
        rows: the columns of the rows, as `input_schema.stored_schema` gives them.
        allows_loss: whether a column of integers becomes one of doubles for rows with such.

    Raises:
        InvalidInputError: a column cannot follow; the message has its path and both types.
    """
    return pa.schema(
        _evolved_fields(list(table), list(rows), (), allows_loss), metadata=table.metadata
    )


def project_batch(rows: Rows, schema: pa.Schema, *, rounds: bool = True) -> Rows:
    """Return rows with exactly the columns, order and types of a schema.

    Rows of an older or narrower schema are widened, and columns they lack are null. Columns that
    the schema lacks are left out.

    Args:
        rounds: whether integers may be rounded to floating point numbers, as Avro reads older rows.

    Raises:
        InvalidInputError: a column differs by case only, is missing or null where it must not be,
            or has a value that does not fit.
    """
    if rows.schema.equals(schema, check_metadata=True):
        return rows
    _check_names(list(rows.schema), list(schema), ())

    def convert(array: pa.Array | None, field: pa.Field) -> pa.Array:
        if array is None:
            return null_array(rows.num_rows, field, (field.name,))
        return convert_array(array, field, (field.name,), rounds=rounds)

    return convert_rows(rows, schema, convert)


def _nullable_field(field: pa.Field) -> pa.Field:
    """Return a column that may be null, and so may all that is inside of it but keys of maps."""
    return field.with_type(_nullable_type(field.type)).with_nullable(True)


def _nullable_type(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow):
        return pa.struct([_nullable_field(field) for field in arrow])
    if pa.types.is_list(arrow):
        return pa.list_(_nullable_field(arrow.value_field))
    if pa.types.is_map(arrow):
        return pa.map_(arrow.key_field, _nullable_field(arrow.item_field))
    return arrow


def _evolved_fields(
    stored: list[pa.Field], written: list[pa.Field], path: tuple[str, ...], allows_loss: bool
) -> list[pa.Field]:
    _check_names(written, stored, path)
    by_name = {field.name: field for field in written}
    evolved = []
    for field in stored:
        other = by_name.pop(field.name, None)
        if other is None:
            evolved.append(field)
            continue
        inner = (*path, field.name)
        evolved.append(field.with_type(_evolved_type(field.type, other.type, inner, allows_loss)))
    for field in by_name.values():
        if _is_untyped(field.type):
            raise InvalidInputError(
                f"Column {_dotted((*path, field.name))} is new to the table and holds only nulls, "
                "so its type is not known. Cast it to the type it is meant to have"
            )
        evolved.append(_nullable_field(field))
    return evolved


def _evolved_type(
    stored: pa.DataType, written: pa.DataType, path: tuple[str, ...], allows_loss: bool
) -> pa.DataType:
    if stored == written or pa.types.is_null(written):
        return stored
    if stored in _NUMBERS and written in _NUMBERS:
        if stored in _INTEGERS and written in _INTEGERS:
            return pa.int64()
        if stored in _INTEGERS and not allows_loss:
            return stored
        return pa.float64()
    if pa.types.is_decimal128(stored) and pa.types.is_decimal128(written):
        if stored.scale == written.scale:
            return pa.decimal128(max(stored.precision, written.precision), stored.scale)
    elif pa.types.is_struct(stored) and pa.types.is_struct(written):
        return pa.struct(_evolved_fields(list(stored), list(written), path, allows_loss))
    elif pa.types.is_list(stored) and pa.types.is_list(written):
        element = _evolved_type(
            stored.value_type, written.value_type, (*path, "element"), allows_loss
        )
        return pa.list_(stored.value_field.with_type(element))
    elif pa.types.is_map(stored) and pa.types.is_map(written):
        key = _evolved_type(stored.key_type, written.key_type, (*path, "key"), allows_loss)
        item = _evolved_type(stored.item_type, written.item_type, (*path, "value"), allows_loss)
        return pa.map_(key, stored.item_field.with_type(item))
    elif _is_stored_as_is(stored, written):
        return stored
    raise InvalidInputError(
        f"Column {_dotted(path)} is {stored} in the table but {written} in the rows, and neither "
        f"can grow into the other. Cast it to {stored} before writing, or write to a new column"
    )


def _is_stored_as_is(stored: pa.DataType, written: pa.DataType) -> bool:
    """Whether values of the type go into the column, if each of them fits."""
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(written):
        return (stored.tz is None) == (written.tz is None)
    return bool(pa.types.is_fixed_size_binary(stored) and pa.types.is_binary(written))


def _is_untyped(arrow: pa.DataType) -> bool:
    """Whether some values of a type, also inside of others, can only be null."""
    inner = [arrow.field(place).type for place in range(arrow.num_fields)]
    return pa.types.is_null(arrow) or any(_is_untyped(child) for child in inner)


def _check_names(given: list[pa.Field], known: list[pa.Field], path: tuple[str, ...]) -> None:
    """Refuse names that come twice, or differ from a known one by case alone."""
    exact = {field.name for field in known}
    folded = {field.name.casefold(): field.name for field in known}
    seen: dict[str, str] = {}
    for field in given:
        name, fold = field.name, field.name.casefold()
        twin = seen.get(fold)
        if name in exact:
            # A table of another writer may have both; they are told apart by their exact names.
            twin = None if twin != name and twin in exact else twin
        else:
            twin = twin or folded.get(fold)
        if twin == name:
            raise InvalidInputError(f"Column {_dotted((*path, name))} comes twice; rename one")
        if twin is not None:
            raise InvalidInputError(
                f"Column {_dotted((*path, name))} differs from {_dotted((*path, twin))} by case "
                "only, and names are case-sensitive. Rename it"
            )
        seen[fold] = name


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path)
