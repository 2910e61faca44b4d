"""Rows as values that are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def values_of(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as Python has them; days and times of years that it does not know as text."""
    try:
        found: list[dict[str, Any]] = rows.to_pylist()
        return found
    except (OverflowError, ValueError):
        columns = [[_value_of(value) for value in column] for column in rows.columns]
        names = rows.schema.names
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _value_of(scalar: pa.Scalar) -> Any:
    import pyarrow as pa

    from headwater.arrow.time_text import time_text

    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if isinstance(scalar, pa.MapScalar):
            return [(one["key"].as_py(), _value_of(one["value"])) for one in scalar.values]
        if isinstance(scalar, pa.ListScalar):
            return [_value_of(one) for one in scalar.values]
        if isinstance(scalar, pa.StructScalar):
            return {name: _value_of(scalar[name]) for name in scalar}
        return time_text(scalar)
