"""How long does it take to learn the state of a table with a long timeline?

    python benchmarks/timeline.py [--instants 10000] [--repeat 9] [--json PATH]

On local disk, with files in the page cache: list and parse the active timeline, with completed
files only and with requested and inflight files beside them; then read the commit metadata of the
same instants from the archived timeline and decode it, in a process at work and as the first deed
of new ones. Every figure stands beside its floor, the same bytes moved by the library below without
our code.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import load_active, parse_timeline
from headwater.kernel.timeline.history.compact import compact_history
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.history.rows import ArchivedMetadata
from headwater.kernel.timeline.history.write import archive_instants
from headwater.kernel.timeline.names import file_name
from headwater.model.commit_metadata import CommitMetadata, RuntimeStats, WriteStat
from headwater.model.instant import Action, InstantTime, State, instant_time_at
from headwater.seams.collector import collector_paused
from headwater.seams.local import LocalStorage

LAYOUT = TableLayout()
START_MS = 1_704_067_200_000
TABLE_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "trips_record",
        "namespace": "hoodie.trips",
        "fields": [
            {"name": f"column_{number}", "type": ["null", "string"], "default": None}
            for number in range(12)
        ],
    }
)


@dataclass(frozen=True)
class Figure:
    """Best and median of several runs, in seconds."""

    question: str
    best_s: float
    median_s: float
    floor: str | None = None
    floor_s: float | None = None
    target_s: float | None = None

    @property
    def ratio(self) -> float | None:
        return None if self.floor_s is None else self.best_s / self.floor_s


def measure(
    question: str,
    run: Callable[[], object],
    repeat: int,
    *,
    floor: tuple[str, Callable[[], object]] | None = None,
    target_s: float | None = None,
) -> Figure:
    """Time `run`, then its floor; in turns each would pay for memory that the other gave back."""
    seconds = [timed(run) for _ in range(repeat)]
    floor_seconds = [timed(floor[1]) for _ in range(repeat)] if floor is not None else []
    return Figure(
        question,
        min(seconds),
        statistics.median(seconds),
        floor[0] if floor else None,
        min(floor_seconds) if floor else None,
        target_s,
    )


def timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    found = run()
    seconds = time.perf_counter() - began
    del found  # What it takes to forget is nobody's wait.
    return seconds


def commit_metadata(number: int, requested_time: InstantTime) -> bytes:
    """One write stat, as a small append leaves it."""
    file_id = f"{number:08d}-1f2e-4c5d-8a9b-{number * 2_654_435_761 % 10**12:012d}-0"
    path = f"city=sf/{file_id}_0-{number}-0_{requested_time}.parquet"
    stat = WriteStat(
        file_id=file_id,
        path=path,
        prev_commit="null",
        num_writes=100 + number,
        num_inserts=100 + number,
        total_write_bytes=433_000 + number,
        file_size_in_bytes=433_000 + number,
        partition_path="city=sf",
        runtime_stats=RuntimeStats(total_create_time=number % 900),
    )
    return encode_record(
        CommitMetadata(
            partition_to_write_stats={"city=sf": (stat,)},
            extra_metadata={"schema": TABLE_SCHEMA},
            operation_type="INSERT",
        )
    )


def write_timeline(base: Path, instants: int) -> None:
    """Write the completed files of `instants` commits, and one more that always stays active."""
    folder = base / LAYOUT.timeline
    folder.mkdir(parents=True)
    for number in range(instants + 1):
        requested = instant_time_at(START_MS + 1000 * number)
        completed = instant_time_at(START_MS + 1000 * number + 600)
        name = file_name(requested, Action.COMMIT, State.COMPLETED, completed)
        (folder / name).write_bytes(commit_metadata(number, requested))


def write_pending_files(base: Path, instants: int) -> None:
    folder = base / LAYOUT.timeline
    for number in range(instants + 1):
        requested = instant_time_at(START_MS + 1000 * number)
        for state in (State.REQUESTED, State.INFLIGHT):
            (folder / file_name(requested, Action.COMMIT, state)).touch()


def measure_active(storage: LocalStorage, what: str, repeat: int) -> list[Figure]:
    folder = f"{storage.uri}/{LAYOUT.timeline}"
    names = storage.list_names(LAYOUT.timeline)
    return [
        measure(
            f"list and parse, {what}: {len(names)} files",
            lambda: load_active(storage, LAYOUT.timeline),
            repeat,
            floor=("os.listdir", lambda: os.listdir(folder)),
            target_s=0.032,
        ),
        measure("  of which listing", lambda: storage.list_names(LAYOUT.timeline), repeat),
        measure("  of which parsing", lambda: parse_timeline(names), repeat),
    ]


def archive_everything(storage: LocalStorage) -> None:
    """Archive all instants but the newest, and merge them into one file."""
    timeline = load_active(storage, LAYOUT.timeline)
    archived = timeline.instants[:-1]
    batch = -(-len(archived) // 10)
    for start in range(0, len(archived), batch):
        archive_instants(storage, LAYOUT, archived[start : start + batch])
    compact_history(storage, LAYOUT.history)


def measure_archived(storage: LocalStorage, repeat: int) -> list[Figure]:
    def load_instants() -> HistoryTimeline:
        history = HistoryTimeline(storage, LAYOUT.history)
        history.instants()
        return history

    def load_metadata() -> Iterator[ArchivedMetadata]:
        history = HistoryTimeline(storage, LAYOUT.history)
        times = [instant.requested_time for instant in history.instants()]
        return (found for _, found in history.iter_metadata(times))

    def decode(contents: Iterable[ArchivedMetadata]) -> list[CommitMetadata]:
        with collector_paused():  # As the product does where it loads many commits.
            return [content.decode(CommitMetadata) for content in contents]

    def read_bare() -> None:
        for file in HistoryTimeline(storage, LAYOUT.history).manifest.files:
            data = pa.memory_map(f"{storage.uri}/{LAYOUT.history}/{file.name}")
            pq.ParquetFile(data).read(columns=["metadata"]).column(0).to_pylist()

    contents = list(load_metadata())
    size_mb = sum(content.end - content.start for content in contents) / 1e6
    return [
        measure(
            f"read and decode archived metadata: {len(contents)} instants, {size_mb:.0f} MB",
            lambda: decode(load_metadata()),
            repeat,
            floor=("pyarrow read to bytes", read_bare),
            target_s=0.150,
        ),
        measure("  of which instants", load_instants, repeat),
        measure("  of which instants and contents", lambda: list(load_metadata()), repeat),
        measure("  of which decoding", lambda: decode(contents), repeat),
    ]


def read_first(base: Path) -> None:
    """Read and decode the archived timeline once, and print the seconds."""
    storage = LocalStorage(base, fsync=False)
    began, began_cpu = time.perf_counter(), time.process_time()
    history = HistoryTimeline(storage, LAYOUT.history)
    times = [instant.requested_time for instant in history.instants()]
    with collector_paused():
        found = [one.decode(CommitMetadata) for _, one in history.iter_metadata(times)]
    seconds = time.perf_counter() - began, time.process_time() - began_cpu
    assert len(found) == len(times)
    print(*seconds)


def measure_first(base: Path, repeat: int) -> list[Figure]:
    """Measure the first reading of new processes, their imports left out."""
    command = [sys.executable, __file__, "--first", str(base)]
    runs = [
        [float(text) for text in subprocess.check_output(command, text=True).split()]
        for _ in range(repeat)
    ]
    on_clock, of_processor = zip(*runs, strict=True)
    return [
        Figure(
            "the same, first reading of a new process",
            min(on_clock),
            statistics.median(on_clock),
            target_s=0.200,
        ),
        Figure("  of which processor", min(of_processor), statistics.median(of_processor)),
    ]


def render(figures: list[Figure]) -> str:
    rows = [("", "best", "median", "floor", "", "ratio", "target")]
    rows += [
        (
            figure.question,
            f"{figure.best_s * 1000:.1f} ms",
            f"{figure.median_s * 1000:.1f} ms",
            "" if figure.floor_s is None else f"{figure.floor_s * 1000:.1f} ms",
            figure.floor or "",
            "" if figure.ratio is None else f"{figure.ratio:.1f}x",
            "" if figure.target_s is None else f"{figure.target_s * 1000:.0f} ms",
        )
        for figure in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, 4) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


BOUNDS = """
What bounds them. Listing: a system call per batch of names and a Python object per name. Parsing:
slicing and hashing each name once, and one tuple per instant. Archived metadata: building the
Python objects of every record; Parquet and decompression are the smaller part.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--instants", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--first", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.first is not None:
        read_first(arguments.first)
        return
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        storage = LocalStorage(base, fsync=False)
        write_timeline(base, arguments.instants)
        figures = measure_active(storage, "completed only", arguments.repeat)
        write_pending_files(base, arguments.instants)
        figures += measure_active(storage, "all states", arguments.repeat)
        archive_everything(storage)
        figures += measure_archived(storage, arguments.repeat)
        figures += measure_first(base, arguments.repeat)
    print(render(figures))
    print(BOUNDS)
    if arguments.json is not None:
        results = [{**asdict(figure), "ratio": figure.ratio} for figure in figures]
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
