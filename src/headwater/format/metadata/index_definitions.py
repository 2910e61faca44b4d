"""The definitions of a table's indexes, `.hoodie/.index_defs/index.json` (format rule 1.5).

Tables of version 8 have no index versions, which means the first. Since table version 9 a
definition without one is invalid: the file groups of its keys cannot be told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, unique
from typing import Any

from headwater.config.limits import check_object_bytes
from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.strict_json import load_json

VERSIONED_SINCE_TABLE_VERSION = 9

UNDEFINED_INDEXES = frozenset({"files", "bloom_filters"})
"""What they hold no definition says. Partition statistics have none either, but are of the columns
that column statistics are defined on."""


@unique
class IndexVersion(IntEnum):
    V1 = 1
    V2 = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDefinition:
    """One index. Its name is the name of its partition in the metadata table."""

    index_name: str
    index_type: str
    index_function: str = ""
    source_fields: tuple[str, ...] = ()
    index_options: Mapping[str, str] = field(default_factory=dict)
    version: IndexVersion = IndexVersion.V1

    @property
    def is_partitioned(self) -> bool:
        """Whether a record index has file groups of its own for each partition of the table."""
        return self.index_options.get("isPartitioned", "").lower() == "true"


def encode_index_definitions(definitions: Mapping[str, IndexDefinition]) -> bytes:
    """Encode definitions by index name."""
    content = {
        "indexDefinitions": {
            name: {
                "indexName": each.index_name,
                "indexType": each.index_type,
                "indexFunction": each.index_function,
                "sourceFields": list(each.source_fields),
                "indexOptions": dict(each.index_options),
                "version": each.version.name,
            }
            for name, each in definitions.items()
        }
    }
    return json.dumps(content, indent=2, ensure_ascii=False).encode()


def parse_index_definitions(
    data: bytes, *, table_version: int, path: str
) -> dict[str, IndexDefinition]:
    """Return the definitions by index name; an empty file has none.

    Raises:
        CorruptTableError: it is no such file, or a definition lacks a version or has an unknown
            one.
    """
    check_object_bytes(data, path)
    if not data.strip():
        return {}
    try:
        content = load_json(data)
        found = {} if content == {} else content["indexDefinitions"] or {}
        return {name: _definition(name, each, table_version, path) for name, each in found.items()}
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise _corrupt(f"{path} does not define indexes: {error!r}", path) from error


def _definition(
    name: str, content: Mapping[str, Any], table_version: int, path: str
) -> IndexDefinition:
    version = content.get("version")
    if version is None and table_version >= VERSIONED_SINCE_TABLE_VERSION:
        raise _corrupt(f"The index {name!r} in {path} has no version", path)
    if version is not None and version not in IndexVersion.__members__:
        raise _corrupt(f"The index {name!r} in {path} has the unknown version {version!r}", path)
    texts = [content["indexType"], *(content.get("sourceFields") or ())]
    texts += [text for pair in dict(content.get("indexOptions") or {}).items() for text in pair]
    texts += [content.get("indexName") or "", content.get("indexFunction") or ""]
    if not all(isinstance(text, str) for text in texts):
        raise _corrupt(f"The index {name!r} in {path} has a value that is no text", path)
    if (content.get("indexName") or name) != name:
        raise _corrupt(f"The index {name!r} in {path} calls itself {content['indexName']!r}", path)
    return IndexDefinition(
        index_name=name,
        index_type=content["indexType"],
        index_function=content.get("indexFunction") or "",
        source_fields=tuple(content.get("sourceFields") or ()),
        index_options=dict(content.get("indexOptions") or {}),
        version=IndexVersion.V1 if version is None else IndexVersion[version],
    )


def _corrupt(problem: str, path: str) -> CorruptTableError:
    return CorruptTableError(
        f"{problem}. Drop the index and create it again",
        kind=ErrorKind.CORRUPT_METADATA_TABLE,
        path=path,
    )
