"""A console at work: changes are told as they come, and buttons do what they say."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.console_client import ConsoleClient, served
from tests.support.tables import MOR, a_table, trips

import headwater as hw
from headwater.console.actions import ACTIONS, RUNNING_MAX
from headwater.table import Table

KILLED_WRITER = Path(__file__).parents[2] / "processes" / "killed_writer.py"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = a_table(tmp_path, table_type=MOR, partition_by="city", buckets=1)
    return made.with_commits(2).create()


@pytest.fixture
def client(table: Table) -> Iterator[ConsoleClient]:
    with served(table, allows_actions=True) as made:
        yield made


def timeline_files(table: Table) -> list[str]:
    return table.storage.list_names(table.context.layout.timeline)


def test_a_new_commit_is_told_and_nothing_else_of_the_timeline(
    table: Table, client: ConsoleClient
) -> None:
    with client.stream() as stream:
        assert len(stream.next()["sections"]["instants"]) == 2
        # Another process may write it: what is watched is the table.
        done = hw.open_table(table.uri).upsert(trips(("b", "sf", 3)))
        key = f"{done.instant} deltacommit"
        told: set[str] = set()
        while stream.sections["instants"].get(key, {}).get("state") != "completed":
            told |= set(stream.next()["sections"].get("instants", {}))
        assert told == {key}
        assert stream.sections["instants"][key]["completion_time"] == done.completion_time
        assert len(stream.sections["instants"]) == 3


def test_a_quiet_stream_ends_when_the_console_does(table: Table) -> None:
    with served(table) as client:
        opened = client.stream()
        stream = opened.__enter__()
        stream.next()
    assert b"data: " not in stream.response.read()
    opened.__exit__(None, None, None)


def test_several_tables_have_numbers(table: Table, tmp_path: Path) -> None:
    other = a_table(tmp_path / "other").create()
    with served(table, other) as client:
        answer = client.ask("/api/tables").json
        assert [one["number"] for one in answer["tables"]] == [0, 1]
        assert [one["uri"] for one in answer["tables"]] == [table.uri, other.uri]
        assert answer["actions"] == {}
        with client.stream(1) as stream:
            assert "instants" not in stream.next()["sections"]


def test_without_leave_nothing_is_done(table: Table) -> None:
    plan = table.services.schedule_compaction()
    before = timeline_files(table)
    with served(table) as client:
        for name in ACTIONS:
            answer = client.act(name, str(plan))
            assert answer.status == 403
            assert "--allow-actions" in answer.json["error"]
    assert timeline_files(table) == before


def test_every_action_says_what_will_happen(client: ConsoleClient) -> None:
    offered = client.ask("/api/tables").json["actions"]
    assert offered.keys() == ACTIONS.keys()
    assert all(one["title"] and one["what"].endswith(".") for one in offered.values())


def test_a_cancelled_plan_ends_as_aborted(table: Table, client: ConsoleClient) -> None:
    plan = table.services.schedule_clustering(["value"], cancellable=True)
    assert plan is not None
    with client.stream() as stream:
        assert stream.next()["sections"]["plans"][plan]["is_cancellable"]
    answer = client.act("cancel", plan)
    assert answer.status == 202
    job = client.wait_for_job(answer.json["job"])
    assert (job["state"], job["said"]) == ("done", f"{plan} is cancelled and aborted.")
    assert any(
        name.startswith(plan) and name.endswith(".aborted") for name in timeline_files(table)
    )
    with client.stream() as stream:
        stream.wait_for(lambda now: not now.get("plans") and "conflicts" in now)
        conflict = stream.sections["conflicts"][f"{plan} aborted"]
        assert conflict["reason"] == "asked for in the console"


def test_a_plan_that_is_not_cancellable_stays(table: Table, client: ConsoleClient) -> None:
    plan = str(table.services.schedule_clustering(["value"]))
    job = client.wait_for_job(client.act("cancel", plan).json["job"])
    assert job["state"] == "failed"
    assert "cancellable" in job["said"]
    assert [row["instant"] for row in table.inspect.plans().to_pylist()] == [plan]


@pytest.mark.parametrize(
    ("service", "said"),
    [
        ("compaction", "row_count"),
        ("log_compaction", "No file group has enough log files."),
        ("clean", "There is nothing to clean."),
        ("archive", "0 instants were archived."),
    ],
)
def test_services_run(table: Table, client: ConsoleClient, service: str, said: str) -> None:
    job = client.wait_for_job(client.act(service).json["job"])
    assert job["state"] == "done"
    assert said in job["said"]


def test_clustering_runs(table: Table, client: ConsoleClient) -> None:
    job = client.wait_for_job(client.act("clustering").json["job"])
    assert job["state"] == "done", job


def test_buttons_work_after_the_table_was_switched(table: Table, client: ConsoleClient) -> None:
    with client.stream() as stream:
        stream.next()
        hw.upgrade_table(table.uri, {"hoodie.write.lock.provider": "filesystem"}, fenced=False)
        job = client.wait_for_job(client.act("compaction").json["job"])
        assert job["state"] == "done", job
        stream.wait_for(lambda now: len(now["instants"]) == 3)
        assert not client.ask("/api/tables").json["tables"][0]["is_fenced"]


def test_a_dead_write_is_rolled_back(table: Table, client: ConsoleClient) -> None:
    command = [sys.executable, str(KILLED_WRITER), table.uri.removeprefix("file://")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        with client.stream() as stream:
            sections = stream.next()["sections"]
        writer.send_signal(signal.SIGKILL)
    (beat,) = sections["heartbeats"].values()
    assert (beat["pid"], beat["attempt"]) == (writer.pid, 1)
    instant = beat["instant"]
    job = client.wait_for_job(client.act("roll_back", instant).json["job"])
    assert (job["state"], job["said"]) == ("done", f"{instant} is rolled back.")
    assert table.context.load_timeline().pending == ()
    with client.stream() as stream:
        stream.wait_for(lambda now: not now.get("heartbeats") and "conflicts" in now)
        assert f"{instant} rolled back" in stream.sections["conflicts"]


@pytest.mark.long
def test_a_live_write_is_left_alone(table: Table, client: ConsoleClient) -> None:
    """Its heartbeat is watched until it moves, which takes a minute."""
    command = [sys.executable, str(KILLED_WRITER), table.uri.removeprefix("file://")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "written\n"
            (pending,) = table.context.load_timeline().pending
            answer = client.act("roll_back", str(pending.requested_time))
            job = client.wait_for_job(answer.json["job"])
            assert job["state"] == "failed", job
            assert table.context.load_timeline().pending == (pending,)
        finally:
            writer.kill()


def test_a_commit_is_never_taken_back(table: Table, client: ConsoleClient) -> None:
    """`t.services.rollback` takes back the last commit; the button means dead writes only."""
    done = table.upsert(trips(("a", "sf", 77)))
    job = client.wait_for_job(client.act("roll_back", str(done.instant)).json["job"])
    assert job["said"] == f"{done.instant} has completed meanwhile. Nothing was done."
    assert 77 in table.read_arrow()["value"].to_pylist()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'{"action": 1}', 400),
        (b'{"action": "drop"}', 400),
        (b'{"action": "cancel"}', 400),
        (b'{"action": "cancel", "instant": "../../x"}', 400),
        (b"[" * 3000, 400),
    ],
)
def test_what_makes_no_sense_is_refused(client: ConsoleClient, body: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    path = "/api/tables/0/actions"
    assert client.ask(path, method="POST", body=body, headers=headers).status == status


def test_a_form_is_no_action(client: ConsoleClient) -> None:
    """What a page of another origin could send without being asked for leave."""
    body = b'{"action": "clean"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        headers = {"Content-Type": kind}
        answer = client.ask("/api/tables/0/actions", method="POST", body=body, headers=headers)
        assert answer.status == 415
    assert client.ask("/api/tables/0/actions").status == 405


@pytest.mark.usefixtures("tables_with_a_lock")
def test_jobs_are_limited(table: Table, client: ConsoleClient) -> None:
    """The table lock is held, so that what is begun does not end."""
    locks = table.context.components.locks
    plans = [table.services.schedule_clustering(["value"], cancellable=True)]
    held = locks.acquire(timeout_ms=60_000)
    try:
        statuses = [client.act("cancel", str(plans[0])).status for _ in range(RUNNING_MAX + 1)]
    finally:
        held.release()
    assert statuses == [202] * RUNNING_MAX + [409]
    for number in range(1, RUNNING_MAX + 1):
        assert client.wait_for_job(number)["state"] == "done"


def test_the_table_is_checked_on_demand(table: Table, client: ConsoleClient) -> None:
    assert client.ask("/api/tables/0/problems").json == {"problems": []}
    (file, *_) = table.inspect.files()["path"].to_pylist()
    table.storage.delete(file)
    found = client.ask("/api/tables/0/problems?deep=1").json["problems"]
    assert any(file in problem["subject"] for problem in found)


def test_details_of_an_instant(table: Table, client: ConsoleClient) -> None:
    time = str(table.history(1)["instant"][0])
    details = client.ask(f"/api/tables/0/instants/{time}").json
    assert (details["state"], len(details["files"])) == ("completed", 2)
    assert client.ask("/api/tables/0/instants/20200101000000000").status == 404
