"""What each side of the soak writes, step by step: a step is a function of writer and number.

upserts           new keys of its own, and one key that both sides update
every operation   keys of its own in partitions of its own: each operation in turn, of which some
                  take the rows of the step before away again
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
from tests.support.tables import columns

SCHEMA = columns(
    "id string not null, city string, at long, era long, ts long, writer string, number long, "
    "ours long, theirs long"
)
CITIES = ("sf", "ny")
DAYS = (1_700_000_000, 1_710_000_000)
OWN, SHARED = 3, 4
BEGINNING = range(-SHARED, 0)
"""The numbers of our upserts before the soak; each shared key is in one of them."""
OPERATIONS = (
    "upsert",
    "insert",
    "bulk_insert",
    "delete",
    "insert",
    "insert_overwrite",
    "delete_partition",
)
"""By number. From the second insert on they go to a partition that is then replaced."""


class Step(NamedTuple):
    operation: str
    """As Hudi names it."""
    rows: pa.Table
    adds: bool = True
    """Whether the rows are there afterwards."""
    ends_previous: bool = False
    """Whether the rows of the step before are gone afterwards."""

    @property
    def partition(self) -> str:
        return f"city={self.rows['city'][0]}"


Plan = Callable[[str, int], Step]


def upserts(writer: str, number: int) -> Step:
    return Step("upsert", batch(writer, number))


def every_operation(writer: str, number: int) -> Step:
    place = number % len(OPERATIONS)
    operation = OPERATIONS[place]
    is_removal = operation.startswith("delete")
    written = number - 1 if is_removal else number
    ids = [f"{writer}-{written}-{step}" for step in range(OWN)]
    cities = [f"{writer}-{'kept' if place < 4 else 'replaced'}"] * OWN
    return Step(
        operation,
        _rows(ids, cities, writer, written),
        adds=not is_removal,
        ends_previous=is_removal or operation == "insert_overwrite",
    )


PLANS: dict[str, Plan] = {"upserts": upserts, "every operation": every_operation}


def batch(writer: str, number: int) -> pa.Table:
    """Return a batch: some new keys that nobody else has, and one that everybody updates."""
    ids = [f"{writer}-{number}-{step}" for step in range(OWN)] + [shared_key(number)]
    return _rows(ids, [CITIES[_hash(one) % len(CITIES)] for one in ids], writer, number)


def shared_key(number: int) -> str:
    return f"both-{number % SHARED}"


def _rows(ids: list[str], cities: list[str], writer: str, number: int) -> pa.Table:
    # Of two updates of a shared key none has the other's time, so what counts is never in doubt.
    same = {
        "era": number // 8,
        "ts": number * 2 + (writer == "ours"),
        "writer": writer,
        "number": number,
        # A partial update leaves what the other side said alone.
        writer: number,
    }
    rows = [
        {"id": key, "city": city, "at": DAYS[_hash(key) % len(DAYS)], **same}
        for key, city in zip(ids, cities, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _hash(key: str) -> int:
    return sum(map(ord, key))
