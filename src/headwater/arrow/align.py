"""Rows of files and log blocks, brought to the columns that a merge works on.

`project_batch` knows how columns evolve. Here is only what merging adds: columns stay as they are
where they fit, so nothing is copied, and dictionaries are made or undone as the schema asks.
"""

from __future__ import annotations

import pyarrow as pa

from headwater.arrow.record_marks import whole
from headwater.arrow.schema_evolution import project_batch


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with values in place of dictionaries and every column nullable.

    Rows on their way through a merge lack columns that the merged rows have.
    """
    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def align_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly the schema's columns; a missing one is null.

    Raises:
        InvalidInputError: a column cannot become what the schema says.
    """
    if batch.schema.equals(schema):
        return batch
    kept = batch.select(schema.names) if set(schema.names) <= set(batch.schema.names) else batch
    if not _fits(kept.schema, schema):
        kept = project_batch(_without_dictionaries(kept), plain_schema(schema))
    columns = [_as_type(kept.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def project_to_merge(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly the schema's columns, in dictionaries where they came in some:
    a merge has less to copy of them, and undoes them when it is done.

    Raises: as `project_batch`.
    """
    stored = {field.name: field.type for field in batch.schema}
    fields = [
        field.with_type(stored[field.name])
        if field.name in stored and _plain_type(stored[field.name]) == field.type
        else field
        for field in schema
    ]
    return project_batch(batch, pa.schema(fields))


def align_table(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows in one piece, with exactly the schema's columns; a missing one is null.

    Raises:
        InvalidInputError: a column cannot become what the schema says.
    """
    if rows.schema.equals(schema):
        return rows.combine_chunks()
    batches = [align_batch(batch, schema) for batch in rows.to_batches()]
    return pa.Table.from_batches(batches, schema).combine_chunks()


def _fits(given: pa.Schema, schema: pa.Schema) -> bool:
    """Return whether the columns differ in nothing but dictionaries."""
    return given.names == schema.names and all(
        _plain_type(a.type) == _plain_type(b.type) for a, b in zip(given, schema, strict=True)
    )


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _without_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [_as_type(column, _plain_type(column.type)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(column.type):
        column = whole(column.dictionary_encode())
    return column if column.type == kind else column.cast(kind)
