"""What do the same jobs cost in Headwater and in Apache Hudi, next to plain Spark Parquet?

    bulk-insert    all rows into a new copy-on-write table
                   floor: df.repartition(buckets, key).write.parquet
    mor-upsert     a batch, one row of five with a new key, into a merge-on-read table
                   floor: the same as above for the rows of the batch
    cow-upsert     the same batch into a copy-on-write table
                   floor: plain Spark reads the touched files, all of them, and writes them back
    read-two       snapshot of the merge-on-read table after that upsert, 2 of 10 columns aggregated
    read-all       the same, all columns to a sink that drops them
                   floor of both: plain Spark reads the same rows, merged before, from Parquet
    small-commits  20 upserts of 1,000 rows into a merge-on-read table
                   floor: plain Spark appends each of them to a folder, df.write.mode("append")

Every table has a bucket index of 8 buckets. Ours runs in one process, Hudi in another, with its
own Spark where no bundle of it fits ours; the floor is then measured in both. Only one works at a
time. In every turn all take theirs one after the other; a first turn warms up and does not count.
A table that a job changes is a fresh copy each time. What each turn leaves behind is read back
through the engine that wrote it, and must have the row count and sums that plain Spark computed.

Run: python benchmarks/hudi_bench.py [--rows 5000000] [--batch 1000000] [--repeat 3]
    [--jobs bulk-insert ...] [--hudi-option KEY=VALUE ...] [--json PATH] [--plot PATH]
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hudi_figures import HUDI, OURS, Measured, Report, compare, text_of, write_json, write_picture
from hudi_jobs import BUCKETS, COPY_ON_WRITE, HUDI_OPTIONS, MERGE_ON_READ
from hudi_ours import SMALL_COMMITS, SMALL_ROWS, OurSession
from spark_bench import PeakMemory, bytes_below, session_settings
from tests.support.hudi_peer import Bundle, HudiPeer, NoHudiError, find_bundle

CORES = 2
ROWS_MIN = SMALL_COMMITS * SMALL_ROWS
UPSERTED = "UPSERTED"  # A merge-on-read table after the upsert.
# Both Sparks alike: Hudi's documentation asks for Kryo, and ours writes zstd at level 1.
ALSO = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
}
START_IN_PEER = """
import sys
sys.path.insert(0, folder)
from hudi_jobs import ApacheHudi, Jobs, PlainParquet
self.jobs = Jobs(spark, {"hudi": ApacheHudi(spark, options), "parquet": PlainParquet(spark)})
"""
ASK_PEER = "result = getattr(self.jobs, method)(**given)"


@dataclass(frozen=True, slots=True)
class Job:
    """A job, and the names of the sums that the engines and the floor must come to."""

    title: str
    source: str | None  # Of the engines; a read has none.
    seed: str | None  # The kind of table that it starts from.
    result: str
    floor_result: str


JOBS = {
    "bulk-insert": Job("bulk insert", "base", None, "base", "base"),
    "mor-upsert": Job("upsert, merge on read", "batch", MERGE_ON_READ, "upserted", "batch"),
    "cow-upsert": Job("upsert, copy on write", "batch", COPY_ON_WRITE, "upserted", "base"),
    "read-two": Job("snapshot read, 2 columns", None, UPSERTED, "upserted", "upserted"),
    "read-all": Job("snapshot read, all columns", None, UPSERTED, "upserted", "upserted"),
    "small-commits": Job(
        f"{SMALL_COMMITS} commits of {SMALL_ROWS:,} rows",
        "small",
        MERGE_ON_READ,
        "with small",
        "small",
    ),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """One of those that take turns: an engine in a session."""

    name: str
    engine: str
    floor: str | None  # The variant that is its floor; None for a floor.
    pid: int
    ask: Callable[..., Any]


@dataclass(slots=True)
class Bench:
    """The variants, ours first, and the scratch folder with their input and tables."""

    variants: Sequence[Variant]
    scratch: Path
    expected: Mapping[str, Sequence[float]]
    seeds: dict[tuple[str, str], Path] = field(default_factory=dict)

    def run(self, name: str, repeat: int) -> list[Measured]:
        """Run a job in turns; the first warms up."""
        turns: dict[str, list[tuple[float, int, int]]] = {v.name: [] for v in self.variants}
        for turn in range(repeat + 1):
            for variant in self.variants:
                taken = self.take_turn(name, variant)
                told = "warm-up" if turn == 0 else f"turn {turn} of {repeat}"
                print(f"{name}, {told}: {variant.name} {taken[0]:.2f} s", flush=True)
                if turn > 0:
                    turns[variant.name].append(taken)
        return [
            Measured(
                job=name,
                variant=variant.name,
                floor=variant.floor,
                turns=tuple(seconds for seconds, _, _ in turns[variant.name]),
                bytes_written=turns[variant.name][-1][1],
                peak_memory_mb=max(peak for _, _, peak in turns[variant.name]),
            )
            for variant in self.variants
        ]

    def take_turn(self, name: str, variant: Variant) -> tuple[float, int, int]:
        """Return seconds, bytes written and the peak of memory in MB."""
        job = JOBS[name]
        table = self.table_for(name, variant)
        sources = self.sources_for(name, variant)
        before = bytes_below(str(table))
        with PeakMemory(variant.pid) as memory:
            seconds = variant.ask(
                "measure", engine=variant.engine, job=name, sources=sources, table=str(table)
            )
        written = bytes_below(str(table)) - before
        self.check(name, variant, table)
        if job.source is not None:
            shutil.rmtree(table)
        return seconds, written, memory.mb

    def table_for(self, name: str, variant: Variant) -> Path:
        """Return the table that a turn works on: to read, to change, or to make."""
        job = JOBS[name]
        fresh = self.scratch / "turn"
        if variant.floor is None:
            return self.scratch / "input" / "upserted" if job.source is None else fresh
        if job.seed is None:
            return fresh
        seed = self.seed(variant, job.seed)
        return seed if job.source is None else copy_of(seed, fresh)

    def sources_for(self, name: str, variant: Variant) -> list[str]:
        source = JOBS[name].source
        if source is None:
            return []
        if source == "small":
            return [str(self.scratch / f"input/small/{n:02}") for n in range(SMALL_COMMITS)]
        if variant.floor is None and name == "cow-upsert":
            return [str(self.seed(self.variants[0], COPY_ON_WRITE))]
        return [str(self.scratch / "input" / source)]

    def seed(self, variant: Variant, kind: str) -> Path:
        """Return a table that turns start from, made by the variant when first needed."""
        found = self.seeds.get((variant.name, kind))
        if found is not None:
            return found
        table = self.scratch / "seeds" / variant.engine / kind
        print(f"making a table {kind} with {variant.name} ...", flush=True)
        if kind == UPSERTED:
            copy_of(self.seed(variant, MERGE_ON_READ), table)
            sources = self.sources_for("mor-upsert", variant)
            variant.ask(
                "measure",
                engine=variant.engine,
                job="mor-upsert",
                sources=sources,
                table=str(table),
            )
        else:
            base = str(self.scratch / "input" / "base")
            variant.ask(
                "make", engine=variant.engine, source=base, table=str(table), table_type=kind
            )
        self.seeds[variant.name, kind] = table
        return table

    def check(self, name: str, variant: Variant, table: Path) -> None:
        job = JOBS[name]
        expected = self.expected[job.floor_result if variant.floor is None else job.result]
        found = variant.ask("sums", engine=variant.engine, table=str(table))
        if found != expected:
            raise SystemExit(
                f"{name}: {variant.name} left {found} (rows, sums of two columns) where plain "
                f"Spark has {expected}. The figures mean nothing; no report is written."
            )


def main() -> int:
    given = arguments()
    try:
        bundle = find_bundle()
    except NoHudiError as missing:
        print(f"skipped: {missing}")
        return 0
    if not (bundle.jar.is_file() and bundle.python.is_file()):
        print(f"skipped: {bundle.jar} or {bundle.python} is gone. Run `make hudi` again.")
        return 0
    settings = {**session_settings(CORES, given.driver_memory), **ALSO}
    hudi_options = {**HUDI_OPTIONS, **dict(item.split("=", 1) for item in given.hudi_option)}
    # Without this, being told to stop would leave the scratch folder and its tables behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    with ExitStack() as stack:
        prefix = "headwater-bench-"
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        print(f"starting Spark with Headwater, and Spark with {bundle.name} ...", flush=True)
        ours = stack.enter_context(OurSession(scratch / "ours", CORES, settings))
        peer = stack.enter_context(HudiPeer(bundle, master=f"local[{CORES}]", settings=settings))
        peer.run(START_IN_PEER, folder=str(Path(__file__).parent), options=hudi_options)

        def ask_peer(method: str, **given: Any) -> Any:
            return peer.run(ASK_PEER, method=method, given=given)

        versions = {
            **versions_here(bundle),
            **{f"{key}, Headwater": value for key, value in ours.ask("versions").items()},
            **{f"{key}, Hudi": value for key, value in ask_peer("versions").items()},
        }
        variants = variants_of(ours, peer, ask_peer, versions["spark, Headwater"])
        print(
            f"writing the input, {given.rows:,} rows and a batch of {given.batch:,} ...", flush=True
        )
        folder = str(scratch / "input")
        expected = ours.ask("prepare", folder=folder, rows=given.rows, batch=given.batch)
        bench = Bench(variants, scratch, expected)
        measured = [found for name in given.jobs for found in bench.run(name, given.repeat)]
    report = Report(
        date=f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
        versions=versions,
        machine=machine(),
        settings={
            "rows": given.rows,
            "rows of the batch": given.batch,
            "turns, after one to warm up": given.repeat,
            "master": f"local[{CORES}]",
            "both Sparks": settings,
            "Hudi's writes and reads": hudi_options,
            "Headwater": {"buckets": BUCKETS, "options": "none: its defaults"},
        },
        notes=notes(variants),
        titles={name: JOBS[name].title for name in given.jobs},
        figures=compare(measured),
    )
    print(f"\n{text_of(report)}")
    if given.json is not None:
        write_json(report, given.json)
    if given.plot is not None:
        write_picture(report, given.plot)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--batch", type=int, help="rows of an upsert; a fifth unless given")
    parser.add_argument("--repeat", type=int, default=3, help="turns that count")
    parser.add_argument("--jobs", nargs="+", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--driver-memory", default="6g", help="heap of each JVM")
    parser.add_argument(
        "--hudi-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another option for Hudi's writes and reads, as often as you like",
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="a picture; its suffix says the format")
    given = parser.parse_args()
    given.batch = given.rows // 5 if given.batch is None else given.batch
    if given.rows < ROWS_MIN:
        parser.error(f"--rows must be at least {ROWS_MIN:,}")
    if not 5 <= given.batch <= given.rows:
        parser.error("--batch must be at least 5, and no more than --rows")
    if given.repeat < 1:
        parser.error("--repeat must be at least 1")
    if any("=" not in item for item in given.hudi_option):
        parser.error("--hudi-option must be KEY=VALUE")
    return given


def variants_of(
    ours: OurSession, peer: HudiPeer, ask_peer: Callable[..., Any], our_spark: str
) -> list[Variant]:
    """Return who takes turns; Hudi's Spark has a floor of its own unless it is ours."""
    our_floor = f"Parquet, Spark {our_spark}"
    hudi_floor = f"Parquet, Spark {peer.spark_version}"
    variants = [
        Variant(OURS, "headwater", our_floor, ours.pid, ours.ask),
        Variant(HUDI, "hudi", hudi_floor, peer.pid, ask_peer),
        Variant(our_floor, "parquet", None, ours.pid, ours.ask),
    ]
    if hudi_floor != our_floor:
        variants.append(Variant(hudi_floor, "parquet", None, peer.pid, ask_peer))
    return variants


def copy_of(table: Path, place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(table, place)
    return place


def notes(variants: Sequence[Variant]) -> list[str]:
    said = [
        "Ratios are of seconds, best turns; below 1 is faster than what it is compared to.",
        "The floors: bulk-insert and mor-upsert, df.repartition(buckets, key).write.parquet;",
        "cow-upsert, plain Spark reads the table's base files and writes them back; reads, plain",
        'Spark reads the merged rows; small-commits, df.write.mode("append").parquet each time.',
        "Peak MB is the resident memory of driver, JVM and Python workers together, sampled; a JVM",
        "keeps what earlier jobs took, and a floor runs in the processes of its engine.",
        "Log files are as each engine makes them unless told: Avro blocks in Hudi, Parquet ones in",
        "Headwater. --hudi-option hoodie.logfile.data.block.format=parquet makes them alike.",
        "Hudi 1.2.0 puts bloom filters into the files of a bulk insert, Headwater does not.",
    ]
    if sum(variant.floor is None for variant in variants) > 1:
        said += [
            "Hudi runs in another Spark than Headwater. `Ratio to Hudi` is of plain seconds; `to",
            "Hudi, each over its floor` is (ours / our Spark's floor) / (Hudi / its own floor).",
        ]
    return said


def versions_here(bundle: Bundle) -> dict[str, str]:
    return {
        "headwater": version("headwater"),
        "python": platform.python_version(),
        "pyarrow": version("pyarrow"),
        "hudi": bundle.name,
    }


def machine() -> dict[str, str | int]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count() or 0,
        "memory in GB": round(memory / 1e9),
        "architecture": platform.machine(),
        "system": platform.system(),
    }


if __name__ == "__main__":
    sys.exit(main())
