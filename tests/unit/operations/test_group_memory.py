"""A file group much larger than the memory it takes to change and to read it.

Base files are streamed, so a small change to a large group costs a few row groups, not the group.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hudi import HudiTableBuilder
from tests.support.hudi_rs import location_for_hudi_rs

import headwater as hw
from headwater.errors import ErrorKind, UnsupportedError
from headwater.format.log import blocks
from headwater.format.log.blocks import decode_rows
from headwater.format.log.frames import BlockType, LogBlock, iter_blocks
from headwater.format.parquet.footer import naming_damage
from headwater.ingest.formats.reading import naming_damage as naming_bad_source
from headwater.kernel.timeline.history import rows as history_rows

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


LARGE_ROWS = 3_000_000
"""Of a kilobyte each that nothing compresses: 3 GB in one file group."""
ANONYMOUS_MB_MAX = 1_000
"""What no file stands behind: of what is mapped the system takes back what it needs."""
STEPS = """
import sys, threading, time
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import headwater as hw

peaks = [0]

def watch():
    while True:
        with open("/proc/self/status") as status:
            held = next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))
        peaks[0] = max(peaks[0], held // 1024)
        time.sleep(0.01)

threading.Thread(target=watch, daemon=True).start()
path, step, row_count = sys.argv[1], sys.argv[2], int(sys.argv[3])
WIDTH, BATCH, EVERY = 1_000, 2_000, 20
schema = pa.schema({"id": pa.string(), "version": pa.int64(), "content": pa.binary()})

def batches(numbers, version):
    for start in range(0, len(numbers), BATCH):
        some = numbers[start:start + BATCH]
        chance = np.random.default_rng([version, start])
        data = pa.py_buffer(chance.bytes(len(some) * WIDTH))
        ends = pa.array(np.arange(len(some) + 1, dtype=np.int32) * WIDTH)
        content = pa.Array.from_buffers(pa.binary(), len(some), [None, ends.buffers()[1], data])
        ids = pc.binary_join_element_wise("key-", pa.array(some).cast(pa.string()), "")
        versions = pa.array(np.full(len(some), version))
        yield pa.record_batch([ids, versions, content], schema=schema)

def reader(numbers, version):
    return pa.RecordBatchReader.from_batches(schema, batches(numbers, version))

if step == "write":
    table = hw.create_table(path, schema=schema, record_key="id", table_type="MERGE_ON_READ",
                            buckets=1)
    assert table.bulk_insert(reader(np.arange(row_count), 0)).inserted == row_count
table = hw.open_table(path)
if step == "update":
    table.upsert(reader(np.arange(0, row_count, EVERY), 1))
if step == "compact":
    assert table.services.compact() is not None
if step == "read":
    count = versions = 0
    for batch in table.scan().to_reader():
        count += batch.num_rows
        versions += pc.sum(batch["version"]).as_py()
    assert count == row_count, count
    assert versions == len(range(0, row_count, EVERY)), versions
print(peaks[0])
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells")
def test_a_group_of_three_gigabytes_is_written_read_and_compacted_with_one(tmp_path: Path) -> None:
    path = tmp_path / "t"
    peaks = {}
    for number, step in enumerate(["write", "update", "read", "compact", "read"]):
        ran = subprocess.run(
            [sys.executable, "-c", STEPS, str(path), step, str(LARGE_ROWS)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{step}: {ran.stderr}"
        peaks[number, step] = int(ran.stdout)
    print(f"MB at most: {peaks}")
    sizes = [file.stat().st_size for file in path.rglob("*.parquet") if ".hoodie" not in file.parts]
    assert max(sizes) > LARGE_ROWS * 1_000
    assert max(peaks.values()) <= ANONYMOUS_MB_MAX, peaks


@pytest.mark.parametrize("block_format", ["parquet", "avro"])
def test_many_rows_go_into_several_blocks_of_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_format: str
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 4_000)
    table = hw.create_table(
        tmp_path / "t",
        schema="id string, a long",
        record_key="id",
        table_type="MERGE_ON_READ",
        buckets=1,
        options={"hoodie.logfile.data.block.format": block_format},
    )
    ids = [f"k{number:04d}" for number in range(1_000)]
    table.upsert(pa.table({"id": ids, "a": [0] * len(ids)}))
    table.upsert(pa.table({"id": ids, "a": range(len(ids))}))
    (log,) = [path for path in (tmp_path / "t").iterdir() if ".log." in path.name]
    counts = [
        decode_rows(block, path="log").num_rows
        for block in iter_blocks(log.read_bytes(), path="log")
    ]
    assert len(counts) > 5
    assert max(counts) - min(counts) < 10
    expected = dict(zip(ids, range(len(ids)), strict=True))
    ours = table.read_arrow().to_pylist()
    assert {row["id"]: row["a"] for row in ours} == expected
    others = HudiTableBuilder.from_base_uri(location_for_hudi_rs(table)).build().read()
    assert {row["id"]: row["a"] for batch in others for row in batch.to_pylist()} == expected


@pytest.mark.parametrize(
    "naming", [naming_damage, history_rows._naming_damage], ids=["base file", "archived timeline"]
)
def test_too_little_memory_is_not_called_damage(
    naming: Callable[[str], AbstractContextManager[None]],
) -> None:
    with (
        pytest.raises(UnsupportedError, match=r"decode a\.parquet takes more memory") as caught,
        naming("a.parquet"),
    ):
        raise pa.ArrowMemoryError("malloc of size 5 failed")
    assert caught.value.kind is ErrorKind.LIMIT_REACHED


def test_too_little_memory_for_a_log_or_a_source_is_not_called_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 5 failed")

    monkeypatch.setattr(blocks, "_decode_parquet", fail)
    block = LogBlock(BlockType.PARQUET_DATA, {}, memoryview(b""), 0)
    with pytest.raises(UnsupportedError, match="decode a log takes more memory"):
        decode_rows(block, path="a log")
    with pytest.raises(MemoryError), naming_bad_source("CSV"):
        fail()
