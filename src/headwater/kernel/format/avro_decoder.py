"""Decoders of records, compiled for one writer schema.

A timeline of ten thousand instants means as many small records. fastavro gives a dict per record
and needs about 20 µs for a single write stat; building dataclasses from dicts costs as much again.
So the schema in the file and the dataclass wanted are compared once, and a function is generated
that reads the bytes straight into the attributes.

Resolution follows Avro: fields are matched by name, what the file has and the dataclass lacks is
read and dropped, what the file lacks takes the default of our schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from struct import Struct
from textwrap import indent
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

import fastavro

from headwater.kernel.format.avro_binary import (
    MalformedAvroError,
    read_count,
    read_long,
    read_span,
)
from headwater.kernel.format.record_schemas import (
    RECORD_CLASSES,
    RECORD_SCHEMAS,
    Schema,
    python_name,
)

Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Read a value at an offset; return it and the offset behind it."""

_FLOAT = Struct("<f")
_DOUBLE = Struct("<d")


def compile_decoder(writer_schema: bytes, cls: type) -> Reader:
    """Return a reader of `cls` from data written with a schema.

    Raises:
        MalformedAvroError: the schema is none, is that of another record, lacks a field without
            default, or has a field of another type.
    """
    wanted = RECORD_SCHEMAS[cls]
    definitions: dict[str, Any] = {}
    try:
        # Turns all names into full ones.
        writer: Any = fastavro.parse_schema(json.loads(writer_schema), definitions)
        found = writer["name"] if _kind(writer) == "record" else _kind(writer)
        if found.rpartition(".")[2] != wanted["name"]:
            raise MalformedAvroError(f"it holds {found}, not {wanted['name']}")
        return _Compiler(definitions).reader(writer, wanted)
    except MalformedAvroError:
        raise
    except (
        # What is no JSON, or no Avro schema, fails in all these ways, in fastavro and here.
        fastavro.schema.SchemaParseException,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise MalformedAvroError(f"its header has no valid Avro schema ({error!r})") from error


def _kind(schema: Any) -> str:
    """Name the type of a schema: `union`, `record`, `string`, or the full name of a definition."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _read_null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    byte = data[at]
    if byte > 1:
        raise MalformedAvroError(f"a boolean of {byte} at offset {at}")
    return byte == 1, at + 1


def _read_float(data: bytes, at: int) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, at)[0], at + 4


def _read_double(data: bytes, at: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, at)[0], at + 8


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    start, end = read_span(data, at)
    return data[start:end], end


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    byte = data[at]
    if byte <= 0x7F and not byte & 1:
        # A slice that ends behind the data is short, and the offset then misses the block's end.
        end = at + 1 + (byte >> 1)
        return data[at + 1 : end].decode(), end
    start, end = read_span(data, at)
    return data[start:end].decode(), end


_PRIMITIVES: Mapping[str, Reader] = MappingProxyType(
    {
        "null": _read_null,
        "boolean": _read_boolean,
        "int": read_long,
        "long": read_long,
        "float": _read_float,
        "double": _read_double,
        "bytes": _read_bytes,
        "string": _read_string,
        "enum": read_long,
    }
)


class _Compiler:
    """Builds readers for pairs of a writer schema and the schema wanted.

    Where nothing is wanted (None) the reader finds the end of the value, which is then dropped.
    """

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self._records: dict[tuple[str, str | None], Reader] = {}

    def reader(self, writer: Any, wanted: Schema | None) -> Reader:
        kind = _kind(writer)
        if isinstance(writer, str) and writer in self._definitions:
            return self.reader(self._definitions[writer], wanted)
        if kind == "union":
            return _union_reader([self._branch_reader(branch, wanted) for branch in writer])
        wanted = _matching_branch(kind, wanted)
        if kind == "record":
            return self._record_reader(writer, wanted)
        if kind == "array":
            return _array_reader(self.reader(writer["items"], _part(wanted, "items")))
        if kind == "map":
            return _map_reader(self.reader(writer["values"], _part(wanted, "values")))
        if kind == "fixed":
            return _fixed_reader(writer["size"])
        return _PRIMITIVES[kind]

    def _branch_reader(self, writer: Any, wanted: Schema | None) -> Reader:
        """Build the reader of a union's branch; one that does not fit fails when data takes it."""
        try:
            return self.reader(writer, wanted)
        except MalformedAvroError as mismatch:
            return _refusing_reader(str(mismatch))

    def _record_reader(self, writer: Any, wanted: Schema | None) -> Reader:
        key = (writer["name"], wanted["name"] if isinstance(wanted, dict) else None)
        if key not in self._records:
            if isinstance(wanted, dict):
                self._records[key] = self._generate_reader(writer, wanted)
            else:
                # Known before its fields are, because a record may contain itself.
                readers: list[Reader] = []
                self._records[key] = _dropping_reader(readers)
                readers += [self.reader(field["type"], None) for field in writer["fields"]]
        return self._records[key]

    def _generate_reader(self, writer: dict[str, Any], wanted: dict[str, Any]) -> Reader:
        """Generate the function that reads a record into its dataclass.

        Only names of our own schemas enter the source, never those of the file.
        """
        cls = RECORD_CLASSES[wanted["name"]]
        names: dict[str, Any] = {
            "new": object.__new__,
            "Draft": _draft_of(cls),
            "Record": cls,
            "read_long": read_long,
            "read_string": _read_string,
            "bad_branch": _bad_branch,
        }
        lines = ["record = new(Draft)"]
        missing = {field["name"]: field for field in wanted["fields"]}
        for index, field in enumerate(writer["fields"]):
            goal = missing.pop(field["name"], None)
            target = f"record.{python_name(goal['name'])}" if goal else "_"
            reader_name = f"read_{index}"
            type_ = goal["type"] if goal else None
            if _is_optional(field["type"]) and _takes(type_, "null"):
                null = field["type"].index("null")
                value = field["type"][1 - null]
                names[reader_name] = self._branch_reader(value, type_)
                kind = _kind(value) if _takes(type_, _kind(value)) else "other"
                lines += _optional_lines(target, null, kind, reader_name)
            else:
                names[reader_name] = self.reader(field["type"], type_)
                lines.append(f"{target}, at = {reader_name}(data, at)")
        for index, goal in enumerate(missing.values()):
            if "default" not in goal:
                raise MalformedAvroError(f"its schema lacks the field {goal['name']}")
            default = goal["default"]
            names[f"default_{index}"] = tuple(default) if isinstance(default, list) else default
            lines.append(f"record.{python_name(goal['name'])} = default_{index}")
        lines += ["record.__class__ = Record", "return record, at"]
        source = "def read_record(data, at):\n" + indent("\n".join(lines), "    ")
        exec(compile(source, f"<decoder of {wanted['name']}>", "exec"), names)
        reader: Reader = names["read_record"]
        return reader


def _draft_of(cls: type) -> type:
    """Return a subclass of a frozen dataclass that can be filled in.

    The frozen `__init__` takes 4 µs for the 31 fields of a write stat, plain assignment below 1 µs.
    A subclass without slots of its own has the layout of its base, so a filled draft becomes a
    record by changing its class. CPython assigns slots directly only if both methods are its own.
    """
    thawed = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    return type(cls.__name__, (cls,), {"__slots__": (), **thawed})


def _optional_lines(target: str, null: int, kind: str, reader_name: str) -> list[str]:
    """Write the lines that read a value or null, with the kinds that fill write stats in line."""
    if kind in ("int", "long"):
        value_lines = [
            "byte = data[at + 1]",
            "if byte < 128:",
            f"    {target} = (byte >> 1) ^ -(byte & 1)",
            "    at += 2",
            "else:",
            f"    {target}, at = read_long(data, at + 1)",
        ]
    elif kind == "string":
        value_lines = [
            "byte = data[at + 1]",
            "if byte < 128 and not byte & 1:",
            "    at += 2",
            "    end = at + (byte >> 1)",
            f"    {target} = data[at:end].decode()",
            "    at = end",
            "else:",
            f"    {target}, at = read_string(data, at + 1)",
        ]
    else:
        value_lines = [f"{target}, at = {reader_name}(data, at + 1)"]
    return [
        "byte = data[at]",
        f"if byte == {null << 1}:",
        f"    {target} = None",
        "    at += 1",
        f"elif byte == {1 - null << 1}:",
        *(f"    {line}" for line in value_lines),
        "else:",
        "    raise bad_branch(at)",
    ]


def _is_optional(schema: Any) -> bool:
    return isinstance(schema, list) and len(schema) == 2 and schema.count("null") == 1


def _takes(wanted: Schema | None, kind: str) -> bool:
    """Tell whether a value of a kind may become what is wanted."""
    if isinstance(wanted, list):
        return any(_takes(branch, kind) for branch in wanted)
    return wanted is None or _kind(wanted) == kind or (kind, _kind(wanted)) == ("int", "long")


def _matching_branch(kind: str, wanted: Schema | None) -> Schema | None:
    """Return the wanted schema, or its branch, that takes a value of a kind."""
    if not _takes(wanted, kind):
        raise MalformedAvroError(f"its schema has {kind} where {_short(wanted)} is expected")
    if isinstance(wanted, list):
        return next(branch for branch in wanted if _takes(branch, kind))  # type: ignore[no-any-return]
    return wanted


def _short(wanted: Schema | None) -> str:
    return (
        " or ".join(_kind(branch) for branch in wanted)
        if isinstance(wanted, list)
        else _kind(wanted)
    )


def _part(schema: Schema | None, part: str) -> Schema | None:
    return schema[part] if isinstance(schema, dict) else None


def _bad_branch(at: int) -> MalformedAvroError:
    return MalformedAvroError(f"a union branch that its schema does not have, at offset {at}")


def _union_reader(branches: list[Reader]) -> Reader:
    def read_union(data: bytes, at: int) -> tuple[Any, int]:
        branch, after = read_long(data, at)
        if not 0 <= branch < len(branches):
            raise _bad_branch(at)
        return branches[branch](data, after)

    return read_union


def _array_reader(read_item: Reader) -> Reader:
    def read_array(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        items = []
        count, at = read_count(data, at)
        while count:
            for _ in range(count):
                item, at = read_item(data, at)
                items.append(item)
            count, at = read_count(data, at)
        return tuple(items), at

    return read_array


def _map_reader(read_value: Reader) -> Reader:
    def read_map(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        values = {}
        count, at = read_count(data, at)
        while count:
            for _ in range(count):
                key, at = _read_string(data, at)
                values[key], at = read_value(data, at)
            count, at = read_count(data, at)
        return values, at

    return read_map


def _fixed_reader(size: int) -> Reader:
    if size < 0:
        raise MalformedAvroError(f"its schema has a fixed type of {size} bytes")

    def read_fixed(data: bytes, at: int) -> tuple[bytes, int]:
        return data[at : at + size], at + size

    return read_fixed


def _dropping_reader(fields: list[Reader]) -> Reader:
    def read_and_drop(data: bytes, at: int) -> tuple[None, int]:
        for read_field in fields:
            _, at = read_field(data, at)
        return None, at

    return read_and_drop


def _refusing_reader(reason: str) -> Reader:
    def refuse(data: bytes, at: int) -> NoReturn:
        raise MalformedAvroError(f"{reason}, at offset {at}")

    return refuse
