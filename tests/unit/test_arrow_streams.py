"""Streams are written and read in bounded memory, each in a process of its own that says its peak.

The bounds are those that are promised for five million rows. That a long stream goes by way of
local disk is tested with few rows in `test_arrow_world`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PEAK = """
def peak_mb():
    # `getrusage` begins with the size of the process that started this one, a whole test run.
    said = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(said["VmHWM"].split()[0]) // 1024
"""
WRITE = """
import sys
import duckdb
import headwater as hw

path, kind, row_count = sys.argv[1], sys.argv[2], int(sys.argv[3])
duckdb.execute("SET threads = 1; SET memory_limit = '200MB'; SET enable_progress_bar = false")

def rows(bump):
    return duckdb.sql(f'''
        SELECT 'key-' || lpad(range::VARCHAR, 9, '0') AS id, (range + {bump})::DOUBLE AS fare,
               'some text about row ' || range AS note, range AS ts
        FROM range({row_count})''')

table = hw.create_table(
    path, schema="id string, fare double, note string, ts long", record_key="id",
    table_type=kind, index="bucket", buckets=16,
)
table.upsert(rows(0))
commit = table.upsert(rows(1))
assert commit.updated == row_count, commit
print(peak_mb())
"""
READ = """
import sys
import headwater as hw

table = hw.open_table(sys.argv[1])
count = sum(batch.num_rows for batch in table.scan().to_reader())
assert count == int(sys.argv[3]), count
print(peak_mb())
"""
WRITE_MB_MAX, READ_MB_MAX = 1_500, 500


def peak_mb(code: str, *arguments: str) -> int:
    ran = subprocess.run(
        [sys.executable, "-c", PEAK + code, *arguments], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


def check_memory(folder: Path, kind: str, row_count: int) -> None:
    arguments = (str(folder / "t"), kind, str(row_count))
    written, read = peak_mb(WRITE, *arguments), peak_mb(READ, *arguments)
    print(f"{kind}: {row_count} rows written with {written} MB, read with {read} MB")
    assert written <= WRITE_MB_MAX
    assert read <= READ_MB_MAX


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc tells of memory here")
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_five_million_rows_are_written_and_read_in_bounded_memory(
    kind: str, tmp_path: Path
) -> None:
    check_memory(tmp_path, kind, 5_000_000)
