"""Hudi's schemas of tables that evolve on read: columns have ids, and names may change.

A commit of such a table says its own under `latest_schema`, and files in `.hoodie/.schema` hold all
that there were: `{"schemas": [{"version_id": 1, "type": "record", "fields": [...]}]}`. A field is
`{"id": 3, "name": "fare", "optional": true, "type": ...}`, its type a name or a nested object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headwater.errors import CorruptTableError

LATEST_SCHEMA = "latest_schema"
"""Where a commit says its own."""


def parse_internal_schemas(data: bytes | str, *, path: str) -> list[dict[int, str]]:
    """Return for each schema in a text the dotted names of its columns by their ids.

    Raises:
        CorruptTableError: it is no such schema, nor a list of them.
    """
    try:
        found = json.loads(data)
        schemas = found.get("schemas", [found])
        return [dict(_columns(schema)) for schema in schemas]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptTableError(
            f"{path} is no schema of a table that evolves on read ({error}); restore it from a "
            "copy",
            path=path,
        ) from error


def renamed_columns(schemas: Iterable[Mapping[int, str]]) -> list[str]:
    """Return the names that a reader which goes by names would take for the wrong columns.

    These are names that stood for several ids, and the names of ids that had several.
    """
    names: dict[int, set[str]] = {}
    ids: dict[str, set[int]] = {}
    for schema in schemas:
        for number, name in schema.items():
            names.setdefault(number, set()).add(name)
            ids.setdefault(name, set()).add(number)
    several = {name for some in names.values() if len(some) > 1 for name in some}
    return sorted(several | {name for name, some in ids.items() if len(some) > 1})


def _columns(kind: Any, prefix: str = "") -> Iterator[tuple[int, str]]:
    """Give the ids and dotted names of all columns of a type, also nested ones."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        name = f"{prefix}{field['name']}"
        yield int(field["id"]), name
        yield from _columns(field["type"], f"{name}.")
    # Lists and maps have ids for their inner values.
    for inner, number in (("elements", "element_id"), ("keys", "key_id"), ("values", "value_id")):
        if inner in kind:
            name = f"{prefix}{inner}"
            if number in kind:
                yield int(kind[number]), name
            yield from _columns(kind[inner], f"{name}.")
