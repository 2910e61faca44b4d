"""A writer that says when its tasks have written their files, and then never commits.

Arguments: the table's path. Run by `test_killed_writer_is_rolled_back.py`.
"""

from __future__ import annotations

import sys
import time
from typing import TypeVar

import pyarrow as pa

import headwater as hw
from headwater.engine.engine import Route, RowsTask
from headwater.engine.inline import InlineRows
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import run_write

R = TypeVar("R")


class EndlessRows(InlineRows):
    """Rows whose job never returns after its tasks are done."""

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        super().run(route, task)
        print("written", flush=True)
        while True:
            time.sleep(60)


def main(path: str) -> None:
    table = hw.open_table(path)
    rows = pa.table({"id": ["a", "c"], "city": ["sf", "la"], "value": [10, 3]})
    target = table.context
    request = WriteRequest(operation=Operation.UPSERT, columns=rows.schema)
    run_write(target, request, EndlessRows(rows))


if __name__ == "__main__":
    main(sys.argv[1])
