"""File slices of the metadata table: what counts of a partition's files, as a pure function.

Its files are sliced as those of every table, at the requested times of base files and by the
completion times of logs (format rule 4.2), with two differences:

- a file counts only if its instant is completed on both timelines, the metadata table's and the
  data table's (INV-72); the caller says so with `completion_time_of`;
- a log that completed at the very time of a base file lies on top of it. A compaction of the
  metadata table takes the completion time of an instant of the data table for its own time (see
  `metadata.services`), and has not taken in what that instant logged.

Only the newest slice of a group is of interest: nobody travels in time in an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headwater.model.files import BaseFile, DataFile, LogFile
from headwater.model.instant import InstantTime


@dataclass(frozen=True, slots=True)
class MetadataSlice:
    """The newest base file of a file group, and the logs on top of it in merge order."""

    file_id: str
    base: BaseFile | None
    logs: tuple[LogFile, ...]

    @property
    def cut(self) -> InstantTime | None:
        return None if self.base is None else self.base.instant_time


def newest_slices(
    files: Iterable[DataFile],
    completion_time_of: Callable[[InstantTime], InstantTime | None],
    *,
    below: InstantTime | None = None,
) -> dict[str, MetadataSlice]:
    """Return the newest slice of each file group of one partition, by file id.

    A group is there as soon as it has any file, whether one of them counts or not: the number of
    groups is fixed before anything is committed (INV-75).

    Args:
        below: leave out what a compaction of this time must not take in: base files as of then or
            later, and logs that completed then or later.
    """
    groups: dict[str, list[DataFile]] = {}
    for file in files:
        groups.setdefault(file.file_id, []).append(file)
    return {
        file_id: _newest_slice(file_id, groups[file_id], completion_time_of, below)
        for file_id in sorted(groups)
    }


def _newest_slice(
    file_id: str,
    files: list[DataFile],
    completion_time_of: Callable[[InstantTime], InstantTime | None],
    below: InstantTime | None,
) -> MetadataSlice:
    bases = [
        file
        for file in files
        if isinstance(file, BaseFile)
        and completion_time_of(file.instant_time) is not None
        and (below is None or file.instant_time < below)
    ]
    base = max(bases, key=lambda file: file.instant_time, default=None)
    placed = []
    for file in files:
        if not isinstance(file, LogFile):
            continue
        done = completion_time_of(file.instant_time)
        if done is None or (base is not None and done < base.instant_time):
            continue
        if below is None or done < below:
            placed.append((done, file.version, file.write_token, file))
    return MetadataSlice(file_id, base, tuple(file for *_, file in sorted(placed)))
