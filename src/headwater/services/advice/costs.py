"""What file slices cost whoever reads them, and whoever writes them anew, in bytes."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.model.files import FileSlice
from headwater.services.advice.worth import FILE_BYTES


def amplification(slices: Iterable[FileSlice]) -> float:
    """Return how much more reading slices costs than if they were compacted.

    A file that is opened counts as `FILE_BYTES`; a compacted slice is as large as its base file, or
    as its logs where there is none.
    """
    now = compacted = 0
    for one in slices:
        now += one.size_bytes + sum(1 for _ in one.files()) * FILE_BYTES
        compacted += (_base_bytes(one) or one.size_bytes) + FILE_BYTES
    return now / compacted if compacted else 1.0


def log_count(slices: Iterable[FileSlice]) -> int:
    return sum(len(one.appended_logs) for one in slices)


def log_bytes(slices: Iterable[FileSlice]) -> int:
    return sum(log.size_bytes for one in slices for log in one.appended_logs)


def base_bytes(slices: Iterable[FileSlice]) -> int:
    return sum(map(_base_bytes, slices))


def compaction_gain(*slices: FileSlice) -> int:
    """Return what a read is spared if the logs of slices are in their base files."""
    return log_bytes(slices) + log_count(slices) * FILE_BYTES


def compaction_cost(*slices: FileSlice) -> int:
    """Return what is read and written: all of it, and about as much as the base files hold."""
    return sum(one.size_bytes + (_base_bytes(one) or one.size_bytes) for one in slices)


def log_compaction_gain(*slices: FileSlice) -> int:
    """Return what a read is spared if slices have one log each."""
    return (log_count(slices) - len(slices)) * FILE_BYTES


def log_compaction_cost(*slices: FileSlice) -> int:
    return 2 * log_bytes(slices)


def rewrite_cost(*slices: FileSlice) -> int:
    """Return what reading slices and writing all of them again costs."""
    return 2 * sum(one.size_bytes for one in slices)


def _base_bytes(one: FileSlice) -> int:
    return 0 if one.base is None else one.base.size_bytes
