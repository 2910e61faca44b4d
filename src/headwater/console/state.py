"""What a table looks like, as one value of JSON, and what changed between two looks.

A look is made of sections, and a section of rows by key, so that a change is told as the rows that
are new or other and the keys that are gone: of ten thousand instants only the one that completed is
sent. Nothing in a row changes by itself: a heartbeat has the time of its last beat, and its age is
for whoever shows it to count.

What costs little is looked at each time: the timeline, heartbeats, the lock and plans. What is read
from more files is taken from the look before, unless the timeline says that it may have changed;
and what is read from many, file groups, advice and conflicts, is looked at now and then only,
however fast others commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError, UnsupportedError
from headwater.model.summary import summary_of

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.table import Table

Row = Mapping[str, Any]
Section = Mapping[str, Row]
Sections = Mapping[str, Section]

FILE_GROUPS_MAX = 5_000
"""How many file groups are shown, the largest; the others are counted."""

HEAVY_EVERY_MS = 5_000
"""How long what is read from many files is left alone after it was looked at."""

_NO_ROWS: Section = {}
_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Look:
    """A table as it was at one moment."""

    now: str
    """That moment, in the digits of the timeline."""
    now_ms: int
    sections: Sections
    heavy_ms: int
    """When what is read from many files was looked at."""
    is_stale: bool
    """Whether that may have changed since."""

    def section(self, name: str) -> Section:
        return self.sections.get(name, _NO_ROWS)


def load_look(
    table: Table, before: Look | None = None, *, heavy_every_ms: int = HEAVY_EVERY_MS
) -> Look:
    """Look at a table. What cannot be read is said in the section `troubles`, not raised."""
    inspect, loader = table.inspect, _Loader(before)
    now_ms = table.context.clock.now_ms()
    loader.load("instants", lambda: keyed(inspect.timeline(), "requested_time", "action"))
    plans = loader.load("plans", lambda: _plans(inspect.plans()))
    is_changed = loader.is_changed()
    # What is built grows without a word on the timeline.
    is_indexing = any(plan["action"] == "indexing" for plan in plans.values())
    loader.load("heartbeats", lambda: _heartbeats(inspect.heartbeats()))
    loader.load("locks", lambda: keyed(inspect.locks(), "key"))
    loader.load_if(is_changed or is_indexing, "indexes", lambda: keyed(inspect.indexes(), "index"))
    is_stale = before is None or before.is_stale or is_changed
    heavy_ms = 0 if before is None else before.heavy_ms
    # A clock that was put back must not put it off.
    is_due = is_stale and not 0 <= now_ms - heavy_ms < heavy_every_ms
    loader.load_if(is_due, "groups", lambda: _groups(inspect.slices()))
    loader.load_if(is_due, "advice", lambda: _advice(table))
    loader.load_if(is_due, "conflicts", lambda: keyed(inspect.conflicts(), "instant", "outcome"))
    return Look(
        now=str(table.context.now()),
        now_ms=now_ms,
        sections={**loader.loaded, "troubles": loader.troubles},
        heavy_ms=now_ms if is_due else heavy_ms,
        is_stale=is_stale and not is_due,
    )


class _Loader:
    """Loads the sections of one look, after another one."""

    def __init__(self, before: Look | None) -> None:
        self._before = before
        self.loaded: dict[str, Section] = {}
        self.troubles: dict[str, Row] = {}

    def load(self, name: str, load: Callable[[], Section]) -> Section:
        """Return a section, or the one of before where it cannot be read."""
        known = self._known(name)
        try:
            rows = load()
        except HeadwaterError as error:
            self.troubles[name] = {"section": name, "kind": str(error.kind), "error": str(error)}
            rows = known
        # If it is the same, then as the same object, so that nobody compares it again.
        self.loaded[name] = known if rows == known else rows
        return self.loaded[name]

    def load_if(self, is_wanted: bool, name: str, load: Callable[[], Section]) -> Section:
        """Return a section, or the one of before unless that is wanted anew or was not read."""
        if self._before is None or is_wanted or name in self._before.section("troubles"):
            return self.load(name, load)
        self.loaded[name] = self._known(name)
        return self.loaded[name]

    def is_changed(self) -> bool:
        """Whether any section that was loaded is other than before."""
        return any(rows is not self._known(name) for name, rows in self.loaded.items())

    def _known(self, name: str) -> Section:
        return _NO_ROWS if self._before is None else self._before.section(name)


def changes_between(before: Sections | None, after: Sections) -> dict[str, Any]:
    """Return what to tell somebody who knows `before`: rows by key, None for what is gone."""
    told = {}
    for name, rows in after.items():
        known = _NO_ROWS if before is None else before.get(name, _NO_ROWS)
        if known is rows:
            continue
        changed: dict[str, Row | None] = {
            key: row for key, row in rows.items() if known.get(key) != row
        }
        changed |= {key: None for key in known if key not in rows}
        if changed:
            told[name] = changed
    return told


def keyed(rows: pa.Table, *keys: str) -> Section:
    """Return the rows of an answer of `t.inspect` by the values of some columns.

    A value may be missing: a heartbeat of another engine, or of an attempt that begins, has none.
    """
    return {" ".join(str(row.get(key, "")) for key in keys): row for row in plain_rows(rows)}


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as JSON has them; times as milliseconds, and without what is null."""
    return [
        {name: plain(value) for name, value in row.items() if value is not None}
        for row in rows.to_pylist()
    ]


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if type(value) in _PLAIN:
        return value
    match value:
        case Enum():
            return value.value
        case datetime():
            return int(value.timestamp() * 1000)
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(one) for one in value]
        case _:
            return str(value)


def _plans(rows: pa.Table) -> Section:
    return keyed(rows.drop_columns(["heartbeat_age_ms"]), "instant")


def _heartbeats(rows: pa.Table) -> Section:
    found = keyed(rows.drop_columns(["age_ms"]), "instant", "attempt")
    return {key: row for key, row in found.items() if not row.get("is_released")}


def _groups(slices: pa.Table) -> Section:
    """Return the largest file groups; the row `""` says how many there are in all."""
    rows = plain_rows(slices.drop_columns(["base_file"]))
    largest = sorted(rows, key=_size_of, reverse=True)[:FILE_GROUPS_MAX]
    shown: dict[str, Row] = {f"{row['partition']}/{row['file_id']}": row for row in largest}
    total = {
        "file_groups": len(rows),
        "base_size_bytes": sum(row.get("base_size_bytes", 0) for row in rows),
        "log_size_bytes": sum(row["log_size_bytes"] for row in rows),
    }
    return {"": total, **shown}


def _size_of(row: Row) -> int:
    return int(row.get("base_size_bytes", 0)) + int(row["log_size_bytes"])


def _advice(table: Table) -> Section:
    """Return what the table's services advise, in their order."""
    try:
        given = table.services.advise()
    except UnsupportedError:
        return _NO_ROWS  # Nobody can do anything to such a table.
    return {f"{number:03d}": _advice_row(one) for number, one in enumerate(given)}


def _advice_row(given: Any) -> Row:
    return {name: value for name, value in summary_of(given).items() if value is not None}
