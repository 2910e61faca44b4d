"""`headwater ingest`: what it says, how it ends, and that it needs no Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Ask, Run

import headwater as hw
from headwater.cli.stopping import Stop
from headwater.errors import StorageError
from headwater.ingest.run import Ingestion


@pytest.fixture
def job(table: hw.Table, tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    (folder / "a.csv").write_text("id,city,fare\nla-a,la,5\n,la,1\nla-b,la,x\n")
    file = tmp_path / "job.toml"
    file.write_text(
        f"""
        name = "fares"
        [source]
        path = "{folder}"
        format = "csv"
        [target]
        path = "{table.uri}"
        [quarantine]
        path = "{tmp_path / "bad"}"
        limit_share = 1
        """
    )
    return file


def test_a_check_changes_nothing(ask: Ask, table: hw.Table, job: Path, tmp_path: Path) -> None:
    before = table.history().num_rows
    told = ask("ingest", str(job), "--check")
    assert told["job"] == "fares"
    assert (told["source"], told["operation"]) == ("folder", "upsert")
    assert told["columns"] == ["id", "city", "fare"]
    assert told["next"].startswith("1 file, ")
    assert table.history().num_rows == before
    assert not (tmp_path / "bad").exists()


def test_what_is_there_goes_in_once(run: Run, ask: Ask, table: hw.Table, job: Path) -> None:
    code, out, err = run("ingest", str(job), "--output", "json")
    assert code == 0
    told = json.loads(out)
    assert (told["batches"], told["rows_read"], told["rows_written"], told["rows_bad"]) == (
        1,
        3,
        1,
        2,
    )
    assert "batch 1: 1 file" in err
    assert "2 bad" in err
    assert ask("ingest", str(job), "--once")["batches"] == 0
    assert "la-a" in table.read_arrow()["id"].to_pylist()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--once", "--check"), "do not go together"),
        (("--every", "soon"), "--every: expected a time"),
    ],
)
def test_arguments_that_cannot_be(
    run: Run, job: Path, arguments: tuple[str, ...], problem: str
) -> None:
    code, _, err = run("ingest", str(job), *arguments)
    assert code == 2
    assert problem in err


def test_too_many_bad_rows_end_it(run: Run, job: Path) -> None:
    job.write_text(job.read_text().replace("limit_share = 1", "limit_rows = 1"))
    code, _, err = run("ingest", str(job))
    assert code == 2
    assert "invalid_input.bad_rows" in err
    code, _, err = run("ingest", str(job), "--every", "1s")
    assert code == 2


def test_a_signal_ends_it_after_the_batch(
    run: Run, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Ingestion.run_batch

    def and_a_signal(self: Ingestion) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return batch(self)

    monkeypatch.setattr(Ingestion, "run_batch", and_a_signal)
    code, out, err = run("ingest", str(job), "--every", "1h", "--output", "json")
    assert code == 0
    assert json.loads(out)["batches"] == 1
    assert "ends after this batch" in err


def test_a_signal_ends_the_pause(run: Run, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Stop.wait

    def and_a_signal(self: Stop, timeout: float) -> bool:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        return wait(self, timeout)

    monkeypatch.setattr(Stop, "wait", and_a_signal)
    code, _, _ = run("ingest", str(job), "--every", "1h")
    assert code == 0


def test_it_goes_on_after_an_error_that_passes(
    run: Run, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, failures = Ingestion.run_batch, [StorageError("the store is busy")]

    def at_first_not(self: Ingestion) -> object:
        if failures:
            raise failures.pop()
        done = batch(self)
        if done is None:
            os.kill(os.getpid(), signal.SIGINT)
        return done

    monkeypatch.setattr(Ingestion, "run_batch", at_first_not)
    code, out, err = run("ingest", str(job), "--every", "1ms", "--output", "json")
    assert code == 0
    assert (json.loads(out)["batches"], json.loads(out)["failed"]) == (1, 1)
    assert "the store is busy" in err


def test_what_is_said_is_said_once(run: Run, job: Path) -> None:
    folder = job.parent / "landing"
    assert run("ingest", str(job))[0] == 0
    (folder / "a.csv").write_text("id,city,fare\nla-a,la,6\n")
    for name in ("b.csv", "c.csv"):
        (folder / name).write_text("id,city,fare\nla-c,la,7\n")
    job.write_text(job.read_text().replace('"csv"', '"csv"\nbatch_files = 1'))
    _, _, err = run("ingest", str(job))
    assert err.count("have changed since they were taken") == 1


def test_no_spark_is_loaded(job: Path) -> None:
    code = (
        "import sys; from headwater.cli.main import main; "
        f"assert main(['ingest', {str(job)!r}]) == 0; "
        "assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
