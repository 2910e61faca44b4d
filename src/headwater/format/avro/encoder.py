"""Encoders of records, built once per dataclass from its schema.

fastavro wants dicts, tries the branches of every union (60 µs for a write stat) and checks values
only if asked to, for as much again. A commit of many file groups would pay that while it holds the
table's lock. Our unions are a type or null, so the value alone tells the branch: below 20 µs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from struct import Struct
from types import MappingProxyType
from typing import Any, TypeAlias

from headwater.format.avro.binary import append_long
from headwater.format.timeline.schemas import (
    RECORD_CLASSES,
    RECORD_SCHEMAS,
    Schema,
    python_name,
)

Writer: TypeAlias = Callable[[Any, bytearray], None]
"""Append the encoding of a value."""

_DOUBLE = Struct("<d")
_INT_BITS = 32
_LONG_BITS = 64


class UnwritableValueError(ValueError):
    """A value that does not fit its field; the message names the field."""


@cache
def record_writer(cls: type) -> Writer:
    """Return the function that encodes records of a class.

    It raises `UnwritableValueError` for a value that does not fit its field.
    """
    fields = [
        (python_name(field["name"]), _writer(field["type"]))
        for field in RECORD_SCHEMAS[cls]["fields"]
    ]

    def write_record(record: Any, out: bytearray) -> None:
        if type(record) is not cls:
            raise UnwritableValueError(f"{record!r} is no {cls.__name__}")
        for name, write in fields:
            try:
                write(getattr(record, name), out)
            except (AttributeError, OverflowError, TypeError, ValueError) as error:
                raise UnwritableValueError(f"{cls.__name__}.{name}: {error}") from error

    return write_record


def _writer(schema: Schema) -> Writer:
    if isinstance(schema, list):
        return _optional_writer(schema)
    if isinstance(schema, str):
        return _PRIMITIVES[schema]
    match schema["type"]:
        case "record":
            return record_writer(RECORD_CLASSES[schema["name"]])
        case "array":
            return _array_writer(_writer(schema["items"]))
        case "map":
            return _map_writer(_writer(schema["values"]))
        case primitive:
            return _PRIMITIVES[primitive]


def _optional_writer(union: list[Any]) -> Writer:
    null = union.index("null")
    value_branch = 1 - null
    null_byte, value_byte = null << 1, value_branch << 1
    write_value = _writer(union[value_branch])

    def write_optional(value: Any, out: bytearray) -> None:
        if value is None:
            out.append(null_byte)
        else:
            out.append(value_byte)
            write_value(value, out)

    return write_optional


def _array_writer(write_item: Writer) -> Writer:
    def write_array(items: tuple[Any, ...], out: bytearray) -> None:
        if type(items) is not tuple:
            raise UnwritableValueError(f"{items!r} is no tuple")
        if items:
            append_long(len(items), out)
            for item in items:
                write_item(item, out)
        out.append(0)

    return write_array


def _map_writer(write_value: Writer) -> Writer:
    def write_map(values: Mapping[str, Any], out: bytearray) -> None:
        if not isinstance(values, Mapping):
            raise UnwritableValueError(f"{values!r} is no mapping")
        if values:
            append_long(len(values), out)
            for key, value in values.items():
                _write_string(key, out)
                write_value(value, out)
        out.append(0)

    return write_map


def _write_boolean(value: bool, out: bytearray) -> None:
    if type(value) is not bool:
        raise UnwritableValueError(f"{value!r} is no boolean")
    out.append(value)


def _integer_writer(bits: int) -> Writer:
    limit = 1 << (bits - 1)

    def write_integer(value: int, out: bytearray) -> None:
        if type(value) is not int or not -limit <= value < limit:
            raise UnwritableValueError(f"{value!r} is no integer of {bits} bits")
        append_long(value, out)

    return write_integer


def _write_double(value: float, out: bytearray) -> None:
    if type(value) not in (float, int):
        raise UnwritableValueError(f"{value!r} is no number")
    out += _DOUBLE.pack(float(value))


def _write_string(value: str, out: bytearray) -> None:
    # Instant times and enumerations are strings too, so subclasses are welcome.
    if not isinstance(value, str):
        raise UnwritableValueError(f"{value!r} is no string")
    encoded = value.encode()
    append_long(len(encoded), out)
    out += encoded


_PRIMITIVES: Mapping[str, Writer] = MappingProxyType(
    {
        "boolean": _write_boolean,
        "int": _integer_writer(_INT_BITS),
        "long": _integer_writer(_LONG_BITS),
        "double": _write_double,
        "string": _write_string,
    }
)
