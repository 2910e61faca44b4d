"""Where hudi-rs finds all of a table of ours."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from headwater.kernel.layout import METADATA
from headwater.metadata.view import load_view

if TYPE_CHECKING:
    from headwater.table import Table


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
