"""How large a schema may be that somebody else wrote, before anything is made of it.

A few kilobytes of schema can stand for 2**40 values, by records that contain each other twice, and
a few bytes of data for as many items of an array, if an item takes none. Both are asked of the
schema alone, with every name resolved once, so that the question itself takes no longer than
reading the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headwater.config.limits import DEPTH_MAX, FIXED_BYTES_MAX, VALUES_MAX
from headwater.format.avro.binary import MalformedAvroError

_ONE_BYTE = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string", "enum"})


class _Extent(NamedTuple):
    """How many values a type stands for at most, and the fewest bytes that one takes."""

    values: int
    bytes_min: int


def check_avro_schema(schema: Any) -> None:
    """Check that a parsed schema stands for no more than can be read.

    What is no schema at all is left to whoever reads it.

    Raises:
        MalformedAvroError: a limit is reached; the message names it.
    """
    _Reader().extent(schema, "", 0)


class _Reader:
    def __init__(self) -> None:
        self._named: dict[str, _Extent | None] = {}  # None: its definition is being read.
        self._depth_max, self._values_max = DEPTH_MAX.value, VALUES_MAX.value

    def extent(self, schema: Any, namespace: str, depth: int) -> _Extent:
        if depth > self._depth_max:
            raise MalformedAvroError(f"its schema is nested deeper than {DEPTH_MAX}")
        found = self._extent(schema, namespace, depth)
        if found.values > self._values_max:
            raise MalformedAvroError(f"its schema stands for more values than {VALUES_MAX}")
        return found

    def _extent(self, schema: Any, namespace: str, depth: int) -> _Extent:
        if isinstance(schema, list):
            branches = [self.extent(branch, namespace, depth + 1) for branch in schema]
            return _Extent(1 + sum(branch.values for branch in branches), 1)
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if not isinstance(schema, Mapping):
            return _Extent(1, 1)
        match schema.get("type"):
            case "record" | "error":
                return self._record(schema, namespace, depth)
            case "array" | "map" as kind:
                part = schema.get("items" if kind == "array" else "values")
                item = self.extent(part, namespace, depth + 1)
                if kind == "array" and item.bytes_min == 0:
                    raise MalformedAvroError("its schema has an array of items that take no bytes")
                return _Extent(1 + item.values, 1)
            case "fixed":
                size = schema.get("size")
                size = size if isinstance(size, int) else 0
                if size > FIXED_BYTES_MAX.value:
                    raise MalformedAvroError(
                        f"its schema has a fixed type of {size} bytes, more than {FIXED_BYTES_MAX}"
                    )
                return self._define(schema, namespace, _Extent(1, max(0, size)))
            case "enum":
                return self._define(schema, namespace, _Extent(1, 1))
            case inner:
                return self.extent(inner, namespace, depth + 1)

    def _record(self, schema: Mapping[str, Any], namespace: str, depth: int) -> _Extent:
        name, inner = _names(schema, namespace)
        self._named[name] = None
        fields = schema.get("fields")
        types = [
            self.extent(field.get("type"), inner, depth + 1)
            for field in (fields if isinstance(fields, list) else [])
            if isinstance(field, Mapping)
        ]
        values, size = sum(one.values for one in types), sum(one.bytes_min for one in types)
        self._named[name] = _Extent(1 + values, size)
        return _Extent(1 + values, size)

    def _by_name(self, name: str, namespace: str) -> _Extent:
        if name == "null":
            return _Extent(1, 0)
        if name in _ONE_BYTE:
            return _Extent(1, 1)
        # A record inside of itself, below: how often is for the data to say, at a byte each.
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        known = self._named.get(full) or self._named.get(name)
        return known or _Extent(1, 1)

    def _define(self, schema: Mapping[str, Any], namespace: str, extent: _Extent) -> _Extent:
        name, _ = _names(schema, namespace)
        self._named[name] = extent
        return extent


def _names(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return the full name of a type, and the namespace of what is inside."""
    name = str(schema.get("name"))
    if "." in name:
        return name, name.rpartition(".")[0]
    own = schema.get("namespace", namespace)
    own = own if isinstance(own, str) else ""
    return (f"{own}.{name}" if own else name), own
