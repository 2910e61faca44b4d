"""Rows as they arrive, brought to the columns and types of the table."""

from __future__ import annotations

import pyarrow as pa

from headwater.arrow.schema_evolution import project_batch
from headwater.operations.plan import Operation, WritePlan


def fit_rows(plan: WritePlan, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the table's columns.

    A partial write keeps to the columns it has, and of a delete only keys are looked at.

    Raises:
        InvalidInputError: a column does not fit.
    """
    if plan.operation is Operation.DELETE:
        return batch
    rounds = plan.files.allows_lossy_widening
    if not plan.is_partial:
        return project_batch(batch, plan.columns.schema, rounds=rounds)
    present = [field for field in plan.columns.schema if field.name in batch.schema.names]
    return project_batch(batch, pa.schema(present), rounds=rounds)
