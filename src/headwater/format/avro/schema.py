"""Arrow schemas as Avro JSON and back, with the names Hudi on Spark gives.

A table's schema travels as Avro JSON in `hoodie.table.create.schema`, in commit metadata and in
log blocks. Rules, as in tables written by Hudi:

- the record is `<table>_record` in namespace `hoodie.<table>`;
- a nullable type is `["null", T]`, and a nullable column has the default null (both orders of the
  union are read);
- a struct is a record named after its column, in the namespace of the columns above it; the
  elements of arrays and the values of maps take the name of their column;
- a decimal is a fixed of the fewest bytes that hold its precision, named `fixed` in a namespace
  of its own.

Avro is the narrower of the two: 8 and 16 bit integers widen to int, unsigned 32 bit to long,
instants of any zone become UTC, dictionaries their values. What it cannot say is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from headwater.errors import InvalidInputError
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.avro.limits import check_avro_schema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DECIMAL_PRECISION_MAX = 38
_NESTING_MAX = 64
"""Far beyond any schema of people, and below the depth at which Python's stack gives up."""
_SCHEMAS_CACHED_MAX = 64
"""Every block of a log has its schema, and mostly it is that of the block before."""

_PRIMITIVES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
}
_REFUSED_LOGICAL = frozenset({"time-millis", "time-micros", "duration"})
_WIDENED: Mapping[pa.DataType, str] = {
    pa.int8(): "int",
    pa.int16(): "int",
    pa.uint8(): "int",
    pa.uint16(): "int",
    pa.uint32(): "long",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "bytes",
    pa.binary_view(): "bytes",
}
_AVRO_OF_ARROW: Mapping[pa.DataType, Any] = {
    **{arrow: avro for avro, arrow in _PRIMITIVES.items()},
    **_WIDENED,
    **{arrow: {"type": avro, "logicalType": name} for (avro, name), arrow in _LOGICAL.items()},
}


def encode_avro_schema(schema: pa.Schema, *, table: str) -> str:
    """Return the Avro JSON of a table's columns, without blanks.

    Raises:
        InvalidInputError: a column's name or type cannot be said in Avro; the message has its path.
    """
    name = _sanitized(table)
    record = {
        "type": "record",
        "name": f"{name}_record",
        "namespace": f"hoodie.{name}",
        "fields": _avro_fields(list(schema), (), f"hoodie.{name}.{name}_record"),
    }
    return json.dumps(record, separators=(",", ":"))


def parse_avro_schema(schema: str | Mapping[str, Any]) -> pa.Schema:
    """Return the columns of an Avro record schema, given as JSON text or as parsed JSON.

    Raises:
        InvalidInputError: it is no Avro record schema, or a type has no counterpart; the message
            has the column's path.
    """
    try:
        return _columns_of_text(schema) if isinstance(schema, str) else _columns_of(schema)
    except RecursionError:
        raise InvalidInputError("The schema is nested too deeply to be read") from None
    except MalformedAvroError as error:
        raise InvalidInputError(f"The schema cannot be read: {error}") from error
    except (LookupError, TypeError, OverflowError, pa.ArrowException) as error:
        raise InvalidInputError(f"The schema is no Avro schema: {error!r}") from error


@lru_cache(maxsize=_SCHEMAS_CACHED_MAX)
def _columns_of_text(schema: str) -> pa.Schema:
    try:
        parsed = json.loads(schema)
    except ValueError as error:
        raise InvalidInputError(f"The schema is not JSON: {error}") from error
    return _columns_of(parsed)


def _columns_of(schema: object) -> pa.Schema:
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise InvalidInputError("The schema must be an Avro record with the table's columns")
    check_avro_schema(schema)
    return pa.schema(list(_AvroReader({}).record(schema, (), "").fields))


def _sanitized(table: str) -> str:
    """Return the table's name as part of an Avro name, masked the way Hudi masks it."""
    masked = re.sub(r"\A[^A-Za-z_]", "__", table)
    return re.sub(r"[^A-Za-z0-9_]", "__", masked)


def _avro_fields(
    fields: list[pa.Field], path: tuple[str, ...], namespace: str
) -> list[dict[str, Any]]:
    _check_names([field.name for field in fields], path)
    encoded = []
    for field in fields:
        column = (*path, field.name)
        avro = _avro_type(field.type, column, field.name, namespace)
        if field.nullable:
            encoded.append({"name": field.name, "type": ["null", avro], "default": None})
        else:
            encoded.append({"name": field.name, "type": avro})
    return encoded


def _avro_type(arrow: pa.DataType, path: tuple[str, ...], name: str, namespace: str) -> Any:
    _check_depth(path)
    if arrow in _AVRO_OF_ARROW:
        return _AVRO_OF_ARROW[arrow]
    if pa.types.is_dictionary(arrow):
        return _avro_type(arrow.value_type, path, name, namespace)
    if pa.types.is_timestamp(arrow) and arrow.tz is not None:
        return _avro_type_of_instant(arrow, path)
    if pa.types.is_decimal(arrow):
        return _avro_decimal(arrow, path, f"{namespace}.{name}")
    if pa.types.is_fixed_size_binary(arrow):
        fixed_namespace = f"{namespace}.{name}"
        size = arrow.byte_width
        return {"type": "fixed", "name": "fixed", "namespace": fixed_namespace, "size": size}
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        items = _avro_union(arrow.value_field, (*path, "element"), name, namespace)
        return {"type": "array", "items": items}
    if pa.types.is_map(arrow):
        if not (pa.types.is_string(arrow.key_type) or pa.types.is_large_string(arrow.key_type)):
            raise _refused(path, f"a map with keys of type {arrow.key_type}", "use string keys")
        values = _avro_union(arrow.item_field, (*path, "value"), name, namespace)
        return {"type": "map", "values": values}
    if pa.types.is_struct(arrow):
        fields = _avro_fields(list(arrow), path, f"{namespace}.{name}")
        return {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    if pa.types.is_timestamp(arrow):
        raise _refused(path, str(arrow), "cast it to timestamp[us]")
    raise _refused(path, str(arrow), "cast it to a type of Avro")


def _avro_union(field: pa.Field, path: tuple[str, ...], name: str, namespace: str) -> Any:
    avro = _avro_type(field.type, path, name, namespace)
    return ["null", avro] if field.nullable else avro


def _avro_type_of_instant(arrow: pa.DataType, path: tuple[str, ...]) -> Any:
    in_utc = pa.timestamp(arrow.unit, tz="UTC")
    if in_utc not in _AVRO_OF_ARROW:
        raise _refused(path, str(arrow), "cast it to timestamp[us, tz=UTC]")
    return _AVRO_OF_ARROW[in_utc]


def _avro_decimal(arrow: pa.DataType, path: tuple[str, ...], namespace: str) -> Any:
    if arrow.precision > _DECIMAL_PRECISION_MAX or not 0 <= arrow.scale <= arrow.precision:
        raise _refused(path, str(arrow), "use decimal(p, s) with 0 <= s <= p <= 38")
    return {
        "type": "fixed",
        "name": "fixed",
        "namespace": namespace,
        "size": _decimal_bytes(arrow.precision),
        "logicalType": "decimal",
        "precision": arrow.precision,
        "scale": arrow.scale,
    }


def _decimal_bytes(precision: int) -> int:
    """Return the fewest bytes whose two's complement holds every value of the precision."""
    largest = int(10**precision) - 1
    return (largest.bit_length() + 1 + 7) // 8


@dataclass(frozen=True, slots=True)
class _AvroReader:
    """Reads one schema; knows the named types that were defined so far."""

    named: dict[str, pa.DataType]

    def type(self, avro: Any, path: tuple[str, ...], namespace: str) -> tuple[pa.DataType, bool]:
        """Return the Arrow type and whether it is nullable."""
        _check_depth(path)
        if not isinstance(avro, list):
            return self._plain(avro, path, namespace), False
        branches = [branch for branch in avro if branch != "null"]
        if len(branches) != 1:
            raise _refused(path, f"a union of {len(branches)} types", "use one type, or null")
        return self._plain(branches[0], path, namespace), len(branches) != len(avro)

    def record(
        self, avro: Mapping[str, Any], path: tuple[str, ...], namespace: str
    ) -> pa.StructType:
        full_name, inner = _full_name(avro, path, namespace)
        fields = avro.get("fields")
        if not isinstance(fields, list) or not all(
            isinstance(field, Mapping) and isinstance(field.get("name"), str) and "type" in field
            for field in fields
        ):
            raise _malformed(path, "a record needs fields, each with a name and a type")
        _check_names([field["name"] for field in fields], path)
        columns = []
        for field in fields:
            arrow, is_nullable = self.type(field["type"], (*path, field["name"]), inner)
            columns.append(pa.field(field["name"], arrow, nullable=is_nullable))
        return self._define(full_name, pa.struct(columns))

    def _plain(self, avro: Any, path: tuple[str, ...], namespace: str) -> pa.DataType:
        if isinstance(avro, str):
            return self._by_name(avro, path, namespace)
        if not isinstance(avro, Mapping):
            raise _malformed(path, f"{avro!r} is no type")
        if isinstance(avro.get("logicalType"), str):
            logical = self._logical(avro, avro["logicalType"], path, namespace)
            if logical is not None:
                return logical
        match avro.get("type"):
            case "record":
                return self.record(avro, path, namespace)
            case "array":
                arrow, is_nullable = self.type(avro.get("items"), (*path, "element"), namespace)
                return pa.list_(pa.field("element", arrow, nullable=is_nullable))
            case "map":
                arrow, is_nullable = self.type(avro.get("values"), (*path, "value"), namespace)
                return pa.map_(pa.string(), pa.field("value", arrow, nullable=is_nullable))
            case "fixed":
                full_name, _ = _full_name(avro, path, namespace)
                return self._define(full_name, pa.binary(_size(avro, path)))
            case "enum":
                full_name, _ = _full_name(avro, path, namespace)
                return self._define(full_name, pa.string())
            case inner:
                # `{"type": "string", ...}` wraps a type to hang attributes on it.
                return self._plain(inner, path, namespace)

    def _by_name(self, name: str, path: tuple[str, ...], namespace: str) -> pa.DataType:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        if name == "null":
            raise _refused(path, "null", "give it a type that holds values")
        full_name = name if "." in name or not namespace else f"{namespace}.{name}"
        if full_name not in self.named:
            raise _refused(path, name, "define each type before its use, and not by itself")
        return self.named[full_name]

    def _logical(
        self, avro: Mapping[str, Any], logical: str, path: tuple[str, ...], namespace: str
    ) -> pa.DataType | None:
        """Return the logical type, or None for one that Avro lets readers ignore."""
        if logical in _REFUSED_LOGICAL:
            raise _refused(path, logical, "store it as a number or as text")
        if logical != "decimal" or avro["type"] not in ("fixed", "bytes"):
            return _LOGICAL.get((str(avro.get("type")), logical))
        precision, scale = avro.get("precision"), avro.get("scale", 0)
        if (
            type(precision) is not int
            or type(scale) is not int
            or not 0 <= scale <= precision <= _DECIMAL_PRECISION_MAX
            or precision == 0
        ):
            raise _malformed(path, f"a decimal({precision}, {scale}) has no such range")
        decimal = pa.decimal128(precision, scale)
        if avro["type"] == "fixed":
            full_name, _ = _full_name(avro, path, namespace)
            return self._define(full_name, decimal)
        return decimal

    def _define(self, full_name: str, arrow: pa.DataType) -> pa.DataType:
        self.named[full_name] = arrow
        return arrow


def _full_name(avro: Mapping[str, Any], path: tuple[str, ...], namespace: str) -> tuple[str, str]:
    """Return a named type's full name and the namespace of what is inside it."""
    name = avro.get("name")
    if not isinstance(name, str) or not name:
        raise _malformed(path, f"a {avro.get('type')} needs a name")
    if "." in name:
        return name, name.rpartition(".")[0]
    own = avro.get("namespace", namespace)
    return (f"{own}.{name}" if own else name), own


def _size(avro: Mapping[str, Any], path: tuple[str, ...]) -> int:
    size = avro.get("size")
    if type(size) is not int or size < 1:
        raise _malformed(path, f"a fixed of size {size!r} does not exist")
    return size


def _check_names(names: list[str], path: tuple[str, ...]) -> None:
    seen = set()
    for name in names:
        if not _NAME.fullmatch(name):
            raise InvalidInputError(
                f"Column {_dotted((*path, name))!r} cannot be stored: a name has letters, digits "
                "and _ and does not begin with a digit. Rename the column"
            )
        if name in seen:
            raise InvalidInputError(f"Column {_dotted((*path, name))!r} comes twice; rename one")
        seen.add(name)


def _check_depth(path: tuple[str, ...]) -> None:
    if len(path) > _NESTING_MAX:
        raise _refused(path[:8], "a type nested too deeply", f"use at most {_NESTING_MAX} levels")


def _refused(path: tuple[str, ...], what: str, advice: str) -> InvalidInputError:
    return InvalidInputError(
        f"Column {_dotted(path)!r} has a type that Hudi tables cannot store: {what}; {advice}"
    )


def _malformed(path: tuple[str, ...], problem: str) -> InvalidInputError:
    where = f"column {_dotted(path)!r}" if path else "the table's record"
    return InvalidInputError(f"The Avro schema is malformed at {where}: {problem}")


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path)
