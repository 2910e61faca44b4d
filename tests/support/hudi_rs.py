"""Where hudi-rs finds all of a table of ours, and what we read of it in columns that it has too."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.arrow.meta_columns import META_COLUMNS, OPERATION
from headwater.kernel.layout import METADATA
from headwater.metadata.view import load_view
from headwater.queries.slice_reader import read_slices
from headwater.queries.snapshot import ReadRequest, plan_snapshot

if TYPE_CHECKING:
    from headwater.table import Table


META = tuple(name for name in META_COLUMNS if name != OPERATION)


def read_with_meta_columns(table: Table, as_of: str | None = None) -> pa.Table:
    """Read as `Table.read_arrow` does, all columns that there are, whatever they are, at once."""
    plan = plan_snapshot(table.context, ReadRequest(as_of=as_of))
    query = replace(plan.query, columns=(*META, *plan.query.columns))
    return pa.Table.from_batches(read_slices(query, list(plan.slices)), query.result_schema)


def location_for_hudi_rs(table: Table) -> str:
    """Return where hudi-rs sees every file group of a table on local disk.

    hudi-rs 0.5.0 passes over file groups of log files alone, as non-blocking writers start them,
    where it lists files by the metadata table, and no option keeps it from that. For a table with
    such groups that is a copy without the metadata table, beside the table and made anew each time.
    """
    if all(one.base is not None for one in load_view(table.storage, table.config).slices()):
        return table.uri
    copy = f"{table.uri}-listed"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(table.uri, copy)
    shutil.rmtree(f"{copy}/{METADATA}", ignore_errors=True)
    return copy
