"""Rows as they arrive, brought to the columns and types of the table."""

from __future__ import annotations

import pyarrow as pa

from headwater.arrow.keys import CARRIED, carried_over
from headwater.arrow.schema_evolution import project_batch
from headwater.operations.plan import Operation, WritePlan
from headwater.operations.tasks.leaving import IS_LEAVING


def fit_rows(plan: WritePlan, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the columns that they are to have: see `request.columns_of_rows`.

    Raises:
        InvalidInputError: a column does not fit.
    """
    columns = plan.columns.of_rows
    if plan.operation is Operation.DELETE:
        batch = batch.select(
            [name for name in batch.schema.names if name in (*columns.names, *CARRIED)]
        )
    rows = project_batch(batch, columns, rounds=plan.files.allows_lossy_widening)
    if IS_LEAVING in batch.schema.names:
        rows = rows.append_column(IS_LEAVING, batch.column(IS_LEAVING))
    return carried_over(batch, rows)
