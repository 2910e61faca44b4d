"""The command `headwater`, from its arguments to what it prints and ends with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables import FENCED, a_table
from tests.unit.cli.conftest import Run, rows

from headwater.cli.exit_codes import exit_code_of
from headwater.errors import (
    ConflictError,
    CorruptTableError,
    HeadwaterError,
    InternalError,
    InvalidInputError,
    NotFoundError,
)
from headwater.table import Table, create_table

COMMANDS = (
    *("conflict", "doctor", "fsck", "heartbeat", "index", "lock", "plan", "service", "table"),
    *("timeline", "top"),
)
LOCK = "hoodie.write.lock.provider=in_process"


def test_help_names_every_command(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert all(name in out for name in COMMANDS)
    code, out, _ = run("index", "--help")
    assert code == 0
    assert all(name in out for name in ("create", "schedule", "run", "cancel", "drop", "list"))


def test_a_wrong_command_line_ends_with_2(run: Run) -> None:
    assert run("fsck")[0] == 2
    assert run("no-such-command")[0] == 2
    assert run("fsck", "x", "--output", "xml")[0] == 2


# Errors ----------------------------------------------------------------------------------------


def test_a_path_without_a_table_is_told(run: Run, tmp_path: Path) -> None:
    code, out, err = run("table", "describe", str(tmp_path / "nothing"))
    assert (code, out) == (3, "")
    assert "not_found.table" in err
    assert "Traceback" not in err


def test_errors_are_json_where_output_is(run: Run, tmp_path: Path) -> None:
    code, out, err = run("fsck", str(tmp_path / "nothing"), "--output", "json")
    assert (code, out) == (3, "")
    assert json.loads(err)["kind"] == "not_found.table"


def test_options_are_checked(run: Run, table: Table) -> None:
    code, _, err = run("timeline", "show", table.uri, "-o", "hoodie.clean.commits.retained")
    assert code == 2
    assert "KEY=VALUE" in err
    code, _, err = run("timeline", "show", table.uri, "-o", "hoodie.clean.commits.retained=few")
    assert code == 2
    assert "hoodie.clean.commits.retained" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInputError("x"), 2),
        (NotFoundError("x"), 3),
        (ConflictError("x"), 5),
        (CorruptTableError("x"), 9),
        (InternalError("x"), 70),
        (HeadwaterError("x"), 70),
    ],
)
def test_the_class_of_an_error_gives_the_exit_code(error: HeadwaterError, code: int) -> None:
    assert exit_code_of(error) == code


# Looking ---------------------------------------------------------------------------------------


def test_a_table_is_described(run: Run, table: Table) -> None:
    code, out, _ = run("table", "describe", table.uri, "--output=json")
    found = json.loads(out)
    assert code == 0
    assert found["record_key"] == ["id"]
    assert found["indexes"] == ["files"]
    assert found["file_groups"] == 2
    assert "COPY_ON_WRITE" in run("table", "describe", table.uri)[1]


def test_the_timeline_is_shown(run: Run, table: Table) -> None:
    _, out, _ = run("timeline", "show", table.uri, "--output", "json")
    assert [row["operation"] for row in json.loads(out)] == ["INSERT", "UPSERT"]
    code, out, _ = run("timeline", "show", table.uri, "--last", "1")
    assert code == 0
    assert "UPSERT" in out
    assert "INSERT" not in out


# Indexes ---------------------------------------------------------------------------------------


def test_indexes_are_created_listed_and_dropped(run: Run, table: Table) -> None:
    code, out, _ = run("index", "create", table.uri, "column_stats", "record_index", "-o", LOCK)
    assert code == 0
    assert "column_stats" in out
    _, out, _ = run("index", "list", table.uri, "--output", "json")
    assert {row["index"] for row in json.loads(out)} >= {"files", "column_stats", "record_index"}
    assert set(table.reload().config.metadata_partitions) >= {"column_stats", "record_index"}
    code, out, _ = run("index", "create", table.uri, "column_stats", "-o", LOCK)
    assert code == 0
    assert "already" in out
    assert run("index", "drop", table.uri, "column_stats", "-o", LOCK)[0] == 0
    assert "column_stats" not in table.reload().config.metadata_partitions


def test_an_index_is_scheduled_and_run_by_another(run: Run, table: Table) -> None:
    name = "secondary_index_by_fare"
    assert run("index", "create", table.uri, "record_index", "-o", LOCK)[0] == 0
    arguments = ("index", "schedule", table.uri, name, "--columns", "fare", "--output", "json")
    code, out, _ = run(*arguments, "-o", LOCK)
    assert code == 0
    instant = json.loads(out)["instant"]
    table.upsert(rows({"la-a": 9}))
    code, out, _ = run("index", "run", table.uri, "--output", "json", "-o", LOCK)
    assert code == 0
    assert json.loads(out) == [{"instant": instant, "finished": [name], "left_out": []}]
    assert run("fsck", table.uri)[0] == 0


def test_a_plan_is_cancelled(run: Run, table: Table) -> None:
    arguments = ("index", "schedule", table.uri, "column_stats", "--output", "json")
    instant = json.loads(run(*arguments, "-o", LOCK)[1])["instant"]
    assert run("index", "cancel", table.uri, instant, "-o", LOCK)[0] == 0
    assert json.loads(run("index", "run", table.uri, "--output", "json", "-o", LOCK)[1]) == []
    assert "column_stats" not in table.reload().config.metadata_partitions


def test_a_table_without_indexes_says_so(run: Run, tmp_path: Path) -> None:
    options = {"hoodie.metadata.enable": "false", **FENCED}
    bare = create_table(tmp_path / "bare", schema="id long", record_key="id", options=options)
    code, _, err = run("index", "drop", bare.uri, "nope")
    assert (code, "it has none" in err) == (3, True), err


@pytest.mark.usefixtures("tables_with_a_lock")
def test_what_cannot_be_indexed_is_told(run: Run, table: Table) -> None:
    code, _, err = run("index", "create", table.uri, "column_stats")
    assert code == 2
    assert "hoodie.write.lock.provider" in err
    code, _, err = run("index", "create", table.uri, "no_such_index", "-o", LOCK)
    assert code in (2, 8)
    assert "no_such_index" in err
    assert run("index", "drop", table.uri, "bloom_filters", "-o", LOCK)[0] == 3


# Checking --------------------------------------------------------------------------------------


def fsck(run: Run, table: Table, *more: str) -> tuple[int, list[dict[str, Any]]]:
    code, out, _ = run("fsck", table.uri, "--output", "json", *more)
    return code, json.loads(out)


def test_a_whole_table_has_no_problems(run: Run, table: Table) -> None:
    assert fsck(run, table) == (0, [])
    assert fsck(run, table, "--deep") == (0, [])
    assert run("fsck", table.uri)[:2] == (0, "No problems found.\n")


def data_files(table: Table) -> list[Path]:
    slices = table.inspect.slices().to_pylist()
    assert slices
    found = sorted(Path(table.uri).glob("*/*.parquet"))
    times = sorted(file.name.rpartition("_")[2] for file in found)
    return [file for file in found if file.name.endswith(times[-1])]


def test_a_lost_file_is_found(run: Run, table: Table) -> None:
    (file,) = data_files(table)
    file.unlink()
    code, problems = fsck(run, table)
    assert code == 1
    assert ("files", f"city=sf/{file.name}") in {(one["check"], one["subject"]) for one in problems}


def test_a_damaged_file_is_found_by_reading_it(run: Run, table: Table) -> None:
    (file,) = data_files(table)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    code, problems = fsck(run, table, "--deep")
    assert code == 1
    assert file.name in problems[0]["subject"]


@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_damaged_commit_is_found(run: Run, table: Table) -> None:
    commit = max((Path(table.uri) / ".hoodie/timeline").glob("*_*.commit"))
    commit.write_bytes(b"no Avro")
    code, problems = fsck(run, table)
    assert code == 1
    assert [one["check"] for one in problems] == ["timeline"]
    assert commit.name in problems[0]["problem"]


def test_a_damaged_commit_of_a_table_with_a_journal_is_written_again(
    run: Run, tmp_path: Path
) -> None:
    """We read the journal; other engines read the file."""
    table = a_table(tmp_path, options=FENCED).with_commits(2).create()
    commit = max((Path(table.uri) / ".hoodie/timeline").glob("*_*.commit"))
    whole = commit.read_bytes()
    commit.write_bytes(b"no Avro")
    code, problems = fsck(run, table)
    assert code == 1
    assert [one["subject"] for one in problems] == [f".hoodie/timeline/{commit.name}"]
    metadata = Path(table.uri) / ".hoodie/metadata/.hoodie/timeline"
    lost = min(metadata.glob("2*_*.deltacommit"))
    lost.unlink()
    assert len(fsck(run, table)[1]) == 2
    assert fsck(run, table, "--repair", "--yes")[0] == 0
    assert commit.read_bytes() == whole
    assert lost.exists()
    assert fsck(run, table) == (0, [])


def test_damaged_properties_are_found(run: Run, table: Table) -> None:
    (Path(table.uri) / ".hoodie/hoodie.properties").write_bytes(b"hoodie.table.name=\\uzzzz\n")
    code, problems = fsck(run, table)
    assert code == 1
    assert [one["check"] for one in problems] == ["table"]


@pytest.mark.usefixtures("tables_with_a_lock")
def test_an_index_that_is_wrong_is_found(run: Run, table: Table) -> None:
    """A commit that the metadata table says nothing of, as a writer of old would leave it."""
    timeline = Path(table.uri) / ".hoodie/metadata/.hoodie/timeline"
    newest = max(timeline.glob("*_*.deltacommit"))
    for file in timeline.glob(f"{newest.name.partition('_')[0]}*"):
        file.unlink()
    code, problems = fsck(run, table)
    assert code == 1
    assert {one["check"] for one in problems} == {"indexes"}
    assert {one["subject"] for one in problems} == {"files"}
    code, out, _ = run("fsck", table.uri)
    assert code == 1
    assert "files" in out


def test_a_damaged_index_is_found(run: Run, table: Table) -> None:
    for file in (Path(table.uri) / ".hoodie/metadata/files").glob("*.hfile"):
        file.write_bytes(file.read_bytes()[:100])
    code, problems = fsck(run, table)
    assert code == 1
    assert {one["check"] for one in problems} == {"indexes"}
