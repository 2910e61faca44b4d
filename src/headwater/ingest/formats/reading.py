"""What every reader of files is given, and what their readers have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from headwater.arrow.convert import convert_array
from headwater.arrow.input_schema import check_values, stored_schema
from headwater.errors import InvalidInputError
from headwater.expressions.casts import can_cast, cast_values
from headwater.ingest.bad_rows import BadRows
from headwater.ingest.rows import SourceRows, made

BATCH_ROWS = 65_536
"""Rows that are in memory at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One file that is read."""

    origin: str
    columns: pa.Schema
    """What its rows are read as. Columns that it lacks are null, others are left out."""
    bad: BadRows
    zone: str = "UTC"
    delimiter: str = ","
    has_header: bool = True

    def present(self, found: pa.Schema) -> list[str]:
        """Return the columns that are wanted and there.

        Raises:
            InvalidInputError: none is, or one has a type that cannot become the wanted one.
        """
        names = [name for name in self.columns.names if name in found.names]
        if not names:
            raise InvalidInputError(
                f"It has none of the columns {', '.join(self.columns.names)}, but "
                f"{', '.join(found.names) or 'none'}"
            )
        for name in names:
            if found.names.count(name) > 1:
                raise InvalidInputError(f"Column {name} comes twice")
            check_castable(name, found.field(name).type, self.columns.field(name).type)
        return names

    def as_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the columns that are wanted, in their types.

        Raises:
            InvalidInputError, pa.ArrowInvalid: a value does not fit.
        """
        check_values(rows)
        arrays = [
            cast_column(rows.column(field.name), field, self.zone)
            if field.name in rows.schema.names
            else pa.nulls(rows.num_rows, field.type)
            for field in self.columns
        ]
        nullable = pa.schema([field.with_nullable(True) for field in self.columns])
        return pa.RecordBatch.from_arrays(arrays, schema=nullable)


def check_castable(name: str, found: pa.DataType, wanted: pa.DataType) -> None:
    """Raise if no value of a type can become one of another.

    Raises:
        InvalidInputError
    """
    if pa.types.is_nested(found) and pa.types.is_nested(wanted):
        return  # Arrow says what of them fits.
    if not can_cast(_known_type(found, wanted), wanted):
        raise InvalidInputError(f"Column {name} is of type {found}, which cannot become {wanted}")


def cast_column(values: pa.Array, field: pa.Field, zone: str) -> pa.Array:
    """Return the values of a column in its type.

    Raises:
        InvalidInputError, pa.ArrowInvalid: a value does not fit.
    """
    if values.type == field.type:
        return values
    try:
        if pa.types.is_nested(field.type):
            return values.cast(field.type)
        known = pa.field(field.name, _known_type(values.type, field.type))
        return cast_values(convert_array(values, known, (field.name,)), field.type, zone)
    except MemoryError:
        raise
    except (InvalidInputError, pa.ArrowException) as error:
        cause = error.__cause__ or error
        raise InvalidInputError(
            f"A value of column {field.name} does not fit into {field.type}: {cause}"
        ) from error


def _known_type(found: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return a type that casts know: the one that tables store for text or bytes of another layout.

    Polars and pandas write large strings and categories.
    """
    if can_cast(found, wanted):
        return found
    try:
        return stored_schema(pa.schema([("", found)])).field(0).type
    except InvalidInputError:
        return found


def numbered(rows: pa.RecordBatch, origin: str, first: int) -> SourceRows:
    """Return rows that lie one after the other, the first at a position."""
    positions = pa.array(range(first, first + rows.num_rows), pa.int64())
    return SourceRows(rows, origin, positions)


def fitted(rows: SourceRows, reading: Reading) -> Iterator[SourceRows]:
    """Give rows with the columns that are wanted, in their types; bad ones are left out."""
    found = made(rows, reading.as_columns, reading.bad)
    if found is not None:
        given, result = found
        yield given.replaced_by(result)


@contextmanager
def naming_damage(kind: str) -> Iterator[None]:
    """Say that a file is not what it should be; errors of storage stay what they are.

    Raises:
        InvalidInputError: its bytes are no file of the format.
    """
    try:
        yield
    except MemoryError:
        raise  # It says nothing of the file.
    except (pa.ArrowException, EOFError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"It cannot be read as {kind}: {error}") from error
    except OSError as error:
        if error.errno is not None:  # Of the system; Arrow's own have no number.
            raise
        raise InvalidInputError(f"It cannot be read as {kind}: {error}") from error
