"""Collecting a task's rows by file group, within a bound on memory.

Rows arrive in any order and leave one file group after the other. While they fit, they stay in
memory as slices of the incoming batches. Beyond the bound everything held is moved to local disk,
one Arrow file per group and move, and is mapped when its group's turn comes: so a task holds about
the bound, also of a group that alone is more. A local disk that fails while it is looked at ends
the process, as it does with all that is mapped; nothing was committed then.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from headwater.seams.system_errors import naming_scratch

K = TypeVar("K", bound=tuple[str, int])


class HeldGroup(NamedTuple, Generic[K]):
    """The rows of one group, as they arrived; they can be gone through once."""

    group: K
    size_bytes: int
    batches: Iterator[pa.RecordBatch]


class GroupBuffer(Generic[K]):
    """Use as a context manager: leaving it removes what was moved to disk."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._held: dict[K, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._group_bytes: dict[K, int] = {}
        self._moved: dict[K, list[str]] = {}
        self._moved_count = 0
        self._folder: str | None = None

    def __enter__(self) -> GroupBuffer[K]:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, batch: pa.RecordBatch, group_numbers: np.ndarray, groups: list[K]) -> None:
        """Sort a batch in: row i belongs to `groups[group_numbers[i]]`."""
        if batch.num_rows == 0:
            return
        if len(groups) == 1:
            self._hold(groups[0], batch)
        else:
            # A stable radix sort on a small type is ten times faster than on int32.
            small = group_numbers.astype(np.uint16 if len(groups) <= 65_536 else np.uint32)
            order = np.argsort(small, kind="stable")
            ends = np.cumsum(np.bincount(small, minlength=len(groups)))
            sorted_batch = batch.take(pa.array(order))
            start = 0
            for group, end in zip(groups, ends.tolist(), strict=True):
                if end > start:
                    self._hold(group, sorted_batch.slice(start, end - start))
                start = end
        self._held_bytes += batch.nbytes
        if self._held_bytes > self._memory_bytes:
            self._move_to_disk()

    @property
    def groups(self) -> list[K]:
        """The groups that rows were added to, in the order in which they are drained."""
        return sorted(self._group_bytes)

    def drain(self) -> Iterator[tuple[K, pa.Table]]:
        """Give the groups in ascending order, each with its rows as they arrived; forget them."""
        for held in self.drain_batches():
            yield held.group, pa.Table.from_batches(list(held.batches))

    def drain_batches(self) -> Iterator[HeldGroup[K]]:
        """Give the same, of groups of which not all is to be looked at together."""
        for group in self.groups:
            yield HeldGroup(group, self._group_bytes.pop(group), self._take_batches(group))

    def _take_batches(self, group: K) -> Iterator[pa.RecordBatch]:
        yield from self._read_back(group)
        yield from self._held.pop(group, [])

    def _hold(self, group: K, batch: pa.RecordBatch) -> None:
        self._held.setdefault(group, []).append(batch)
        self._group_bytes[group] = self._group_bytes.get(group, 0) + batch.nbytes

    def _move_to_disk(self) -> None:
        if self._folder is None:
            with naming_scratch():
                self._folder = tempfile.mkdtemp(prefix="headwater-write-")
        for group, batches in self._held.items():
            path = os.path.join(self._folder, str(self._moved_count))
            self._moved_count += 1
            with (
                naming_scratch(self._folder),
                pa.OSFile(path, "wb") as sink,
                pa.ipc.new_file(sink, batches[0].schema) as writer,
            ):
                for batch in batches:
                    writer.write_batch(batch)
            self._moved.setdefault(group, []).append(path)
        self._held.clear()
        self._held_bytes = 0

    def _read_back(self, group: K) -> Iterator[pa.RecordBatch]:
        for path in self._moved.get(group, ()):
            with naming_scratch(self._folder):
                # Mapped, not read: what is not looked at just now need not be in memory. The file
                # goes for good once nobody looks at it any more.
                reader = pa.ipc.open_file(pa.memory_map(path))
                os.unlink(path)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
