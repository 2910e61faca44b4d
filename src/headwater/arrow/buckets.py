"""Bucket of a record key, exactly as format rule 4.3 has it.

`bucket = (listHash(values) & 0x7fffffff) % bucket_count`, where the values come out of the key:

- a key that lacks `,` or lacks `:` is one value as a whole;
- any other is `field:value,field:value,...`. A value may hold both characters: a colon opens a new
  pair if it is the first one of the key, or if a comma lies between it and the colon before; the
  pair begins after the last such comma. `__null__` and `__empty__` stand for null and "", which
  both hash to 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.arrow.java_hash import (
    Int32s,
    Int64s,
    SpanHasher,
    TextPiece,
    UInt32s,
    powers,
    text_pieces,
)
from headwater.errors import InvalidInputError

NULL_PLACEHOLDER = "__null__"
EMPTY_PLACEHOLDER = "__empty__"

_Bools: TypeAlias = npt.NDArray[np.bool_]
_Units: TypeAlias = npt.NDArray[Any]


def bucket_ids(
    record_keys: pa.Array | pa.ChunkedArray,
    bucket_count: int,
    *,
    hash_fields: Sequence[str] | None = None,
) -> Int32s:
    """Return the bucket of every record key.

    Args:
        hash_fields: fields of a COMPLEX key to hash, in the order of the key; none means all. A
            key with none of them is hashed whole.

    Raises:
        InvalidInputError: the keys are not text or not UTF-8, or there is no bucket.
    """
    if bucket_count < 1:
        raise InvalidInputError(f"A table needs at least one bucket, got {bucket_count}")
    hashes = list_hashes(record_keys, hash_fields=hash_fields)
    return ((hashes & np.int32(0x7FFFFFFF)) % np.int64(bucket_count)).astype(np.int32)


def list_hashes(
    record_keys: pa.Array | pa.ChunkedArray, *, hash_fields: Sequence[str] | None = None
) -> Int32s:
    """Return Java's `List.hashCode` of the values in every record key."""
    fields = tuple(field for field in hash_fields or () if field)
    hashes = [_piece_hashes(piece, SpanHasher(piece), fields) for piece in text_pieces(record_keys)]
    return np.concatenate([np.zeros(0, dtype=np.uint32), *hashes]).view(np.int32)


def _piece_hashes(piece: TextPiece, hasher: SpanHasher, fields: tuple[str, ...]) -> UInt32s:
    hashes = hasher.hashes(piece.starts, piece.ends) + np.uint32(31)
    colons = np.flatnonzero(piece.units == ord(":"))
    commas = np.flatnonzero(piece.units == ord(","))
    if len(colons) == 0 or len(commas) == 0:
        return hashes
    is_complex = _contains(piece, colons) & _contains(piece, commas)
    if is_complex.any():
        _hash_pairs(piece, hasher, is_complex, colons, commas, fields, hashes)
    return hashes


def _contains(piece: TextPiece, positions: Int64s) -> _Bools:
    """Return which rows hold any of some positions."""
    claims: _Bools = np.searchsorted(positions, piece.starts) < np.searchsorted(
        positions, piece.ends
    )
    return claims


def _hash_pairs(
    piece: TextPiece,
    hasher: SpanHasher,
    is_complex: _Bools,
    colons: Int64s,
    commas: Int64s,
    fields: tuple[str, ...],
    hashes: UInt32s,
) -> None:
    """Overwrite the hashes of the rows that are lists of pairs."""
    # A colon in the undefined bytes behind a null lies outside of every row.
    row_of_colon = np.searchsorted(piece.ends, colons, side="right")
    row_of_colon = np.minimum(row_of_colon, len(piece.ends) - 1)
    is_inside = (
        is_complex[row_of_colon]
        & (colons >= piece.starts[row_of_colon])
        & (colons < piece.ends[row_of_colon])
    )
    colons, row_of_colon = colons[is_inside], row_of_colon[is_inside]

    is_first = np.ones(len(colons), dtype=np.bool_)
    is_first[1:] = row_of_colon[1:] != row_of_colon[:-1]
    before = np.searchsorted(commas, colons) - 1
    last_comma = np.where(before >= 0, commas[np.maximum(before, 0)], -1)
    previous_colon = np.concatenate([[-1], colons[:-1]])
    opens = is_first | (last_comma > previous_colon)
    colons, row, is_first, last_comma = (
        colons[opens],
        row_of_colon[opens],
        is_first[opens],
        last_comma[opens],
    )

    is_last = np.append(is_first[1:], True)
    next_comma = np.append(last_comma[1:], 0)
    starts = colons + 1
    ends = np.where(is_last, piece.ends[row], next_comma)
    if fields:
        name_starts = np.where(is_first, piece.starts[row], last_comma + 1)
        is_hashed = np.zeros(len(row), dtype=np.bool_)
        for field in fields:
            is_hashed |= _spells(piece.units, name_starts, colons, field)
        starts, ends, row = starts[is_hashed], ends[is_hashed], row[is_hashed]
    if len(row) == 0:
        return
    values = hasher.hashes(starts, ends)
    for placeholder in (NULL_PLACEHOLDER, EMPTY_PLACEHOLDER):
        values[_spells(piece.units, starts, ends, placeholder)] = 0
    _fold_lists(values, row, hashes)


def _fold_lists(values: UInt32s, row: Int64s, hashes: UInt32s) -> None:
    """Set each row's hash to that of its list: `31**n + sum(value[i] * 31**(n-1-i))`."""
    firsts = np.flatnonzero(np.append(True, row[1:] != row[:-1]))
    counts = np.diff(np.append(firsts, len(row)))
    scale = powers(31, int(counts.max()) + 1)
    remaining = np.repeat(firsts + counts, counts) - 1 - np.arange(len(row))
    folded = np.add.reduceat(values * scale[remaining], firsts, dtype=np.uint32)
    hashes[row[firsts]] = folded + scale[counts]


def _spells(units: _Units, starts: Int64s, ends: Int64s, text: str) -> _Bools:
    """Return which spans of units are the given text."""
    wanted = np.frombuffer(text.encode("utf-16-le"), dtype="<u2")
    claims: _Bools = (ends - starts) == len(wanted)
    candidates = np.flatnonzero(claims)
    for place, unit in enumerate(wanted):
        candidates = candidates[units[starts[candidates] + place] == unit]
    claims = np.zeros(len(starts), dtype=np.bool_)
    claims[candidates] = True
    return claims
