"""Rows of Avro files. Records come one by one from fastavro; columns are made of many at once."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, BinaryIO, cast
from uuid import UUID  # noqa: TID251 - as fastavro makes them; none is made here

import pyarrow as pa

from headwater.errors import InvalidInputError
from headwater.format.avro.schema import parse_avro_schema
from headwater.ingest.formats.reading import Reading, fitted, naming_damage, numbered
from headwater.ingest.rows import SourceRows

_RECORDS = 8_192
_DAMAGE = (ValueError, TypeError, LookupError, OverflowError, struct.error, zlib.error)
"""What fastavro raises for bytes that are no Avro."""


def read_avro(file: BinaryIO, reading: Reading) -> Iterator[SourceRows]:
    """Give the rows of a file.

    Raises:
        InvalidInputError: it is damaged; what came before is good.
    """
    records, schema, has_uuids = _opened(file, reading.columns.names)
    names = reading.present(schema)
    part = pa.schema([schema.field(name) for name in names])
    first = 1
    for some in _chunks(records):
        with naming_damage("Avro"):
            batch = pa.RecordBatch.from_pylist(_plain(some) if has_uuids else some, schema=part)
        rows = numbered(batch, reading.origin, first)
        first += batch.num_rows
        yield from fitted(rows, reading)


def _opened(file: BinaryIO, wanted: Collection[str]) -> tuple[Iterator[Any], pa.Schema, bool]:
    """Return records, their columns, and whether values may be UUIDs, as fastavro makes them.

    Columns that are not wanted may have any type, and have none here.
    """
    import fastavro

    with naming_damage("Avro"):
        try:
            records = fastavro.reader(file)
            # Types stand in the place of their names, which may lie in columns that are left out.
            whole: Any = fastavro.schema.expand_schema(cast(Any, records.writer_schema))
            fields = whole.pop("fields")
            known = [field for field in fields if field["name"] in wanted]
            text = json.dumps({**whole, "fields": known})
            schema = parse_avro_schema(text)
        except InvalidInputError:
            raise
        except _DAMAGE as error:
            raise InvalidInputError(f"It cannot be read as Avro: {error}") from error
    left_out = [pa.field(one["name"], pa.null()) for one in fields if one not in known]
    return iter(records), pa.schema([*schema, *left_out]), '"uuid"' in text


def _plain(value: Any) -> Any:
    """Return a value with text in the place of UUIDs."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _chunks(records: Iterator[Any]) -> Iterator[list[Any]]:
    """Give records, many at a time; those before a damaged one come first."""
    damage: Exception | None = None
    while damage is None:
        some: list[Any] = []
        try:
            with naming_damage("Avro"):
                some.extend(islice(records, _RECORDS))
        except InvalidInputError as error:
            damage = error
        except _DAMAGE as error:
            damage = InvalidInputError(f"It cannot be read as Avro: {error}")
        if some:
            yield some
        elif damage is None:
            return
    raise damage
