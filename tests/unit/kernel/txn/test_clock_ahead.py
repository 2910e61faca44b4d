"""N-64: one clock that is far ahead does not take the table with it (INV-90)."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import ErrorKind, InvalidInputError, StorageError
from headwater.kernel.layout import CLOCK
from headwater.seams.clock import SystemClock
from headwater.table import Table

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("value", pa.int64())])


def open_ahead(
    monkeypatch: pytest.MonkeyPatch, table: Table, ahead_ms: int, **options: str
) -> Table:
    """Open the table in a process whose clock is ahead of the store's."""
    real = SystemClock().now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: real() + ahead_ms)
    return hw.open_table(table.storage.uri.removeprefix("file://"), dict(options))


def upsert(table: Table, value: int) -> str:
    written = table.upsert(pa.table({"id": ["a"], "value": [value]}, schema=SCHEMA))
    return str(written.instant)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = hw.create_table(tmp_path / "t", schema=SCHEMA, record_key="id")
    upsert(made, 1)
    return made


def names(table: Table) -> set[str]:
    return set(table.storage.list_names(".hoodie/timeline"))


def test_n_64_a_clock_a_year_ahead_is_refused_and_nothing_is_written(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = names(table)
    with monkeypatch.context() as patch:
        wrong = open_ahead(patch, table, YEAR_MS)
        with pytest.raises(InvalidInputError, match="Set the clock right") as raised:
            upsert(wrong, 2)
    assert raised.value.kind is ErrorKind.CLOCK_AHEAD
    assert names(table) == before
    upsert(table, 3)
    assert table.read_arrow()["value"].to_pylist() == [3]


def test_n_64_the_bound_is_an_option(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    last = upsert(table, 2)
    with monkeypatch.context() as patch:
        wrong = open_ahead(patch, table, YEAR_MS, **{"headwater.clock.ahead.max.ms": "0"})
        ahead = upsert(wrong, 3)
    assert ahead[:4] > last[:4]
    # A table that is ahead goes on from where it is.
    assert upsert(table, 4) > ahead


def test_n_64_a_tenth_of_the_bound_is_warned_of(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = open_ahead(monkeypatch, table, HOUR_MS // 2)
    with caplog.at_level(logging.WARNING):
        upsert(wrong, 2)
    assert "clock ahead of the store's" in caplog.text


def test_n_64_a_table_that_was_idle_is_written_as_ever(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store says that so much time has passed, so the clock is right."""
    later = open_ahead(monkeypatch, table, YEAR_MS)
    real = type(table.storage).info

    def info(self: object, path: str) -> object:
        found = real(self, path)  # type: ignore[arg-type]
        return found._replace(modified_ms=found.modified_ms + YEAR_MS)

    monkeypatch.setattr(type(table.storage), "info", info)
    upsert(later, 2)


@pytest.mark.parametrize("is_failing", [False, True])
def test_n_64_a_store_without_a_clock_refuses_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch, is_failing: bool
) -> None:
    wrong = open_ahead(monkeypatch, table, YEAR_MS)
    real = type(table.storage).info

    def info(self: object, path: str) -> object:
        if path != CLOCK:
            return real(self, path)  # type: ignore[arg-type]
        if is_failing:
            raise StorageError("no")
        return real(self, path)._replace(modified_ms=0)  # type: ignore[arg-type]

    monkeypatch.setattr(type(table.storage), "info", info)
    upsert(wrong, 2)


def test_n_64_the_store_is_asked_only_if_the_timeline_does_not_vouch(table: Table) -> None:
    upsert(table, 2)
    assert ".clock" not in table.storage.list_names(".hoodie")
