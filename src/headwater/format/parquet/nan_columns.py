"""Which columns of a Parquet file hold NaN. Statistics leave it out, so a footer notes it apart."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

_NAN_COLUMNS = "headwater.nan.columns"

ColumnPath = tuple[str, ...]
"""The name of a column, and those of the columns inside of it that lead to one."""


def real_columns(fields: Iterable[pa.Field], above: ColumnPath = ()) -> Iterator[ColumnPath]:
    """Give the paths of columns of floating point numbers, those inside of structs included."""
    for field in fields:
        path = (*above, field.name)
        if pa.types.is_floating(field.type):
            yield path
        elif pa.types.is_struct(field.type):
            inner = [field.type.field(at) for at in range(field.type.num_fields)]
            yield from real_columns(inner, path)


def columns_with_nan(rows: pa.Table, paths: Iterable[ColumnPath]) -> list[str]:
    """Return those of some columns that hold NaN, dotted inside of structs."""
    return [".".join(path) for path in paths if _has_nan(rows[path[0]], path[1:])]


def nan_entries(paths: Collection[ColumnPath], held: Iterable[str]) -> dict[str, str]:
    """Return what a footer says of NaN: nothing, if no column could hold it."""
    return {_NAN_COLUMNS: ",".join(sorted(held))} if paths else {}


def noted_nan_columns(metadata: Mapping[bytes, bytes] | None) -> frozenset[str] | None:
    """Return the columns that hold NaN by what a footer says; None if nobody noted them.

    Raises:
        UnicodeDecodeError: what it says is no text.
    """
    found = (metadata or {}).get(_NAN_COLUMNS.encode())
    return None if found is None else frozenset(found.decode().split(",")) - {""}


def _has_nan(column: pa.ChunkedArray, inner: ColumnPath) -> bool:
    for name in inner:
        column = pc.struct_field(column, name)
    return bool(pc.any(pc.is_nan(column)).as_py())
