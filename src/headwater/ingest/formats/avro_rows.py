"""Rows of Avro files. Records come one by one from fastavro; columns are made of many at once."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from headwater.errors import InvalidInputError
from headwater.format.avro.schema import parse_avro_schema
from headwater.ingest.formats.reading import Reading, fitted, naming_damage, numbered
from headwater.ingest.rows import SourceRows

_RECORDS = 8_192
_DAMAGE = (ValueError, TypeError, LookupError, struct.error, zlib.error)
"""What fastavro raises for bytes that are no Avro."""


def read_avro(file: BinaryIO, reading: Reading) -> Iterator[SourceRows]:
    """Give the rows of a file.

    Raises:
        InvalidInputError: it is damaged; what came before is good.
    """
    records, schema = _opened(file)
    names = reading.present(schema)
    part = pa.schema([schema.field(name) for name in names])
    first = 1
    for some in _chunks(records):
        with naming_damage("Avro"):
            batch = pa.RecordBatch.from_pylist(some, schema=part)
        rows = numbered(batch, reading.origin, first)
        first += batch.num_rows
        yield from fitted(rows, reading)


def _opened(file: BinaryIO) -> tuple[Iterator[Any], pa.Schema]:
    import fastavro

    with naming_damage("Avro"):
        try:
            records = fastavro.reader(file)
            schema = parse_avro_schema(json.dumps(records.writer_schema))
        except InvalidInputError:
            raise
        except _DAMAGE as error:
            raise InvalidInputError(f"It cannot be read as Avro: {error}") from error
    return iter(records), schema


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
