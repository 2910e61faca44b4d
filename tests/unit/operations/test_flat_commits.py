"""A small write costs the same whatever the size of the table: its files, partitions and commits.

Counted are calls of the process that commits. What a task reads are the files that its rows go to.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.counting_storage import CountingStorage

import headwater as hw
from headwater.config.metadata import METADATA_COMPACTION_COMMITS
from headwater.seams.open_storage import open_storage
from headwater.table import Table

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("fare", pa.int64())])
OPTIONS = {"headwater.storage.fsync": "false", "hoodie.parquet.small.file.limit": "0"}
INDEX_LOGS = ".hoodie/metadata/files/.files"


def rows(partitions: int, *, first: int = 0) -> pa.Table:
    numbers = range(first, first + 2 * partitions)
    return pa.table(
        {
            "id": [f"k{number}" for number in numbers],
            "city": [f"c{number % partitions}" for number in numbers],
            "fare": list(numbers),
        },
        SCHEMA,
    )


def calls_of_a_small_write(
    folder: Path, table_type: str, index: str, *, partitions: int, commits: int
) -> tuple[Counter[str], int]:
    """Return the calls of an upsert of one row by method, and the logs of the index it read."""
    table = hw.create_table(
        folder,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        index=index,
        options=OPTIONS,
    )
    for number in range(commits):
        table.upsert(rows(partitions, first=number % 2))
    storage = CountingStorage(open_storage(str(folder), OPTIONS), keep_trace=True)
    counted = Table(replace(hw.open_table(folder, OPTIONS).context, storage=storage))
    storage.reset()
    counted.upsert(rows(partitions).slice(0, 1))
    calls = Counter(method for method, path in storage.trace if not path.startswith(INDEX_LOGS))
    logs = sum(m == "read_many" and p.startswith(INDEX_LOGS) for m, p in storage.trace)
    return calls, logs


@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.some(2)
def test_a_small_write_does_not_grow_with_the_table(
    tmp_path: Path, table_type: str, index: str
) -> None:
    small, logs = calls_of_a_small_write(
        tmp_path / "small", table_type, index, partitions=1, commits=8
    )
    large, more_logs = calls_of_a_small_write(
        tmp_path / "large", table_type, index, partitions=6, commits=15
    )
    assert large == small
    assert max(logs, more_logs) <= METADATA_COMPACTION_COMMITS.default + 1
