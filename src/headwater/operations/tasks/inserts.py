"""Where new rows go when no index says: to files with room, then to new ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InsertPiece:
    """Some consecutive rows that go to one file."""

    start: int
    row_count: int
    slice_number: int | None
    """The slice in the plan whose base file they fill up; None if they become a new file."""


def plan_inserts(
    row_count: int,
    free_bytes: Mapping[int, int],
    *,
    record_size_bytes: int,
    file_size_max: int,
) -> list[InsertPiece]:
    """Return the pieces that new rows are written in, in the order of the rows.

    Args:
        free_bytes: number of a slice -> bytes by which its base file may grow.
    """
    pieces = []
    start = 0
    for number, free in free_bytes.items():
        count = min(row_count - start, free // record_size_bytes)
        if count > 0:
            pieces.append(InsertPiece(start, count, number))
            start += count
    rows_per_file = max(1, file_size_max // record_size_bytes)
    new = [
        InsertPiece(begin, min(rows_per_file, row_count - begin), None)
        for begin in range(start, row_count, rows_per_file)
    ]
    return [*pieces, *new]
