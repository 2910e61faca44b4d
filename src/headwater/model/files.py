"""Data files: their names, the file groups they belong to, and file slices (format rule 4.1).

    base file  <file id>_<write token>_<T>.<extension>
    log file   .<file id>_<T>.log.<version>_<write token>
    CDC log    the name of a log file, then .cdc

T is the requested time of the instant that wrote the file, for log files too. A file group is all
files of one file id in one partition; a file slice is a base file with the log files on top of it.

Before table version 8 the name of a log file has the time of the base file below it instead, and
several commits may have appended to it; see `OldLog`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from headwater.model.instant import InstantTime

BASE_FILE_EXTENSIONS = ("parquet", "hfile", "orc", "lance")

_BASE_FILE = re.compile(
    rf"([^_./][^_/]*)_([^_/]+)_([0-9]+)\.({'|'.join(BASE_FILE_EXTENSIONS)})", re.ASCII
)
_LOG_FILE = re.compile(
    r"\.([^_./][^_/]*)_([0-9]+)\.log\.([0-9]+)_([0-9]+-[0-9]+-[0-9]+)(\.cdc)?", re.ASCII
)


class FileGroupId(NamedTuple):
    """All files of one id in one partition; the partition is "" in a table without partitions."""

    partition: str
    file_id: str

    def __str__(self) -> str:
        return _join(self.partition, self.file_id)


# Tuples, because a table may hold millions of files.
class BaseFile(NamedTuple):
    """A file of whole rows."""

    partition: str
    file_id: str
    write_token: str
    instant_time: InstantTime
    extension: str = "parquet"
    size_bytes: int = 0

    @property
    def group(self) -> FileGroupId:
        return FileGroupId(self.partition, self.file_id)

    @property
    def name(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.instant_time}.{self.extension}"

    @property
    def path(self) -> str:
        """The path relative to the table's base."""
        return _join(self.partition, self.name)


class OldLog(NamedTuple):
    """What is known of a log file whose name does not tell who wrote it (before version 8).

    Only its blocks tell, and only those of completed commits count (N-111).
    """

    base_time: InstantTime
    """The time in its name: that of the base file, or of the compaction that will write it."""
    times: tuple[InstantTime, ...]
    """The commits that list it, by requested time."""
    counted_before: InstantTime
    """The blocks of all instants before this one count as well: they are archived."""

    def counts(self, time: InstantTime) -> bool:
        """Whether blocks of an instant count."""
        return time < self.counted_before or time in self.times


class LogFile(NamedTuple):
    """A file of changes to a file group, or with `is_cdc` of what a change feed shows of them."""

    partition: str
    file_id: str
    instant_time: InstantTime
    version: int
    write_token: str
    is_cdc: bool = False
    size_bytes: int = 0
    old: OldLog | None = None
    """Of tables before version 8; `instant_time` is then that of the last commit that lists it."""

    @property
    def group(self) -> FileGroupId:
        return FileGroupId(self.partition, self.file_id)

    @property
    def name(self) -> str:
        ending = ".cdc" if self.is_cdc else ""
        time = self.instant_time if self.old is None else self.old.base_time
        stem = f".{self.file_id}_{time}.log"
        return f"{stem}.{self.version}_{self.write_token}{ending}"

    @property
    def path(self) -> str:
        """The path relative to the table's base."""
        return _join(self.partition, self.name)


DataFile = BaseFile | LogFile


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A base file and the log files to merge on top of it, in merge order.

    `base_instant` is the requested time of the base file. Without one it is the requested time of
    the compaction that will write it, or of the first of the logs in a group that never had one.
    """

    group: FileGroupId
    base_instant: InstantTime
    base: BaseFile | None
    logs: tuple[LogFile, ...] = ()
    base_completion: InstantTime | None = field(default=None, compare=False)
    """When the base file came to be there, if the slice is one of a view."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files())

    @property
    def kept_deletes(self) -> tuple[LogFile, ...]:
        """The logs that were written with the base file: deletes of records that it has not."""
        if self.base is None:
            return ()
        return tuple(
            log for log in self.logs if log.instant_time == self.base_instant and log.old is None
        )

    @property
    def logs_of_other_keys(self) -> tuple[LogFile, ...]:
        """The logs that may hold keys which the base file has not.

        Beside deletes that were kept these are those of writes that had begun when the base file
        came. They may have found a key in the base file before it, which had been deleted, so that
        the compaction has left it out (N-172).
        """
        if self.base is None:
            return self.logs
        came = self.base_completion or self.base_instant
        return tuple(log for log in self.logs if log.instant_time <= came)

    @property
    def appended_logs(self) -> tuple[LogFile, ...]:
        """The logs that were written on top of the slice."""
        kept = self.kept_deletes
        return tuple(log for log in self.logs if log not in kept) if kept else self.logs

    def files(self) -> Iterator[DataFile]:
        """Give the base file, then the log files."""
        if self.base is not None:
            yield self.base
        yield from self.logs


def write_token(task: int, attempt: int, task_attempt: int) -> str:
    """Return the token that keeps files of different tasks and attempts apart.

    `attempt` is the number of the execution of the whole instant; `task_attempt` counts how often
    the engine ran this task.
    """
    return f"{task}-{attempt}-{task_attempt}"


def attempt_of(token: str) -> int | None:
    """Return the number of the execution that a token tells; None if it is not one of ours."""
    parts = token.split("-")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else None


@lru_cache(8_192)  # The names of a table come again with every look at it.
def parse_data_file(path: str, size_bytes: int = 0) -> DataFile | None:
    """Return the data file that a path relative to the table's base names; None if it names none.

    A version with leading zeros is no name of a data file: it could not be told from another.
    """
    partition, _, name = path.rpartition("/")
    match = _BASE_FILE.fullmatch(name)
    if match is not None:
        file_id, token, time, extension = match.groups()
        return BaseFile(partition, file_id, token, InstantTime(time), extension, size_bytes)
    match = _LOG_FILE.fullmatch(name)
    if match is None:
        return None
    file_id, time, version, token, cdc = match.groups()
    if len(version) > 1 and version.startswith("0"):
        return None
    is_cdc = cdc is not None
    return LogFile(partition, file_id, InstantTime(time), int(version), token, is_cdc, size_bytes)


def is_file_of(
    path: str,
    time: InstantTime,
    *,
    before_attempt: int | None = None,
    attempt: int | None = None,
) -> bool:
    """Whether a path names a data file of an instant, and if asked for of such an execution."""
    file = parse_data_file(path)
    if file is None or file.instant_time != time:
        return False
    number = attempt_of(file.write_token)
    if attempt is not None and number != attempt:
        return False
    return before_attempt is None or (number is not None and number < before_attempt)


def _join(partition: str, name: str) -> str:
    return f"{partition}/{name}" if partition else name
