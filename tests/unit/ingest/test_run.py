"""Jobs from their files to the rows in the table: each file once, whatever comes in between."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.tables import FAST, MOR, a_table, columns, table_at

import headwater as hw
from headwater.config.write import ConcurrencyMode
from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptTableError,
    ErrorKind,
    FencedError,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
    Retry,
    StorageError,
)
from headwater.ingest import run as run_module
from headwater.ingest.checkpoint import load_notes
from headwater.ingest.folder import FolderBatch
from headwater.ingest.job import (
    FileFormat,
    FolderSource,
    Job,
    QuarantineRule,
    TableSource,
    Target,
)
from headwater.ingest.job_file import PATTERNS
from headwater.ingest.run import Ingestion, is_passing, opened_job
from headwater.ingest.table_changes import ChangesBatch
from headwater.model.operation import Operation
from headwater.table import Table

SCHEMA = "id string not null, value long"
AFTER = "SELECT after.id AS id, after.value AS value FROM source"
"""What a change leaves, as rows of the schema."""


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return a_table(tmp_path, SCHEMA).create()


def job_of(table: Table, landing: Path, format: FileFormat = FileFormat.JSON, **more: Any) -> Job:
    source = FolderSource(
        path=str(landing), format=format, patterns=PATTERNS[format], **more.pop("source", {})
    )
    target = Target(path=table.uri, options=FAST, **more.pop("target", {}))
    return Job(name=more.pop("name", "job"), source=source, target=target, **more)


def quarantine(tmp_path: Path, **more: Any) -> QuarantineRule:
    return QuarantineRule(path=str(tmp_path / "bad"), options=FAST, **{"share_max": 1.0, **more})


def put(folder: Path, name: str, *rows: dict[str, Any] | str) -> Path:
    """Put a file of JSON lines."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def row(id: str, value: int | None = 0) -> dict[str, Any]:
    return {"id": id, "value": value}


def run(job: Job) -> list[int]:
    """Run a job to its end; return how many rows each batch wrote."""
    with opened_job(job) as ingestion:
        return [report.written for report in iter(ingestion.run_batch, None)]


def rows_in(table: Table) -> dict[str, int]:
    return {each["id"]: each["value"] for each in table.read_arrow().to_pylist()}


def bad_in(tmp_path: Path) -> list[dict[str, Any]]:
    rows = hw.open_table(tmp_path / "bad").read_arrow().to_pylist()
    return sorted(rows, key=lambda each: (each["source"], each["position"]))


def test_each_file_goes_in_once(table: Table, landing: Path) -> None:
    job = job_of(table, landing, target={"operation": Operation.INSERT})
    put(landing, "one.json", row("a", 1), row("b", 2))
    assert run(job) == [2]
    assert run(job) == []

    table.upsert(pa.table({"id": ["a"], "value": [7]}))  # Shows if the file came again.
    put(landing, "deep/two.jsonl", row("c", 3))
    (landing / "three.json.gz").write_bytes(gzip.compress(b'{"id": "d", "value": 4}'))
    assert sum(run(job)) == 2

    assert rows_in(table) == {"a": 7, "b": 2, "c": 3, "d": 4}


def test_all_formats_go_into_one_table(table: Table, tmp_path: Path) -> None:
    for kind in (FileFormat.PARQUET, FileFormat.CSV, FileFormat.JSON):
        name = str(kind)
        folder = tmp_path / name
        folder.mkdir()
        match kind:
            case FileFormat.PARQUET:
                pq.write_table(pa.table({"id": [name], "value": [1]}), folder / "a.parquet")
            case FileFormat.CSV:
                (folder / "a.csv").write_text(f"id,value\n{name},1\n")
            case _:
                put(folder, "a.json", row(name, 1))
        assert run(job_of(table, folder, kind, name=name)) == [1]

    assert rows_in(table) == {"parquet": 1, "csv": 1, "json": 1}
    assert {name: len(list(load_notes(table.context, name))) for name in ("csv", "none")} == {
        "csv": 1,
        "none": 0,
    }


def test_files_of_whoever_still_writes_are_left_alone(table: Table, landing: Path) -> None:
    for name in ("_tmp.json", ".a.json", "_temporary/a.json", ".hidden/b.json", "a.json.part"):
        put(landing, name, row(name))
    assert run(job_of(table, landing)) == []


def test_young_files_wait(table: Table, landing: Path) -> None:
    job = job_of(table, landing, source={"min_age_ms": 3_600_000})
    path = put(landing, "a.json", row("a"))
    assert run(job) == []
    os.utime(path, (1, 1))
    assert run(job) == [1]


def test_batches_are_bounded_by_files_and_bytes(table: Table, landing: Path) -> None:
    for number in range(5):
        path = put(landing, f"{number}.json", row(str(number)))
        os.utime(path, (number, number))
    assert run(job_of(table, landing, source={"files_max": 2})) == [2, 2, 1]
    size = path.stat().st_size
    job = job_of(table, landing, name="bytes", source={"bytes_max": 3 * size})
    assert run(job) == [3, 2]
    job = job_of(table, landing, name="small", source={"bytes_max": 1})
    assert run(job) == [1] * 5


def test_a_file_that_changes_afterwards_is_said_and_not_read_again(
    table: Table, landing: Path
) -> None:
    job = job_of(table, landing)
    put(landing, "a.json", row("a", 1))
    run(job)
    put(landing, "a.json", row("a", 2), row("z", 2))
    assert run(job) == []

    with opened_job(job) as ingestion:
        assert ingestion.run_batch() is None
        (warning,) = ingestion.source.warnings

    assert "1 files have changed since they were taken, and are not read again: a.json" in warning
    put(landing, "b.json", row("b", 1))
    assert run(job) == [1]
    assert rows_in(table) == {"a": 1, "b": 1}


def test_a_folder_without_files_is_said(table: Table, tmp_path: Path) -> None:
    with opened_job(job_of(table, tmp_path / "tpyo")) as ingestion:
        assert ingestion.run_batch() is None
        (warning,) = ingestion.source.warnings
    assert warning.startswith("There is no file *.json, ")
    assert warning.endswith("tpyo")


@pytest.mark.parametrize("name", [b"caf\xe9.json", b"a\nb.json", b"caf\xe9/c.json"])
def test_a_file_with_a_name_that_nobody_can_keep_is_said_and_left_out(
    table: Table, landing: Path, name: bytes
) -> None:
    odd = landing / os.fsdecode(name)
    odd.parent.mkdir(exist_ok=True)
    odd.write_text(json.dumps(row("odd", 1)))
    put(landing, "a.json", row("a", 1))
    with opened_job(job_of(table, landing)) as ingestion:
        assert ingestion.look().next.startswith("1 file,")
        (warning,) = ingestion.source.warnings
        assert all((warning.isprintable(), ascii(str(odd.relative_to(landing))) in warning))
        assert ingestion.run_batch() is not None
    odd.rename(landing / "b.json")
    assert run(job_of(table, landing)) == [1]
    assert rows_in(table) == {"a": 1, "odd": 1}


def test_a_file_that_changes_while_it_is_read_is_left_for_later(
    table: Table, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(landing, "a.json", row("a"))
    growing = put(landing, "b.json", row("b"))
    vanishing = put(landing, "c.json", row("c"))
    read = FolderBatch.read

    def and_meanwhile(self: FolderBatch, bad: Any) -> Any:
        if vanishing.exists():
            vanishing.unlink()
            yield from read(self, bad)
            put(landing, growing.name, row("b"), row("bb"))
        else:
            yield from read(self, bad)

    monkeypatch.setattr(FolderBatch, "read", and_meanwhile)
    with opened_job(job_of(table, landing)) as ingestion:
        assert [ingestion.run_batch() is None for _ in range(3)] == [False, False, True]

    assert rows_in(table) == {"a": 0, "b": 0, "bb": 0}


def test_bad_rows_go_to_quarantine_with_reasons(
    table: Table, landing: Path, tmp_path: Path
) -> None:
    job = job_of(table, landing, quarantine=quarantine(tmp_path))
    put(landing, "a.json", row("a"), "no json", {"value": 1}, {"id": "", "value": 2}, row("b"))
    put(landing, "b.json", {"id": "c", "value": 2**70})

    assert run(job) == [2]

    assert rows_in(table) == {"a": 0, "b": 0}
    found = {(bad["source"], bad["position"]): bad for bad in bad_in(tmp_path)}
    assert set(found) == {("a.json", "2"), ("a.json", "3"), ("a.json", "4"), ("b.json", "1")}
    assert found["a.json", "2"]["raw"] == "no json"
    assert found["a.json", "3"]["raw"] == '{"id": null, "value": 1}'
    assert "null" in found["a.json", "3"]["reason"]
    assert "empty" in found["a.json", "4"]["reason"]
    assert "int64" in found["b.json", "1"]["reason"]
    assert {bad["job"] for bad in found.values()} == {"job"}
    assert {bad["batch"] for bad in found.values()} == {1}


def test_a_damaged_file_is_one_bad_row(table: Table, landing: Path, tmp_path: Path) -> None:
    job = job_of(table, landing, FileFormat.PARQUET, quarantine=quarantine(tmp_path))
    (landing / "a.parquet").write_bytes(b"PAR1 what is this")
    pq.write_table(pa.table({"id": ["a"], "value": [1]}), landing / "b.parquet")

    assert run(job) == [1]
    (bad,) = bad_in(tmp_path)
    assert (bad["source"], bad["position"], bad["raw"]) == ("a.parquet", "0", None)
    assert "cannot be read as Parquet" in bad["reason"]


def test_too_many_bad_rows_stop_the_job_and_leave_nothing(
    table: Table, landing: Path, tmp_path: Path
) -> None:
    put(landing, "a.json", row("a"), *["no"] * 99)
    for job in (
        job_of(table, landing),
        job_of(table, landing, quarantine=quarantine(tmp_path, rows_max=98)),
        job_of(table, landing, quarantine=quarantine(tmp_path, share_max=0.98)),
    ):
        with pytest.raises(InvalidInputError, match="Job job stops") as caught:
            run(job)
        assert caught.value.kind is ErrorKind.BAD_ROWS
    assert rows_in(table) == {}
    assert not (tmp_path / "bad").exists()

    assert run(job_of(table, landing, quarantine=quarantine(tmp_path))) == [1]


class Died(BaseException):
    """Stands for the end of a process."""


def test_dying_before_the_commit_leaves_quarantine_and_table_in_step(
    table: Table, landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(table, landing, quarantine=quarantine(tmp_path))
    put(landing, "a.json", row("a"), "no")

    def die(*_: Any) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(run_module, "write_with_retries", die)  # The target's alone.
        with pytest.raises(Died):
            run(job)
    assert len(bad_in(tmp_path)) == 1
    assert rows_in(table) == {}

    assert run(job) == [1]
    assert len(bad_in(tmp_path)) == 1
    assert rows_in(table) == {"a": 0}


def test_of_two_processes_with_one_job_one_commits_each_batch(table: Table, landing: Path) -> None:
    put(landing, "a.json", row("a"))
    with opened_job(job_of(table, landing)) as one:
        newest, batch = one._next()
        assert batch is not None
        assert run(job_of(table, landing)) == [1]  # The other is faster.
        with pytest.raises(ConflictError, match="Another process runs the job job") as caught:
            one._run(newest, batch)
        assert caught.value.kind is ErrorKind.ALREADY_RUNNING
        assert one.run_batch() is None
        put(landing, "b.json", row("b"))
        report = one.run_batch()
    assert report is not None
    assert report.number == 2
    assert table.history().num_rows == 2


def test_a_process_that_was_there_before_a_restore_goes_by_what_is_there_now(
    table: Table, landing: Path
) -> None:
    """What it knew as of a number is not what another process has noted under it since."""
    job = job_of(table, landing, source={"files_max": 1})
    put(landing, "a.json", row("a"))
    with opened_job(job) as daemon:
        assert _one_file(daemon) == 1
        assert daemon.run_batch() is None
        (first,) = table.history()["instant"].to_pylist()
        table.services.rollback(first)
        os.utime(landing / "a.json", (2, 2))
        os.utime(put(landing, "b.json", row("b")), (1, 1))
        with opened_job(job) as other:
            assert _one_file(other) == 1
        assert _one_file(daemon) == 1
        assert daemon.run_batch() is None
    assert sorted(table.read_arrow()["id"].to_pylist()) == ["a", "b"]


def test_a_line_that_is_still_being_written_is_no_bad_row(
    table: Table, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = landing / "a.json"
    growing.write_text('{"id": "a", "val')
    read = FolderBatch.read

    def then_grow(self: FolderBatch, bad: Any) -> Any:
        try:
            yield from read(self, bad)
        finally:
            monkeypatch.setattr(FolderBatch, "read", read)
            growing.write_text('{"id": "a", "value": 1}')

    monkeypatch.setattr(FolderBatch, "read", then_grow)
    with opened_job(job_of(table, landing)) as ingestion:
        assert ingestion.run_batch() is None
        assert _one_file(ingestion) == 1
    assert rows_in(table) == {"a": 1}


def test_a_restore_takes_the_notes_back_with_the_rows(table: Table, landing: Path) -> None:
    job = job_of(table, landing)
    put(landing, "a.json", row("a"))
    run(job)
    table.services.savepoint()
    (savepoint,) = table.services.savepoints()
    put(landing, "b.json", row("b"))
    run(job)
    table.services.restore(savepoint.instant)
    assert rows_in(table) == {"a": 0}

    assert run(job) == [1]
    assert rows_in(table) == {"a": 0, "b": 0}


def test_notes_are_found_in_the_archive(tmp_path: Path, landing: Path) -> None:
    table = (
        a_table(tmp_path, SCHEMA)
        .with_options(
            {
                "hoodie.keep.min.commits": 2,
                "hoodie.keep.max.commits": 3,
                "hoodie.clean.commits.retained": 1,
            }
        )
        .create()
    )
    job = job_of(table, landing)
    put(landing, "a.json", row("a"))
    run(job)
    (first,) = table.history()["instant"].to_pylist()
    for number in range(6):
        table.upsert(pa.table({"id": ["x"], "value": [number]}))
    table.services.clean()
    table.services.archive()
    active = {instant.requested_time for instant in table.context.load_timeline().completed}
    assert first not in active

    assert run(job) == []
    put(landing, "b.json", row("b"))
    assert run(job) == [1]


def test_a_select_makes_rows_of_the_target(table: Table, landing: Path) -> None:
    job = job_of(
        table,
        landing,
        source={"columns": columns("key string, price double, at timestamp")},
        select="SELECT upper(s.key) AS id, CAST(price * 100 AS bigint) AS value FROM source AS s "
        "WHERE price > 0",
    )
    put(landing, "a.json", {"key": "a", "price": 1.25}, {"key": "b", "price": -1})
    assert run(job) == [1]
    assert rows_in(table) == {"A": 125}


def test_a_batch_of_no_rows_is_noted(table: Table, landing: Path) -> None:
    job = job_of(table, landing, select="SELECT * FROM source WHERE value > 100")
    put(landing, "a.json", row("a"))
    assert run(job) == [0]
    assert run(job) == []


def test_deletes_and_partial_upserts(tmp_path: Path, landing: Path) -> None:
    table = a_table(tmp_path, "id string, one long, two long", table_type=MOR).create()
    table.upsert(pa.table({"id": ["a", "b"], "one": [1, 1], "two": [2, 2]}))
    put(landing, "a.json", {"id": "a", "two": 3})
    partial = job_of(
        table,
        landing,
        name="partial",
        target={"is_partial": True},
        select="SELECT id, two FROM source",
    )
    assert run(partial) == [1]
    put(landing, "b.json", {"id": "b"})
    gone = job_of(
        table,
        landing,
        name="gone",
        target={"operation": Operation.DELETE},
        select="SELECT id FROM source WHERE id = 'b'",
    )
    assert sum(run(gone)) == 1
    assert table.read_arrow().to_pylist() == [{"id": "a", "one": 1, "two": 3}]


@pytest.mark.parametrize(
    ("select", "problem"),
    [
        ("SELECT id, value AS wert FROM source", "has no column wert"),
        ("SELECT id, 'x' AS value FROM source", "Cast it: SELECT CAST"),
        ("SELECT id FROM elsewhere", "selects FROM source"),
        ("SELECT id FROM source JOIN other", "without joins"),
        ("SELECT DISTINCT id FROM source", "without distinct"),
        ("SELECT id, sum(value) AS value FROM source GROUP BY id", "without group"),
        ("SELECT id FROM source UNION SELECT id FROM source", "is one SELECT"),
        ("SELECT id, id FROM source", "comes twice"),
        ("SELECT id, value + 1 FROM source", "needs a name"),
        ("SELECT who FROM source", "The column who does not exist"),
        ("SELECT value FROM source", "Column id is part of the key or partition path"),
        ("DROP TABLE source", "position 1"),
    ],
)
def test_a_select_that_cannot_be(table: Table, landing: Path, select: str, problem: str) -> None:
    with (
        opened_job(job_of(table, landing, select=select)) as ingestion,
        pytest.raises(InvalidInputError) as caught,
    ):
        ingestion.look()
    assert problem in caught.value.message


def test_a_look_says_what_would_be_done_and_does_nothing(table: Table, landing: Path) -> None:
    with opened_job(job_of(table, landing, select="SELECT id FROM source")) as ingestion:
        assert ingestion.look().next == "nothing new"
        put(landing, "a.json", row("a"))
        outlook = ingestion.look()
    assert outlook.next.startswith("1 file, ")
    assert outlook.batches == 0
    assert outlook.columns.names == ["id"]
    assert table.history().num_rows == 0


def test_a_job_keeps_its_source(table: Table, landing: Path, tmp_path: Path) -> None:
    put(landing, "a.json", row("a"))
    run(job_of(table, landing))
    with pytest.raises(InvalidInputError, match="Give the job of another source another name"):
        run(job_of(table, tmp_path))


def table_job(table: Table, source: Table, **more: Any) -> Job:
    feed = more.pop("is_feed", False)
    return Job(
        name="changes",
        source=TableSource(path=source.uri, is_feed=feed, after=more.pop("after", None)),
        target=Target(path=table.uri, options=FAST, **more.pop("target", {})),
        **more,
    )


def test_changes_of_another_table(table: Table, tmp_path: Path) -> None:
    source = table_at(tmp_path / "source", SCHEMA).create()
    job = table_job(table, source)
    assert run(job) == []
    source.upsert(pa.table({"id": ["a", "b"], "value": [1, 1]}))
    source.upsert(pa.table({"id": ["b", "c"], "value": [2, 2]}))
    assert run(job) == [3]
    source.services.clean()
    assert run(job) == []
    source.upsert(pa.table({"id": ["c"], "value": [3]}))
    assert run(job) == [1]
    assert rows_in(table) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("is_feed", [False, True])
def test_changes_go_on_after_what_was_read_is_taken_back(
    table: Table, tmp_path: Path, is_feed: bool
) -> None:
    source = table_at(tmp_path / "source", SCHEMA).create()
    job = table_job(table, source, is_feed=is_feed, select=AFTER if is_feed else None)
    source.upsert(pa.table({"id": ["a"], "value": [1]}))
    savepoint = source.services.savepoint()
    source.upsert(pa.table({"id": ["a", "b"], "value": [2, 2]}))
    run(job)
    source.services.restore(savepoint.instant)
    assert run(job) == []
    source.upsert(pa.table({"id": ["c"], "value": [3]}))
    assert run(job) == [1]
    assert rows_in(table) == {"a": 2, "b": 2, "c": 3}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", MOR])
@pytest.mark.parametrize("is_feed", [False, True])
def test_what_is_taken_back_while_it_is_read_is_passed_over(
    table: Table, tmp_path: Path, table_type: str, is_feed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = table_at(tmp_path / "source", SCHEMA, table_type=table_type).create()
    job = table_job(table, source, is_feed=is_feed, select=AFTER if is_feed else None)
    source.upsert(pa.table({"id": ["a"], "value": [1]}))
    taken_back = [source.upsert(pa.table({"id": ["a"], "value": [2]})).instant]
    read = ChangesBatch.read

    def after_a_rollback(self: ChangesBatch, bad: Any) -> Any:
        if taken_back:
            source.services.rollback(taken_back.pop())
        return read(self, bad)

    monkeypatch.setattr(ChangesBatch, "read", after_a_rollback)
    assert run(job) == [1]
    assert rows_in(table) == {"a": 1}


def test_a_file_that_nobody_took_away_is_missed(table: Table, tmp_path: Path) -> None:
    source = table_at(tmp_path / "source", SCHEMA).create()
    source.upsert(pa.table({"id": ["a"], "value": [1]}))
    (file,) = Path(source.uri).glob("*.parquet")
    with opened_job(table_job(table, source)) as ingestion:
        newest, batch = ingestion._next()
        assert batch is not None
        file.unlink()
        with pytest.raises(CorruptTableError, match=file.name):
            ingestion._run_unless_changed(newest, batch)
        with pytest.raises(CorruptTableError, match=file.name):
            ingestion.run_batch()


def test_changes_of_a_table_whose_commits_are_archived(table: Table, tmp_path: Path) -> None:
    keep = {
        "hoodie.keep.min.commits": 2,
        "hoodie.keep.max.commits": 3,
        "hoodie.clean.commits.retained": 1,
    }
    source = table_at(tmp_path / "source", SCHEMA).with_options(keep).create()
    job = table_job(table, source)
    source.upsert(pa.table({"id": ["a"], "value": [1]}))
    assert run(job) == [1]
    for number in range(8):
        source.upsert(pa.table({"id": [str(number)], "value": [number]}))
    source.services.clean()
    assert source.services.archive().archived
    assert run(job) == [8]
    assert rows_in(table) == {"a": 1, **{str(number): number for number in range(8)}}


def test_jobs_under_non_blocking_control(tmp_path: Path, landing: Path) -> None:
    table = a_table(tmp_path, SCHEMA, table_type=MOR, ordering="value").create()
    target = {"mode": ConcurrencyMode.NON_BLOCKING}
    put(landing, "a.json", row("a", 2), row("b", 1))
    put(landing, "b.json", row("b", 3))
    for name in ("one", "two"):
        job = job_of(table, landing, name=name, target=target, source={"files_max": 1})
        assert sorted(run(job)) == [1, 2]
    assert rows_in(table) == {"a": 2, "b": 3}


def test_changes_after_a_time(table: Table, tmp_path: Path) -> None:
    source = table_at(tmp_path / "source", SCHEMA).create()
    first = source.upsert(pa.table({"id": ["a"], "value": [1]}))
    source.upsert(pa.table({"id": ["b"], "value": [1]}))
    assert run(table_job(table, source, after=first.completion_time)) == [1]
    assert rows_in(table) == {"b": 1}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", MOR])
def test_the_change_feed_makes_a_copy(tmp_path: Path, table_type: str) -> None:
    source = table_at(tmp_path / "source", SCHEMA, table_type=table_type).create()
    copy = a_table(tmp_path, f"{SCHEMA}, _hoodie_is_deleted boolean").create()
    job = table_job(
        copy,
        source,
        is_feed=True,
        select="SELECT coalesce(after.id, before.id) AS id, after.value AS value, "
        "op = 'd' AS _hoodie_is_deleted FROM source",
    )
    source.upsert(pa.table({"id": ["a", "b"], "value": [1, 1]}))
    source.delete(pa.table({"id": ["a"]}))
    source.upsert(pa.table({"id": ["b", "c"], "value": [2, 2]}))
    run(job)
    assert rows_in(copy) == {"b": 2, "c": 2}
    source.delete(pa.table({"id": ["b"]}))
    run(job)
    assert rows_in(copy) == {"c": 2}


def test_bad_rows_of_a_table_have_places_that_last(tmp_path: Path) -> None:
    """Whatever window a row is read in, it is the same row in quarantine."""
    source = table_at(tmp_path / "source", "id string, value string").create()
    table = a_table(tmp_path, SCHEMA).create()
    job = table_job(
        table,
        source,
        select="SELECT id, CAST(value AS bigint) AS value FROM source",
        quarantine=quarantine(tmp_path),
    )
    first = source.upsert(pa.table({"id": ["a", "b"], "value": ["1", "x"]}))
    feed = replace(
        job,
        name="feed",
        source=TableSource(path=source.uri, is_feed=True),
        select="SELECT after.id AS id, CAST(after.value AS bigint) AS value FROM source",
    )
    assert run(job) == [1]
    assert run(feed) == [1]
    source.upsert(pa.table({"id": ["c"], "value": ["y"]}))
    run(replace(job, name="late"))
    run(replace(feed, name="late feed"))

    places = {(bad["job"], bad["position"]) for bad in bad_in(tmp_path)}
    row_place = f"{first.instant}/b"
    feed_place = next(place for job, place in places if job == "feed")
    assert feed_place.startswith(f"{first.completion_time}/")
    assert {("changes", row_place), ("late", row_place), ("late feed", feed_place)} <= places
    assert len(places) == 6


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [
        (ConflictError("lost"), True),
        (ConflictError("switched", kind=ErrorKind.TABLE_SWITCHED), True),
        (FencedError("late"), True),
        (StorageError("busy"), True),
        (StorageError("denied", retry=Retry.NEVER), False),
        (NotFoundError("rolled back", kind=ErrorKind.INSTANT_NOT_FOUND), True),
        (NotFoundError("no table", kind=ErrorKind.NOT_A_TABLE), False),
        (CommitUnknownError("who knows"), False),
        (InvalidInputError("bad rows", kind=ErrorKind.BAD_ROWS), False),
    ],
)
def test_which_errors_pass(error: HeadwaterError, goes_on: bool) -> None:
    assert is_passing(error) is goes_on


def test_a_job_goes_on_after_its_target_was_switched(table: Table, landing: Path) -> None:
    lock = {"hoodie.write.lock.provider": "filesystem"}
    with opened_job(job_of(table, landing)) as ingestion:
        for number, fenced in enumerate((False, True)):
            put(landing, f"{number}.json", row(str(number), number))
            assert hw.upgrade_table(table.uri, lock, fenced=fenced).properties
            assert _one_file(ingestion) == 1
            assert ingestion.target.config.is_fenced is fenced
    assert rows_in(table) == {"0": 0, "1": 1}


def test_many_batches_in_one_process(table: Table, landing: Path) -> None:
    """What is known of the files is kept from one batch to the next, and is what notes tell."""
    job = job_of(table, landing, source={"files_max": 1})
    with opened_job(job) as ingestion:
        for number in range(4):
            put(landing, f"{number}.json", row(str(number)))
            assert _one_file(ingestion) == 1
        assert ingestion.run_batch() is None
    assert run(job) == []


def _one_file(ingestion: Ingestion) -> int:
    report = ingestion.run_batch()
    assert report is not None
    return report.written
