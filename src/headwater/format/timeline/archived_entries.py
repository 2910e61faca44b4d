"""The archived timeline of tables before version 8: log files of HoodieArchivedMetaEntry records.

Each state of an instant has an entry of its own: that of the request may have the plan, the one of
the completion has the metadata. The metadata of each kind of action has a field of its own, and is
the record that a timeline file would hold, so that it is encoded again as one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType
from typing import Any

import fastavro

from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.avro.binary import DECODING_ERRORS, MalformedAvroError
from headwater.format.avro.limits import check_avro_schema
from headwater.format.log.frames import BlockType, HeaderKey, iter_blocks
from headwater.format.strict_json import load_json
from headwater.format.timeline.commit_json import record_of_values
from headwater.format.timeline.records import encode_record
from headwater.format.timeline.schemas import Record
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata
from headwater.model.plans import CleanerPlan, CompactionPlan, RequestedReplace
from headwater.model.service_metadata import (
    CleanMetadata,
    IndexCommitMetadata,
    RollbackMetadata,
    SavepointMetadata,
)

_TWO_INTS = struct.Struct(">ii")
_INT = struct.Struct(">i")

_Kinds = Mapping[tuple[str, str], tuple[str, type[Record]]]
_CONTENTS: _Kinds = MappingProxyType(
    {
        ("commit", "COMPLETED"): ("hoodieCommitMetadata", CommitMetadata),
        ("deltacommit", "COMPLETED"): ("hoodieCommitMetadata", CommitMetadata),
        ("replacecommit", "COMPLETED"): ("hoodieReplaceCommitMetadata", ReplaceCommitMetadata),
        ("replacecommit", "REQUESTED"): ("hoodieRequestedReplaceMetadata", RequestedReplace),
        ("compaction", "REQUESTED"): ("hoodieCompactionPlan", CompactionPlan),
        ("logcompaction", "REQUESTED"): ("hoodieCompactionPlan", CompactionPlan),
        ("clean", "COMPLETED"): ("hoodieCleanMetadata", CleanMetadata),
        ("clean", "REQUESTED"): ("hoodieCleanerPlan", CleanerPlan),
        ("rollback", "COMPLETED"): ("hoodieRollbackMetadata", RollbackMetadata),
        ("savepoint", "COMPLETED"): ("hoodieSavePointMetadata", SavepointMetadata),
        ("indexing", "COMPLETED"): ("hoodieIndexCommitMetadata", IndexCommitMetadata),
    }
)
"""By action and state the field that has the content, and what it is."""


@dataclass(frozen=True, slots=True)
class ArchivedEntry:
    """One state of an archived instant, with what its timeline file held, if it held anything."""

    requested_time: str
    action: str
    state: str
    """REQUESTED, INFLIGHT or COMPLETED."""
    transition_time: str | None
    """When it came to that state, if the release that archived it noted it."""
    content: bytes


def decode_archived(data: bytes, *, path: str) -> Iterator[ArchivedEntry]:
    """Give the entries of one file of the archived timeline, in its order.

    What a writer that died left unfinished at the end of a file is passed over; it archived these
    instants again.

    Raises:
        CorruptTableError: an entry is damaged.
    """
    for block in iter_blocks(data, path=path):
        if block.type is not BlockType.AVRO_DATA:
            continue
        try:
            schema = load_json(block.header.get(HeaderKey.SCHEMA, "").encode())
            check_avro_schema(schema)
            parsed = fastavro.parse_schema(schema)
            for datum in _records(block.content, parsed):
                yield _entry_of(datum)
        except (
            *DECODING_ERRORS,
            MalformedAvroError,
            fastavro.schema.SchemaParseException,
            ValueError,
            struct.error,
        ) as error:
            raise CorruptTableError(
                f"{path} of the archived timeline is damaged at offset {block.offset}: {error}. "
                "Restore it from a copy, or move it away and do without what it tells",
                kind=ErrorKind.CORRUPT_TIMELINE,
                path=path,
                offset=block.offset,
            ) from error


def _records(content: memoryview, schema: Any) -> Iterator[Mapping[str, Any]]:
    _, count = _TWO_INTS.unpack_from(content)
    at = _TWO_INTS.size
    for _ in range(count):
        (length,) = _INT.unpack_from(content, at)
        at += _INT.size
        if length < 0 or at + length > len(content):
            raise MalformedAvroError("a record that ends behind its block")
        datum: Any = fastavro.schemaless_reader(BytesIO(content[at : at + length]), schema, None)
        yield datum
        at += length


def _entry_of(datum: Mapping[str, Any]) -> ArchivedEntry:
    action, state = str(datum["actionType"]), str(datum.get("actionState") or "COMPLETED")
    content = b""
    if (action, state) in _CONTENTS:
        name, record = _CONTENTS[action, state]
        value = datum.get(name)
        if value is not None:
            content = encode_record(record_of_values(record, value))
    return ArchivedEntry(
        requested_time=str(datum["commitTime"]),
        action=action,
        state=state,
        transition_time=datum.get("stateTransitionTime"),
        content=content,
    )
