"""Partition values of the TIMESTAMP key generator: a moment, shown by a pattern in a zone.

The options are `hoodie.keygen.timebased.*` (format rule 6.4). Where no zone is given, it is UTC.
A null stands for the first moment after the epoch, as in stock Hudi: 1 in the column's unit.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.time_pattern import TimePattern
from headwater.config.table_options import KEYGEN_TIMEBASED
from headwater.errors import ErrorKind, InvalidInputError

_PREFIX = KEYGEN_TIMEBASED.prefix
_TYPE = f"{_PREFIX}timestamp.type"
_SCALAR_UNIT = f"{_PREFIX}timestamp.scalar.time.unit"
_INPUT = f"{_PREFIX}input.dateformat"
_INPUT_DELIMITER = f"{_PREFIX}input.dateformat.list.delimiter.regex"
_OUTPUT = f"{_PREFIX}output.dateformat"
_ZONE = f"{_PREFIX}timezone"
_INPUT_ZONE = f"{_PREFIX}input.timezone"
_OUTPUT_ZONE = f"{_PREFIX}output.timezone"

_TEXT_TYPES = ("DATE_STRING", "MIXED")
_UNIT_OF_TYPE: Mapping[str, str] = {
    "UNIX_TIMESTAMP": "SECONDS",
    "EPOCHMILLISECONDS": "MILLISECONDS",
    "EPOCHMICROSECONDS": "MICROSECONDS",
}
_TYPES = (*_TEXT_TYPES, *_UNIT_OF_TYPE, "SCALAR")
_PER_MILLISECOND: Mapping[str, int] = {"NANOSECONDS": 1_000_000, "MICROSECONDS": 1000}
_MILLISECONDS: Mapping[str, int] = {
    "MILLISECONDS": 1,
    "SECONDS": 1000,
    "MINUTES": 60_000,
    "HOURS": 3_600_000,
    "DAYS": 86_400_000,
}
_UNITS = (*_PER_MILLISECOND, *_MILLISECONDS)
_UNIT_OF_ARROW: Mapping[str, str] = {"us": "MICROSECONDS", "ms": "MILLISECONDS"}
_FIXED_OFFSET = re.compile(r"GMT([+-])(\d{1,2})(?::?(\d{2}))?", re.ASCII)
_EPOCH_MS_MIN, _EPOCH_MS_MAX = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePartition:
    """How one column becomes the text of a partition value."""

    unit: str | None
    """Unit of a column of numbers; None for a column of text."""
    inputs: tuple[TimePattern, ...]
    input_zone: str
    output: TimePattern
    output_zone: str

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Return what a table's properties say.

        Raises:
            InvalidInputError: kind INVALID_OPTION, if an option is missing or malformed.
            UnsupportedError: a pattern has letters that this release does not know.
        """
        kind = _required(properties, _TYPE).upper()
        if kind not in _TYPES:
            raise _invalid(_TYPE, kind, f"one of {', '.join(_TYPES)}")
        unit = _UNIT_OF_TYPE.get(kind)
        inputs: tuple[TimePattern, ...] = ()
        if kind == "SCALAR":
            unit = properties.get(_SCALAR_UNIT, "SECONDS").strip().upper()
            if unit not in _UNITS:
                raise _invalid(_SCALAR_UNIT, unit, f"one of {', '.join(_UNITS)}")
        elif unit is None:
            delimiter = properties.get(_INPUT_DELIMITER) or ","
            given = re.split(delimiter, _required(properties, _INPUT))
            inputs = tuple(TimePattern.parse(text.strip(), key=_INPUT) for text in given)
        zone = properties.get(_ZONE)
        return cls(
            unit=unit,
            inputs=inputs,
            input_zone=_zone(_INPUT_ZONE if zone is None else _ZONE, properties),
            output=TimePattern.parse(_required(properties, _OUTPUT), key=_OUTPUT),
            output_zone=_zone(_OUTPUT_ZONE if zone is None else _ZONE, properties),
        )

    def wall_times(self, values: pa.Array, column: str) -> pa.Array:
        """Return what a clock in the output zone shows, cut to what the output pattern shows.

        Raises:
            InvalidInputError: a value is no time, or the column's type does not fit the options.
        """
        try:
            moments = (
                self._text_moments(values, column)
                if self.unit is None
                else pc.cast(self._epoch_ms(values, column), pa.timestamp("ms", tz="UTC"))
            )
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"Column {column} has a value that is no time: {error}"
            ) from error
        local = pc.local_timestamp(pc.cast(moments, pa.timestamp("ms", tz=self.output_zone)))
        return pc.floor_temporal(local, unit=self.output.finest_unit)

    def _epoch_ms(self, values: pa.Array, column: str) -> pa.Array:
        numbers = pc.fill_null(self._numbers(values, column), 1)
        unit = str(self.unit)
        # Java cuts toward zero, and so does the division of integers here.
        if unit in _PER_MILLISECOND:
            epoch_ms = pc.divide(numbers, _PER_MILLISECOND[unit])
        else:
            epoch_ms = pc.multiply_checked(numbers, _MILLISECONDS[unit])
        bounds = pc.min_max(epoch_ms)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and (low < _EPOCH_MS_MIN or high > _EPOCH_MS_MAX):
            raise InvalidInputError(
                f"Column {column} has a time outside of the years 1 to 9999 if its numbers are "
                f"{self.unit}. Correct the value, or the table's {_TYPE}"
            )
        return epoch_ms

    def _numbers(self, values: pa.Array, column: str) -> pa.Array:
        arrow = values.type
        if pa.types.is_integer(arrow) or pa.types.is_null(arrow):
            return pc.cast(values, pa.int64())
        if pa.types.is_timestamp(arrow) and _UNIT_OF_ARROW.get(arrow.unit) == self.unit:
            return pc.cast(values, pa.int64())
        if pa.types.is_date32(arrow) and self.unit == "DAYS":
            return pc.cast(pc.cast(values, pa.int32()), pa.int64())
        raise InvalidInputError(
            f"Column {column} has the type {arrow}, but the table's {_TYPE} wants a number of "
            f"{self.unit}. Cast the column"
        )

    def _text_moments(self, values: pa.Array, column: str) -> pa.Array:
        if not (pa.types.is_string(values.type) or pa.types.is_null(values.type)):
            raise InvalidInputError(
                f"Column {column} has the type {values.type}, but the table's {_TYPE} wants text. "
                "Cast the column"
            )
        first = pa.array([1], pa.timestamp("ms", tz=self.input_zone))
        default = self.inputs[0].format(pc.local_timestamp(first))[0]
        texts = pc.fill_null(pc.cast(values, pa.string()), default)
        parsed = pc.coalesce(*(pattern.parse_text(texts) for pattern in self.inputs))
        if parsed.null_count:
            row = pc.index(pc.is_null(parsed), True).as_py()
            wanted = " or ".join(pattern.text for pattern in self.inputs)
            raise InvalidInputError(
                f"Column {column} has {parsed.null_count} value(s) that are no time of the form "
                f"{wanted}, the first in row {row}: {texts[row].as_py()!r}. Correct the text"
            )
        return pc.assume_timezone(parsed, self.input_zone, ambiguous="earliest")


def _required(properties: Mapping[str, str], key: str) -> str:
    text = properties.get(key, "").strip()
    if not text:
        raise InvalidInputError(
            f"The table's TIMESTAMP key generator needs {key} in its config",
            kind=ErrorKind.INVALID_OPTION,
        )
    return text


def _zone(key: str, properties: Mapping[str, str]) -> str:
    text = properties.get(key, "").strip() or "UTC"
    fixed = _FIXED_OFFSET.fullmatch(text)
    if fixed:
        return f"{fixed[1]}{int(fixed[2]):02d}:{fixed[3] or '00'}"
    try:
        zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        raise _invalid(key, text, "a zone such as Europe/Berlin, UTC or GMT+8:00") from None
    return text


def _invalid(key: str, text: str, wanted: str) -> InvalidInputError:
    return InvalidInputError(f"{key} must be {wanted}, got {text!r}", kind=ErrorKind.INVALID_OPTION)
