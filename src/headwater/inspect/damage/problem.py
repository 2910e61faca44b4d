"""A problem of a table: what is wrong with what, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import TypeVar

import pyarrow as pa

from headwater.context import TableContext
from headwater.errors import HeadwaterError
from headwater.files.ahead import AHEAD_BYTES_MAX, windows
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage

T = TypeVar("T")

_AT_ONCE = 256
"""How many files are looked at before the problems of any of them are told."""

SCHEMA = pa.schema(
    [
        pa.field("check", pa.string(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("problem", pa.string(), nullable=False),
        pa.field("instant", pa.string()),  # Since when, if that is known.
        pa.field("at_stake", pa.string()),  # Which rows.
        pa.field("advice", pa.string(), nullable=False),
        pa.field("repair", pa.string()),  # What `headwater fsck --repair` would do about it.
    ]
)

FROM_COPY = "restore the file from a copy, or the table to a savepoint from before"
ONLY_FROM_COPY = "restore the file from a copy; going back to a savepoint needs it as well"
FROM_JOURNAL = "let `headwater fsck --repair` write it again, from the journal"
BUILD_AGAIN = "drop the index and build it again; reads and writes do without it meanwhile"


@unique
class Repair(StrEnum):
    """What is safe to do: nothing that a commit lists is touched."""

    ROLL_BACK = "roll back what dead writers left"
    BUILD_INDEXES = "drop the indexes and build them again"
    WRITE_FILES = "write what the journal has into files again"
    DELETE_LATE = "delete what no commit lists"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with what, and what to do."""

    check: str
    subject: str
    problem: str
    advice: str
    instant: InstantTime | None = None
    at_stake: str | None = None
    repair: Repair | None = None


def each(
    storage: Storage,
    problem_of: Callable[[T], str | None],
    items: Sequence[T],
    sizes: Sequence[int],
) -> Iterator[tuple[T, str | None]]:
    """Give each item with what is wrong with it; several are looked at at a time."""
    for window in windows(items, sizes, AHEAD_BYTES_MAX, items_max=_AT_ONCE):
        yield from zip(window, storage.at_once(problem_of, window), strict=True)


def unreadable(check: str, table: TableContext, error: HeadwaterError) -> Problem:
    is_index = check == "indexes"
    from_copy = ONLY_FROM_COPY if check == "timeline" else FROM_COPY
    return Problem(
        check=check,
        subject=str(error.context.get("path", table.storage.uri)),
        problem=str(error),
        advice=BUILD_AGAIN if is_index else from_copy,
        repair=Repair.BUILD_INDEXES if is_index else None,
    )
