"""How much memory a task holds: its bound and one file group, not all of its rows.

Measured in a process of its own, because the pool of Arrow remembers its highest mark for ever.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.config.table_options import TableType

ROWS_PER_BATCH = 16_384
BATCHES = 24
ROW_BYTES = 80
TOTAL_BYTES = BATCHES * ROWS_PER_BATCH * ROW_BYTES
MEMORY_BYTES = 2 * 1024 * 1024
MANY_GROUPS = 16

COPIES_MAX = 4
"""A group's rows as they arrived, their keys, their meta columns, and what is being encoded."""

SCRIPT = """
import json, sys
import pyarrow as pa
import pyarrow.compute as pc
import headwater as hw
from headwater.engine.engine import TaskContext
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import run_write

folder, table_type, rows_per_batch, batches, memory_bytes, many_groups = json.loads(sys.argv[1])
SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64()), ("text", pa.string())])


class LazyRows:
    schema = SCHEMA
    driver_host = None

    def held(self):
        return None

    def run(self, route, task):
        return task(TaskContext(task=0, task_attempt=0, task_count=1), self.batches())

    def batches(self):
        for number in range(batches):
            values = pa.array(range(number * rows_per_batch, (number + 1) * rows_per_batch))
            ids = pc.utf8_lpad(values.cast(pa.string()), 12, "0")
            text = pc.utf8_lpad(values.cast(pa.string()), 48, "-")
            yield pa.RecordBatch.from_arrays([ids, values, text], schema=SCHEMA)


def peak_bytes(name, buckets):
    options = {
        "headwater.storage.fsync": "false",
        "headwater.write.task.memory.bytes": memory_bytes,
    }
    table = hw.create_table(
        f"{folder}/{name}",
        schema=SCHEMA,
        record_key="id",
        buckets=buckets,
        table_type=table_type,
        options=options,
    )
    target = table.context
    before = pa.total_allocated_bytes()
    run_write(target, WriteRequest(operation=Operation.UPSERT, columns=SCHEMA), LazyRows())
    peak = pa.default_memory_pool().max_memory() - before
    assert table.read_arrow(["id"]).num_rows == batches * rows_per_batch
    return peak


# The smaller peak first: the mark never goes down.
print(json.dumps([peak_bytes("many", many_groups), peak_bytes("one", 1)]))
"""


@pytest.mark.parametrize("table_type", list(TableType))
@pytest.mark.some(1)
def test_a_task_holds_its_bound_and_one_group(tmp_path: Path, table_type: TableType) -> None:
    arguments = [
        str(tmp_path),
        table_type,
        ROWS_PER_BATCH,
        BATCHES,
        MEMORY_BYTES,
        MANY_GROUPS,
    ]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    many, one = json.loads(done.stdout)
    print(f"of {TOTAL_BYTES:,} bytes: {many:,} at most in {MANY_GROUPS} groups, {one:,} in one")
    bound = COPIES_MAX * (MEMORY_BYTES + TOTAL_BYTES // MANY_GROUPS)
    assert bound < TOTAL_BYTES, "the bound says nothing"
    assert MEMORY_BYTES < many <= bound
    # Rows of one group must meet, so a single group is held whole, however small the bound is.
    assert one <= COPIES_MAX * (MEMORY_BYTES + TOTAL_BYTES)
