"""The bytewise order of many keys, in numpy.

Arrow compares whole byte strings, a call for each comparison. Here numbers are sorted: the eight
bytes behind what all keys begin with, and only where these are the same the next four bytes, until
all are told apart or the keys end. A key that ends counts as if zeros followed, so of keys that
differ in zeros at their end the shorter is first, as it is bytewise.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Longs: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]

FEW_KEYS = 2_000
"""Up to so many, Arrow's sort takes less than numpy's several calls, measured."""

_WORD_BYTES = 8
_ROWS_AT_ONCE = 64 * 1024
"""Of so many keys words are read at a time, which bounds what that holds and fits a cache."""
_TIE_BYTES = 4
_TIE_BITS = np.uint64(8 * _TIE_BYTES)


def key_order(keys: pa.Array) -> Longs:
    """Return where the keys are in ascending order of their bytes; equal ones stay in theirs.

    Args:
        keys: text or binary with offsets of 32 bits, without nulls.
    """
    rows = keys.view(pa.binary())
    if len(rows) <= FEW_KEYS:
        return np.asarray(pc.sort_indices(rows)).astype(np.int64)
    at = _common_prefix_bytes(rows)
    words = _Bytes(rows)
    first = words.at(at, _WORD_BYTES)
    order = np.argsort(first)
    _settle_ties(words, order, first[order], at + _WORD_BYTES)
    return order


def _common_prefix_bytes(keys: pa.Array) -> int:
    """Return how many bytes all of some keys begin with; there is at least one key."""
    ends = pc.min_max(keys.view(pa.binary()))
    return _shared_bytes(ends["min"].as_py(), ends["max"].as_py())


def _shared_bytes(one: bytes, other: bytes) -> int:
    """Return how many bytes two keys begin with in common."""
    size = min(len(one), len(other))
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), size)


class _Bytes:
    """Reads some bytes of each key as a number, zeros where a key has ended."""

    def __init__(self, rows: pa.BinaryArray) -> None:
        offsets = np.frombuffer(rows.buffers()[1], np.int32)[rows.offset :][: len(rows) + 1]
        data = rows.buffers()[2]
        self._data = np.frombuffer(b"" if data is None else data, np.uint8)
        if len(self._data) < _WORD_BYTES:
            self._data = np.pad(self._data, (0, _WORD_BYTES - len(self._data)))
        self._starts = offsets[:-1]
        self.lengths = np.diff(offsets)

    def at(self, place: int, size: int, rows: Longs | None = None) -> Words:
        """Return `size` bytes from `place` on, of all keys or of some."""
        count = len(self._starts) if rows is None else len(rows)
        words = np.empty(count, np.uint64)
        for start in range(0, count, _ROWS_AT_ONCE):
            some = slice(start, min(start + _ROWS_AT_ONCE, count))
            words[some] = self._some_at(place, size, some if rows is None else rows[some])
        return words

    def _some_at(self, place: int, size: int, rows: slice | Longs) -> Words:
        left = np.clip(self.lengths[rows] - place, 0, size).astype(np.int8)
        # All windows of eight bytes overlap. One that would go beyond the end is an earlier one
        # whose first bytes are shifted out.
        last = len(self._data) - _WORD_BYTES
        everywhere = np.ndarray(last + 1, (np.void, _WORD_BYTES), self._data, strides=(1,))
        wanted = self._starts[rows] + place
        found = everywhere[np.minimum(wanted, last)].view(">u8").astype(np.uint64)
        is_beyond = np.flatnonzero(wanted > last)
        if len(is_beyond):
            shifted = np.minimum(wanted[is_beyond] - last, _WORD_BYTES - 1).astype(np.uint64)
            found[is_beyond] <<= shifted * np.uint64(8)
        found &= _FIRST_BYTES[left]
        return found >> np.uint64(8 * (_WORD_BYTES - size))


_FIRST_BYTES = np.array([(1 << 64) - (1 << (64 - 8 * count)) for count in range(9)], np.uint64)
"""Masks for so many first bytes of a word."""


def _settle_ties(keys: _Bytes, order: Longs, words: Words, at: int) -> None:
    """Bring keys into order of which neighbours have the same words, and differ from a place on."""
    places, runs = _ties(words)
    while len(places):
        rows = order[places]
        lengths = keys.lengths[rows]
        if int(lengths.max()) <= at:
            # No byte differs: what is left are their lengths, then the order in which they came.
            order[places] = rows[np.lexsort((rows, lengths, runs))]
            return
        words = runs << _TIE_BITS | keys.at(at, _TIE_BYTES, rows)
        new_order = np.argsort(words)
        order[places] = rows[new_order]
        still, runs = _ties(words[new_order])
        places = places[still]
        at += _TIE_BYTES


def _ties(words: Words) -> tuple[Longs, Words]:
    """Return the places of words that have an equal neighbour, and a number for each such run."""
    is_same = words[1:] == words[:-1]
    begins_run = np.append(True, ~is_same)
    has_twin = np.append(False, is_same) | np.append(is_same, False)
    places = np.flatnonzero(has_twin)
    return places, np.cumsum(begins_run[places]).astype(np.uint64)
