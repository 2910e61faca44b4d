"""What a record says about itself: that it is a delete, and which columns it brings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.merge_rule import MergeRule, PartialUpdate
from headwater.arrow.meta_columns import OPERATION
from headwater.arrow.ordering import Mask, to_mask

IS_DELETED = "_hoodie_is_deleted"
DELETE_OPERATION = "D"


def deleted_rows(rows: pa.Table, rule: MergeRule) -> Mask:
    """Return which rows are deletes, by any mark of format rule 7.2 that a row can carry."""
    result = np.zeros(rows.num_rows, np.bool_)
    names = set(rows.column_names)
    if IS_DELETED in names and pa.types.is_boolean(rows.schema.field(IS_DELETED).type):
        result |= to_mask(whole(rows[IS_DELETED]))
    if OPERATION in names:
        result |= _equals_text(rows[OPERATION], DELETE_OPERATION)
    if rule.delete_field in names and rule.delete_marker is not None:
        field = rows[rule.delete_field]
        if pa.types.is_integer(field.type) or pa.types.is_boolean(field.type):
            field = field.cast(pa.string())
        result |= _equals_text(field, rule.delete_marker)
    return result


def delete_mark_columns(rule: MergeRule) -> tuple[str, ...]:
    """Return the columns that `deleted_rows` looks at."""
    marks = (IS_DELETED, OPERATION)
    return marks if rule.delete_field is None else (*marks, rule.delete_field)


def provided_rows(column: pa.ChunkedArray, rule: MergeRule) -> Mask | None:
    """Return which rows bring the column under the table's partial update mode; None means all."""
    if rule.partial is PartialUpdate.IGNORE_DEFAULTS and column.null_count:
        return to_mask(whole(column.is_valid()))
    if rule.partial is PartialUpdate.FILL_UNAVAILABLE and rule.unavailable_marker is not None:
        is_marked = _equals_text(column, rule.unavailable_marker)
        return ~is_marked if is_marked.any() else None
    return None


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column in one piece, without a copy if it is."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _equals_text(column: pa.ChunkedArray, text: str) -> Mask:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _equals_text(column.cast(kind.value_type), text)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return to_mask(whole(pc.equal(column, pa.scalar(text.encode(), kind))))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return to_mask(whole(pc.equal(column, pa.scalar(text, kind))))
    return np.zeros(len(column), np.bool_)
