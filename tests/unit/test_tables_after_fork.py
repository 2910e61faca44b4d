"""A local table that was opened before a fork is used on both sides of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
import pyarrow as pa
import headwater as hw

def rows(who, number):
    return pa.table({"id": [f"{who} {number}", "shared"], "value": [number, number]})

schema = rows("", 0).schema
table = hw.create_table(
    sys.argv[1], schema=schema, record_key="id", table_type="MERGE_ON_READ", buckets=2
)
table.upsert(rows("parent", 0))
child = os.fork()
who = "parent" if child else "child"
code = 1
try:
    for number in range(1, 6):
        table.upsert(rows(who, number))
    assert f"{who} 5" in table.read_arrow()["id"].to_pylist()
    code = 0
finally:
    if not child:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
found = sorted(table.read_arrow()["id"].to_pylist())
ours, theirs = [f"parent {n}" for n in range(6)], [f"child {n}" for n in range(1, 6)]
assert found == sorted([*ours, *theirs, "shared"])
"""


def test_parent_and_child_write_to_one_table(tmp_path: Path) -> None:
    options = ["-W", "ignore", "-c", PROGRAM, str(tmp_path / "table")]
    ran = subprocess.run([sys.executable, *options], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
