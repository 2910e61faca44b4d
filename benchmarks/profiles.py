"""Where does the processor's time go in what is measured? One text for each operation.

    python benchmarks/profiles.py [--only NAME ...] [--rows 1000000] [--out FOLDER]

Time is that of the process, Arrow's threads with it, and not of the clock: another process beside
it changes nothing. Python's profiler itself makes calls of small functions look dearer than they
are, so read shares, not milliseconds.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import headwater as hw

SOURCES = str(Path(hw.__file__).parent.parent)
LIBRARIES = sysconfig.get_paths()["purelib"]
STANDARD = sysconfig.get_paths()["stdlib"]
SHOWN = 25
COMMIT_ROWS = 1_000
INDEXES = ["column_stats", "bloom_filters", "record_index"]

Run = Callable[[int], object]
"""An operation; it is told how often it ran before."""


def rows(first: int, count: int, *, value: float = 0.0, ts: int = 0) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([f"key-{each:09d}" for each in range(first, first + count)]),
            "value": pa.array([value] * count),
            "city": pa.array([f"city {each % 100}" for each in range(count)]),
            "ts": pa.array([ts] * count, pa.int64()),
        }
    )


@contextmanager
def a_table(*, buckets: int) -> Iterator[hw.Table]:
    with tempfile.TemporaryDirectory(prefix="headwater-profiles-") as folder:
        yield hw.create_table(
            f"{folder}/table",
            schema=rows(0, 1).schema,
            record_key="id",
            ordering="ts",
            table_type="MERGE_ON_READ",
            buckets=buckets,
        )


@contextmanager
def commit(_: int) -> Iterator[Run]:
    with a_table(buckets=8) as table:
        yield lambda number: table.upsert(rows(0, COMMIT_ROWS, ts=number))


@contextmanager
def commit_with_indexes(_: int) -> Iterator[Run]:
    with a_table(buckets=8) as table:
        table.upsert(rows(0, COMMIT_ROWS))
        table.indexes.create(INDEXES)
        yield lambda number: table.upsert(rows(0, COMMIT_ROWS, ts=number))


@contextmanager
def index_build(table_rows: int) -> Iterator[Run]:
    with a_table(buckets=20) as table:
        table.bulk_insert(rows(0, table_rows))

        def build(_: int) -> None:
            table.indexes.create(["record_index"])
            table.indexes.drop("record_index")

        yield build


@contextmanager
def look_up(table_rows: int) -> Iterator[Run]:
    with a_table(buckets=20) as table:
        table.bulk_insert(rows(0, table_rows))
        table.indexes.create(["record_index"])

        def find(number: int) -> None:
            key = f"key-{number * 7919 % table_rows:09d}"
            assert table.read_arrow(where=f"id = '{key}'").num_rows == 1

        yield find


@contextmanager
def merged_read(table_rows: int) -> Iterator[Run]:
    with a_table(buckets=8) as table:
        table.bulk_insert(rows(0, table_rows))
        table.upsert(rows(0, table_rows // 50, value=1.0, ts=1))

        def read(_: int) -> None:
            assert table.read_arrow(["city", "value"]).num_rows == table_rows

        yield read


OPERATIONS = {
    "commit of 1,000 rows": (commit, 40),
    "commit with three indexes": (commit_with_indexes, 40),
    "build of the record index": (index_build, 1),
    "look-up of one key": (look_up, 60),
    "read of 2 columns, 2 % updated": (merged_read, 3),
}


def place_of(function: tuple[str, int, str]) -> str:
    """Return a function's name without the folders of this machine."""
    file, _, name = function
    if file == "~":
        return name.strip("<>").replace("built-in method ", "").replace("method ", "")
    for folder in (SOURCES, LIBRARIES, STANDARD):
        if file.startswith(f"{folder}/"):
            module = file[len(folder) + 1 :].removesuffix(".py").replace("/", ".")
            return f"{module}.{name}"
    return f"{Path(file).name}.{name}"


def render(name: str, profile: cProfile.Profile, times: int) -> str:
    stats: dict[tuple[str, int, str], Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    whole = sum(own for _, _, own, _, _ in stats.values())
    lines = [f"{name}: {whole / times * 1000:.1f} ms of processor time, by the profiler"]
    for title, column in (("in the function itself", 2), ("with all that it calls", 3)):
        lines += ["", f"{'share':>6} {'calls':>8}  {title}"]
        top = sorted(stats.items(), key=lambda item: -item[1][column])
        ours = [item for item in top if column == 2 or item[0][0].startswith(SOURCES)]
        lines += [
            f"{found[column] / whole:>6.1%} {found[1] / times:>8.0f}  {place_of(function)}"
            for function, found in ours[:SHOWN]
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", choices=OPERATIONS, default=[*OPERATIONS])
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the tables that are read")
    parser.add_argument("--out", type=Path, help="the folder of the texts; else they are printed")
    given = parser.parse_args()
    for name in given.only:
        operation, times = OPERATIONS[name]
        with operation(given.rows) as run:
            run(0)  # What is loaded once in a process is not what is measured.
            profile = cProfile.Profile(time.process_time)
            for number in range(1, times + 1):
                profile.runcall(run, number)
        text = render(name, profile, times)
        if given.out is None:
            print(text, flush=True)
            continue
        given.out.mkdir(parents=True, exist_ok=True)
        short = name.replace(",", "").replace(" ", "_").replace("_%", "_percent")
        (given.out / f"{short}.txt").write_text(text)


if __name__ == "__main__":
    main()
