"""Commit metadata as JSON, the form it has in tables of version 6.

The names are those of the Avro schema. A name that is absent means null; names the schema does not
have (`recordsStats`) are dropped. Other records of such tables are Avro as in later versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from headwater.config.limits import check_object_bytes
from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.strict_json import load_json
from headwater.format.timeline.schemas import (
    RECORD_CLASSES,
    RECORD_SCHEMAS,
    Record,
    Schema,
    python_name,
)
from headwater.model.commit_metadata import CommitMetadata

CommitT = TypeVar("CommitT", bound=CommitMetadata)

RecordT = TypeVar("RecordT", bound=Record)

_JSON_TYPES: Mapping[str, type] = MappingProxyType(
    {
        "string": str,
        "int": int,
        "long": int,
        "double": float,
        "boolean": bool,
        "array": list,
        "map": dict,
        "record": dict,
    }
)


def decode_commit_json(cls: type[CommitT], data: bytes, *, path: str) -> CommitT:
    """Decode the commit metadata of a table of version 6; `path` is for errors only.

    Raises:
        CorruptTableError: the bytes are no JSON object, or a value has the wrong type.
    """
    check_object_bytes(data, path)
    try:
        record = _value_of(RECORD_SCHEMAS[cls], load_json(data), "the file")
    except (ValueError, RecursionError) as error:
        raise CorruptTableError(
            f"{path} is no commit metadata in JSON: {error}. Restore it from a copy.",
            kind=ErrorKind.CORRUPT_TIMELINE,
            path=path,
        ) from error
    return record  # type: ignore[no-any-return]


def record_of_values(cls: type[RecordT], values: Mapping[str, Any]) -> RecordT:
    """Return the record of a mapping by the names of its Avro schema, nested ones too.

    A name that is absent means the record's default.

    Raises:
        ValueError: a value has the wrong type.
    """
    record: RecordT = _value_of(RECORD_SCHEMAS[cls], dict(values), "the record", has_defaults=True)
    return record


def _value_of(schema: Schema, value: Any, name: str, *, has_defaults: bool = False) -> Any:
    if isinstance(schema, list):
        if value is None:
            return None
        schema = next(branch for branch in schema if branch != "null")
    kind = schema["type"] if isinstance(schema, dict) else str(schema)
    _check_type(kind, value, name)
    if not isinstance(schema, dict):
        return value
    match kind:
        case "record":
            return RECORD_CLASSES[schema["name"]](
                **{
                    python_name(field["name"]): _value_of(
                        field["type"],
                        value.get(field["name"]),
                        field["name"],
                        has_defaults=has_defaults,
                    )
                    for field in schema["fields"]
                    if field["name"] in value or not has_defaults
                }
            )
        case "array":
            items = schema["items"]
            return tuple(_value_of(items, item, name, has_defaults=has_defaults) for item in value)
        case "map":
            values = schema["values"]
            return {
                key: _value_of(values, item, key, has_defaults=has_defaults)
                for key, item in value.items()
            }
        case _:
            return value


def _check_type(kind: str, value: Any, name: str) -> None:
    # By type and not by isinstance, because to Python a boolean is an integer.
    if type(value) is not _JSON_TYPES[kind]:
        raise ValueError(f"{name} is {value!r:.60} where {kind} is expected")
