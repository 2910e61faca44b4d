"""What do the metadata table and its indexes cost, and what do they spare?

    builds      each index of the table of rows: rows a second, peak memory of the process
    point       one row by its record key: record_index, next to a full scan; target 50x
    skipping    a range of a sorted column: column_stats, next to the footers of all files; target:
                no file is read that does not match
    tagging     an upsert of 1,000 rows: record_index and bloom_filters, next to filters in footers
    overhead    a commit of 100 rows with a metadata table, next to one without; target 60 ms
    size        such a commit to tables of 1,000 to 100,000 files, target 20 %; and the view of all
                files of the largest, next to listing storage
    writers     a commit of four processes beside the build of all indexes, next to one alone;
                target 1.10

Run: python benchmarks/index.py [--quick] [--rows 10000000] [--files 100000] [--only point size]
     [--json PATH] [--plot PATH]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from index_builds import measure_builds, measure_writers
from index_commits import measure_overhead, measure_size
from index_reads import measure_point_lookup, measure_skipping, measure_tagging
from index_tables import (
    FULL,
    LOCKED,
    QUICK,
    WITHOUT_METADATA,
    Figure,
    Sizes,
    create_rows_table,
    scratch,
    timed,
    with_index,
)
from spark_bench import new_session

import headwater as hw
from headwater.config.table_options import IndexType

OF_ROWS = ("builds", "point", "skipping", "tagging")
QUESTIONS = (*OF_ROWS, "overhead", "size", "writers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small sizes, less than a minute")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--files", type=int)
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    sizes = QUICK if given.quick else FULL
    if given.rows is not None:
        sizes = replace(sizes, rows=given.rows)
    if given.files is not None:
        sizes = replace(sizes, files=(*(n for n in sizes.files if n < given.files), given.files))
    print(f"{os.cpu_count()} cores, {sizes}", flush=True)
    figures: list[Figure] = []
    # What is measured with processes comes before this one starts Spark.
    for question, measure in {
        "overhead": measure_overhead,
        "size": measure_size,
        "writers": measure_writers,
    }.items():
        if question in given.only:
            began = time.perf_counter()
            figures += _told(measure(sizes), question, began)
    if any(question in given.only for question in OF_ROWS):
        figures += measure_rows(sizes, given.only, is_quick=given.quick)
    print()
    print(render(figures))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n")
    if given.plot is not None:
        plot(figures, given.plot)


def measure_rows(sizes: Sizes, only: Sequence[str], *, is_quick: bool) -> list[Figure]:
    """Measure what needs the table of rows; its indexes are built whether or not that is asked."""
    figures: list[Figure] = []
    with scratch() as folder:
        path = f"{folder}/rows"
        seconds = timed(lambda: create_rows_table(path, sizes.rows, sizes.groups)) / 1000
        print(f"made a table of {sizes.rows:,} rows in {seconds:.0f} s", flush=True)
        began = time.perf_counter()
        with_spark = "builds" in only and not is_quick
        figures += _told(measure_builds(sizes, path, with_spark=with_spark), "builds", began)
        table = with_index(hw.open_table(path, LOCKED), IndexType.RECORD_INDEX)
        plain = hw.open_table(path, {**LOCKED, **WITHOUT_METADATA})
        if "point" in only or "skipping" in only:
            spark = new_session()
            for question, measure in {
                "point": measure_point_lookup,
                "skipping": measure_skipping,
            }.items():
                if question in only:
                    began = time.perf_counter()
                    figures += _told(measure(spark, sizes, table, plain), question, began)
            spark.stop()
        if "tagging" in only:
            began = time.perf_counter()
            figures += _told(measure_tagging(sizes, path), "tagging", began)
    return figures


def _told(figures: list[Figure], question: str, began: float) -> list[Figure]:
    """Print what was found out so far, as the whole takes minutes."""
    print(f"\n{question}, {time.perf_counter() - began:.0f} s")
    print(render(figures), flush=True)
    return figures


def render(figures: list[Figure]) -> str:
    rows = [("", "", "median", "ratio", "target", "peak", "")]
    rows += [
        (
            figure.what,
            figure.variant,
            f"{figure.ms:,.1f} ms",
            f"{figure.ratio:.2f}",
            figure.target,
            "" if figure.peak_mb is None else f"{figure.peak_mb:,} MB",
            figure.note,
        )
        for figure in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in (2, 3, 5) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def plot(figures: list[Figure], path: Path) -> None:
    # Drawn only on request, so the benchmark runs without matplotlib.
    from matplotlib.figure import Figure as Picture
    from matplotlib.ticker import NullFormatter

    comparisons = [
        ("point look-up, ms", [one for one in figures if one.what.startswith("point")]),
        ("commit of 100 rows, ms", [one for one in figures if one.what == "commit of 100 rows"]),
        (
            "commit by files in the table, ms",
            [one for one in figures if one.what == "commit of 100 rows to"],
        ),
        ("view of files, ms", [one for one in figures if one.what.startswith("view of")]),
    ]
    drawn = [(title, some) for title, some in comparisons if some]
    picture = Picture(figsize=(9, 0.8 + 0.32 * len([1 for _, s in drawn for _ in s])))
    axes = picture.subplots(
        len(drawn), 1, squeeze=False, height_ratios=[len(some) for _, some in drawn]
    )
    for ax, (title, some) in zip(axes[:, 0], drawn, strict=True):
        names = [
            one.variant if one.what.startswith("commit") else f"{one.what}: {one.variant}"
            for one in some
        ]
        ax.barh(range(len(some)), [one.ms for one in some])
        ax.set_yticks(range(len(some)), names)
        ax.invert_yaxis()
        ax.set(title=title)
        if max(one.ms for one in some) > 20 * min(one.ms for one in some):
            ax.set_xscale("log")
            ax.xaxis.set_minor_formatter(NullFormatter())
    picture.set_layout_engine("constrained")
    picture.savefig(path)


if __name__ == "__main__":
    main()
