"""Duplicates inside one incoming batch, reduced to one row per key.

The rows of a batch were not written one after the other, so ordering fields decide between them in
every merge mode that has any; later arrival wins between equal values, and where there are no
ordering fields. Partial updates and custom functions make one row of several as the merge would.

A row that is a delete competes like any other and stays a row if it wins: its writer makes a
delete of it. What a single row cannot say is lost: that a record which brings only some columns
followed a delete of its key in the same batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.arrow.fold import fold_columns, fold_custom, take_rows
from headwater.arrow.merge_rule import (
    MergeMode,
    MergeRule,
    check_mergeable,
    resolve_custom,
)
from headwater.arrow.meta_columns import META_COLUMNS
from headwater.arrow.ordering import (
    Mask,
    is_all_null,
    ordering_ranks,
    to_numpy,
)
from headwater.arrow.record_marks import deleted_rows, provided_rows, whole
from headwater.arrow.survivors import find_survivors
from headwater.errors import InvalidInputError


def reduce_batch(
    table: pa.Table, key: str | pa.Array | pa.ChunkedArray, rule: MergeRule
) -> pa.Table:
    """Return one row per key, keys in the order in which they first appear.

    Args:
        key: the record keys, or the name of the column that holds them.

    Raises:
        InvalidInputError: an ordering column is missing or has no order.
        UnsupportedError: the rule cannot be honoured; see `check_mergeable`.
    """
    encoded = whole(table[key] if isinstance(key, str) else key).dictionary_encode()
    if len(encoded.dictionary) == table.num_rows:
        return table
    check_mergeable(rule)
    ordering = _ordering(table, rule)
    is_delete = deleted_rows(table, rule)
    row_count = table.num_rows
    survivors = find_survivors(
        to_numpy(encoded.indices).astype(np.int64),
        ordering_ranks(ordering, row_count),
        is_delete,
        is_delete & is_all_null(ordering, row_count),
    )
    winners = survivors.winners
    rows = table.combine_chunks()
    if not rule.combines_records:
        return take_rows(rows, winners)
    records = np.nonzero(~is_delete[winners])[0]
    if rule.mode is MergeMode.CUSTOM:
        starts, ends = survivors.run_starts[records], survivors.run_ends[records]
        in_order = take_rows(rows, survivors.arrivals)
        merged = fold_custom(in_order, starts, ends - starts + 1, resolve_custom(rule.custom))
    else:
        provided: dict[str, Mask] = {}
        for name in rows.column_names:
            mask = None if name in META_COLUMNS else provided_rows(rows[name], rule)
            if mask is not None:
                provided[name] = mask
        merged = fold_columns(
            rows,
            np.arange(row_count),
            provided,
            np.zeros(row_count, np.bool_),
            survivors,
            records,
            unit=rule.ordering_fields,
        )
    places = winners.copy()
    places[records] = row_count + np.arange(len(records))
    return take_rows(pa.concat_tables([rows, merged]), places)


def _ordering(table: pa.Table, rule: MergeRule) -> list[pa.Array]:
    """Return the columns that decide. A custom function decides by itself."""
    missing = [name for name in rule.ordering_fields if name not in table.column_names]
    if missing and rule.merges_by_ordering:
        raise InvalidInputError(
            f"The batch lacks the table's ordering columns {', '.join(missing)}; add them"
        )
    if missing or rule.mode is MergeMode.CUSTOM:
        return []
    return [whole(table[name]) for name in rule.ordering_fields]
