"""What do large tables cost on S3? Constants that were measured, and what follows from them.

Each constant names the benchmark that measures it. The check puts constants of a table of 100,000
files to one of 1,000,000, which `benchmarks/scale.py` measured as well; `docs/scale.md` holds what
this prints.

Run: python benchmarks/scale_model.py
"""

from __future__ import annotations

from dataclasses import dataclass

# Measured. --------------------------------------------------------------------------------------

COMMIT_CALLS = 45
"""Storage calls of a commit beside those of its file groups, with a lock on storage (scale.py)."""
GROUP_CALLS = 3
"""For each file group that a commit writes: a marker, a file, and the marker's deletion."""
COMMIT_BYTES = 71_000
"""Bytes of these calls, most of them read (scale.py)."""
GROUP_BYTES = 665
LOCKED_ANSWERS = 10
"""Answers that a commit waits for while it has the lock, counted (stores.py)."""
WAITED_ANSWERS = 15
"""Answers that an upsert into 64 file groups waits for (stores.py)."""
LISTED_FILE_BYTES = 21.0
"""A file in the list of files of the metadata table, folded (scale.py, 100,000 files)."""
STAT_BYTES = 188
"""A file in the record of its commit (scale.py, 100,000 files)."""
KEY_BYTES = 12.4
"""A key of 24 characters in the record index, as logs hold it."""
FOLD_COMMITS = 10
"""After how many commits the metadata table is folded, nearly."""
INDEX_GROUPS = 10
"""File groups of a record index, by default."""
SLICE_US = 7.4
"""Processor time for a slice where a plan looks at all of them (scale.py, 100,000 files)."""
HISTORY_US = 21.6
"""The same for a clean that looks at all file groups."""
SLICE_BYTES = 1_090
"""Memory that one of them takes meanwhile."""
PROCESS_MB = 150
"""Python with its libraries, and a table opened."""
PARQUET_MB_S = 4.9
"""Parquet that one core writes in a second, of Spark's rows (hudi_bench.py, bulk insert)."""

# Of the store. ----------------------------------------------------------------------------------

ANSWER_S = 0.02
"""What stores.py takes for a request; S3 answers small ones in 10 to 30 ms."""
PUTS_S_MAX = 3_500
GETS_S_MAX = 5_500
"""Requests a second that S3 promises for each prefix."""
BASE_FILE_MB = 120
FOLD_MB_S = 100
"""What one process is taken to read, merge and put in a second; not measured."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One workload, and what it asks for."""

    workload: str
    requests: str
    bytes: str
    memory: str
    seconds: str
    share: float
    """How much of what its first bound allows it takes; more than 1 does not work."""
    bound: str


def commit_requests(groups: int) -> int:
    return COMMIT_CALLS + GROUP_CALLS * groups


def locked_s() -> float:
    return LOCKED_ANSWERS * ANSWER_S


def a_terabyte_a_day(cores: int = 16) -> Cost:
    mb_s = 1e6 / 86_400
    files = 1e6 / BASE_FILE_MB
    # As logs once, and once more in base files; each compaction reads both.
    needed = 2 * mb_s / PARQUET_MB_S
    requests = 1_440 * commit_requests(round(files / 1_440) + 1)
    return Cost(
        "1 TB a day, a commit a minute",
        f"{requests / 86_400:.1f} a second",
        f"{mb_s:.1f} MB a second, written twice",
        "a row group and its input for each task",
        f"{needed:.1f} cores at work all day",
        needed / cores,
        f"processors, of {cores}",
    )


def groups_a_minute(groups: int = 10_000) -> Cost:
    requests = commit_requests(groups)
    puts_s = 2 * groups / 60
    return Cost(
        f"{groups:,} file groups a minute, one commit",
        f"{requests:,} a commit, {requests / 60:,.0f} a second",
        f"{(COMMIT_BYTES + groups * GROUP_BYTES) / 1e6:.1f} MB beside the rows",
        f"{PROCESS_MB} MB, and the rows of one group for each task",
        f"{WAITED_ANSWERS * ANSWER_S:.1f} s of waiting, {groups / PUTS_S_MAX * 2:.0f} s of puts",
        puts_s / PUTS_S_MAX,
        "puts for a prefix",
    )


def single_groups_a_minute(groups: int = 10_000) -> Cost:
    requests = groups * commit_requests(1)
    return Cost(
        f"{groups:,} file groups a minute, each a commit",
        f"{requests / 60:,.0f} a second",
        f"{groups * COMMIT_BYTES / 60 / 1e6:.0f} MB a second beside the rows",
        f"{PROCESS_MB} MB a writer",
        f"{groups * locked_s() / 60:.0f} s of the lock for each second",
        groups / 60 * locked_s(),
        "lock",
    )


def writers(count: int = 1_000, every_s: int = 60) -> Cost:
    requests = count * commit_requests(1)
    return Cost(
        f"{count:,} writers, each a commit a minute",
        f"{requests / every_s:,.0f} a second",
        f"{count * COMMIT_BYTES / every_s / 1e6:.1f} MB a second beside the rows",
        f"{PROCESS_MB} MB a writer",
        f"{count * locked_s():.0f} s of the lock a minute",
        count / every_s * locked_s(),
        "lock",
    )


def keys(count: int = 10**9, commits_a_minute: int = 1) -> Cost:
    size_gb = count * KEY_BYTES / 1e9
    mb_s = size_gb * 1e3 / FOLD_COMMITS * commits_a_minute / 60
    return Cost(
        f"{count:,} keys in a record index, a commit a minute",
        "one or two for each file group of the index that keys fall into",
        f"{size_gb:.1f} GB, all written anew every {FOLD_COMMITS} commits: {mb_s:.0f} MB a second",
        f"{size_gb / INDEX_GROUPS:.1f} GB, compressed, for the file group that is folded",
        f"{size_gb * 1e3 / FOLD_MB_S:.0f} s every {FOLD_COMMITS} commits",
        mb_s / FOLD_MB_S,
        "folding by one process",
    )


def files(count: int = 10**6) -> Cost:
    listed_mb = count * LISTED_FILE_BYTES / 1e6
    return Cost(
        f"{count:,} files, read and write of one partition",
        "12 to plan, whatever the table's size",
        f"0.6 MB to plan; {listed_mb:.0f} MB written anew every {FOLD_COMMITS} commits",
        f"{PROCESS_MB} MB; {PROCESS_MB + count * SLICE_BYTES / 1e6:,.0f} MB where all is looked at",
        f"{12 * ANSWER_S:.1f} s at most; {count * HISTORY_US / 1e6:.0f} s for the first clean",
        listed_mb / FOLD_COMMITS / 60 / FOLD_MB_S,
        "folding, a commit a minute",
    )


def checks() -> list[tuple[str, float, float]]:
    """Return what the model says of 1,000,000 files, and what was measured."""
    count = 10**6
    return [
        ("list of files, MB", count * LISTED_FILE_BYTES / 1e6, 20.9),
        ("record of a commit of 100,000 files, MB", 100_000 * STAT_BYTES / 1e6, 18.7),
        ("plan over all slices, s of processor", count * SLICE_US / 1e6, 10.0),
        ("clean over all file groups, s of processor", count * HISTORY_US / 1e6, 24.8),
        ("peak of either, MB", PROCESS_MB + count * SLICE_BYTES / 1e6, 1_166),
    ]


def render() -> str:
    costs = [
        a_terabyte_a_day(),
        files(),
        groups_a_minute(),
        writers(),
        keys(),
        single_groups_a_minute(),
    ]
    lines = ["| workload | requests | bytes | memory | seconds | share of its first bound |"]
    lines.append("|---|---|---|---|---|---|")
    lines += [
        f"| {one.workload} | {one.requests} | {one.bytes} | {one.memory} | {one.seconds} | "
        f"{one.share:.2g} ({one.bound}) |"
        for one in costs
    ]
    lines += ["", "| of 1,000,000 files | model | measured |", "|---|---|---|"]
    lines += [f"| {what} | {said:,.1f} | {found:,.1f} |" for what, said, found in checks()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(render())
