"""Services that run by themselves, after a write or in a loop."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.tables import NUMBERS, numbers, table_at

import headwater as hw
from headwater.errors import ConflictError, ErrorKind, InvalidInputError, StorageError
from headwater.services.table_services import Service, TableServicesReport, run_round, run_until


def rows(value: int) -> pa.Table:
    return numbers("ab", value)


def new_table(folder: Path, table_type: str = "MERGE_ON_READ", **options: str) -> hw.Table:
    shape = table_at(folder / "t", NUMBERS, ordering="ts", table_type=table_type, buckets=1)
    return shape.with_options({key.replace("_", "."): options[key] for key in options}).create()


def actions(table: hw.Table) -> list[str]:
    return [str(action) for action in table.inspect.timeline()["action"].to_pylist()]


def test_nothing_runs_after_a_write_unless_it_is_asked_for(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for value in range(12):
        table.upsert(rows(value))
    assert actions(table) == ["deltacommit"] * 12


def test_a_write_compacts_when_enough_was_written(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, hoodie_compact_inline="true", hoodie_compact_inline_max_delta_commits="3"
    )
    for value in range(7):
        table.upsert(rows(value))
    compactions = [action for action in actions(table) if action in ("compaction", "commit")]
    assert len(compactions) == 2
    assert table.read_arrow()["value"].to_pylist() == [6, 6]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.some(1)
def test_a_write_cleans_and_archives(tmp_path: Path, table_type: str) -> None:
    table = new_table(
        tmp_path,
        table_type,
        hoodie_compact_inline="true",
        hoodie_compact_inline_max_delta_commits="1",
        hoodie_clean_automatic="true",
        hoodie_clean_commits_retained="1",
        hoodie_archive_automatic="true",
        hoodie_keep_min_commits="3",
        hoodie_keep_max_commits="4",
    )
    for value in range(16):
        table.upsert(rows(value))
    assert "clean" in actions(table)
    assert table.inspect.timeline().num_rows < 16
    files = list((tmp_path / "t").glob("*.parquet"))
    assert 1 <= len(files) < 6
    assert table.read_arrow()["value"].to_pylist() == [15, 15]


def test_a_service_that_fails_leaves_the_write_and_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(
        tmp_path, "COPY_ON_WRITE", hoodie_clean_automatic="true", hoodie_archive_automatic="true"
    )
    archived = []

    def fail() -> None:
        raise StorageError("the store is away", path="x")

    monkeypatch.setattr(table.services, "clean", fail)
    monkeypatch.setattr(table.services, "archive", lambda: archived.append(1))
    commit = table.upsert(rows(1))
    assert table.read_arrow()["value"].to_pylist() == [1, 1]
    assert commit.inserted == 2
    assert archived == [1]
    assert "the store is away" in caplog.text


class StopAfterTwo(threading.Event):
    """Comes in the pause after the second round."""

    pauses = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses += 1
        if self.pauses == 2:
            self.set()
        return super().wait(timeout)


def test_a_loop_makes_rounds_until_it_is_told_to_stop(tmp_path: Path) -> None:
    table = new_table(tmp_path, hoodie_compact_inline_max_delta_commits="2")
    for value in range(4):
        table.upsert(rows(value))
    report = table.services.run_forever(StopAfterTwo(), run=["compaction", "archive"], pause_s=0.05)
    assert report.rounds == 2
    assert dict(+report.done) == {Service.COMPACTION: 1}, "the second round found nothing to do"
    assert not report.failed
    assert "commit" in actions(table) or "compaction" in actions(table)
    assert table.read_arrow()["value"].to_pylist() == [3, 3]


def test_a_loop_that_is_told_before_it_begins_does_nothing(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert run_until({}, list(Service), stop, pause_s=60) == TableServicesReport()


def test_a_service_that_another_process_runs_counts_neither_way() -> None:
    def is_running() -> bool:
        raise ConflictError("already running", kind=ErrorKind.ALREADY_RUNNING)

    report = TableServicesReport()
    run_round({Service.CLEAN: is_running}, [Service.CLEAN], report)
    assert (report.rounds, dict(report.done), dict(report.failed)) == (1, {}, {})


def test_a_service_that_does_not_exist(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(InvalidInputError, match="'compress'; there are compaction"):
        table.services.run_forever(threading.Event(), run=["compress"])
