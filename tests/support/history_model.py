"""What a table must answer after any history of writes, told by plain dicts.

It shares no code with the product. A key has a record, or a delete that is remembered because it
has an ordering value, or nothing. What comes meets what is there:

- a record or an ordered delete replaces what has no larger ordering value; otherwise it is late and
  changes nothing;
- a delete without ordering value leaves nothing, not even the memory of a delete;
- a record that brings only some columns keeps the others of the record that it replaces.

The rows of one batch meet each other first. A table that cannot remember deletes, because it has
base files only, forgets them at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Row = dict[str, Any]
Key = tuple[str | None, str]
"""Partition and id; the partition is left out where a key is there once in the whole table."""

DELETED = "_hoodie_is_deleted"


class Record(NamedTuple):
    row: Row
    write: int


class Remembered(NamedTuple):
    """A delete that hides what comes late."""

    ts: Any
    city: str | None


State = Record | Remembered


def ordering_key(value: Any) -> tuple[Any, ...]:
    """Null, then numbers as Java has them: -0.0 before 0.0, and NaN last."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value, isinstance(value, int) or math.copysign(1.0, value) > 0)


def comparable(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return a row as a value that is equal to itself: NaN is NaN, and -0.0 is not 0.0."""
    return tuple((name, repr(v) if isinstance(v, float) else v) for name, v in sorted(row.items()))


@dataclass
class Model:
    """The state of a table. Ids are there once in each city, or once if the index is global."""

    is_global: bool
    moves: bool
    """Whether a record goes to the city that a row of its id claims."""
    is_ordered: bool
    """Whether ordering values decide, and not just who came last."""
    remembers: bool
    states: dict[Key, State] = field(default_factory=dict)

    def copied(self) -> dict[Key, State]:
        return dict(self.states)

    def key(self, row: Mapping[str, Any]) -> Key:
        return (None if self.is_global else row["city"], row["id"])

    def records(self) -> dict[Key, Record]:
        return {key: one for key, one in self.states.items() if isinstance(one, Record)}

    def rows(self) -> list[Row]:
        return [one.row for one in self.records().values()]

    def _wins(self, new: Any, old: Any) -> bool:
        return not self.is_ordered or ordering_key(new) >= ordering_key(old)

    def _is_plain_delete(self, row: Row) -> bool:
        return bool(row.get(DELETED)) and not (self.is_ordered and row["ts"] is not None)

    def upsert(self, rows: Iterable[Row], write: int, columns: Iterable[str]) -> None:
        """Write rows; columns that they lack are kept, or null where there is no record."""
        batch: dict[Key, Row] = {}
        for row in rows:
            key = self.key(row)
            before = batch.get(key)
            is_forgotten = before is not None and self._is_plain_delete(before)
            if (
                before is None
                or is_forgotten
                or self._is_plain_delete(row)
                or self._wins_in_batch(row, before)
            ):
                batch[key] = row
        for key, row in batch.items():
            self._meet(key, row, write, tuple(columns))

    def _wins_in_batch(self, new: Row, old: Row) -> bool:
        return not self.is_ordered or ordering_key(new["ts"]) >= ordering_key(old["ts"])

    def _meet(self, key: Key, row: Row, write: int, columns: tuple[str, ...]) -> None:
        old = self.states.get(key)
        if self._is_plain_delete(row):
            self.states.pop(key, None)
            return
        old_ts = old.row["ts"] if isinstance(old, Record) else None if old is None else old.ts
        if old is not None and not self._wins(row["ts"], old_ts):
            return
        if row.get(DELETED):
            if self.remembers:
                city = old.row["city"] if isinstance(old, Record) else row["city"]
                self.states[key] = Remembered(row["ts"], city)
            else:
                self.states.pop(key, None)
            return
        kept = dict(old.row) if isinstance(old, Record) else {}
        written = {**dict.fromkeys(columns), **kept, **row}
        if isinstance(old, Record) and self.is_global and not self.moves:
            written["city"] = old.row["city"]
        self.states[key] = Record(written, write)

    def delete(self, keys: Iterable[Mapping[str, Any]]) -> None:
        for one in keys:
            self.states.pop(self.key(one), None)

    def drop_city(self, city: str | None) -> None:
        for key, one in list(self.states.items()):
            if (one.row["city"] if isinstance(one, Record) else one.city) == city:
                del self.states[key]

    def clear(self) -> None:
        self.states.clear()

    def add_column(self, name: str) -> None:
        for key, one in self.states.items():
            if isinstance(one, Record):
                self.states[key] = Record({**one.row, name: None}, one.write)


class Condition(NamedTuple):
    """A comparison of a column with a literal, as SQL and as Python has it."""

    column: str
    operator: str
    literals: tuple[Any, ...] = ()

    def text(self) -> str:
        if self.operator in ("IS NULL", "IS NOT NULL"):
            return f"{self.column} {self.operator}"
        shown = [f"'{one}'" if isinstance(one, str) else repr(one) for one in self.literals]
        if self.operator == "IN":
            return f"{self.column} IN ({', '.join(shown)})"
        return f"{self.column} {self.operator} {shown[0]}"

    def holds(self, row: Row) -> bool:
        value = row[self.column]
        if self.operator == "IS NULL":
            return value is None
        if self.operator == "IS NOT NULL":
            return value is not None
        if value is None:
            return False
        there = _sql_key(value)
        asked = [_sql_key(one) for one in self.literals]
        if self.operator == "IN":
            return there in asked
        other = asked[0]
        return {
            "=": there == other,
            "!=": there != other,
            "<": there < other,
            "<=": there <= other,
            ">": there > other,
            ">=": there >= other,
        }[self.operator]


def _sql_key(value: Any) -> tuple[Any, ...]:
    """SQL's order of values: -0.0 is 0.0, and NaN is larger than every number."""
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, value)
