"""Refusing rows without keys before a write begins.

A write that begins and fails is rolled back, and the rollback stays on the timeline. Rows that this
process holds can be looked at first; those of an engine's tasks only when the tasks run.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.key_text import has_text
from headwater.arrow.keys import KeyGenerator
from headwater.config.table import TableConfig


def check_held_keys(config: TableConfig, held: Sequence[pa.RecordBatch] | None) -> None:
    """Refuse rows of which one has no record key.

    Raises:
        InvalidInputError: a key is null or empty.
    """
    if not config.record_key_fields or not held:
        return
    keys = KeyGenerator.from_config(config)
    for batch in held:
        if not _has_text(batch, config.record_key_fields):
            continue  # Such as whole numbers that pandas has as floats: the write sees to them.
        # Only where the answer may be no: the write makes the keys again.
        if any(_may_lack(batch, name) for name in config.record_key_fields):
            keys.record_keys(batch)


def _has_text(batch: pa.RecordBatch, names: Sequence[str]) -> bool:
    return all(has_text(field.type) for field in batch.schema if field.name in names)


def _may_lack(batch: pa.RecordBatch, name: str) -> bool:
    if batch.schema.names.count(name) != 1:
        return False  # Columns are checked by the write, and named in its error.
    column = batch.column(name)
    is_text = pa.types.is_string(column.type)
    return column.null_count > 0 or (is_text and bool(pc.any(pc.equal(column, "")).as_py()))
