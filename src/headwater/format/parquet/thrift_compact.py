"""Thrift's compact protocol, as far as Parquet's footers use it, without their definition.

A struct is a dict from the numbers of its fields to typed values, so what is read can be changed
in a few places and written again with all that was not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, unique
from struct import Struct as Layout
from typing import Any

from headwater.config.limits import DEPTH_MAX


class MalformedThriftError(ValueError):
    """The bytes are no struct of the compact protocol."""


@unique
class Kind(IntEnum):
    STOP = 0
    TRUE = 1
    FALSE = 2
    BYTE = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    MAP = 11
    STRUCT = 12


_KINDS = frozenset(Kind)
_DOUBLE = Layout("<d")


@dataclass(frozen=True, slots=True)
class Value:
    """A value with its kind. Those of integers, texts and structs are plain; see below for others.

    A list or set is a `(kind of its elements, list of plain values)`.
    """

    kind: Kind
    plain: Any


ThriftStruct = dict[int, Value]


def parse_struct(data: bytes | memoryview) -> ThriftStruct:
    """Return the struct that bytes begin with.

    Raises:
        MalformedThriftError: they do not, or it has a map.
    """
    try:
        return _Parser(memoryview(data)).struct(0)
    except IndexError as error:
        raise MalformedThriftError("the bytes are cut short") from error


def encode_struct(struct: ThriftStruct) -> bytes:
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


class _Parser:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int) -> ThriftStruct:
        _check_depth(depth)
        fields: ThriftStruct = {}
        number = 0
        while True:
            head = self._byte()
            kind = _kind(head & 0x0F)
            if kind is Kind.STOP:
                return fields
            number = number + (head >> 4) if head >> 4 else self._integer()
            fields[number] = Value(kind, self._plain(kind, depth))

    def _plain(self, kind: Kind, depth: int) -> Any:
        match kind:
            case Kind.TRUE | Kind.FALSE:
                return kind is Kind.TRUE
            case Kind.BYTE:
                return self._byte()
            case Kind.I16 | Kind.I32 | Kind.I64:
                return self._integer()
            case Kind.DOUBLE:
                return _DOUBLE.unpack(self._bytes(_DOUBLE.size))[0]
            case Kind.BINARY:
                return bytes(self._bytes(self._varint()))
            case Kind.LIST | Kind.SET:
                return self._list(depth + 1)
            case Kind.STRUCT:
                return self.struct(depth + 1)
            case _:
                raise MalformedThriftError(f"it has a field of kind {kind.name}")

    def _list(self, depth: int) -> tuple[Kind, list[Any]]:
        _check_depth(depth)
        head = self._byte()
        kind, count = _kind(head & 0x0F), head >> 4
        if count == 15:
            count = self._varint()
        if count > len(self._data) - self._at:
            raise MalformedThriftError("a list has more elements than there are bytes")
        if kind in (Kind.TRUE, Kind.FALSE):
            return kind, [self._byte() == Kind.TRUE for _ in range(count)]
        return kind, [self._plain(kind, depth) for _ in range(count)]

    def _integer(self) -> int:
        coded = self._varint()
        return (coded >> 1) ^ -(coded & 1)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise MalformedThriftError("an integer is too long")

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _bytes(self, count: int) -> memoryview:
        end = self._at + count
        if end > len(self._data):
            raise MalformedThriftError("the bytes are cut short")
        found = self._data[self._at : end]
        self._at = end
        return found


def _check_depth(depth: int) -> None:
    if depth > DEPTH_MAX.value:
        raise MalformedThriftError(f"it is nested deeper than {DEPTH_MAX}")


def _kind(code: int) -> Kind:
    if code not in _KINDS:
        raise MalformedThriftError(f"there is no kind {code}")
    return Kind(code)


def _put_struct(out: bytearray, struct: ThriftStruct) -> None:
    previous = 0
    for number, value in sorted(struct.items()):
        kind = value.kind
        if kind in (Kind.TRUE, Kind.FALSE):
            kind = Kind.TRUE if value.plain else Kind.FALSE
        step = number - previous
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _put_integer(out, number)
        previous = number
        if kind not in (Kind.TRUE, Kind.FALSE):
            _put_plain(out, kind, value.plain)
    out.append(Kind.STOP)


def _put_plain(out: bytearray, kind: Kind, plain: Any) -> None:
    match kind:
        case Kind.TRUE | Kind.FALSE:
            out.append(Kind.TRUE if plain else Kind.FALSE)
        case Kind.BYTE:
            out.append(plain)
        case Kind.I16 | Kind.I32 | Kind.I64:
            _put_integer(out, plain)
        case Kind.DOUBLE:
            out += _DOUBLE.pack(plain)
        case Kind.BINARY:
            _put_varint(out, len(plain))
            out += plain
        case Kind.LIST | Kind.SET:
            _put_list(out, *plain)
        case _:
            _put_struct(out, plain)


def _put_list(out: bytearray, kind: Kind, elements: list[Any]) -> None:
    if len(elements) < 15:
        out.append(len(elements) << 4 | kind)
    else:
        out.append(15 << 4 | kind)
        _put_varint(out, len(elements))
    for element in elements:
        _put_plain(out, kind, element)


def _put_integer(out: bytearray, value: int) -> None:
    _put_varint(out, (value << 1) ^ (value >> 63))


def _put_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
