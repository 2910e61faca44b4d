"""Compacting the metadata table: what a plan takes in, and how one file group is folded.

The compaction's own time is the completion time C of the newest completed instant of the data table
(see `compaction_time`), and it takes in the logs that completed before C. The data table's timeline
holds C, so every time issued later is larger, however wrong a clock is (H-45): whatever completes
after the plan lies on top of what the plan writes. A time of the metadata table's own would be
known to nobody who issues completion times. And no instant is ever requested at a completion time,
so the compaction clashes with no delta commit, which have the requested times of data instants.
The logs of the instant that completed at C stay on top of the new base file, for us and for others
(`metadata_slices`).

Records of an instant must not be folded while it may still be rolled back (INV-72). All that
completed on the metadata table but not on the data table is such an instant: a crash fell between
the two files. Its rollback, or the next attempt of the plan, takes it off the metadata table's
timeline; until then `held_back_by` names it, and no compaction is planned. Instants that merely
are pending hold nothing back: they complete later than C.

A plan leaves out partitions that an index build is at work on (INV-80), and file groups without
logs: their base files stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headwater.errors import CorruptTableError, ErrorKind
from headwater.files.hfiles import open_hfile
from headwater.kernel.timeline.active import Timeline
from headwater.metadata.bootstrap import encode_base_file
from headwater.metadata.hfile_records import records_of_hfile
from headwater.metadata.merge_records import load_logged, merge_records
from headwater.metadata.partition_files import base_stat, is_initial_log, is_own
from headwater.metadata.slices import MetadataSlice
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import BaseFile, DataFile, LogFile, parse_data_file, write_token
from headwater.model.instant import Action, InstantTime
from headwater.model.plans import CompactionOperation, CompactionPlan
from headwater.seams.storage import Storage


def commits_since_compaction(own: Timeline) -> int:
    """Return how many delta commits completed since the newest compaction was planned.

    Counted as Hudi counts them: those that built the first indexes are delta commits like others.
    """
    cut = _newest_plan(own)
    done = (i for i in own.completed if i.action.completed_name is Action.DELTA_COMMIT)
    return sum(1 for instant in done if (instant.completion_time or "") > cut)


def commits_ahead_of_hudi(commits: int) -> int:
    """Return after how many delta commits to compact, where Hudi's jobs do so after `commits`.

    A process of Hudi 1.2 whose first act on a metadata table is its compaction fails, and so does
    every write of it after that (INV-113). So it must find fewer delta commits than it compacts
    after, with its own first one, and with those of writers who have not come to their upkeep yet.
    """
    return max(1, commits - max(1, commits // 5))


def compaction_time(timeline: Timeline, own: Timeline) -> InstantTime | None:
    """Return the time of a compaction that is planned now; None if nothing happened since the last.

    `timeline` is the data table's, and both are as of one moment under the table lock.
    """
    if not timeline.completed:
        return None
    time = timeline.completed[-1].completion_time
    return None if time is None or time <= _newest_plan(own) else time


def held_back_by(
    timeline: Timeline, own: Timeline, archived: Iterable[InstantTime]
) -> tuple[InstantTime, ...]:
    """Return the instants for whose end a compaction has to wait: see above.

    `archived` are those of the data table's archived timeline, of the ones that `unaccounted` gave.
    """
    known = frozenset(archived)
    return tuple(time for time in unaccounted(timeline, own) if time not in known)


def unaccounted(timeline: Timeline, own: Timeline) -> tuple[InstantTime, ...]:
    """Return what told the indexes and is not completed on the data table's active timeline."""
    times = (i.requested_time for i in own.completed if not is_own(i))
    found = ((time, timeline.find(time)) for time in times)
    return tuple(sorted(time for time, i in found if i is None or not i.is_completed))


def plan_metadata_compaction(
    slices: Mapping[str, Iterable[MetadataSlice]],
) -> CompactionPlan | None:
    """Return what folds the given slices, by partition; None if none of them has logs.

    The slices are those below the compaction's time (`newest_slices`).
    """
    operations = [
        _operation(partition, one)
        for partition in sorted(slices)
        for one in slices[partition]
        if any(not is_initial_log(log) for log in one.logs)
    ]
    return CompactionPlan(operations=tuple(operations)) if operations else None


def input_names(operation: CompactionOperation) -> set[str]:
    """Return the bare names of the files that an operation reads."""
    paths = [*(operation.delta_file_paths or ()), operation.data_file_path or ""]
    # Plans of before version 2 hold whole paths.
    return {path.rpartition("/")[2] for path in paths if path}


class Folded(NamedTuple):
    """A base file that is not written yet, and what the commit says about it."""

    path: str
    data: bytes
    stat: WriteStat


def fold(
    storage: Storage, operation: CompactionOperation, time: InstantTime, attempt: int, task: int
) -> Folded:
    """Return the base file of one file group. It is held in memory.

    `storage` is the metadata table's own.

    Raises:
        CorruptTableError: a file is missing or damaged, or the plan names what is no data file.
    """
    partition, file_id = operation.partition_path or "", operation.file_id or ""
    base = _file(partition, operation.data_file_path) if operation.data_file_path else None
    logs = [_file(partition, name) for name in operation.delta_file_paths or ()]
    before = base if isinstance(base, BaseFile) else None
    taken = [log for log in logs if isinstance(log, LogFile)]
    logged = load_logged(storage, taken)
    held = None
    if before is not None:
        opened = open_hfile(storage, before.path)
        held = records_of_hfile(opened, opened.read_all())
    entries = merge_records(partition, logged, base=held)
    file = BaseFile(partition, file_id, write_token(task, attempt, 0), time)
    file, data = encode_base_file(file, entries)
    stat = base_stat(file, written=len(entries), before=before, logs=taken)
    return Folded(file.path, data, stat)


def _newest_plan(own: Timeline) -> str:
    """Return the time of the newest compaction, planned or completed; empty if there is none."""
    plans = (i for i in own.instants if i.action in (Action.COMPACTION, Action.COMMIT))
    return max((instant.requested_time for instant in plans), default="")


def _operation(partition: str, one: MetadataSlice) -> CompactionOperation:
    first = one.logs[0].instant_time
    size_bytes = sum(log.size_bytes for log in one.logs)
    return CompactionOperation(
        base_instant_time=first if one.base is None else one.base.instant_time,
        delta_file_paths=tuple(log.name for log in one.logs),
        data_file_path=None if one.base is None else one.base.name,
        file_id=one.file_id,
        partition_path=partition,
        metrics={
            "TOTAL_LOG_FILES": float(len(one.logs)),
            "TOTAL_LOG_FILES_SIZE": float(size_bytes),
        },
    )


def _file(partition: str, name: str) -> BaseFile | LogFile:
    # Plans of before version 2 hold whole paths.
    file = parse_data_file(f"{partition}/{name.rpartition('/')[2]}")
    if file is None:
        raise CorruptTableError(
            f"A compaction plan of the metadata table names {name!r}, which is no data file",
            kind=ErrorKind.CORRUPT_METADATA_TABLE,
            path=name,
        )
    return file


def obsolete_files(
    files: Iterable[DataFile],
    completion_time_of: Callable[[InstantTime], InstantTime | None],
    retained: InstantTime,
) -> list[DataFile]:
    """Return the files that only readers from before the compaction `retained` can need.

    Of each file group these are the base files before the newest one as of that compaction, and the
    logs that this one has folded. What did not complete is left to whoever rolls it back.
    """
    groups: dict[tuple[str, str], list[DataFile]] = {}
    for file in files:
        groups.setdefault((file.partition, file.file_id), []).append(file)
    found: list[DataFile] = []
    for members in groups.values():
        bases = (
            file.instant_time
            for file in members
            if isinstance(file, BaseFile)
            and file.instant_time <= retained
            and completion_time_of(file.instant_time) is not None
        )
        cut = max(bases, default=None)
        if cut is None:
            continue
        for file in members:
            done = completion_time_of(file.instant_time)
            begun = file.instant_time if isinstance(file, BaseFile) else done
            if done is not None and begun is not None and begun < cut:
                found.append(file)
    return found
