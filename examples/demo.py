"""Many writers and services on one table, as real processes, in seven acts.

Two processes that write Arrow and one that writes by Spark upsert the same keys at once, while the
table is compacted and indexed; one writer is killed; a clustering gives way; a conflict is found
early; a bad batch is taken back. Every batch is a function of its number, so what the table must
hold is known from the acknowledgements alone. It is compared with what the table says, with what
hudi-rs, another implementation of the format, reads of the same files, and with what fsck finds.
As soon as anything differs the demo ends with a sentence and exit code 1.

This is the director: it starts the processes (`demo_job.py`), tells them what to do and checks.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
from demo_hudi import HudiWriter, opened_hudi
from demo_job import NON_BLOCKING, SHARED_LOCK
from demo_rows import SCHEMA, expected
from demo_screen import Lane, Screen
from demo_site import Differs, Failed, Site

import headwater as hw
from headwater.kernel.journal.storage import find_journal

ROOT = Path(__file__).parents[1]
KEYS, BATCHES, PAUSE_S = 20_000, 5, 1.0
SHORT_KEYS, SHORT_BATCHES, SHORT_PAUSE_S = 600, 2, 0.2
KEYS_MIN = 12
COLUMNS = SCHEMA.names
BUCKETS = 4
LAST = 100_000
"""The number of batches that must not count; if one does, its rows win over all others."""
WRITERS = {"arrow-1": 1, "arrow-2": 2, "spark": 3}
INDEXES = ["column_stats", "record_index"]


class Demo:
    """The acts, and what is checked after each."""

    def __init__(self, screen: Screen, site: Site, table: hw.Table, writers: list[str]) -> None:
        self.screen, self.site, self.table = screen, site, table
        self.writers = {name: WRITERS[name] for name in writers}

    def start_processes(self) -> None:
        for name in (*self.writers, "services", "indexer"):
            self.site.start(name, is_spark=name == "spark")
        for name in self.screen.lanes:
            self.site.until(name, "ready")
            self.screen.event(name, f"is ready, process {self.site.pid(name)}")

    def many_writers(self, batch_count: int, pause_s: float, hudi: HudiWriter | None) -> None:
        screen, site = self.screen, self.site
        screen.act(
            "Act 1: three jobs write the same keys at once (non-blocking control, RFC-66)",
            "commits of all three, side by side; nobody waits for another's write, nobody loses",
        )
        # Spark takes its time for the first job of a session, so the others write two batches.
        for name, writer in self.writers.items():
            last = 1 if name == "spark" else 2
            site.tell(name, "ingest", writer=writer, first=1, last=last, pause_s=pause_s)
        begun = {name: site.until(name, "done", "ingest")["next"] for name in self.writers}
        for name, writer in self.writers.items():
            first = begun[name]
            site.tell(name, "ingest", writer=writer, first=first, last=None, pause_s=pause_s)

        screen.act(
            "Act 2: a compaction meanwhile (services under a guard, RFC-79)",
            "the writers go on committing while log files are folded into base files",
        )
        compacted = site.done("services", "compact")
        check("What the compaction did", bool(compacted.get("instant")), True)
        screen.event(
            "services",
            f"compacted {compacted['row_count']:,} rows; {self._completed_during(compacted)} "
            "commits of others completed meanwhile",
        )

        screen.act(
            "Act 3: two indexes meanwhile (asynchronous indexing, RFC-45)",
            "an indexing instant that catches up with commits; writers do not notice",
        )
        site.done("indexer", "index", names=INDEXES)
        screen.event("indexer", f"built {' and '.join(INDEXES)}")
        if hudi is not None:
            hudi.begin_write(site)
        site.until_acknowledged(dict.fromkeys(self.writers, batch_count))
        if hudi is not None:
            site.until("hudi", "done", "write")
        for name in self.writers:
            site.tell(name, "enough")
        for name in self.writers:
            site.next_batch[name] = site.until(name, "done", "ingest")["next"]
        self.check_rows("after three writers")
        self.check_indexes()

    def killed_writer(self) -> None:
        screen, site = self.screen, self.site
        screen.act(
            "Act 4: a writer is killed (heartbeats, RFC-79)",
            "its files and its instant disappear, by the hand of another process",
        )
        victim = "arrow-2"
        held: dict[str, Any] = {"is_partial": False, "is_optimistic": False}
        site.tell(victim, "write_held", writer=self.writers[victim], number=LAST, **held)
        site.until(victim, "held")
        pid = site.pid(victim)
        (instant,) = [
            row["instant"]
            for row in self.table.inspect.heartbeats().to_pylist()
            if row["pid"] == pid
        ]
        left = self.files_of(instant)
        check(f"Whether {victim} had written files", bool(left), True)
        site.kill(victim)
        screen.event(victim, f"killed, with {len(left)} files written and no commit")
        self.ingest("arrow-1")
        site.done("services", "clean")
        check(f"What is left of {instant}, whose writer was killed", self.files_of(instant), [])
        rolled_back = [
            row["instant"]
            for row in self.table.inspect.conflicts().to_pylist()
            if row["outcome"] == "rolled back"
        ]
        check("Writes that were rolled back", rolled_back, [instant])
        screen.fact(f"{instant} was rolled back by services, its {len(left)} files are gone")
        self.check_rows("after the kill")

    def cancelled_clustering(self) -> None:
        screen, site = self.screen, self.site
        screen.act(
            "Act 5: a clustering gives way to a write (cancellable clustering)",
            "the clustering ends aborted, the write completes without waiting",
        )
        site.tell("services", "cluster")
        plan = site.until("services", "held")["instant"]
        screen.event("services", f"clustering {plan} is half way")
        self.ingest("arrow-1")
        site.tell("services", "go")
        done = site.until("services", "done", "cluster")
        check("Whether the clustering was cancelled", done["is_cancelled"], True)
        states = {
            row["requested_time"]: row["state"] for row in self.table.inspect.timeline().to_pylist()
        }
        check("The state of the clustering", states.get(plan), "aborted")
        check(f"What is left of the clustering {plan}", self.files_of(plan), [])
        screen.fact(f"clustering {plan} is aborted, and its files are gone")
        self.check_rows("after the cancelled clustering")

    def early_conflict(self) -> None:
        screen, site = self.screen, self.site
        screen.act(
            "Act 6: a conflict found early (optimistic control, RFC-56)",
            "the second writer stops when it is about to write the same files, not at its commit",
        )
        first, second = "arrow-1", "indexer"
        number = site.next_batch[first]
        site.next_batch[first] += 1
        held: dict[str, Any] = {"is_partial": True, "is_optimistic": True}
        site.tell(first, "write_held", writer=self.writers[first], number=number, **held)
        site.until(first, "held")
        lost = site.done(second, "write_optimistic", writer=4, number=number + 1)
        check("The kind of conflict", lost.get("kind"), "conflict.early")
        screen.event(second, f"lost after {lost['took_ms']} ms, before it wrote a file")
        screen.event(second, lost["error"])
        site.tell(first, "go")
        site.until(first, "done", "write_held")
        won = site.done(second, "write_optimistic", writer=4, number=number + 1)
        check("What became of the second try", won.get("kind"), None)
        self.check_rows("after the conflict")

    def restore(self) -> None:
        screen, site = self.screen, self.site
        screen.act(
            "Act 7: a bad batch is taken back (savepoint and restore)",
            "a restore, and rows as they were",
        )
        site.done("services", "compact")
        site.done("arrow-1", "ingest", writer=6, first=0, last=0, pause_s=0.0)
        self.check_rows("after a late batch, older than all others")
        savepoint = site.done("services", "savepoint")["instant"]
        screen.event("services", f"savepoint of {savepoint}")
        before = self.read()
        good = list(site.acknowledged)
        site.done("arrow-1", "ingest", writer=9, first=LAST, last=LAST, pause_s=0.0)
        check("Whether the bad batch is there", self.read().equals(before), False)
        undone = site.done("services", "restore", instant=savepoint)["undone"]
        site.acknowledged = good
        screen.event("services", f"restored; {len(undone)} commits were taken back")
        self.check_rows("after the restore")

    def ingest(self, name: str) -> None:
        """Let a process write its next batch, and wait for it."""
        number = self.site.next_batch[name]
        given = {"writer": self.writers[name], "first": number, "last": number, "pause_s": 0.0}
        self.site.next_batch[name] = self.site.done(name, "ingest", **given)["next"]

    def last_checks(self, hudi: HudiWriter | None) -> None:
        screen = self.screen
        screen.act("At the end", "nothing that was acknowledged is lost, nothing else is there")
        self.site.done("services", "compact")
        self.site.done("services", "clean")
        ours = self.check_rows("in the end")
        theirs = read_by_hudi_rs(Path(self.table.uri.removeprefix("file://")))
        if theirs is None:
            screen.fact("hudi-rs is not installed, so nothing was compared; `make demo` does it")
        else:
            compare("that hudi-rs reads", theirs, ours)
            screen.fact(f"hudi-rs reads the same {theirs.num_rows:,} rows of the same files")
        if hudi is not None:
            compare("that Apache Hudi reads", hudi.read(), ours)
            screen.fact(f"Apache Hudi reads the same {ours.num_rows:,} rows")
        self.check_indexes()
        problems = self.table.inspect.problems(deep=True).to_pylist()
        check("What fsck finds", problems, [])
        screen.fact("fsck --deep finds nothing")
        journal, _ = find_journal(self.table.storage)
        if journal is not None:
            decisions = journal.state().number
            screen.fact(f"{decisions} decisions are in the table's journal, and nobody had a lock")
        screen.table(
            [{"process": name, "commits": len(lane.commits)} for name, lane in screen.lanes.items()]
        )

    def check_rows(self, when: str) -> pa.Table:
        found = self.read()
        batches = self.site.acknowledged
        compare(when, found, expected(batches, self.site.key_count))
        self.screen.fact(
            f"{found.num_rows:,} rows {when}, each as the {len(batches)} acknowledged batches say"
        )
        return found

    def check_indexes(self) -> None:
        table = self.table.reload()
        here = [
            row["index"] for row in table.indexes.list().to_pylist() if row["state"] == "usable"
        ]
        check("The indexes that are missing", sorted({*INDEXES} - {*here}), [])
        rows = table.inspect.validate_metadata().to_pylist()
        wrong = [row for row in rows if row["problem"] in ("missing", "wrong")]
        check("Where indexes differ from the data", wrong, [])
        self.screen.fact("every index says what the files say")

    def read(self) -> pa.Table:
        return in_order(self.table.read_arrow())

    def files_of(self, instant: str) -> list[str]:
        """Return the data files that an instant wrote and that are there."""
        folder = self.site.table
        return sorted(path.name for path in folder.glob(f"*{instant}*") if path.is_file())

    def _completed_during(self, done: dict[str, Any]) -> int:
        rows = self.table.inspect.timeline().to_pylist()
        (service,) = [row for row in rows if row["requested_time"] == done["instant"]]
        return sum(
            row["action"] == "deltacommit"
            and service["requested_time"]
            < (row["completion_time"] or "")
            < service["completion_time"]
            for row in rows
        )


# Comparing.


def in_order(rows: pa.Table) -> pa.Table:
    return rows.select(COLUMNS).sort_by("id").combine_chunks()


def check(what: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise Differs(f"{what}: expected {wanted}, found {found}.")


def compare(what: str, found: pa.Table, wanted: pa.Table) -> None:
    """Compare row for row, and name the first row that differs."""
    check(f"The number of rows {what}", found.num_rows, wanted.num_rows)
    if not found.cast(wanted.schema).equals(wanted):
        for one, other in zip(found.to_pylist(), wanted.to_pylist(), strict=True):
            check(f"A row {what}", one, other)


def read_by_hudi_rs(path: Path) -> pa.Table | None:
    """Return the rows that hudi-rs reads; None where it is not installed."""
    if importlib.util.find_spec("hudi") is None:
        return None
    import hudi

    batches = hudi.HudiTableBuilder.from_base_uri(path.as_uri()).build().read()
    return in_order(pa.Table.from_batches([pa.record_batch(batch) for batch in batches]))


# The demo.


def run(output: Path, given: argparse.Namespace) -> None:
    path, key_count = table_folder(output), given.keys
    table = hw.create_table(
        path,
        schema=SCHEMA,
        record_key="id",
        ordering="ts",
        table_type="MERGE_ON_READ",
        buckets=BUCKETS,
        options={**NON_BLOCKING, **(SHARED_LOCK if given.hudi else {})},
    )
    screen = Screen(lambda: newest_instants(table))
    writers = [name for name in WRITERS if name != "spark" or not given.no_spark]
    screen.say(
        f"A merge-on-read table with {key_count:,} keys in {near(path)}. Its writers: "
        f"{', '.join(writers)}. Beside them: services, indexer."
    )
    wanted = opened_hudi(screen, path, key_count) if given.hudi else nullcontext()
    with wanted as hudi, Site(screen, path, output, key_count) as site, screen:
        demo = Demo(screen, site, table, writers)
        demo.start_processes()
        if hudi is not None:
            screen.lanes["hudi"] = Lane()
            screen.event("hudi", f"is ready, process {hudi.pid}")
        demo.many_writers(given.batches, given.pause, hudi)
        demo.killed_writer()
        demo.cancelled_clustering()
        demo.early_conflict()
        demo.restore()
        demo.last_checks(hudi)
        pictures = [output / "timeline.svg", output / "timeline.png"]
        table.inspect.draw_timeline(*pictures)
    screen.say()
    screen.say(f"Everything was as expected, after {screen.passed_s:.0f} s.", "bold green")
    screen.say(f"  the timeline, where all of it can be seen: {near(pictures[0])} and .png")
    screen.say("What to try next", "bold")
    screen.say(f"  .venv/bin/headwater table read {near(path)} --limit 5")
    screen.say(f"  .venv/bin/headwater conflict list {near(path)}")
    screen.say("  docs/guide/quick-start.md: a table of your own, in one minute")


def newest_instants(table: hw.Table) -> list[dict[str, Any]]:
    return [
        {
            "requested": row["requested_time"],
            "action": row["action"],
            "state": row["state"],
            "completed": row["completion_time"],
        }
        for row in table.inspect.timeline().to_pylist()
    ]


def near(path: Path) -> Path:
    """Return a path as it is typed here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


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
    parser = argparse.ArgumentParser(description="Many writers and services on one table.")
    parser.add_argument("--short", action="store_true", help="with few and small batches")
    parser.add_argument("--keys", type=int, help="how many records there are")
    parser.add_argument("--no-spark", action="store_true", help="without a writer that needs Java")
    parser.add_argument(
        "--hudi",
        action="store_true",
        help="with Apache Hudi as one more process, where it was fetched (make hudi)",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "demo-output", help="a folder")
    defaults = {"keys": KEYS, "batches": BATCHES, "pause": PAUSE_S}
    short = {"keys": SHORT_KEYS, "batches": SHORT_BATCHES, "pause": SHORT_PAUSE_S}
    given = parser.parse_args()
    for name, value in (short if given.short else defaults).items():
        if getattr(given, name, None) is None:
            setattr(given, name, value)
    if given.keys < KEYS_MIN:
        parser.error(f"--keys must be at least {KEYS_MIN}, so that every bucket has some")
    # matplotlib says at length that it makes a cache of fonts, the first time and without a HOME.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        run(given.output.resolve(), given)
    except (Differs, Failed) as problem:
        raise SystemExit(f"The demo failed. {problem}") from problem
    except KeyboardInterrupt:
        raise SystemExit("Stopped; every process of the demo has ended.") from None


if __name__ == "__main__":
    main()
