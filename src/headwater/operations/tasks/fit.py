"""Rows as they arrive, brought to the columns and types of the table."""

from __future__ import annotations

import pyarrow as pa

from headwater.arrow.keys import carried_over
from headwater.arrow.schema_evolution import project_batch
from headwater.operations.plan import Operation, WritePlan
from headwater.operations.tasks.leaving import IS_LEAVING


def fit_rows(plan: WritePlan, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the table's columns.

    A partial write keeps to the columns it has, and of a delete only keys are looked at.

    Raises:
        InvalidInputError: a column does not fit.
    """
    if plan.operation is Operation.DELETE:
        return batch
    columns = plan.columns.schema
    if plan.is_partial:
        columns = pa.schema([field for field in columns if field.name in batch.schema.names])
    rows = project_batch(batch, columns, rounds=plan.files.allows_lossy_widening)
    if IS_LEAVING in batch.schema.names:
        rows = rows.append_column(IS_LEAVING, batch.column(IS_LEAVING))
    return carried_over(batch, rows)
