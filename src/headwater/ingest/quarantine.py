"""The table that bad rows go to.

It is written before the batch that the rows are of is committed, under keys made of job, source and
position. A job that dies in between reads the same rows again and writes them under the same keys,
so the table and the quarantine agree whenever a batch is in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

import pyarrow as pa

from headwater.errors import AlreadyExistsError, ErrorKind, NotFoundError
from headwater.ingest.bad_rows import BadRow
from headwater.ingest.job import QuarantineRule
from headwater.ingest.writer_options import writer_options
from headwater.table import Table, create_table, open_table

COLUMNS = pa.schema(
    [
        pa.field("job", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("position", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("raw", pa.string()),
        pa.field("batch", pa.int64()),
        pa.field("found_at", pa.timestamp("us", "UTC")),
    ]
)
KEY = ("job", "source", "position")


def open_quarantine(rule: QuarantineRule) -> Table:
    """Open the table of bad rows; create it if it is not there.

    Raises: see `headwater.open_table` and `headwater.create_table`.
    """
    options = writer_options(rule.path, rule.options)
    try:
        return open_table(rule.path, options)
    except NotFoundError as error:
        if error.kind is not ErrorKind.NOT_A_TABLE:
            raise
    with suppress(AlreadyExistsError):  # Another job was first.
        return create_table(rule.path, schema=COLUMNS, record_key=KEY, buckets=1, options=options)
    return open_table(rule.path, options)


def write_bad_rows(
    table: Table, job: str, batch: int, rows: Sequence[BadRow], now: datetime
) -> None:
    """Write bad rows; those that are there already are written over.

    Raises: see `operations.write.run_write`.
    """
    values = [
        {
            "job": job,
            "source": row.origin,
            "position": str(row.position),
            "reason": row.reason,
            "raw": row.raw if row.raw is None else _storable(row.raw),
            "batch": batch,
            "found_at": now,
        }
        for row in rows
    ]
    table.upsert(pa.Table.from_pylist(values, schema=COLUMNS))


def _storable(raw: str) -> str:
    """Return text that UTF-8 has bytes for; JSON may hold halves of characters."""
    try:
        raw.encode()
    except UnicodeEncodeError:
        return json.dumps(raw)
    return raw
