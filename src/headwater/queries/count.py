"""Counting rows: from the footers of base files where nothing changes the number, else by reading.

A base file without logs holds as many rows as its footer says. Below logs records may be updated,
new or deleted, and a filter has to see values; then only keys, or the columns of the filter, are
read.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from headwater.arrow.meta_columns import RECORD_KEY, schema_with_meta_columns
from headwater.files.base_files import open_base_file
from headwater.model.files import FileSlice
from headwater.queries.predicate import Predicate
from headwater.queries.slice_query import read_slices
from headwater.queries.snapshot import SnapshotPlan
from headwater.seams.open_storage import open_storage


def count_rows(plan: SnapshotPlan) -> int:
    """Return how many rows a plan gives.

    Raises: see `queries.slice_query.read_slices`.
    """
    query = plan.query
    storage = open_storage(query.storage_uri, query.storage_options)
    counted, to_read = 0, list[FileSlice]()
    for file_slice in plan.slices:
        if query.where is not None or file_slice.logs or file_slice.base is None:
            to_read.append(file_slice)
            continue
        with open_base_file(storage, file_slice.base) as file:
            counted += int(file.row_count)
    column = RECORD_KEY
    if isinstance(query.where, Predicate):
        known = schema_with_meta_columns(query.schema).names
        column = next((name for name in known if name in query.where.columns), RECORD_KEY)
    with closing(read_slices(replace(query, columns=(column,)), to_read)) as batches:
        return counted + sum(int(batch.num_rows) for batch in batches)
