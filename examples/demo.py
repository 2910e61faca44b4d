"""A table on local Spark, from its first batch to a picture of its timeline.

Trips of four cities are ingested in batches, updated and deleted; a late row arrives and loses.
Then the past is read, and what changed since. Every answer is compared with what plain Spark makes
of the same trips, and the final rows with what hudi-rs, another implementation of the format, reads
of the same files. As soon as anything differs the demo ends with a sentence and exit code 1.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as TextTable

import headwater as hw
from headwater.model.commit import Commit

ROOT = Path(__file__).parents[1]
ROWS = 100_000
ROWS_MIN = 100
PLAIN_WIDTH = 110
"""Columns of text where no terminal says how many there are."""

SCHEMA = "id string, city string, fare double, ts long"
COLUMNS = ["id", "city", "fare", "ts"]
CITIES = ("la", "ny", "sf", "tokyo")
IS_UPDATED = "id % 10 = 0"
IS_DELETED = "id % 25 = 7"
"""Conditions on the numbers of trips; no number satisfies both."""
WATCHED = 10
"""The number of the trip that is updated, and for which the late row comes."""


class Differs(Exception):
    """The table does not hold what it should."""


class Screen:
    """Where the demo speaks: a terminal, or a plain file without control characters."""

    def __init__(self) -> None:
        is_terminal = sys.stdout.isatty()
        width = None if is_terminal else PLAIN_WIDTH
        self.console = Console(force_terminal=is_terminal, width=width, highlight=False)
        self.started = time.monotonic()

    def say(self, text: str = "", style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False, soft_wrap=True)

    def heading(self, text: str) -> None:
        self.say()
        self.say(text, "bold")

    @contextmanager
    def step(self, title: str) -> Iterator[list[str]]:
        """Show that a step is under way, then when it ended and what it says it found."""
        begun = time.monotonic()
        found: list[str] = []
        with self.console.status(title):
            yield found
        now = time.monotonic()
        line = f"{now - self.started:6.1f} s  (+{now - begun:4.1f} s)  {title}"
        self.say(": ".join([line, ", ".join(found)]) if found else line)

    def table(self, rows: list[dict[str, Any]]) -> None:
        text = TextTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for name in rows[0] if rows else ():
            is_number = isinstance(rows[0][name], (int, float))
            text.add_column(name, justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            text.add_row(*("-" if value is None else _shown(value) for value in row.values()))
        self.console.print(text)


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def clock(time: str) -> str:
    """Return the time of day of an instant time."""
    return f"{time[8:10]}:{time[10:12]}:{time[12:14]}.{time[14:]}"


def near(path: Path) -> Path:
    """Return a path as it is typed here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


# The data: every batch is made from the numbers of its trips, so the end is known from the start.


class Trips:
    """All trips of the demo, as plain Spark makes them from the numbers 0 to `count` - 1."""

    def __init__(self, spark: SparkSession, count: int) -> None:
        self.numbers = spark.range(count)
        self.second, self.third = count * 6 // 10, count * 8 // 10
        """The first numbers of the second and the third batch."""

    def of(self, where: str, *, ts: int = 1, tip: float = 0.0) -> DataFrame:
        """Return the trips whose numbers satisfy a condition, with their fares as of `ts`."""
        number = F.col("id")
        cities = F.array(*(F.lit(city) for city in CITIES))
        position = F.floor(number / 3) % len(CITIES) + 1
        return self.numbers.where(where).select(
            F.format_string("trip-%07d", number).alias("id"),
            F.element_at(cities, position.cast("int")).alias("city"),
            (number % 97 / 2 + 5 + tip).alias("fare"),
            F.lit(ts).cast("long").alias("ts"),
        )

    def updated(self) -> DataFrame:
        return self.of(IS_UPDATED, ts=2, tip=2.5)

    def final(self, where: str = "true") -> DataFrame:
        """Return what of the table must be left in the end."""
        kept = f"({where}) and not ({IS_DELETED})"
        untouched = self.of(f"{kept} and not ({IS_UPDATED})")
        return untouched.union(self.of(f"{kept} and {IS_UPDATED}", ts=2, tip=2.5))


# Comparing.


def in_order(rows: pa.Table) -> pa.Table:
    return rows.select(COLUMNS).sort_by("id").combine_chunks()


def check_equal(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise Differs(f"{what} differs: expected {expected}, found {found}.")


def check_rows(what: str, found: pa.Table, expected: pa.Table) -> str:
    """Compare row for row, name the first row that differs, and say what was compared."""
    check_equal(f"The number of rows {what}", found.num_rows, expected.num_rows)
    if not found.cast(expected.schema).equals(expected):
        for one, other in zip(found.to_pylist(), expected.to_pylist(), strict=True):
            check_equal(f"A row {what}", one, other)
    return f"{found.num_rows:,} rows as expected"


def read_by_hudi_rs(path: Path) -> pa.Table | None:
    """Return the rows that hudi-rs reads; None where it is not installed."""
    try:
        import hudi
    except ImportError:
        return None
    batches = hudi.HudiTableBuilder.from_base_uri(path.as_uri()).build().read()
    return in_order(pa.Table.from_batches([pa.record_batch(batch) for batch in batches]))


# Spark.


def start_spark(log: Path) -> SparkSession:
    """Start a local session; what Spark and its JVM have to say goes to a file."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with stderr_to(log):
        return (
            SparkSession.builder.master("local[2]")
            .appName("headwater-demo")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.sql.warehouse.dir", str(log.parent / "spark-warehouse"))
            .config("spark.python.unix.domain.socket.enabled", "true")
            .getOrCreate()
        )


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Let the processes that are started meanwhile write their errors to a file, for good."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


# The demo.


def write_trips(screen: Screen, table: hw.Table, trips: Trips) -> list[Commit]:
    """Ingest, update and delete; return the commits."""
    second, third = trips.second, trips.third
    between = f"id >= {second} and id < {third}"
    late = trips.of(f"id = {WATCHED}", ts=0, tip=-4.0)
    keys = trips.of(IS_DELETED).select("id", "city")
    writes: dict[str, Callable[[], Commit]] = {
        "bulk_insert a first batch": lambda: table.bulk_insert(trips.of(f"id < {second}")),
        "upsert a second batch": lambda: table.upsert(trips.of(between)),
        "upsert a third batch": lambda: table.upsert(trips.of(f"id >= {third}")),
        "upsert new fares of every tenth trip": lambda: table.upsert(trips.updated()),
        "upsert a late row, older than what is there": lambda: table.upsert(late),
        "delete every 25th trip": lambda: table.delete(keys),
    }
    commits = []
    for title, write in writes.items():
        with screen.step(title) as found:
            commit = write()
            commits.append(commit)
            row_count = commit.inserted + commit.updated + commit.deleted
            found += [
                counted(row_count, "row"),
                counted(len(commit.file_groups), "file group"),
                f"lock held {commit.lock_held_ms} ms",
            ]
    return commits


def read_back(screen: Screen, table: hw.Table, trips: Trips, commits: list[Commit]) -> pa.Table:
    """Read now, then, and what changed in between; check all of it and return the rows of now."""
    first, second, third = (commit.completion_time for commit in commits[:3])
    with screen.step("read the table") as found:
        now = in_order(table.read().toArrow())
        found.append(check_rows("of the table", now, in_order(trips.final().toArrow())))
    with screen.step(f"read as of {clock(first)}, when the first batch was in") as found:
        then = in_order(table.read(as_of=first).toArrow())
        before = in_order(trips.of(f"id < {trips.second}").toArrow())
        found.append(check_rows("as of the first batch", then, before))
    with screen.step("read what was written after the second batch") as found:
        written = in_order(table.changes(after=second).toArrow())
        wanted = trips.final(f"id >= {trips.third} or {IS_UPDATED}")
        found.append(check_rows("written since", written, in_order(wanted.toArrow())))
    with screen.step("read every change after the third batch") as found:
        feed = table.changes(after=third, cdc=True)
        counts = {row["op"]: row["count"] for row in feed.groupBy("op").count().collect()}
        wanted_counts = {
            "u": trips.of(IS_UPDATED).count(),
            "d": trips.of(IS_DELETED).count(),
        }
        check_equal("The number of changes by kind", counts, wanted_counts)
        found.append(f"{counts['u']:,} updates and {counts['d']:,} deletes as expected")
        watched = f"trip-{WATCHED:07d}"
        history = feed.where(F.coalesce("after.id", "before.id") == watched).collect()

    screen.heading(f"The changes of {watched}: the late row lost, so it changed nothing")
    screen.table(
        [
            {
                "op": row["op"],
                "fare before": row["before"]["fare"],
                "ts before": row["before"]["ts"],
                "fare after": row["after"]["fare"],
                "ts after": row["after"]["ts"],
            }
            for row in history
        ]
    )
    return now


def check_with_hudi_rs(screen: Screen, path: Path, ours: pa.Table) -> None:
    with screen.step("read the same files with hudi-rs") as found:
        theirs = read_by_hudi_rs(path)
        if theirs is None:
            found.append("not installed, so nothing was compared; `make demo` installs it")
            return
        check_rows("that hudi-rs reads", theirs, ours)
        found.append(f"all {theirs.num_rows:,} rows equal ours, in {', '.join(COLUMNS)}")


def show_insides(screen: Screen, table: hw.Table) -> None:
    screen.heading("The timeline: t.inspect.timeline(operations=True)")
    screen.table(
        [
            {
                "requested": row["requested_time"],
                "action": row["action"],
                "operation": row["operation"],
                "state": row["state"],
                "completed": row["completion_time"],
            }
            for row in table.inspect.timeline(operations=True).to_pylist()
        ]
    )
    screen.heading("The file slices, one per file group: t.inspect.slices()")
    screen.table(
        [
            {
                "partition": row["partition"],
                "file id": f"{row['file_id'][:8]}..",
                "base of": row["base_instant"],
                "base KB": (row["base_size_bytes"] or 0) // 1024,
                "logs": row["log_count"],
                "log KB": row["log_size_bytes"] // 1024,
                "last change": clock(row["latest_completion_time"]),
            }
            for row in table.inspect.slices().to_pylist()
        ]
    )
    files = table.inspect.files()
    kinds = files["kind"].to_pylist()
    screen.say(
        f"{len(kinds)} files, {kinds.count('base')} base and {kinds.count('log')} log, "
        f"{sum(files['size_bytes'].to_pylist()) // 1024:,} KB: t.inspect.files()"
    )


def run(screen: Screen, output: Path, row_count: int) -> None:
    path = table_folder(output)
    log = output / "spark.log"
    with screen.step("start Spark on two cores") as found:
        try:
            spark = start_spark(log)
        except PySparkRuntimeError as error:
            raise SystemExit(f"Spark did not start; {log} may say why. {error}") from error
        found.append(f"version {spark.version}, its log is {near(log)}")
    try:
        with screen.step("create a merge-on-read table, partitioned by city") as found:
            table = hw.create_table(
                path,
                schema=SCHEMA,
                record_key="id",
                partition_by="city",
                ordering="ts",
                table_type="MERGE_ON_READ",
                buckets=2,
                # Batches this small are otherwise written by the driver; here Spark's tasks write.
                options={"headwater.write.inline.bytes": 0},
            )
            found.append(str(near(path)))
        trips = Trips(spark, row_count)
        commits = write_trips(screen, table, trips)
        now = read_back(screen, table, trips, commits)
        show_insides(screen, table)
        screen.say()
        check_with_hudi_rs(screen, path, now)
        pictures = [output / "timeline.svg", output / "timeline.png"]
        with screen.step("draw the timeline"):
            table.inspect.draw_timeline(*pictures)
    finally:
        spark.stop()

    screen.heading("Everything was as expected.")
    for picture in pictures:
        screen.say(f"  the timeline: {near(picture)}")
    screen.heading("What to try next")
    code = f"import headwater as hw; t = hw.open_table('{near(path)}'); print(t.read_arrow())"
    screen.say(f'  .venv/bin/python -c "{code}"')
    screen.say("  README.md has the first lines of your own table, docs/guide/spark.md the rest")
    screen.say("  make sim runs the protocol under all interleavings of writers and crashes")


def table_folder(output: Path) -> Path:
    """Return where the table goes, emptied of the table of the run before."""
    path = output / "trips"
    if path.exists():
        if not (path / ".hoodie").is_dir():
            raise SystemExit(f"{path} is no table of an earlier demo; choose another --output.")
        shutil.rmtree(path)
    output.mkdir(parents=True, exist_ok=True)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Show what headwater does, on local Spark.")
    parser.add_argument("--rows", type=int, default=ROWS, help="how many trips there are")
    parser.add_argument("--output", type=Path, default=ROOT / "demo-output", help="a folder")
    given = parser.parse_args()
    if given.rows < ROWS_MIN:
        parser.error(f"--rows must be at least {ROWS_MIN}, so that every kind of change occurs")
    # matplotlib says at length that it makes a cache of fonts, the first time and without a HOME.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        run(Screen(), given.output.resolve(), given.rows)
    except Differs as difference:
        raise SystemExit(f"The demo failed. {difference}") from difference


if __name__ == "__main__":
    main()
