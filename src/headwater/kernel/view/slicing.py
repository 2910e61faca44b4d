"""File slices of a file group: which log files lie on which base file (format rule 4.2).

A group is cut at the requested times of its base files, and a log file belongs above the last cut
before its *completion* (INV-44): a compaction requested at B reads exactly the logs completed
before B, so a log that completes later lies on top of what the compaction writes, whenever that
log was requested.

1. Filter: a file counts only if its instant completed, by `as_of` if given. A file of any other
   instant is neither cut nor content (INV-47), so what a view shows never changes later (M7).
2. Put the output of a log compaction in the place of the logs it took in (INV-51).
3. Cut at the base files, at the pending compactions that the caller names, and once below all of
   them for the logs of a group that began without a base file (H-37).
4. Order the logs of a slice by completion time, version and write token (M8). But what an instant
   wrote beside its own base file comes first: a compaction puts there the deletes that it keeps
   (H-39), and they are older than whatever it did not take in.

A log of before version 8 has the cut that it belongs above in its name, that of a compaction that
may still be pending. The order of such logs is that of their versions, and which of their blocks
count is told by the commits that list them (N-111).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from headwater.errors import CorruptTableError, ErrorKind
from headwater.model.files import (
    BaseFile,
    FileGroupId,
    FileSlice,
    LogFile,
    OldLog,
    parse_data_file,
)
from headwater.model.instant import InstantTime

CompletionTimeOf = Callable[[InstantTime], InstantTime | None]
"""When the instant requested at a time completed; None if it did not."""

LogCompactions = Mapping[InstantTime, Collection[str]]
"""The names of the log files that each log compaction of one file group took in."""

NO_LOG_COMPACTIONS: LogCompactions = MappingProxyType({})


class _PlacedLog(NamedTuple):
    """A log file with its place in the merge order, which is that of the tuple.

    The content of a log compaction's output completed from `first_completion_time` to
    `completion_time`; for any other log the two are one.
    """

    completion_time: InstantTime
    version: int
    write_token: str
    first_completion_time: InstantTime
    file: LogFile


_COMPLETION = attrgetter("completion_time")
_FIRST_COMPLETION = attrgetter("first_completion_time")


def build_slices(
    base_files: Iterable[BaseFile],
    log_files: Iterable[LogFile],
    completion_time_of: CompletionTimeOf,
    *,
    as_of: InstantTime | None = None,
    pending_compactions: Iterable[InstantTime] = (),
    log_compactions: LogCompactions = NO_LOG_COMPACTIONS,
) -> tuple[FileSlice, ...]:
    """Return the file slices of one file group, newest first.

    `as_of` is a completion time and inclusive. CDC logs are never content. Readers leave
    `pending_compactions` out: a cut without a base file only splits what they would merge again
    (`merge_latest`). Planners name them to see which logs the pending compaction leaves.

    Raises:
        CorruptTableError: kind CORRUPT_FILE_GROUP. A log completed at the very time of a cut, an
            instant wrote two base files, or a log compaction took in what it could not have.
    """
    bases = [
        base
        for base in base_files
        if _visible_completion(base.instant_time, completion_time_of, as_of) is not None
    ]
    logs = _place_logs(list(log_files), completion_time_of, as_of, log_compactions)
    if not bases and not logs:
        return ()
    group = bases[0].group if bases else logs[0].file.group
    # A compaction below everything visible was planned for files that are not part of this view.
    firsts = (log.completion_time for log in logs[:1])  # They are in order.
    lowest = min([*(base.instant_time for base in bases), *firsts])
    pending = (time for time in pending_compactions if time > lowest)
    base_at = _bases_by_cut(group, bases, pending)
    cuts = sorted(base_at)
    written_with = {base.instant_time for base in bases}
    beside: list[list[LogFile]] = [[] for _ in range(len(cuts) + 1)]
    old, others = [], []
    for log in logs:
        file = log.file
        if file.old is not None:
            old.append((file.old.base_time, log))
        elif file.instant_time in written_with:
            beside[bisect_right(cuts, file.instant_time)].append(file)
        else:
            others.append(log)
    between = list(_between(group, others, cuts))
    for base_time, log in old:
        place = bisect_right(cuts, base_time)
        between[place] = sorted([*between[place], log])
    logs_above = [
        [*first, *(log.file for log in then)] for first, then in zip(beside, between, strict=True)
    ]
    slices = []
    if logs_above[0]:
        first = min(log.instant_time for log in logs_above[0])
        slices.append(FileSlice(group, first, None, tuple(logs_above[0])))
    for cut, above in zip(cuts, logs_above[1:], strict=True):
        done = None if base_at[cut] is None else completion_time_of(cut)
        slices.append(FileSlice(group, cut, base_at[cut], tuple(above), done))
    return tuple(reversed(slices))


def merge_latest(slices: Sequence[FileSlice]) -> FileSlice | None:
    """Return what a reader has to read of the slices of one group, which come newest first.

    A slice without base file that has others below waits for its compaction; until that
    completes, its logs are read on top of the slice before it.
    """
    logs: tuple[LogFile, ...] = ()
    for newest in slices:
        logs = newest.logs + logs
        if newest.base is not None:
            return replace(newest, logs=logs)
    if not logs:
        return None
    return FileSlice(logs[0].group, min(log.instant_time for log in logs), None, logs)


def without_logs(slices: Iterable[FileSlice]) -> list[FileSlice]:
    """Return what a read-optimised query reads of slices: their base files."""
    return [
        FileSlice(each.group, each.base_instant, each.base)
        for each in slices
        if each.base is not None
    ]


def _visible_completion(
    time: InstantTime, completion_time_of: CompletionTimeOf, as_of: InstantTime | None
) -> InstantTime | None:
    """Return when an instant completed, or None if it did not, or not by `as_of`."""
    completion_time = completion_time_of(time)
    if completion_time is None or (as_of is not None and completion_time > as_of):
        return None
    return completion_time


def _place_logs(
    log_files: Sequence[LogFile],
    completion_time_of: CompletionTimeOf,
    as_of: InstantTime | None,
    log_compactions: LogCompactions,
) -> list[_PlacedLog]:
    """Return the visible logs in merge order."""
    if not log_compactions:
        plain = _place_plain_logs(log_files, completion_time_of, as_of)
        if plain is not None:
            return plain
    placed: dict[str, _PlacedLog] = {}
    for log in log_files:
        if log.old is not None:
            seen = _as_seen(log, log.old, completion_time_of, as_of)
            if seen is not None and not log.is_cdc:
                # The first of them may bear the time of its own commit, and sorts like that.
                place = completion_time_of(log.old.base_time) or log.old.base_time
                placed[log.name] = _PlacedLog(place, log.version, log.write_token, place, seen)
            continue
        done = _visible_completion(log.instant_time, completion_time_of, as_of)
        if done is not None and not log.is_cdc:
            placed[log.name] = _PlacedLog(done, log.version, log.write_token, done, log)
    # In logs of before version 8 blocks say themselves what they stand for.
    outputs = [
        log
        for log in placed.values()
        if log.file.old is None and log.file.instant_time in log_compactions
    ]
    for output in outputs:
        inputs = log_compactions[output.file.instant_time]
        times = _content_times(output, inputs, completion_time_of, log_compactions)
        if output.file.name in placed:
            placed[output.file.name] = output._replace(
                completion_time=max(times), first_completion_time=min(times)
            )
        # The inputs go even if a later log compaction took in this one's output.
        for name in inputs:
            placed.pop(name, None)
    return sorted(placed.values())


def _place_plain_logs(
    log_files: Sequence[LogFile], completion_time_of: CompletionTimeOf, as_of: InstantTime | None
) -> list[_PlacedLog] | None:
    """Do the same for a group whose logs all are what their names say; None if it is another.

    That is most groups, and a group may have thousands of logs, so little is done for each.
    """
    placed = []
    for log in log_files:
        if log.old is not None:
            return None
        done = completion_time_of(log.instant_time)
        if done is not None and (as_of is None or done <= as_of) and not log.is_cdc:
            # Calling _PlacedLog(...) would run Python code for each.
            row = done, log.version, log.write_token, done, log
            placed.append(tuple.__new__(_PlacedLog, row))
    placed.sort()
    if any(one[:3] == other[:3] for one, other in pairwise(placed)):
        return None  # One of them is named twice.
    return placed


def _as_seen(
    log: LogFile, old: OldLog, completion_time_of: CompletionTimeOf, as_of: InstantTime | None
) -> LogFile | None:
    """Return a log of before version 8 with what counts of it by `as_of`; None if nothing does."""
    times = tuple(
        time
        for time in old.times
        if _visible_completion(time, completion_time_of, as_of) is not None
    )
    if times == old.times:
        return log
    return log._replace(old=old._replace(times=times)) if times or old.counted_before else None


def _content_times(
    output: _PlacedLog,
    inputs: Collection[str],
    completion_time_of: CompletionTimeOf,
    log_compactions: LogCompactions,
) -> list[InstantTime]:
    """Return the completion times of what a log compaction took in, directly or through others.

    The inputs may be gone from storage; their names tell enough. One that another engine took back
    after it was planned is not known any more (N-189); some of the others is.
    """
    times, unknown = list[InstantTime](), ""
    waiting = [(name, output.completion_time) for name in inputs]
    while waiting:
        name, taken_by = waiting.pop()
        log = parse_data_file(name)
        done = completion_time_of(log.instant_time) if isinstance(log, LogFile) else None
        if isinstance(log, LogFile) and done is None:
            unknown = name
            continue
        if log is None or done is None or done >= taken_by:
            raise _took_in_no_log(output, name)
        if log.instant_time in log_compactions:
            waiting += [(deeper, done) for deeper in log_compactions[log.instant_time]]
        else:
            times.append(done)
    if unknown and not times:
        raise _took_in_no_log(output, unknown)
    if not times:
        raise _corrupt(
            output.file.group, f"log compaction {output.file.instant_time} took in no log file"
        )
    return times


def _took_in_no_log(output: _PlacedLog, name: str) -> CorruptTableError:
    return _corrupt(
        output.file.group,
        f"log compaction {output.file.instant_time} took in {name}, which is no log file committed "
        "before",
    )


def _bases_by_cut(
    group: FileGroupId, bases: Iterable[BaseFile], pending: Iterable[InstantTime]
) -> dict[InstantTime, BaseFile | None]:
    base_at: dict[InstantTime, BaseFile | None] = dict.fromkeys(pending)
    for base in bases:
        other = base_at.get(base.instant_time)
        if other is not None:
            raise _corrupt(
                group,
                f"instant {base.instant_time} committed both {other.name} and {base.name}, but an "
                "instant writes one base file",
            )
        base_at[base.instant_time] = base
    return base_at


def _between(
    group: FileGroupId, logs: Sequence[_PlacedLog], cuts: Sequence[InstantTime]
) -> Iterator[Sequence[_PlacedLog]]:
    """Give the logs below the first cut, between each two of them, and above the last one."""
    # They are in order, so that cuts are looked up among logs, of which there are more.
    places = [bisect_left(logs, cut, key=_COMPLETION) for cut in cuts]
    for cut, place in zip(cuts, places, strict=True):
        if place < len(logs) and logs[place].completion_time == cut:
            # The compaction of that cut has not read the log, and the log is not above it (H-34).
            raise _corrupt(
                group,
                f"log {logs[place].file.name} completed at {cut}, when a base file of the same "
                "group was requested; two times of a table are never equal",
            )
    for below, (start, end) in zip((None, *cuts), pairwise((0, *places, len(logs))), strict=True):
        between = logs[start:end]
        first = min(between, key=_FIRST_COMPLETION, default=None)
        if below is not None and first is not None and first.first_completion_time <= below:
            time = first.file.instant_time
            reason = f"log compaction {time} took in logs of different file slices"
            raise _corrupt(group, reason)
        yield between


def _corrupt(group: FileGroupId, reason: str) -> CorruptTableError:
    return CorruptTableError(
        f"File group {group} cannot be sliced: {reason}. Roll back the instant, or restore the "
        "table to a savepoint",
        kind=ErrorKind.CORRUPT_FILE_GROUP,
        file_group=str(group),
    )
