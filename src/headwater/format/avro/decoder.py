"""Decoders of records, compiled for one writer schema.

A timeline of ten thousand instants means as many small records. fastavro gives a dict per record
and needs about 20 µs for a single write stat; building dataclasses from dicts costs as much again.
So the schema in the file and the dataclass wanted are compared once, and a function is generated
that reads the bytes straight into the attributes.

Resolution follows Avro: fields are matched by name, what the file has and the dataclass lacks is
read and dropped, what the file lacks takes the default of our schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from textwrap import indent
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import fastavro

from headwater.format.avro.binary import (
    MalformedAvroError,
    read_count,
    read_long,
    read_span,
)
from headwater.format.avro.limits import check_avro_schema
from headwater.format.strict_json import load_json
from headwater.format.timeline.schemas import (
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
        MalformedAvroError: the schema is none, is too large, is that of another record, lacks a
            field without default, or has a field of another type.
    """
    wanted = RECORD_SCHEMAS[cls]
    definitions: dict[str, Any] = {}
    try:
        # Turns all names into full ones.
        given = load_json(writer_schema)
        check_avro_schema(given)
        writer: Any = fastavro.parse_schema(given, definitions)
        found = writer["name"] if _kind(writer) == "record" else _kind(writer)
        if found.rpartition(".")[2] != wanted["name"]:
            raise MalformedAvroError(f"it holds {found}, not {wanted['name']}")
        return _Compiler(definitions).reader(writer, wanted)
    except MalformedAvroError:
        raise
    except (
        # What is no JSON, or no Avro schema, fails in all these ways, in fastavro and here.
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        AttributeError,
        LookupError,
        OverflowError,
        RecursionError,
        SyntaxError,  # Python compiles only so much; a schema that needs more is none of Hudi's.
        TypeError,
        ValueError,
    ) as error:
        raise MalformedAvroError(f"its header has no valid Avro schema ({error!r})") from error


def _kind(schema: Any) -> str:
    """Name the type of a schema: `union`, `record`, `string`, or the full name of a definition."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)


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
    start, end = read_span(data, at)
    return data[start:end].decode(), end


_PRIMITIVES: Mapping[str, Reader] = MappingProxyType(
    {
        "null": lambda data, at: (None, at),
        "boolean": _read_boolean,
        "float": _read_float,
        "double": _read_double,
        "bytes": _read_bytes,
    }
)
_ONE_BYTE_BRANCHES = 64
"""So many branches of a union are numbered in one byte. Hudi's unions have two."""
_NUMBERS = ("int", "long", "enum")
_INLINE_DEPTH_MAX = 3
"""How deep collections are read in line; a compiler takes only so many nested blocks."""

_REPEATED_BYTES_MIN = 500
"""Longer strings are mostly the table's schema, which every commit carries."""

_BUSY_FIELDS = frozenset(
    {"fileId", "path", "prevCommit", "numWrites", "totalWriteBytes", "partitionPath", "numInserts"}
    | {"fileSizeInBytes", "runtimeStats", "partitionToWriteStats", "extraMetadata", "operationType"}
)
"""Fields that nearly every write fills. Between them lie runs that mostly hold their defaults."""


class _Compiler:
    """Generates readers for pairs of a writer schema and the schema wanted.

    Where nothing is wanted (None) the reader finds the end of the value, which is then dropped.
    Readers find each other by name when they run, because a record may contain itself. Only names
    of our own schemas enter the source, never those of the file.
    """

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self._records: dict[tuple[str, str | None], str] = {}
        self._names: dict[str, Any] = {
            "new": object.__new__,
            "read_long": read_long,
            "read_count": read_count,
            "read_string": _read_string,
            "repeated": _Repeated(),
            "text": bytes.decode,
            "bad_branch": _bad_branch,
            "Malformed": MalformedAvroError,
        }

    def reader(self, writer: dict[str, Any], wanted: Schema) -> Reader:
        """Return the reader of a record."""
        reader: Reader = self._names[self._record(writer, wanted)]
        return reader

    def _bind(self, value: Any) -> str:
        """Give a value a name that generated code can use."""
        name = f"_{len(self._names)}"
        self._names[name] = value
        return name

    def _function(self, lines: list[str], name: str | None = None) -> str:
        """Generate the function of lines that leave a value in `value`; return its name."""
        name = name or self._bind(None)
        source = (
            f"def {name}(data, at):\n" + indent("\n".join(lines), "  ") + "\n  return value, at"
        )
        exec(compile(source, "<Avro decoder>", "exec"), self._names)
        return name

    def _lines(self, writer: Any, wanted: Schema | None, target: str, depth: int) -> list[str]:
        """Write the lines that read the value at `at` into a target and move `at` behind it."""
        kind = _kind(writer)
        if isinstance(writer, str) and writer in self._definitions:
            return self._lines(self._definitions[writer], wanted, target, depth)
        if kind == "union":
            return self._union_lines(writer, wanted, target, depth)
        wanted = _matching_branch(kind, wanted)
        if kind == "record":
            return [f"{target}, at = {self._record(writer, wanted)}(data, at)"]
        if kind in ("array", "map"):
            if depth < _INLINE_DEPTH_MAX:
                return self._collection_lines(kind, writer, wanted, target, depth)
            function = self._function(self._collection_lines(kind, writer, wanted, "value", 0))
            return [f"{target}, at = {function}(data, at)"]
        if kind == "fixed":
            return [f"{target}, at = {self._bind(_fixed_reader(writer['size']))}(data, at)"]
        if kind in _NUMBERS:
            return _number_lines(target)
        if kind == "string":
            return _string_lines(target)
        return [f"{target}, at = {self._bind(_PRIMITIVES[kind])}(data, at)"]

    def _union_lines(
        self, writer: Any, wanted: Schema | None, target: str, depth: int
    ) -> list[str]:
        if len(writer) >= _ONE_BYTE_BRANCHES:
            raise MalformedAvroError(f"its schema has a union of {len(writer)} branches")
        lines = ["byte = data[at]"]
        keyword = "if"
        # Null last: runs of nulls are dealt with before, and what else is read is mostly there.
        for branch in sorted(writer, key=lambda branch: _kind(branch) == "null"):
            lines.append(f"{keyword} byte == {writer.index(branch) << 1}:")
            lines += [f"  {line}" for line in self._branch_lines(branch, wanted, target, depth)]
            keyword = "elif"
        return [*lines, "else:", "  raise bad_branch(at)"]

    def _branch_lines(
        self, writer: Any, wanted: Schema | None, target: str, depth: int
    ) -> list[str]:
        """Write the lines of a union's branch; one that does not fit fails when data takes it."""
        try:
            if _kind(writer) == "null":
                _matching_branch("null", wanted)
                return ["at += 1", f"{target} = None"]
            if _kind(writer) in _NUMBERS and _takes(wanted, _kind(writer)):
                return _number_lines(target, skipped=1)
            if _kind(writer) == "string" and _takes(wanted, "string"):
                return _string_lines(target, skipped=1)
            return ["at += 1", *self._lines(writer, wanted, target, depth)]
        except MalformedAvroError as mismatch:
            return [f"raise Malformed({self._bind(f'{mismatch}, at offset ')} + str(at))"]

    def _collection_lines(
        self, kind: str, writer: Any, wanted: Schema | None, target: str, depth: int
    ) -> list[str]:
        part, empty = ("items", "[]") if kind == "array" else ("values", "{}")
        held, item, key = f"held_{depth}", f"item_{depth}", f"key_{depth}"
        one = self._lines(writer[part], _part(wanted, part), item, depth + 1)
        if kind == "array":
            one.append(f"{held}.append({item})")
        else:
            one = [*_string_lines(key), *one, f"{held}[{key}] = {item}"]
        lines = [
            f"{held} = {empty}",
            "while True:",
            "  byte = data[at]",
            "  if not byte:",
            "    at += 1",
            "    break",
            "  if byte < 128 and not byte & 1:",
            "    at += 1",
            "    count = byte >> 1",
            "  else:",
            "    count, at = read_count(data, at)",
            "    if not count:",
            "      break",
            "  for _ in range(count):",
            *(f"    {line}" for line in one),
            f"{target} = tuple({held})" if kind == "array" else f"{target} = {held}",
        ]
        if kind == "map" and _kind(writer["values"]) == "string" and depth == 0:
            return self._remembering_lines(lines, target)
        return lines

    def _remembering_lines(self, lines: list[str], target: str) -> list[str]:
        """Write the lines of a map that is mostly equal to the one before, and becomes one object.

        Such are the texts that a writer adds to its commits: the table's schema in all of them.
        """
        last = self._bind([b"", None])
        return [
            f"known, held_0 = {last}",
            "if known and data.startswith(known, at):",
            f"  {target} = held_0",
            "  at += len(known)",
            "else:",
            "  start_0 = at",
            *(f"  {line}" for line in lines),
            f"  {last}[:] = data[start_0:at], held_0",
        ]

    def _record(self, writer: Any, wanted: Schema | None) -> str:
        """Return the name of the function that reads a record."""
        key = (writer["name"], wanted["name"] if isinstance(wanted, dict) else None)
        if key not in self._records:
            # Known before its fields are, because a record may contain itself.
            self._records[key] = self._bind(None)
            lines = (
                self._filling_lines(writer, wanted)
                if isinstance(wanted, dict)
                else self._dropping_lines(writer)
            )
            self._function(lines, self._records[key])
        return self._records[key]

    def _dropping_lines(self, writer: dict[str, Any]) -> list[str]:
        lines = []
        for field in writer["fields"]:
            lines += self._lines(field["type"], None, "_", 0)
        return [*lines, "value = None"]

    def _filling_lines(self, writer: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
        """Write the lines that read a record into its dataclass."""
        cls = RECORD_CLASSES[wanted["name"]]
        lines = [f"value = new({self._bind(_draft_of(cls))})"]
        missing = {field["name"]: field for field in wanted["fields"]}
        run: list[_QuietField] = []
        for field in writer["fields"]:
            goal = missing.pop(field["name"], None)
            target = f"value.{python_name(goal['name'])}" if goal else "_"
            one = self._lines(field["type"], goal["type"] if goal else None, target, 0)
            quiet = _quiet_bytes(cls, field["type"], goal)
            if quiet is not None:
                run.append(_QuietField(target, quiet, one))
                continue
            lines += [*self._run_lines(run), *one]
            run = []
        lines += self._run_lines(run)
        for goal in missing.values():
            if "default" not in goal:
                raise MalformedAvroError(f"its schema lacks the field {goal['name']}")
            default = goal["default"]
            held = self._bind(tuple(default) if isinstance(default, list) else default)
            lines.append(f"value.{python_name(goal['name'])} = {held}")
        return [*lines, f"value.__class__ = {self._bind(cls)}"]

    def _run_lines(self, run: list[_QuietField]) -> list[str]:
        """Write the lines of neighbours that mostly all hold their defaults: one comparison."""
        each = [line for field in run for line in field.lines]
        if len(run) < 2:
            return each
        quiet = b"".join(field.quiet for field in run)
        nulls = [field.target for field in run if len(field.quiet) == 1]
        zeros = [field.target for field in run if len(field.quiet) == 2]
        return [
            f"if data.startswith({self._bind(quiet)}, at):",
            f"  at += {len(quiet)}",
            *([f"  {' = '.join(nulls)} = None"] if nulls else []),
            *([f"  {' = '.join(zeros)} = 0"] if zeros else []),
            "else:",
            *(f"  {line}" for line in each),
        ]


class _Repeated:
    """Decodes strings of which most are equal to the one before, and become one object."""

    def __init__(self) -> None:
        self._last = (b"", "")

    def __call__(self, data: bytes) -> str:
        known, text = self._last
        if data == known:
            return text
        text = data.decode()
        self._last = (data, text)
        return text


class _QuietField(NamedTuple):
    """A field that mostly holds its default: where it goes, the bytes then, and how it is read."""

    target: str
    quiet: bytes
    lines: list[str]


def _quiet_bytes(cls: type, writer: Any, goal: dict[str, Any] | None) -> bytes | None:
    """Return the bytes of an optional field that holds its dataclass's default, null or zero."""
    if goal is None or goal["name"] in _BUSY_FIELDS or not _is_optional(writer):
        return None
    default = cls.__dataclass_fields__[python_name(goal["name"])].default  # type: ignore[attr-defined]
    null = writer.index("null")
    kind = _kind(writer[1 - null])
    if default is None and _takes(goal["type"], "null"):
        return bytes([null << 1])
    if default == 0 and default is not False and kind in _NUMBERS and _takes(goal["type"], kind):
        return bytes([1 - null << 1, 0])
    return None


def _draft_of(cls: type) -> type:
    """Return a subclass of a frozen dataclass that can be filled in.

    The frozen `__init__` takes 4 µs for the 31 fields of a write stat, plain assignment below 1 µs.
    A subclass without slots of its own has the layout of its base, so a filled draft becomes a
    record by changing its class. CPython assigns slots directly only if both methods are its own.
    """
    thawed = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    return type(cls.__name__, (cls,), {"__slots__": (), **thawed})


def _number_lines(target: str, skipped: int = 0) -> list[str]:
    """Write the lines that read a varint behind so many bytes; of up to three bytes in line."""
    unzigzag = f"  {target} = ~(byte >> 1) if byte & 1 else byte >> 1"
    return [
        f"byte = data[at + {skipped}]",
        "if byte < 128:",
        f"  at += {skipped + 1}",
        unzigzag,
        f"elif (high := data[at + {skipped + 1}]) < 128:",
        f"  at += {skipped + 2}",
        "  byte += (high << 7) - 0x80",
        unzigzag,
        f"elif (top := data[at + {skipped + 2}]) < 128:",
        f"  at += {skipped + 3}",
        "  byte += (high << 7) + (top << 14) - 0x4080",
        unzigzag,
        "else:",
        f"  {target}, at = read_long(data, at + {skipped})",
    ]


def _string_lines(target: str, skipped: int = 0) -> list[str]:
    """Write the lines that read a string behind so many bytes; of usual lengths in line."""
    return [
        f"byte = data[at + {skipped}]",
        "if byte < 128 and not byte & 1:",
        f"  at += {skipped + 1}",
        # A slice that ends behind the data is short, and the offset then misses the block's end.
        "  end = at + (byte >> 1)",
        f"  {target} = data[at:end].decode()",
        "  at = end",
        f"elif not byte & 1 and (high := data[at + {skipped + 1}]) < 128:",
        f"  at += {skipped + 2}",
        "  end = at + (byte + (high << 7) - 0x80 >> 1)",
        f"  {target} = (repeated if end - at > {_REPEATED_BYTES_MIN} else text)(data[at:end])",
        "  at = end",
        "else:",
        f"  {target}, at = read_string(data, at + {skipped})",
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


def _fixed_reader(size: int) -> Reader:
    if size < 0:
        raise MalformedAvroError(f"its schema has a fixed type of {size} bytes")

    def read_fixed(data: bytes, at: int) -> tuple[bytes, int]:
        return data[at : at + size], at + size

    return read_fixed
