"""How fast is a conflict found while writers still write, and what does that save (RFC-56)?

    python benchmarks/early_conflict.py [--quick] [--json PATH] [--plot PATH]

check      one look of the marker service's checker: a rival with n markers in MARKERS0..MARKERS19
           on local disk, and n markers of one's own in memory. The RFC reports 179 ms for 1,500.
abort      from the moment that two writers have announced one file group to the error in the one
           that began later, whose tasks ask for markers all the time.
           rival first: the earlier writer's marker was there before. own first: it came after.
work       the RFC's test plan: a short write commits to one file group while a long one, which
           began later, is at work on many. With detection the long one stops; without, it fails
           when it commits. Time until it knows, and what it had written by then.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pyarrow as pa
from matplotlib.figure import Figure as Picture

import headwater as hw
from headwater.config.detection import (
    DETECTION_ENABLED,
    DETECTION_STRATEGY,
    DetectionConfig,
    DetectionStrategy,
)
from headwater.config.markers import MARKERS_TYPE
from headwater.engine.inline import InlineRows
from headwater.errors import ConflictError, EarlyConflictError
from headwater.kernel.layout import TableLayout
from headwater.kernel.txn.attempts import Attempt, Purpose, encode_attempt
from headwater.kernel.txn.conflicts import Snapshot
from headwater.kernel.txn.markers import DirectMarkers, Marker, MarkerKind, Markers
from headwater.markers.batches import BatchFile, put_marker_type
from headwater.markers.bloom_markers import FilterFile
from headwater.markers.candidate_instants import Candidate
from headwater.markers.checker import MarkerChecker
from headwater.markers.client import MarkerClient
from headwater.markers.detection import Detection, detecting_markers
from headwater.markers.early_conflict import EarlyCheck
from headwater.model.files import BaseFile, FileGroupId
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import RunningWrite, start_write
from headwater.seams.clock import SystemClock
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.local import LocalStorage
from headwater.seams.storage import Storage

RFC_MARKERS, RFC_MS = 1_500, 179.0
TARGET_MS = 10.0
FILES = 20
SERVICE_STRATEGIES = (DetectionStrategy.ASYNC, DetectionStrategy.BLOOM_ASYNC)
OPTIONS = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "filesystem",
}
EARLIER = InstantTime("20260101000000001")
MINE = InstantTime("20260101000000002")
PERIOD_MS = DetectionConfig().period_ms
BUCKETS = 32


@dataclass(frozen=True, slots=True)
class CheckFigure:
    strategy: str
    markers: int
    first_ms: float  # Everything is read and compared.
    unchanged_ms: float
    one_file_changed_ms: float
    conflict_ms: float  # Everything is read, and the one conflict confirmed.


@dataclass(frozen=True, slots=True)
class AbortFigure:
    strategy: str
    order: str
    aborts: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class WorkFigure:
    variant: str
    seconds: float
    rows_written: int
    bytes_written: int
    found_at_commit: int  # Of how many turns.
    turns: int


# One look ------------------------------------------------------------------------------------


def group(number: int, salt: str = "") -> FileGroupId:
    return FileGroupId(f"event_date=2026-01-{number % 28 + 1:02d}", f"{salt}{number:08d}-4a5b-6c7d")


def marker(time_: InstantTime, of: FileGroupId) -> Marker:
    return Marker(BaseFile(*of, "17-0-1390", time_).path, MarkerKind.MERGE)


def put_rival(storage: Storage) -> Candidate:
    """Put a writer that is alive, and return it as another one sees it."""
    attempt = Attempt(
        instant=EARLIER,
        attempt=1,
        token="theirs",
        owner=Owner("another-host", 1, "w"),
        purpose=Purpose.WRITE,
        started_ms=0,
        interval_ms=600_000,
        tolerable_misses=2,
    )
    storage.put(attempt.path, encode_attempt(attempt))
    storage.put(f".hoodie/timeline/{EARLIER}.commit.requested", b"")
    storage.put(f".hoodie/timeline/{EARLIER}.inflight", b"")
    return Candidate(
        instant=Instant(EARLIER, Action.COMMIT, State.INFLIGHT),
        attempt=attempt,
        beaten_ms=0,
        expiry_ms=attempt.expiry_ms,
        remaining_ms=attempt.expiry_ms,
    )


def measure_checks(strategy: DetectionStrategy, count: int, turns: int) -> CheckFigure:
    with tempfile.TemporaryDirectory() as folder:
        storage = LocalStorage(folder, fsync=False)
        rival = put_rival(storage)
        put_marker_type(storage, EARLIER)

        def new_filter(name: str) -> FilterFile | None:
            if not strategy.has_filters:
                return None
            return FilterFile(storage, EARLIER, name, is_bucketed=False)

        files = [BatchFile(storage, EARLIER, n, new_filter) for n in range(FILES)]
        for number, file in enumerate(files):
            theirs = range(number, count, FILES)
            file.add([marker(EARLIER, group(n, "x")) for n in theirs])
        detection = Detection(
            strategy=strategy,
            check=EarlyCheck(
                instant=Instant(MINE, Action.COMMIT, State.INFLIGHT),
                snapshot=Snapshot(pending=frozenset({EARLIER})),
                is_bucketed=False,
            ),
            candidates=(rival,),
            layout=TableLayout(),
        )
        mine = [marker(MINE, group(n)) for n in range(count)]

        def checker() -> MarkerChecker:
            made = MarkerChecker(
                detection, DetectionConfig(strategy=strategy), storage, SystemClock(), SystemIds()
            )
            made.note(mine)
            return made

        first, unchanged, changed, conflict = [], [], [], []
        for turn in range(turns):
            one = checker()
            first.append(timed_ms(one.check))
            unchanged.append(timed_ms(one.check))
            files[turn % FILES].add([marker(EARLIER, group(turn, "y"))])
            changed.append(timed_ms(one.check))
        files[0].add([marker(EARLIER, group(count // 2))])
        for _ in range(turns):
            one = checker()
            conflict.append(timed_ms(one.check))
            assert isinstance(one.check(), EarlyConflictError)
    return CheckFigure(
        strategy,
        count,
        statistics.median(first),
        statistics.median(unchanged),
        statistics.median(changed),
        statistics.median(conflict),
    )


def timed_ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1_000


# From conflict to abort ----------------------------------------------------------------------


def new_table(folder: str, strategy: DetectionStrategy | None) -> hw.Table:
    """Return a table whose writers look for conflicts in one way, or not until they commit."""
    options = {**OPTIONS, DETECTION_ENABLED.key: str(strategy is not None).lower()}
    if strategy is not None:
        options |= {DETECTION_STRATEGY.key: strategy, MARKERS_TYPE.key: strategy.markers}
    return hw.create_table(
        Path(folder) / "t",
        schema="id string, value long, note string",
        record_key="id",
        buckets=BUCKETS,
        options={**options, "hoodie.write.num.retries.on.conflict.failures": "0"},
    )


def begin(table: hw.Table, columns: pa.Schema) -> RunningWrite:
    request = WriteRequest(operation=Operation.UPSERT, columns=columns)
    return start_write(table.context, request, host="127.0.0.1")


@contextmanager
def markers_of(running: RunningWrite, storage: Storage) -> Iterator[Markers]:
    """Return the markers of a write as its tasks have them."""
    plan, clock, ids = running.plan, SystemClock(), SystemIds()
    with ExitStack() as stack:
        markers: Markers = DirectMarkers(storage, plan.instant_time)
        if plan.announcing.marker_service is not None:
            markers = stack.enter_context(MarkerClient(plan.announcing.marker_service, clock, ids))
        if plan.announcing.detection is not None:
            found = detecting_markers(
                plan.announcing.detection, markers, storage, clock, ids, task="0-1-0"
            )
            markers = stack.enter_context(found)
        yield markers


def measure_aborts(strategy: DetectionStrategy, order: str, count: int) -> AbortFigure:
    columns = pa.schema([("id", pa.string()), ("value", pa.int64()), ("note", pa.string())])
    latencies = []
    with tempfile.TemporaryDirectory() as folder:
        table = new_table(folder, strategy)
        for _ in range(count):
            first, second = begin(table, columns), begin(table, columns)
            with (
                markers_of(first, table.storage) as theirs,
                markers_of(second, table.storage) as ours,
            ):
                latencies.append(_abort_ms(order, first, second, theirs, ours))
            second.abandon()
            first.abandon()
    return AbortFigure(
        strategy,
        order,
        count,
        statistics.median(latencies),
        statistics.quantiles(latencies, n=100, method="inclusive")[98],
    )


def _abort_ms(
    order: str, first: RunningWrite, second: RunningWrite, theirs: Markers, ours: Markers
) -> float:
    contested = first.plan.new_group("", 0)
    if order == "rival first":
        theirs.create(marker(first.plan.instant_time, contested))
        began = time.perf_counter()
        _ask_until_stopped(second, ours, contested)
    else:
        ours.create(marker(second.plan.instant_time, contested))
        # Somewhere in the period, as real writers do.
        time.sleep(random.random() * PERIOD_MS / 1_000)
        theirs.create(marker(first.plan.instant_time, contested))
        began = time.perf_counter()
        _ask_until_stopped(second, ours, None)
    return (time.perf_counter() - began) * 1_000


def _ask_until_stopped(second: RunningWrite, ours: Markers, contested: FileGroupId | None) -> None:
    """Create markers, the contested one first, as tasks that write small files do."""
    deadline = time.monotonic() + 30
    serial = 0
    while time.monotonic() < deadline:
        serial += 1
        of = contested or FileGroupId("", f"{serial % (BUCKETS - 1) + 1:08d}-{serial}")
        contested = None
        try:
            ours.create(marker(second.plan.instant_time, of))
        except EarlyConflictError:
            return
        time.sleep(0.001)
    raise RuntimeError("No conflict was found in 30 s")


# What it saves -------------------------------------------------------------------------------


def batch(rows: int, seed: int) -> pa.Table:
    notes = [f"{seed}-{n * 2_654_435_761 % 1_000_003}" for n in range(rows)]
    ids = [f"key-{n}" for n in range(rows)]
    return pa.table({"id": ids, "value": [seed] * rows, "note": notes})


def measure_work(variant: str, rows: int, turns: int) -> WorkFigure:
    seconds, written, sizes, late = [], 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        table = new_table(folder, None if variant == "off" else DetectionStrategy(variant))
        table.upsert(batch(rows, 0))
        for turn in range(turns):
            whole = InlineRows(batch(rows, turn + 1))
            one_row = batch(rows, turn + 1).slice(turn * 7_919 % rows, 1)
            short = begin(table, one_row.schema)
            long = begin(table, one_row.schema)
            committed = threading.Thread(target=_write_short, args=(short, one_row))
            began = time.perf_counter()
            committed.start()
            try:
                stats = long.run_tasks(whole)
                committed.join()
                long.commit(stats)
                raise RuntimeError("Both writers committed")
            except EarlyConflictError:
                pass
            except ConflictError:
                late += 1
            seconds.append(time.perf_counter() - began)
            committed.join()
            mine = long.plan.instant_time
            files = [info for info in table.storage.list_tree("") if mine in info.path]
            data = [info for info in files if info.path.endswith(".parquet")]
            sizes += sum(info.size_bytes for info in data)
            written += len(data) * rows // BUCKETS
            long.abandon()  # Takes away what it had written.
    return WorkFigure(
        variant,
        statistics.median(seconds),
        written // turns,
        sizes // turns,
        late,
        turns,
    )


def _write_short(short: RunningWrite, rows: pa.Table) -> None:
    short.commit(short.run_tasks(InlineRows(rows)))


# Showing it ----------------------------------------------------------------------------------


def show(checks: list[CheckFigure], aborts: list[AbortFigure], works: list[WorkFigure]) -> None:
    print(f"{'check, ms':14} {'markers':>8} {'first':>9} {'same':>8} {'1 file':>8} {'found':>9}")
    for check in checks:
        print(
            f"{check.strategy:14} {check.markers:8,} {check.first_ms:9.1f} "
            f"{check.unchanged_ms:8.2f} {check.one_file_changed_ms:8.1f} {check.conflict_ms:9.1f}"
        )
    small = [c for c in checks if c.markers == RFC_MARKERS and c.strategy == "async"]
    for check in small:
        verdict = "within" if check.first_ms <= TARGET_MS else "ABOVE"
        print(
            f"{RFC_MARKERS:,} markers: {check.first_ms:.1f} ms, {verdict} the target of "
            f"{TARGET_MS:.0f} ms; the RFC reports {RFC_MS:.0f} ms"
        )
    print(f"\n{'abort':20} {'order':12} {'aborts':>7} {'p50 ms':>8} {'p99 ms':>8}")
    for abort in aborts:
        print(
            f"{abort.strategy:20} {abort.order:12} {abort.aborts:7} {abort.p50_ms:8.1f} "
            f"{abort.p99_ms:8.1f}"
        )
    print(f"\n{'work':20} {'seconds':>8} {'rows':>10} {'MB':>8}  found at the commit")
    for work in works:
        print(
            f"{work.variant:20} {work.seconds:8.2f} {work.rows_written:10,} "
            f"{work.bytes_written / 1e6:8.1f}  {work.found_at_commit} of {work.turns}"
        )


def draw(
    path: Path, checks: list[CheckFigure], aborts: list[AbortFigure], works: list[WorkFigure]
) -> None:
    # Equal runs give equal files.
    mpl.rcParams["svg.hashsalt"] = "headwater"
    picture = Picture(figsize=(13, 4), layout="constrained")
    left, middle, right = picture.subplots(1, 3)
    for strategy in sorted({check.strategy for check in checks}):
        mine = [check for check in checks if check.strategy == strategy]
        counts = [check.markers for check in mine]
        left.plot(counts, [c.first_ms for c in mine], marker="o", label=f"{strategy}, first look")
        changed = [c.one_file_changed_ms for c in mine]
        left.plot(counts, changed, marker=".", linestyle="--", label=f"{strategy}, one file new")
    left.plot([RFC_MARKERS], [RFC_MS], marker="x", color="black", linestyle="", label="RFC-56")
    left.set(xscale="log", yscale="log", xlabel="markers on each side", ylabel="ms")
    left.set_title("One look for conflicts")
    left.set_xticks(sorted({check.markers for check in checks}))
    left.xaxis.set_major_formatter("{x:,.0f}")
    left.xaxis.set_minor_formatter("")
    left.legend(fontsize="small")
    names = [f"{abort.strategy}\n{abort.order}" for abort in aborts]
    middle.barh(names, [abort.p99_ms for abort in aborts], color="#cfcfcf", label="p99")
    middle.barh(names, [abort.p50_ms for abort in aborts], height=0.5, label="p50")
    middle.set(xscale="log", xlabel="ms")
    middle.set_title("From conflict to abort")
    middle.tick_params(axis="y", labelsize="x-small")
    middle.legend(fontsize="small")
    variants = [work.variant for work in works]
    right.barh(variants, [work.seconds for work in works])
    for place, work in enumerate(works):
        right.annotate(
            f" {work.bytes_written / 1e6:.1f} MB, {work.rows_written:,} rows",
            (work.seconds, place),
            va="center",
            fontsize="x-small",
        )
    right.set(xlabel="seconds until the later writer knows", xmargin=0.6)
    right.set_title("A write that loses, and what it wrote")
    picture.savefig(path, format="svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--json", default=None, help="write the figures to this file")
    parser.add_argument("--plot", default=None, help="draw them into this SVG")
    given = parser.parse_args()
    random.seed(1)
    sizes = (1_500, 15_000) if given.quick else (1_500, 15_000, 150_000)
    turns = 3 if given.quick else 11
    abort_count = 5 if given.quick else 100
    rows, work_turns = (20_000, 2) if given.quick else (1_000_000, 5)
    checks = [
        measure_checks(strategy, size, turns) for strategy in SERVICE_STRATEGIES for size in sizes
    ]
    aborts = [measure_aborts(s, "rival first", abort_count) for s in DetectionStrategy]
    aborts += [measure_aborts(s, "own first", abort_count) for s in SERVICE_STRATEGIES]
    works = [
        measure_work(variant, rows, work_turns)
        for variant in ("off", *(str(strategy) for strategy in DetectionStrategy))
    ]
    show(checks, aborts, works)
    if given.json is not None:
        report: dict[str, Any] = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
            "settings": {"rows": rows, "buckets": BUCKETS, "period_ms": PERIOD_MS},
            "check": [asdict(figure) for figure in checks],
            "abort": [asdict(figure) for figure in aborts],
            "work": [asdict(figure) for figure in works],
        }
        Path(given.json).parent.mkdir(parents=True, exist_ok=True)
        Path(given.json).write_text(json.dumps(report, indent=2) + "\n")
    if given.plot is not None:
        Path(given.plot).parent.mkdir(parents=True, exist_ok=True)
        draw(Path(given.plot), checks, aborts, works)


if __name__ == "__main__":
    main()
