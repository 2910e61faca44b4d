"""Values of key and partition columns as text (format rule 6.4).

As Java's `toString` has them, since record keys and folder names of other writers must be met:

- integers plain, booleans `true` and `false`, text as it is;
- decimals with all digits of their scale, in scientific notation below 1E-6, like `BigDecimal`;
- dates as `yyyy-MM-dd`;
- timestamps as the number that is stored, micro- or milliseconds since the epoch.

Floating point numbers are refused: their text depends on the release of the Java runtime, so that
two writers could give one value two keys.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError

_DAYS_MIN, _DAYS_MAX = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 in days since the epoch; Java writes years beyond them with a sign."""


def column_text(values: pa.Array, column: str) -> pa.Array:
    """Return the values of a key or partition column as strings; nulls stay null.

    Raises:
        InvalidInputError: the column's type, or a date, has no text that all writers agree on.
    """
    arrow = values.type
    if pa.types.is_dictionary(arrow):
        values = values.dictionary_decode()
        arrow = values.type
    if pa.types.is_string(arrow):
        return values
    if pa.types.is_timestamp(arrow):
        return pc.cast(pc.cast(values, pa.int64()), pa.string())
    if pa.types.is_date32(arrow):
        _check_dates(values, column)
    if has_text(arrow):
        return pc.cast(values, pa.string())
    if pa.types.is_floating(arrow):
        raise InvalidInputError(
            f"Column {column} has the type {arrow}, whose text differs between Java releases, so "
            "it cannot be a key or partition column. Cast it to decimal, integer or string"
        )
    raise InvalidInputError(
        f"Column {column} has the type {arrow}, which cannot be a key or partition column. "
        "Cast it to string"
    )


def value_of_text(text: str | None, kind: pa.DataType) -> pa.Array | None:
    """Return the one value of a column that has a text, the inverse of `column_text`.

    None if the text does not tell, since other writers may have other texts, such as for a date.
    """
    values = pa.array([text], pa.string())
    try:
        if pa.types.is_timestamp(kind):
            values = values.cast(pa.int64())
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def has_text(arrow: pa.DataType) -> bool:
    """Whether values of a type have a text that all writers agree on."""
    return bool(
        pa.types.is_string(arrow)
        or pa.types.is_timestamp(arrow)
        or pa.types.is_date32(arrow)
        or pa.types.is_integer(arrow)
        or pa.types.is_boolean(arrow)
        or pa.types.is_decimal(arrow)
        or pa.types.is_large_string(arrow)
        or pa.types.is_string_view(arrow)
        or pa.types.is_null(arrow)
    )


def is_text(arrow: pa.DataType) -> bool:
    """Whether values of a type are texts, which may say anything."""
    arrow = arrow.value_type if pa.types.is_dictionary(arrow) else arrow
    return bool(
        pa.types.is_string(arrow)
        or pa.types.is_large_string(arrow)
        or pa.types.is_string_view(arrow)
    )


def _check_dates(values: pa.Array, column: str) -> None:
    bounds = pc.min_max(pc.cast(values, pa.int32()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and (low < _DAYS_MIN or high > _DAYS_MAX):
        raise InvalidInputError(
            f"Column {column} has a date outside of the years 1 to 9999, which cannot be part of "
            "a key or partition path. Correct the value"
        )
