"""A night's incident, mended from the runbook by commands alone.

A writer was killed while it held the table lock, with its files written and no commit; a clustering
is planned that nobody executes; the file of an index is damaged.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.csv as pc
from tests.unit.cli.conftest import Ask, Run, rows

import headwater as hw

LOCK = ("-o", "hoodie.write.lock.provider=filesystem")
OPTIONS = {
    "hoodie.write.lock.provider": "filesystem",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "headwater.storage.fsync": "false",
}
KILLED = """
import sys, time
import headwater as hw
from headwater.engine.inline import InlineRows
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import run_write
from tests.unit.cli.conftest import rows
from tests.unit.cli.test_a_night import OPTIONS

table = hw.open_table(sys.argv[1], OPTIONS)

class Endless(InlineRows):
    def run(self, route, task):
        super().run(route, task)
        table.context.components.locks.acquire(timeout_ms=60_000)
        print("written and locked", flush=True)
        time.sleep(3600)

given = rows({"sf-a": 99, "sf-b": 99})
request = WriteRequest(operation=Operation.UPSERT, columns=given.schema)
run_write(table.context, request, Endless(given))
"""


def kill_a_writer(table: hw.Table) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, table.uri],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written and locked\n"
        writer.send_signal(signal.SIGKILL)


def test_a_night_is_mended_by_commands_alone(
    run: Run, ask: Ask, table: hw.Table, tmp_path: Path
) -> None:
    path = table.uri
    ask("index", "create", path, "column_stats", *LOCK)
    before = ask("table", "read", path)
    plan = ask("service", "cluster", path, "--sort-by", "fare", "--cancellable", "--plan", *LOCK)
    kill_a_writer(table)
    for file in (Path(path) / ".hoodie/metadata/column_stats").glob("*.hfile"):
        file.write_bytes(file.read_bytes()[:100])

    # Who is at work, and who holds the lock?
    assert run("top", path, "--looks", "1", *LOCK)[0] == 0
    assert [row["provider"] for row in ask("lock", "show", path, *LOCK)] == ["filesystem"]
    code, _, said = run("lock", "break", path, *LOCK)
    assert code == 0, said
    assert ask("lock", "show", path, *LOCK) == []

    # What it left.
    assert len(ask("service", "rollback", path, "--wait", *LOCK)) == 1
    purposes = [row["purpose"] for row in ask("heartbeat", "list", path)]
    assert "write" not in purposes

    # The clustering that nobody executes.
    assert [row["instant"] for row in ask("plan", "list", path)] == [plan["instant"]]
    assert run("plan", "cancel", path, plan["instant"], "--yes", *LOCK)[0] == 0
    assert run("plan", "abort", path, plan["instant"], *LOCK)[0] == 0

    # The index.
    assert run("fsck", path, *LOCK)[0] == 1
    assert run("fsck", path, "--repair", "--yes", *LOCK)[0] == 0
    assert run("fsck", path, "--deep", *LOCK)[0] == 0

    assert ask("table", "read", path) == before
    pc.write_csv(rows({"sf-a": 7}), tmp_path / "rows.csv")
    assert run("table", "write", path, str(tmp_path / "rows.csv"), *LOCK)[0] == 0
    assert {row["id"]: row["fare"] for row in ask("table", "read", path)}["sf-a"] == 7
