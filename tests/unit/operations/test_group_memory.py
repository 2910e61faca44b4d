"""A file group much larger than the memory it takes to change and to read it.

Base files are streamed, so a small change to a large group costs a few row groups, not the group.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headwater as hw

PROGRAM = """
import json, sys
import pyarrow as pa
import headwater as hw
from headwater.queries.slice_query import read_slices
from headwater.queries.snapshot import ReadRequest, plan_snapshot

table = hw.open_table(sys.argv[1])
table.upsert(pa.table({"id": ["k5", "new"], "a": [-1, -2], "b": [-1.0, -2.0]}))
plan = plan_snapshot(table.context, ReadRequest())
rows = sum(batch.num_rows for batch in read_slices(plan.query, list(plan.slices)))
print(json.dumps({"rows": rows, "peak": pa.default_memory_pool().max_memory()}))
"""


@pytest.mark.parametrize(
    ("table_type", "rows_count"),
    [
        pytest.param("COPY_ON_WRITE", 5_000_000, marks=pytest.mark.long),
        ("MERGE_ON_READ", 1_500_000),
        pytest.param("MERGE_ON_READ", 5_000_000, marks=pytest.mark.long),
    ],
)
def test_a_small_change_of_a_large_group_does_not_hold_it(
    tmp_path: Path, table_type: str, rows_count: int
) -> None:
    table = hw.create_table(
        tmp_path / "t",
        schema="id string, a long, b double",
        record_key="id",
        table_type=table_type,
        buckets=1,
    )
    numbers = np.arange(rows_count)
    ids = pc.binary_join_element_wise("k", pa.array(numbers).cast(pa.string()), "")
    rows = pa.table({"id": ids, "a": numbers, "b": numbers * 0.5})
    table.bulk_insert(rows)
    held = table.read_arrow(["_hoodie_commit_seqno", "_hoodie_record_key", *rows.column_names])
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, table.uri], capture_output=True, text=True, check=True
    )
    found = json.loads(ran.stdout)
    assert found["rows"] == rows_count + 1
    assert found["peak"] < held.nbytes / 2, f"{found['peak']} of {held.nbytes} bytes"
