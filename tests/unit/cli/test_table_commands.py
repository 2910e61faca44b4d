"""`headwater table`: creating, writing, reading, describing and dropping."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from tests.support.tables import FENCED, a_table
from tests.support.version_six import make_version_six
from tests.unit.cli.conftest import Ask, Run, rows

import headwater as hw

NEW = rows({"sf-a": 7, "la-a": 9})
SEVERAL = "optimistic_concurrency_control"
MERGED = {"sf-a": 7, "ny-a": 2, "la-a": 9}


def fares(table: hw.Table) -> dict[str, int]:
    read = table.read_arrow(["id", "fare"]).to_pydict()
    return dict(zip(read["id"], read["fare"], strict=True))


def test_a_table_is_created_written_and_read(run: Run, ask: Ask, tmp_path: Path) -> None:
    path, data = str(tmp_path / "trips"), tmp_path / "rows.parquet"
    pq.write_table(NEW, data)
    columns = "id string, city string, fare int"
    made = ask("table", "create", path, "--schema", columns, "--record-key", "id", "--buckets", "2")
    assert made["name"] == "trips"
    done = ask("table", "write", path, str(data))
    assert (done["inserted"], done["updated"]) == (2, 0)
    assert sorted(ask("table", "read", path, "--columns", "id,fare"), key=str) == [
        {"id": "la-a", "fare": 9},
        {"id": "sf-a", "fare": 7},
    ]
    code, _, err = run("table", "create", path, "--schema", columns)
    assert code == 4
    assert "trips" in err


def test_a_file_may_give_the_columns(ask: Ask, tmp_path: Path) -> None:
    data = tmp_path / "rows.parquet"
    pq.write_table(NEW, data)
    path = str(tmp_path / "trips")
    ask(
        "table", "create", path, "--schema", str(data), "--record-key", "id", "--type=MERGE_ON_READ"
    )
    assert [row["column"] for row in ask("table", "schema", path)] == ["id", "city", "fare"]
    assert ask("table", "describe", path)["type"] == "MERGE_ON_READ"


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "json", "jsonl"])
def test_rows_go_out_to_files_and_come_back(
    run: Run, ask: Ask, table: hw.Table, tmp_path: Path, ending: str
) -> None:
    data = tmp_path / f"rows.{ending}"
    code, out, err = run("table", "read", table.uri, "--to", str(data))
    assert (code, out) == (0, "")
    assert "2 rows" in err
    other = hw.create_table(tmp_path / "other", schema=table.schema, record_key="id")
    assert ask("table", "write", other.uri, str(data))["inserted"] == 2
    assert fares(other) == fares(table)


def test_every_type_goes_out_to_json_and_comes_back(run: Run, ask: Ask, tmp_path: Path) -> None:
    columns = (
        "id long, d date, t timestamp, n timestamp_ntz, m decimal(10,2), b binary, f double, "
        "tags map<string, date>, s struct<d: date, m: map<string, bigint>>, a array<date>"
    )
    table = hw.create_table(tmp_path / "types", schema=columns, record_key="id")
    day, moment = date(2024, 1, 31), datetime(2024, 1, 31, 9, 30, 0, 123456)
    full = {
        "id": 1,
        "d": day,
        "t": moment.replace(tzinfo=UTC),
        "n": moment,
        "m": Decimal("1.50"),
        "b": "é".encode(),
        "f": 0.1,
        "tags": [("x", day), ("y", None)],
        "s": {"d": day, "m": [("k", 7)]},
        "a": [day, None],
    }
    table.insert(pa.Table.from_pylist([full, {"id": 2}], schema=table.schema))
    data = tmp_path / "rows.json"
    assert run("table", "read", table.uri, "--to", str(data))[0] == 0
    other = hw.create_table(tmp_path / "other", schema=columns, record_key="id")
    assert ask("table", "write", other.uri, str(data))["inserted"] == 2
    assert other.read_arrow().sort_by("id").equals(table.read_arrow().sort_by("id"))


def test_json_is_read_in_the_types_of_the_table(run: Run, ask: Ask, tmp_path: Path) -> None:
    table = hw.create_table(tmp_path / "days", schema="id long, d date", record_key="id")
    data = tmp_path / "rows.json"
    data.write_bytes(b'\xef\xbb\xbf{"id": 4, "d": "2024-01-01"}\n')
    assert ask("table", "write", table.uri, str(data))["inserted"] == 1
    assert table.read_arrow(["d"])["d"].to_pylist() == [date(2024, 1, 1)]
    data.write_text('{"id": 5, "d": "2024-01-01"}\n{"id": 6, "d": "soon"}\n')
    code, _, err = run("table", "write", table.uri, str(data))
    assert (code, "rows.json row 2" in err) == (2, True)
    assert table.read_arrow().num_rows == 1


def test_years_that_python_does_not_know_are_shown(run: Run, tmp_path: Path) -> None:
    never = pa.timestamp("us", "UTC")
    within = pa.struct([("l", pa.list_(never)), ("m", pa.map_(pa.string(), never))])
    schema = pa.schema([("id", pa.string()), ("day", pa.date32()), ("at", never), ("st", within)])
    moment = pa.array([2**63 - 1]).cast(never)
    inner = [
        pa.ListArray.from_arrays([0, 1], moment),
        pa.MapArray.from_arrays([0, 1], ["k"], moment),
    ]
    nested = pa.StructArray.from_arrays(inner, ["l", "m"]).cast(within)
    day = pa.array([2**31 - 1], pa.int32()).cast(pa.date32())
    path = tmp_path / "never"
    table = hw.create_table(path, schema=schema, record_key="id")
    table.upsert(pa.table([pa.array(["a"]), day, moment, nested], schema=schema))
    for output in ("text", "json", "csv"):
        code, out, _ = run("table", "read", str(path), "--output", output)
        assert code == 0
        assert out.count("294247-01-10T04:00:54.775807") == 3
        assert "5881580-07-11" in out


def test_bytes_that_are_no_text_do_not_go_out_to_json(run: Run, tmp_path: Path) -> None:
    table = hw.create_table(tmp_path / "blobs", schema="id long, b binary", record_key="id")
    table.insert(pa.table({"id": [1], "b": [b"\xff"]}))
    code, _, err = run("table", "read", table.uri, "--to", str(tmp_path / "rows.json"))
    assert (code, ".parquet" in err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blobs"]


def test_a_file_stays_when_the_next_one_fails(run: Run, tmp_path: Path) -> None:
    table = hw.create_table(tmp_path / "lists", schema="id long, l array<int>", record_key="id")
    data, link = tmp_path / "rows.csv", tmp_path / "link.csv"
    data.write_text("precious")
    link.symlink_to(data)
    assert run("table", "read", table.uri, "--to", str(data))[0] == 2
    assert data.read_text() == "precious"
    assert run("table", "read", table.uri, "--columns", "id", "--to", str(link))[0] == 0
    assert data.read_text() == '"id"\n'
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "lists", "rows.csv"]


@pytest.mark.parametrize(
    ("name", "code", "problem"),
    [
        ("nowhere/o.csv", 3, "no folder"),
        ("nowhere/o.parquet", 3, "no folder"),
        ("rows.csv/o.parquet", 3, "no folder"),
        ("folder.csv", 2, "is a folder"),
        (f"{'long' * 80}.csv", 10, "too long"),
    ],
)
def test_where_no_file_can_be_is_said(
    run: Run, table: hw.Table, tmp_path: Path, name: str, code: int, problem: str
) -> None:
    (tmp_path / "rows.csv").write_text("id\n")
    (tmp_path / "folder.csv").mkdir()
    failed, _, err = run("table", "read", table.uri, "--to", str(tmp_path / name))
    assert (failed, problem in err) == (code, True)


@pytest.mark.parametrize("name", ["rows.csv", "rows.json"])
def test_files_that_are_no_utf_8_are_refused(
    run: Run, table: hw.Table, tmp_path: Path, name: str
) -> None:
    text = {"rows.csv": "id,café\na,2\n", "rows.json": '{"id": "a", "café": 2}\n'}[name]
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    code, _, err = run("table", "write", table.uri, str(tmp_path / name))
    assert (code, name in err) == (2, True)


def test_what_files_hold_is_upserted_inserted_or_deleted(
    ask: Ask, table: hw.Table, tmp_path: Path
) -> None:
    data = tmp_path / "rows.csv"
    pacsv.write_csv(NEW, data)
    ask("table", "write", table.uri, str(data))
    assert fares(table) == MERGED
    assert ask("table", "write", table.uri, str(data), "--operation", "delete")["deleted"] == 2
    assert fares(table) == {"ny-a": 2}
    ask("table", "write", table.uri, str(data), "--operation", "overwrite")
    assert fares(table) == {"sf-a": 7, "la-a": 9}


def test_files_that_hold_no_rows_are_refused(run: Run, table: hw.Table, tmp_path: Path) -> None:
    code, _, err = run("table", "write", table.uri, str(tmp_path / "missing.parquet"))
    assert (code, "missing.parquet" in err) == (3, True)
    (tmp_path / "rows.txt").write_text("a,b\n")
    code, _, err = run("table", "write", table.uri, str(tmp_path / "rows.txt"))
    assert (code, ".parquet" in err) == (2, True)
    (tmp_path / "broken.parquet").write_text("no Parquet")
    code, _, err = run("table", "write", table.uri, str(tmp_path / "broken.parquet"))
    assert (code, "broken.parquet" in err) == (2, True)
    feather.write_feather(pa.table({"id": [1]}), tmp_path / "other.arrow")
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "some.parquet")
    code, _, err = run(
        *(
            "table",
            "write",
            table.uri,
            str(tmp_path / "other.arrow"),
            str(tmp_path / "some.parquet"),
        )
    )
    assert (code, "do not fit together" in err) == (2, True)
    assert fares(table) == {"sf-a": 3, "ny-a": 2}


def test_rows_are_filtered_and_limited(run: Run, ask: Ask, table: hw.Table) -> None:
    assert ask("table", "read", table.uri, "--where", "fare > 2", "--columns", "id") == [
        {"id": "sf-a"}
    ]
    code, out, err = run("table", "read", table.uri, "--limit", "1", "--output", "csv")
    assert code == 0
    assert len(out.splitlines()) == 2
    assert "1 of 2 rows" in err
    first = table.history()["completion_time"].to_pylist()[-1]
    assert {"id": "sf-a", "fare": 1} in ask(
        "table", "read", table.uri, "--as-of", first, "--columns", "id,fare"
    )
    code, _, err = run("table", "read", table.uri, "--where", "nope = 1")
    assert (code, "nope" in err) == (2, True)


def test_history_and_schema_are_shown(run: Run, ask: Ask, table: hw.Table) -> None:
    history = ask("table", "history", table.uri)
    assert [row["operation"] for row in history] == ["UPSERT", "INSERT"]
    assert history[0]["updated"] == 1
    assert len(ask("table", "history", table.uri, "--last", "1")) == 1
    assert "UPSERT" in run("table", "history", table.uri)[1]
    assert len(ask("table", "history", table.uri, "--last", "9" * 20)) == 2
    assert len(ask("table", "read", table.uri, "--limit", "9" * 20)) == 2
    assert ask("table", "schema", table.uri)[2] == {
        "column": "fare",
        "type": "int32",
        "nullable": True,
    }
    code, out, _ = run("table", "schema", table.uri, "--output", "csv")
    assert (code, out.splitlines()[0]) == (0, "column,type,nullable")


def test_a_table_with_a_journal_is_dropped(run: Run, tmp_path: Path) -> None:
    table = a_table(tmp_path, options=FENCED).with_commits(2).create()
    assert run("table", "drop", table.uri, "--yes")[0] == 0
    assert not [path for path in Path(table.uri).rglob("*") if path.is_file()]


def test_a_table_is_dropped_when_that_is_meant(run: Run, table: hw.Table) -> None:
    code, _, err = run("table", "drop", table.uri)
    assert code == 2
    assert "--yes" in err
    assert fares(table) == {"sf-a": 3, "ny-a": 2}
    code, out, _ = run("table", "drop", table.uri, "--yes")
    assert code == 0
    assert "deleted_files" in out
    assert not [path for path in Path(table.uri).rglob("*") if path.is_file()]
    assert run("table", "describe", table.uri)[0] == 3


def test_errors_of_every_command_are_json_where_output_is(run: Run, tmp_path: Path) -> None:
    for command in ("describe", "schema", "history", "read"):
        code, out, err = run("table", command, str(tmp_path / "nothing"), "--output", "json")
        assert (code, out) == (3, "")
        assert json.loads(err)["kind"] == "not_found.table"


@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_table_is_switched_to_its_journal_and_back(ask: Ask, table: hw.Table) -> None:
    before = fares(table)
    for switch, says in (("--fenced", "true"), ("--no-fenced", "false")):
        key = "headwater.timeline.fenced"
        assert ask("table", "upgrade", table.uri, switch)["changed_properties"] == [key]
        assert ask("table", "upgrade", table.uri, switch)["changed_properties"] == []
        assert hw.open_table(table.uri).config.raw[key] == says
        assert fares(hw.open_table(table.uri)) == before


def test_who_takes_a_journal_away_is_told_of_the_lock(run: Run, tmp_path: Path) -> None:
    table = a_table(tmp_path, options=FENCED).with_commits(1).create()
    switch = ("table", "upgrade", table.uri, "--no-fenced")
    code, _, err = run(*switch, "-o", f"hoodie.write.concurrency.mode={SEVERAL}")
    assert (code, "a lock that all writers share" in err) == (2, True)
    assert hw.open_table(table.uri).config.is_fenced
    code, _, err = run(*switch)
    assert (code, "hoodie.write.lock.provider" in err) == (0, True)
    code, _, err = run(*switch, "-o", "hoodie.write.lock.provider=filesystem")
    assert (code, "warning" in err) == (0, False)


@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_table_of_version_6_is_shown_and_upgraded(run: Run, ask: Ask, table: hw.Table) -> None:
    before = fares(table)
    make_version_six(Path(table.uri.removeprefix("file://")))
    assert ask("table", "describe", table.uri)["version"] == 6
    commits = len(ask("table", "history", table.uri))
    assert {row["id"]: row["fare"] for row in ask("table", "read", table.uri)} == before
    asked = ask("table", "upgrade", table.uri, "--dry-run")
    assert (asked["from_version"], asked["is_done"]) == (6, False)
    assert ask("table", "describe", table.uri)["version"] == 6
    code, _, err = run("service", "clean", table.uri)
    assert code == 8
    assert "headwater table upgrade" in err
    assert ask("fsck", table.uri) == []
    assert ask("table", "upgrade", table.uri)["is_done"] is True
    assert ask("table", "describe", table.uri)["version"] == 9
    assert len(ask("table", "history", table.uri)) == commits
    assert fares(hw.open_table(table.uri)) == before
