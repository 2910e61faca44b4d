"""A reader of many Avro records at once: one cursor for each, all at the same field."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.format.avro.binary import MalformedAvroError
from headwater.format.avro.vectors import (
    Bytes,
    Longs,
    Mask,
    bytes_of,
    data_of,
    read_bytes,
    read_fixed,
    read_lengths,
    read_longs,
    take_spans,
)

_VALUE_BRANCH = 2
_BRANCH_BYTE_MAX = 127


class RowReader:
    """Reads fields of all rows, or of some, and moves their cursors behind what was read.

    Methods raise `MalformedAvroError` for bytes that do not fit the field.
    """

    def __init__(self, values: pa.Array) -> None:
        wide = values.cast(pa.large_binary())
        if wide.null_count:
            raise MalformedAvroError("a record that is null")
        self._data = data_of(wide)
        self._view = bytes_of(self._data)
        offsets = np.zeros(1, np.int64)
        if len(wide):
            offsets = np.frombuffer(wide.buffers()[1], np.int64)[wide.offset :][: len(wide) + 1]
        offsets = offsets - offsets[0]
        self._at, self._ends = offsets[:-1].copy(), offsets[1:]

    def __len__(self) -> int:
        return len(self._at)

    def check_end(self) -> None:
        """Check that every row was read to its end."""
        if not np.array_equal(self._at, self._ends):
            raise MalformedAvroError("records that end elsewhere than they should")

    def bytes(self, rows: Longs | None = None) -> Bytes:
        """Read one byte."""
        found, after = read_bytes(self._view, self._cursors(rows))
        self._move(rows, after)
        return found

    def branches(self) -> Longs:
        """Read the branch of a union of at most 64 types."""
        found = self.bytes().astype(np.int64)
        if (found > _BRANCH_BYTE_MAX).any() or (found & 1).any():
            raise MalformedAvroError("a branch that no union has")
        return found >> 1

    def has_value(self) -> Mask:
        """Read the branch of a union of null and a type."""
        found = self.bytes()
        if ((found != 0) & (found != _VALUE_BRANCH)).any():
            raise MalformedAvroError("a branch that no union has")
        return np.asarray(found == _VALUE_BRANCH)

    def check_null(self) -> None:
        """Read a union that must be null in all rows."""
        if self.bytes().any():
            raise MalformedAvroError("a field of another kind of record")

    def booleans(self) -> pa.BooleanArray:
        found = self.bytes()
        if (found > 1).any():
            raise MalformedAvroError("a boolean that is not 0 or 1")
        return pa.array(found == 1)

    def longs(self, rows: Longs | None = None) -> Longs:
        found, after = read_longs(self._view, self._cursors(rows))
        self._move(rows, after)
        return found

    def optional_longs(self) -> pa.Int64Array:
        valid = self.has_value()
        numbers = np.zeros(len(valid), np.int64)
        rows = np.flatnonzero(valid)
        numbers[rows] = self.longs(rows)
        return pa.array(numbers, mask=~valid)

    def fixed(self, size: int, rows: Longs) -> Bytes:
        """Read so many bytes of some rows, as the rows of a matrix."""
        found, after = read_fixed(self._view, self._cursors(rows), size)
        self._move(rows, after)
        return found

    def spans(self, valid: Mask) -> pa.BinaryArray:
        """Read byte sequences of the valid rows; the others become null."""
        rows = np.flatnonzero(valid)
        if not len(rows):
            return pa.nulls(len(valid), pa.binary())
        lengths, starts = read_lengths(self._view, self._cursors(rows))
        self._move(rows, starts + lengths)
        return take_spans(self._data, starts, lengths, valid).cast(pa.binary())

    def texts(self) -> pa.StringArray:
        return self._text(self.spans(np.ones(len(self), np.bool_)))

    def optional_texts(self) -> pa.StringArray:
        return self._text(self.spans(self.has_value()))

    def optional_texts_of(self, rows: Mask) -> pa.StringArray:
        """Read a union of null and text in some rows; the others become null."""
        places = np.flatnonzero(rows)
        found = self.bytes(places)
        if ((found != 0) & (found != _VALUE_BRANCH)).any():
            raise MalformedAvroError("a branch that no union has")
        valid = np.zeros(len(self), np.bool_)
        valid[places] = found == _VALUE_BRANCH
        return self._text(self.spans(valid))

    def _cursors(self, rows: Longs | None) -> Longs:
        # A copy, since the readers of numbers move the cursors they are given.
        return np.array(self._at if rows is None else self._at[rows])

    def _move(self, rows: Longs | None, after: Longs) -> None:
        ends = self._ends if rows is None else self._ends[rows]
        if (after > ends).any():
            raise MalformedAvroError("a record that is cut short")
        if rows is None:
            self._at = after
        else:
            self._at[rows] = after

    def _text(self, spans: pa.BinaryArray) -> pa.StringArray:
        try:
            return spans.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise MalformedAvroError("text that is no UTF-8") from error
