"""The records of a build, file group by file group and in the order of their keys.

A build may have any number of records and holds few of them: beyond a bound they are moved to local
disk by file group, as they come. A file group is then read back and sorted. One that is more than
may be held is shared out on disk once more, by ranges of keys that a sample of them bounds.

Where many records have few values, as those of the record index do (one for all rows that came to
a file group together), values are numbers until the very last: a record takes its key and 4 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.key_order import key_order
from headwater.engine.group_buffer import GroupBuffer, HeldGroup
from headwater.format.hfile.writer import HFilePart, encode_part
from headwater.format.metadata.index_definitions import IndexVersion
from headwater.metadata.partition_kinds import groups_of_keys
from headwater.metadata.records import MetadataRecords
from headwater.seams.parallel_stream import parallel_stream

HELD_BYTES_MAX = 32 * 1024 * 1024
"""What is held of all file groups before it is moved to disk. With what is sorted and encoded at a
time, and with 140 MB of modules, a process stays below 512 MB."""
SORTED_BYTES_MAX = 40 * 1024 * 1024
"""What is sorted at once: more than a million keys of 24 bytes, and as much again for their order.
A file group of more is read and written twice."""
PART_BYTES = 1024 * 1024
"""What a thread encodes at once; entries take two or three times as much."""
SAMPLED_BYTES = 32 * 1024
"""One key of so many bytes is remembered, a thousand for each range that they will bound."""

Group: TypeAlias = tuple[str, int]


class EncodedPart(NamedTuple):
    """Some records of a file group."""

    group: int
    group_bytes: int
    """How much all records of the file group were when they came."""
    part: HFilePart


class RecordSorter:
    """Takes the records of one partition in any order. Use as a context manager.

    Of records with the same key the one that came last counts.
    """

    def __init__(
        self,
        partition: str,
        group_count: int,
        version: IndexVersion = IndexVersion.V2,
        *,
        held_bytes_max: int = HELD_BYTES_MAX,
        sorted_bytes_max: int = SORTED_BYTES_MAX,
    ) -> None:
        self._partition = partition
        self._group_count = group_count
        self._version = version
        self._held_bytes_max = held_bytes_max
        self._sorted_bytes_max = sorted_bytes_max
        self._buffer = GroupBuffer[Group](held_bytes_max)
        self._groups: list[Group] = [("", number) for number in range(group_count)]
        self._values: list[pa.BinaryArray] = []
        """What the numbers in place of values stand for."""
        self._value_count = 0
        self._sampled: list[tuple[pa.StringArray, npt.NDArray[np.int64]]] = []

    def __enter__(self) -> RecordSorter:
        return self

    def __exit__(self, *error: object) -> None:
        self._buffer.__exit__(*error)

    def add_all(self, pieces: Iterable[MetadataRecords]) -> None:
        """Take records, all of them with values of one kind; removed keys are not looked at."""
        numbered = (self._numbered(piece) for piece in pieces if len(piece.keys))
        for batch, groups in parallel_stream(self._with_groups, numbered):
            self._buffer.add(batch, groups, self._groups)
            step = max(1, SAMPLED_BYTES * batch.num_rows // max(1, batch.nbytes))
            self._sampled.append((batch["key"][::step], groups[::step]))

    def encoded(self) -> Iterator[EncodedPart]:
        """Give all records, by file group and key, and forget them.

        Raises:
            InvalidInputError: a key is too long.
        """
        dictionary = pa.concat_arrays(self._values) if self._values else None
        return parallel_stream(lambda piece: piece.encoded(dictionary), self._pieces())

    def _numbered(self, piece: MetadataRecords) -> pa.RecordBatch:
        values = piece.values
        if isinstance(values, pa.DictionaryArray):
            self._values.append(values.dictionary)
            values = pc.add(
                values.indices.cast(pa.int32()), pa.scalar(self._value_count, pa.int32())
            )
            self._value_count += len(piece.values.dictionary)
        return pa.record_batch({"key": piece.keys, "value": values})

    def _with_groups(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        return batch, groups_of_keys(
            self._partition, batch["key"], self._group_count, self._version
        )

    def _pieces(self) -> Iterator[_Piece]:
        for held in self._buffer.drain_batches():
            for rows in self._ranges(held):
                yield from _cut(rows, held)

    def _ranges(self, held: HeldGroup[Group]) -> Iterator[pa.RecordBatch]:
        """Give the records of a file group by ranges of their keys, each as they came."""
        if held.size_bytes <= self._sorted_bytes_max:
            yield _one_batch(held.batches)
            return
        bounds = self._bounds(held)
        ranges: list[Group] = [("", number) for number in range(len(bounds) + 1)]
        with GroupBuffer[Group](self._held_bytes_max) as shared:
            for batch in held.batches:
                shared.add(batch, _range_numbers(batch["key"], bounds), ranges)
            for one in shared.drain_batches():
                yield _one_batch(one.batches)

    def _bounds(self, held: HeldGroup[Group]) -> pa.StringArray:
        """Return keys between which there are about as many bytes as may be sorted at once."""
        number = held.group[1]
        sampled = pa.concat_arrays(
            [keys.filter(pa.array(groups == number)) for keys, groups in self._sampled]
        )
        # Twice as many as would do: a sample does not divide evenly.
        count = min(len(sampled), -(-2 * held.size_bytes // self._sorted_bytes_max))
        places = np.linspace(0, len(sampled), count, endpoint=False).astype(np.int64)[1:]
        return sampled.take(pa.array(key_order(sampled)[places])).unique()


class _Piece(NamedTuple):
    """Some neighbours in the order of the keys, and the one behind them if there is one."""

    group: Group
    group_bytes: int
    rows: pa.RecordBatch
    order: npt.NDArray[np.int64]
    has_next: bool

    def encoded(self, dictionary: pa.BinaryArray | None) -> EncodedPart:
        keys = self.rows["key"].take(pa.array(self.order))
        ends_run = np.ones(len(keys), np.bool_)
        ends_run[:-1] = np.asarray(pc.not_equal(keys[:-1], keys[1:]).cast(pa.uint8())) == 1
        if self.has_next:
            ends_run[-1] = False
        if not ends_run.all():
            keys = keys.filter(pa.array(ends_run))
        values = self.rows["value"].take(pa.array(self.order[ends_run]))
        if dictionary is not None:
            is_few = len(dictionary) < len(values)
            values = (
                pa.DictionaryArray.from_arrays(values, dictionary)
                if is_few
                else dictionary.take(values)
            )
        return EncodedPart(self.group[1], self.group_bytes, encode_part(keys, values))


def _cut(rows: pa.RecordBatch, held: HeldGroup[Group]) -> Iterator[_Piece]:
    """Sort records, and give them in the pieces that threads encode."""
    order = key_order(rows["key"])
    step = max(1, PART_BYTES * rows.num_rows // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, step):
        end = start + step
        has_next = end < rows.num_rows
        # Whether a record counts is seen at the one behind it.
        yield _Piece(held.group, held.size_bytes, rows, order[start : end + has_next], has_next)


def _one_batch(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(list(batches)).combine_chunks().to_batches()[0]


def _range_numbers(keys: pa.StringArray, bounds: pa.StringArray) -> npt.NDArray[np.int64]:
    """Return how many of some ascending bounds are not above each key."""
    # A bound comes before a key that equals it, as the order keeps that of equals.
    order = key_order(pa.concat_arrays([bounds, keys]))
    is_bound = order < len(bounds)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(is_bound)
    return numbers[len(bounds) :]
