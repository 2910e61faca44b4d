"""Rows on their way, and where each of them was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.errors import InvalidInputError
from headwater.ingest.bad_rows import BadRow, BadRows

_BAD = (InvalidInputError, pa.ArrowInvalid, pa.ArrowTypeError, UnicodeDecodeError, OverflowError)
"""What is raised about values; all else is about the world, and stops the job."""

Make = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows of one file, partition of a topic or table, with the place of each, counted from 1."""

    rows: pa.RecordBatch
    origin: str
    positions: pa.Array

    def slice(self, start: int, length: int | None = None) -> SourceRows:
        return SourceRows(
            self.rows.slice(start, length), self.origin, self.positions.slice(start, length)
        )

    def replaced_by(self, rows: pa.RecordBatch) -> SourceRows:
        """Return as many other rows in the same places."""
        return SourceRows(rows, self.origin, self.positions)


def row_as_json(row: pa.RecordBatch) -> str:
    """Return the one row of a batch as people read it."""
    values = {name: _readable(row.column(name)[0]) for name in row.schema.names}
    return json.dumps(values, default=str, ensure_ascii=False)


def _readable(value: pa.Scalar) -> Any:
    """Return a value as people read it, also if it is bad because it cannot be read."""
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        bad: bytes = error.object
        return bad.decode(errors="replace")


def made(
    given: SourceRows,
    make: Make,
    bad: BadRows,
    raw: Callable[[pa.RecordBatch], str] = row_as_json,
) -> tuple[SourceRows, pa.RecordBatch] | None:
    """Return what `make` makes of rows, beside the rows it is made of; bad ones are left out.

    None stands for no good rows at all.

    Raises:
        InvalidInputError: kind BAD_ROWS; there are more than the job allows.
    """
    parts = list(_made_in_parts(given, make, bad, raw))
    if len(parts) < 2:
        return parts[0] if parts else None
    # Together again, so that what follows does not go from a few rows to the next.
    rows = pa.concat_batches([part.rows for part, _ in parts])
    positions = pa.concat_arrays([part.positions for part, _ in parts])
    return (
        SourceRows(rows, given.origin, positions),
        pa.concat_batches([result for _, result in parts]),
    )


def _made_in_parts(
    given: SourceRows, make: Make, bad: BadRows, raw: Callable[[pa.RecordBatch], str]
) -> Iterator[tuple[SourceRows, pa.RecordBatch]]:
    """Try rows that cannot be made of as a whole in parts: a few bad ones cost few tries."""
    untried = [given]
    while untried:
        part = untried.pop()
        try:
            result = make(part.rows)
        except _BAD as error:
            if part.rows.num_rows > 1:
                untried += reversed(_parts_around(part, error))
            else:
                place = part.positions[0].as_py()
                bad.add(BadRow(part.origin, place, reason_of(error), raw(part.rows)))
        else:
            yield part, result


def _parts_around(given: SourceRows, error: Exception) -> list[SourceRows]:
    """Return rows in parts: the bad one by itself if the error tells it as `row`, or halves."""
    count = given.rows.num_rows
    at = error.context.get("row") if isinstance(error, InvalidInputError) else None
    if at is None or at >= count:
        return [given.slice(0, count // 2), given.slice(count // 2)]
    parts = [given.slice(0, at), given.slice(at, 1), given.slice(at + 1)]
    return [part for part in parts if part.rows.num_rows]


def reason_of(error: Exception) -> str:
    """Return what is wrong in one line."""
    text = error.message if isinstance(error, InvalidInputError) else str(error)
    return " ".join(text.split())
