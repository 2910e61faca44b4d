"""`headwater service`, `plan`, `lock`, `heartbeat`, `conflict`, `top` and `doctor`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Ask, Run, rows

import headwater as hw
from headwater.services import compaction

LOCK = ("-o", "hoodie.write.lock.provider=filesystem")


def test_a_compaction_is_planned_and_executed(run: Run, ask: Ask, logged: hw.Table) -> None:
    logged.upsert(rows({"ny-a": 5}))
    planned = ask("service", "compact", logged.uri, "--plan")["instant"]
    waiting = ask("plan", "list", logged.uri)
    assert [(row["instant"], row["action"], row["file_groups"]) for row in waiting] == [
        (planned, "compaction", 2)
    ]
    assert {row["partition"] for row in ask("plan", "show", logged.uri, planned)} == {
        "city=ny",
        "city=sf",
    }
    done = ask("service", "compact", logged.uri, "--instant", planned)
    assert (done["instant"], done["row_count"], done["file_groups"]) == (planned, 2, 2)
    assert ask("plan", "list", logged.uri) == []
    code, out, _ = run("service", "compact", logged.uri)
    assert (code, out) == (0, "There is nothing to compact.\n")


def test_logs_are_compacted(run: Run, ask: Ask, logged: hw.Table) -> None:
    for fare in range(4):
        logged.upsert(rows({"sf-a": fare}))
    done = ask(
        "service", "log-compact", logged.uri, "-o", "hoodie.log.compaction.blocks.threshold=2"
    )
    assert done["file_groups"]
    assert "enough" in run("service", "log-compact", logged.uri)[1]


def test_a_clustering_gives_way_to_a_cancellation(run: Run, ask: Ask, table: hw.Table) -> None:
    planned = ask("service", "cluster", table.uri, "--sort-by", "fare", "--cancellable", "--plan")
    instant = planned["instant"]
    (row,) = ask("plan", "list", table.uri)
    assert (row["is_cancellable"], row["is_cancelled"], row["worker"]) == (True, False, None)
    assert run("plan", "cancel", table.uri, instant)[0] == 2
    assert run("plan", "cancel", table.uri, instant, "--yes", "--reason", "a night shift")[0] == 0
    assert ask("plan", "list", table.uri)[0]["is_cancelled"]
    assert run("plan", "abort", table.uri, instant)[0] == 0
    assert ask("plan", "list", table.uri) == []
    (lost,) = ask("conflict", "list", table.uri)
    assert (lost["instant"], lost["outcome"], lost["reason"]) == (
        instant,
        "aborted",
        "a night shift",
    )
    code, _, err = run("plan", "show", table.uri, "20200101000000000")
    assert (code, "20200101000000000" in err) == (3, True)


def test_a_clustering_sorts(ask: Ask, table: hw.Table) -> None:
    done = ask("service", "cluster", table.uri, "--sort-by", "fare", "--partition", "city=sf")
    assert done["completion_time"]
    assert "file_groups" in done


def test_a_clustering_that_waits_is_executed(ask: Ask, table: hw.Table) -> None:
    planned = ask("service", "cluster", table.uri, "--sort-by", "fare", "--plan")["instant"]
    assert ask("service", "cluster", table.uri)["instant"] == planned
    assert ask("plan", "list", table.uri) == []


@pytest.mark.parametrize("chosen", [(), ("--sort-by", "fare"), ("--partition", "city=sf")])
def test_a_clustering_that_is_stopped_is_in_nobodys_way(
    run: Run, ask: Ask, table: hw.Table, monkeypatch: pytest.MonkeyPatch, chosen: tuple[str, ...]
) -> None:
    sorting = ("-o", "hoodie.clustering.plan.strategy.sort.columns=fare")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("headwater.services.clustering.run.execute_clustering_task", stopped)
        code, _, err = run("service", "cluster", table.uri, *chosen, *sorting)
    assert (code, "headwater service clean" in err) == (130, True)
    assert ask("plan", "list", table.uri) == []
    table.upsert(rows({"sf-a": 8}))
    assert ask("service", "cluster", table.uri, *chosen, *sorting)["completion_time"]


def test_a_plan_that_waits_is_told_to_who_plans_anew(run: Run, ask: Ask, table: hw.Table) -> None:
    command = ("service", "cluster", table.uri, "--sort-by", "fare")
    ask(*command, "--plan")
    code, out, _ = run(*command)
    assert (code, "headwater plan list" in out) == (0, True)


@pytest.mark.parametrize("service", ["compact", "log-compact", "cluster"])
def test_a_new_plan_is_not_one_that_is_there(run: Run, table: hw.Table, service: str) -> None:
    code, out, err = run("service", service, table.uri, "--plan", "--instant", "20260101000000000")
    assert (code, out, "one of them" in err) == (2, "", True)


@pytest.mark.parametrize(
    "chosen",
    [("--sort-by", "fare"), ("--order", "linear"), ("--partition", "city=sf"), ("--cancellable",)],
)
def test_a_plan_that_is_there_is_not_planned_anew(
    run: Run, table: hw.Table, chosen: tuple[str, ...]
) -> None:
    code, out, err = run("service", "cluster", table.uri, "--instant", "20260101000000000", *chosen)
    assert (code, out, "by itself" in err) == (2, "", True)


def test_a_savepoint_is_made_restored_and_deleted(run: Run, ask: Ask, table: hw.Table) -> None:
    saved = ask("service", "savepoint", table.uri, "--comment", "before the import")["instant"]
    assert [row["comment"] for row in ask("service", "savepoint", table.uri, "--list")] == [
        "before the import"
    ]
    table.upsert(rows({"sf-a": 99}))
    assert run("service", "restore", table.uri, saved)[0] == 2
    ask("service", "restore", table.uri, saved, "--yes")
    assert 99 not in table.read_arrow(["fare"])["fare"].to_pylist()
    code, _, err = run("service", "savepoint", table.uri, "--list", "--delete", saved)
    assert (code, "one of them" in err) == (2, True)
    assert run("service", "savepoint", table.uri, "--delete", saved)[0] == 0
    assert "no savepoints" in run("service", "savepoint", table.uri, "--list")[1]


def test_the_last_commit_is_rolled_back(run: Run, ask: Ask, table: hw.Table) -> None:
    last = table.history()["instant"][0].as_py()
    assert run("service", "rollback", table.uri, last)[0] == 2
    assert ask("service", "rollback", table.uri, last, "--yes")["instant"] == last
    assert table.read_arrow(["fare"])["fare"].to_pylist().count(1) == 1
    assert ask("conflict", "list", table.uri)[0]["outcome"] == "rolled back"
    assert "No failed write" in run("service", "rollback", table.uri)[1]


def test_old_files_and_instants_go(run: Run, ask: Ask, table: hw.Table) -> None:
    for fare in range(6):
        table.upsert(rows({"sf-a": fare}))
    (cleaned,) = ask("service", "clean", table.uri, "-o", "hoodie.clean.commits.retained=1")
    assert cleaned["deleted_paths"]
    assert "nothing to clean" in run("service", "clean", table.uri)[1]
    options = (
        "hoodie.keep.min.commits=3",
        "hoodie.keep.max.commits=4",
        "hoodie.clean.commits.retained=1",
        "hoodie.metadata.compact.max.delta.commits=1",
    )
    given = [part for option in options for part in ("-o", option)]
    assert ask("service", "archive", table.uri, *given)["archived"] > 0


def test_services_run_in_rounds(ask: Ask, logged: hw.Table) -> None:
    done = ask("service", "run", logged.uri, "--rounds", "2", "--every", "0.1", "--run", "clean")
    assert done["rounds"] == 2


@pytest.mark.parametrize("chosen", [("--run", "compaction"), ("--auto",)])
def test_rounds_in_which_a_service_failed_end_with_1(
    run: Run, logged: hw.Table, chosen: tuple[str, ...]
) -> None:
    (log,) = (Path(logged.uri) / "city=sf").glob(".*.log.*")
    log.write_bytes(log.read_bytes()[:100])
    due = ("-o", "hoodie.compact.inline.max.delta.commits=1")
    command = ("service", "run", logged.uri, *chosen, "--rounds", "1", "--every", "0.1", *due)
    code, out, _ = run(*command)
    assert (code, "failed" in out) == (1, True)


def test_a_round_in_which_nobody_can_tell_what_is_needed_ends_with_1(
    run: Run, logged: hw.Table
) -> None:
    command = ("service", "run", logged.uri, "--auto", "--rounds", "1", "--every", "0.1")
    for commit in (Path(logged.uri) / ".hoodie").rglob("*_*.deltacommit"):
        commit.write_bytes(b"cut")
    for slot in (Path(logged.uri) / ".hoodie").glob(".journal/*"):
        slot.write_bytes(b"cut")
    code, out, _ = run(*command, "--output", "json")
    assert (code, json.loads(out)["cut_short"]) == (1, 1)


@pytest.fixture
def minds_ctrl_c() -> Iterator[None]:
    """In the background of a shell it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("minds_ctrl_c")
@pytest.mark.parametrize(("sent", "ends_with"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_gives_up_what_a_command_is_at(
    run: Run,
    ask: Ask,
    logged: hw.Table,
    monkeypatch: pytest.MonkeyPatch,
    sent: signal.Signals,
    ends_with: int,
) -> None:
    """So that nobody waits for its heartbeat to expire."""

    def and_a_signal(*_: object) -> object:
        os.kill(os.getpid(), sent)
        raise AssertionError("The signal comes first")

    with monkeypatch.context() as patched:
        patched.setattr(compaction, "execute_compaction_task", and_a_signal)
        code, _, err = run("service", "compact", logged.uri)
    assert (code, "Stopped" in err) == (ends_with, True)
    (beat,) = logged.inspect.heartbeats().to_pylist()
    assert beat["is_released"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    done = ask("service", "compact", logged.uri)
    assert done["instant"] == beat["instant"]


@pytest.mark.parametrize("chosen", [("--run", "clean"), ("--auto",)])
def test_the_loop_ends_by_a_signal(logged: hw.Table, chosen: tuple[str, ...]) -> None:
    """After the round it is in, with what it did."""
    command = [sys.executable, "-m", "headwater.cli.main", "service", "run", logged.uri]
    with subprocess.Popen(
        [*command, *chosen, "--output", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as loop:
        assert loop.stderr is not None
        assert "run until" in loop.stderr.readline()
        loop.send_signal(signal.SIGTERM)
        out, _ = loop.communicate(timeout=600)
    assert loop.returncode == 0
    assert json.loads(out)["rounds"] >= 0


def test_advice_is_given_and_followed(run: Run, ask: Ask, logged: hw.Table) -> None:
    (advice,) = ask("service", "advise", logged.uri)
    assert (advice["need"], advice["call"]) == ("logs", "t.services.compact()")
    assert "1 log files" in advice["why"]
    report = ask("service", "run", logged.uri, "--auto", "--rounds", "1", "--every", "0.1")
    assert (report["rounds"], report["logs done"]) == (1, 1)
    assert ask("service", "advise", logged.uri) == []
    assert run("service", "advise", logged.uri)[1] == "The table needs nothing.\n"


def test_advice_is_followed_within_a_budget_and_only_then(run: Run, logged: hw.Table) -> None:
    code, out, _ = run("service", "run", logged.uri, "--budget-bytes", "100")
    assert (code, out) == (2, "")
    assert run("service", "run", logged.uri, "--auto", "--run", "clean")[0] == 2
    code, _, err = run("service", "run", logged.uri, "--auto", "--rounds", "1", "--sort-by", "nope")
    assert (code, "nope" in err) == (2, True)
    command = ("service", "run", logged.uri, "--auto", "--rounds", "1", "--every", "0.1")
    code, out, _ = run(*command, "--budget-bytes", "100", "--budget-seconds", "5")
    assert (code, "logs done" in out) == (0, False), "a file group costs more than that"


def test_a_lock_is_shown_and_broken_only_when_expired(run: Run, ask: Ask, table: hw.Table) -> None:
    assert "Nobody" in run("lock", "show", table.uri, *LOCK)[1]
    other = hw.open_table(table.uri, {"hoodie.write.lock.provider": "filesystem"})
    with other.context.txn.hold():
        (held,) = ask("lock", "show", table.uri, *LOCK)
        assert held["owner"]
        assert run("lock", "break", table.uri, *LOCK)[0] == 5
    code, said, _ = run("lock", "break", table.uri, *LOCK)
    assert (code, said.endswith("Nobody holds the lock.\n")) == (0, True)
    assert said.startswith("This table needs no lock") is table.config.is_fenced


def test_nobody_is_at_work(run: Run, ask: Ask, table: hw.Table) -> None:
    assert ask("heartbeat", "list", table.uri) == []
    assert "Nobody is at work" in run("heartbeat", "list", table.uri)[1]


def test_top_shows_a_table_at_work(run: Run, logged: hw.Table) -> None:
    planned = logged.services.schedule_compaction()
    code, out, _ = run("top", logged.uri, "--looks", "2", "--every", "0.1")
    assert code == 0
    assert planned is not None
    assert planned in out
    assert "plans" in out


def test_the_doctor_looks_at_this_machine_and_at_storage(ask: Ask, tmp_path: Path) -> None:
    found = {row["check"]: row["result"] for row in ask("doctor", str(tmp_path))}
    assert {found[check] for check in ("python", "pyarrow", "list", "write once", "clock")} == {
        "ok"
    }
    assert not list(tmp_path.iterdir())
    ask("doctor", str(tmp_path / "not" / "there"))
    assert not list(tmp_path.iterdir()), "nor does it leave a folder"


def test_the_doctor_says_whether_a_table_is_there(
    ask: Ask, table: hw.Table, tmp_path: Path
) -> None:
    def told(path: str) -> str:
        (detail,) = (row["detail"] for row in ask("doctor", path) if row["check"] == "list")
        return str(detail)

    assert told(table.uri).endswith("a table is there")
    assert told(str(tmp_path)).endswith("no table there")


def test_the_doctor_says_what_to_do(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "no-python"))
    code, out, _ = run("doctor")
    assert code == 1
    assert "unset it" in out
    monkeypatch.delenv("PYSPARK_PYTHON")
    old = tmp_path / "bin"
    old.mkdir()
    (old / "java").write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    os.chmod(old / "java", 0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, out, _ = run("doctor")
    assert code == 0
    assert "JDK 17" in out


def test_the_version_is_shown(run: Run) -> None:
    assert run("--version")[:2] == (0, f"headwater {hw.__version__}\n")
