"""What does merging a file slice cost, next to reading and rewriting its base file?

One file group: 1M base rows of 13 columns in Parquet, and 100k log rows (nine tenths updates that
win, one tenth inserts) in a Parquet log block. Every variant reads from disk and writes a new base
file with the same writer settings; all run in one process, in turns, and the best turn counts. On a
busy machine the ratio of processor seconds is the one to trust. The floors:

- `rewrite`: pyarrow reads the whole base file and writes it back;
- `streamed rewrite`: pyarrow does so batch by batch, with dictionaries where they help.

Run: python benchmarks/merge.py [--rows 1000000] [--log-rows 100000] [--turns 3]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.arrow.fold import fold_logs
from headwater.arrow.log_parts import DataPart
from headwater.arrow.merge import MERGE_BATCH_ROWS, merge_batches
from headwater.arrow.merge_rule import MergeMode, MergeRule, PartialUpdate
from headwater.arrow.meta_columns import META_FIELDS
from headwater.model.instant import InstantTime

T1 = InstantTime("20260101000000000")
T2 = InstantTime("20260102000000000")
RULE = MergeRule(mode=MergeMode.EVENT_TIME_ORDERING, ordering_fields=("ts",))
PARTIAL_RULE = MergeRule(
    mode=MergeMode.EVENT_TIME_ORDERING,
    ordering_fields=("ts",),
    partial=PartialUpdate.IGNORE_DEFAULTS,
)
FEW_VALUES = ["_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_file_name", "city", "state"]
SCHEMA = pa.schema(
    [
        *META_FIELDS,
        pa.field("id", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("amount", pa.float64()),
        pa.field("quantity", pa.int32()),
        pa.field("city", pa.string()),
        pa.field("state", pa.string()),
        pa.field("note", pa.string()),
        pa.field("is_open", pa.bool_()),
    ]
)
TEXT = pa.dictionary(pa.int32(), pa.string())
ENCODED = pa.schema([f.with_type(TEXT) if f.name in FEW_VALUES else f for f in SCHEMA])


def rows_of(ids: npt.NDArray[np.int64], instant_time: InstantTime, first_ts: int) -> pa.Table:
    """Return rows that depend on nothing but the arguments."""
    count = len(ids)
    numbers = np.random.default_rng(count)
    same = pa.array(np.zeros(count, np.int64))
    cities = pa.array([f"city-{number}" for number in range(500)])
    states = pa.array(["new", "paid", "sent", "done"])
    columns = [
        pa.array([instant_time]).take(same),
        pa.array([f"{instant_time}_0_{number}" for number in range(count)]),
        pa.array([f"order-{number:012d}" for number in ids]),
        pa.array(["region=eu"]).take(same),
        pa.array(["00000000-0000-0000-0000-000000000000-0"]).take(same),
        pa.array(ids),
        pa.array(numbers.integers(0, 2**40, count) + first_ts).cast(pa.timestamp("us", tz="UTC")),
        pa.array(numbers.random(count) * 1000),
        pa.array(numbers.integers(0, 100, count), pa.int32()),
        cities.take(pa.array(numbers.integers(0, 500, count))),
        states.take(pa.array(numbers.integers(0, 4, count))),
        pa.array([f"note {number:x}" for number in numbers.integers(0, 2**48, count)]),
        pa.array(numbers.random(count) < 0.5),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def write_base(target: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    with pq.ParquetWriter(
        target,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=FEW_VALUES,
        store_schema=False,
    ) as writer:
        for batch in batches:
            writer.write_batch(batch)


def read_base(source: Path, *, is_encoded: bool) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(source, read_dictionary=FEW_VALUES if is_encoded else None)
    yield from file.iter_batches(batch_size=MERGE_BATCH_ROWS)


def variants(base: Path, block: bytes) -> Mapping[str, Callable[[Path], None]]:
    def rewrite(target: Path) -> None:
        rows = pq.read_table(base)
        write_base(target, rows.combine_chunks().to_batches(MERGE_BATCH_ROWS), SCHEMA)

    def streamed(target: Path) -> None:
        write_base(target, read_base(base, is_encoded=True), ENCODED)

    def merge(rule: MergeRule, schema: pa.Schema, *, keep_order: bool) -> Callable[[Path], None]:
        def run(target: Path) -> None:
            logs = pq.read_table(pa.BufferReader(block))
            folded = fold_logs([DataPart(T2, logs)], rule, schema)
            batches = read_base(base, is_encoded=schema is ENCODED)
            merged = merge_batches(batches, folded, rule, schema=schema, keep_order=keep_order)
            write_base(target, merged, schema)

        return run

    return {
        "rewrite": rewrite,
        "streamed rewrite": streamed,
        "merge": merge(RULE, ENCODED, keep_order=False),
        "merge, base order": merge(RULE, ENCODED, keep_order=True),
        "merge, partial updates": merge(PARTIAL_RULE, ENCODED, keep_order=False),
        "merge, plain text": merge(RULE, SCHEMA, keep_order=False),
    }


def measure(run: Callable[[Path], None], target: Path) -> tuple[float, float, int]:
    """Return seconds, seconds of processors, and the peak of Arrow's memory in bytes."""
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    started, started_cpu = time.perf_counter(), time.process_time()
    try:
        run(target)
    finally:
        pa.set_memory_pool(usual)
    cpu_seconds = time.process_time() - started_cpu
    return time.perf_counter() - started, cpu_seconds, pool.max_memory()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--log-rows", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base, target = Path(folder, "base.parquet"), Path(folder, "target.parquet")
        ids = np.arange(given.rows, dtype=np.int64)
        write_base(base, rows_of(ids, T1, 0).to_batches(MERGE_BATCH_ROWS), SCHEMA)
        updates = np.linspace(0, given.rows - 1, given.log_rows * 9 // 10, dtype=np.int64)
        inserts = given.rows + np.arange(given.log_rows - len(updates), dtype=np.int64)
        changes = np.random.default_rng(1).permutation(np.concatenate([updates, inserts]))
        block = pa.BufferOutputStream()
        pq.write_table(rows_of(changes, T2, 2**40), block, compression="zstd", compression_level=1)
        runs = variants(base, block.getvalue().to_pybytes())
        best: dict[str, tuple[float, ...]] = {}
        sizes: dict[str, tuple[int, int]] = {}
        for _ in range(given.turns):
            for name, run in runs.items():
                taken = measure(run, target)
                best[name] = tuple(map(min, best.get(name, taken), taken))
                sizes[name] = (pq.read_metadata(target).num_rows, target.stat().st_size)
    for name, (seconds, cpu_seconds, peak) in best.items():
        answer = {
            "variant": name,
            "ratio": round(seconds / best["rewrite"][0], 2),
            "ratio_cpu": round(cpu_seconds / best["rewrite"][1], 2),
            "ratio_cpu_streamed": round(cpu_seconds / best["streamed rewrite"][1], 2),
            "seconds": round(seconds, 3),
            "rows": sizes[name][0],
            "size_bytes": sizes[name][1],
            "arrow_peak_bytes": int(peak),
        }
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
