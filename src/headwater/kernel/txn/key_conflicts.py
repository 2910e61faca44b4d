"""One record a key: keys that a write brings against those of instants it did not see (INV-94).

Two writes that look for the same new key find it nowhere, put it into file groups of their own and
do not meet in any. So the later to commit compares its new keys with those of every candidate that
inserted into the same scope: the partition, or the whole table where a key is there once in it.

Before the lock is taken candidates are compared without a bound on rows, a part of the keys at a
time (`operations.key_comparison`). What completes meanwhile is compared inside the commit if it is
small: one batch of reads under the lock. If it is not, the commit is refused, and the caller
compares and tries again; nothing of a size that nobody knows is read under the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ConflictError, ErrorKind, Retry
from headwater.kernel.txn.changes import Change, NewKeys
from headwater.model.files import DataFile
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage

ROWS_UNDER_LOCK_MAX = 100_000
"""How many keys a commit reads under the lock, its own and those of others together."""

_NAMED_MAX = 3
"""How many keys an error names."""

LoadKeys = Callable[[Storage, Sequence[DataFile]], list[pa.ChunkedArray | None]]
"""Reads the record keys of files, all of them at once; None for a file that is gone."""


@unique
class KeyScope(StrEnum):
    """Within what a key is there once."""

    PARTITION = "partition"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Meeting:
    """Files of two writes that may hold the same new keys."""

    partition: str | None
    """None: of the whole table."""
    mine: tuple[NewKeys, ...]
    theirs: tuple[NewKeys, ...]

    @property
    def row_count(self) -> int:
        return sum(one.row_count for one in (*self.mine, *self.theirs))

    def files(self) -> Iterator[DataFile]:
        return (one.file for one in (*self.mine, *self.theirs))


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """What a write promises of its new keys, and with whom they were compared already."""

    scope: KeyScope
    compared: frozenset[InstantTime] = frozenset()
    """Candidates that have none of them."""

    def meetings(self, mine: Change, other: Change) -> list[Meeting]:
        """Return where new keys of two writes may meet, if they were not compared yet."""
        is_compared = other.instant.requested_time in self.compared
        if is_compared or not mine.inserts or not other.inserts:
            return []
        if self.scope is KeyScope.TABLE:
            return [Meeting(None, mine.inserts, other.inserts)]
        own, theirs = _by_partition(mine.inserts), _by_partition(other.inserts)
        shared = sorted(own.keys() & theirs.keys())
        return [Meeting(one, tuple(own[one]), tuple(theirs[one])) for one in shared]

    def wanted(self, mine: Change, others: Iterable[Change]) -> list[DataFile]:
        """Return the files whose keys the commit has to see, none if they are too many."""
        meetings = [one for other in others for one in self.meetings(mine, other)]
        if sum(one.row_count for one in meetings) > ROWS_UNDER_LOCK_MAX:
            return []
        return list({file.path: file for one in meetings for file in one.files()}.values())

    def find(
        self, mine: Change, others: Iterable[Change], keys: Mapping[str, pa.ChunkedArray]
    ) -> ConflictError | None:
        """Return the first conflict of keys, or that there was too much to compare.

        Args:
            keys: the record keys of files by path, as `wanted` asked for them.
        """
        unread = []
        for other in others:
            for meeting in self.meetings(mine, other):
                if any(file.path not in keys for file in meeting.files()):
                    unread.append(other.instant.requested_time)
                    continue
                shared = shared_keys(
                    [keys[one.file.path] for one in meeting.mine],
                    [keys[one.file.path] for one in meeting.theirs],
                )
                if len(shared):
                    return key_conflict(mine, other, meeting.partition, shared)
        return _not_compared(mine, unread) if unread else None


def shared_keys(
    mine: Sequence[pa.ChunkedArray], theirs: Sequence[pa.ChunkedArray]
) -> pa.ChunkedArray:
    """Return the keys that are on both sides."""
    few, many = sorted((_joined(mine), _joined(theirs)), key=len)
    return many.filter(pc.is_in(many, value_set=few))


def key_conflict(
    mine: Change, other: Change, partition: str | None, keys: pa.ChunkedArray
) -> ConflictError:
    """Return the loss of a write whose new keys another one has brought first."""
    named = ", ".join(map(repr, keys.slice(0, _NAMED_MAX).to_pylist()))
    more = f" and {len(keys) - _NAMED_MAX} more" if len(keys) > _NAMED_MAX else ""
    where = "the table" if partition is None else f"partition {partition or repr('')}"
    by = f" by {other.owner}" if other.owner else ""
    time, theirs = mine.instant.requested_time, other.instant
    return ConflictError(
        f"Write {time} and {theirs.action} {theirs.requested_time}{by} bring the same new keys to "
        f"{where}, which the other did first: {named}{more}. Nothing was committed. Write the "
        "batch again: its rows become updates",
        kind=ErrorKind.WRITE_CONFLICT,
        instant=time,
        other=theirs.requested_time,
        owner=other.owner,
        partition=partition,
    )


def _not_compared(mine: Change, others: Sequence[InstantTime]) -> ConflictError:
    return ConflictError(
        f"Others completed with new keys while write {mine.instant.requested_time} was about to "
        f"commit: {', '.join(sorted(set(others)))}. They are too many to be compared under the "
        "lock. Nothing was committed; compare them and commit again",
        kind=ErrorKind.KEYS_NOT_COMPARED,
        retry=Retry.FRESH_VIEW,
        instant=mine.instant.requested_time,
    )


def _joined(keys: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    chunks = [chunk for one in keys for chunk in one.chunks]
    return pa.chunked_array(chunks, pa.string())


def _by_partition(inserts: Iterable[NewKeys]) -> dict[str, list[NewKeys]]:
    found: dict[str, list[NewKeys]] = {}
    for one in inserts:
        found.setdefault(one.file.partition, []).append(one)
    return found
