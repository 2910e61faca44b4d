"""The console in a real Chromium, while writers work: what moves, and what a button does."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.chromium import WAIT_S_MAX, Browser
from tests.support.console_client import ConsoleClient, served
from tests.support.console_page import IN_CHROMIUM, IS_LIVE, TOTAL, open_console, picture_of
from tests.support.tables import FENCED, LOCKED, MOR, a_table, trips

from headwater.services import Services
from headwater.table import Table

pytestmark = IN_CHROMIUM


LOCK = {"hoodie.write.lock.provider": "filesystem"}
WRITER = Path(__file__).parents[1] / "processes" / "writer.py"


def aborted(table: Table) -> list[str]:
    names = table.storage.list_names(table.context.layout.timeline)
    return [name for name in names if name.endswith(".aborted")]


def test_lanes_move_while_writers_work(browser: Browser, tmp_path: Path) -> None:
    schema = "id string, writer long, number long, ts long"
    table = a_table(
        tmp_path, schema, table_type=MOR, buckets=2, ordering="ts", options=LOCK
    ).create()
    with served(table) as client, ExitStack() as stack:
        page = open_console(browser, client)
        assert page.run(TOTAL) == 0
        pictures = {picture_of(page)}
        writers = []
        for writer in range(2):
            notes = str(tmp_path / f"acknowledged-{writer}")
            mode = "non_blocking_concurrency_control"
            path = table.uri.removeprefix("file://")
            command = [sys.executable, str(WRITER), path, notes, str(writer), "0", "6", mode]
            writers.append(stack.enter_context(subprocess.Popen(command)))
            stack.callback(writers[-1].kill)
        for count in (1, 4, 8, 12):
            page.wait_for(f"{TOTAL} >= {count}")
            pictures.add(picture_of(page))
        assert [writer.wait(WAIT_S_MAX) for writer in writers] == [0, 0]
        page.wait_for("document.querySelector('#instant-count').textContent.endsWith(' 0 pending')")
        assert page.run(TOTAL) == len(table.context.load_timeline()) >= 12
        assert len(pictures) == 5


def test_a_plan_is_cancelled_by_its_button(
    browser: Browser, table: Table, client: ConsoleClient
) -> None:
    plan = table.services.schedule_clustering(["value"], cancellable=True)
    page = open_console(browser, client)
    page.click("#plans [data-action=cancel]")
    assert page.text("#ask-title") == "Cancel plan?"
    assert "cancelled for good" in page.text("#ask-what")
    assert page.text("#ask-instant") == f"{plan} of trips"
    assert page.run("document.activeElement.id") == "ask-no"
    page.click("#ask-no")
    assert page.run("document.querySelector('#ask').open") is False
    assert aborted(table) == []

    page.click("#plans [data-action=cancel]")
    page.click("#ask-yes")
    page.wait_for("document.querySelector('#jobs').innerText.includes('cancelled and aborted')")
    assert [name.startswith(str(plan)) for name in aborted(table)] == [True]
    page.wait_for("document.querySelector('#plans').innerText.includes('No plan waits.')")
    page.wait_for("document.querySelector('#conflicts').innerText.includes('aborted')")
    assert "asked for in the console" in page.text("#conflicts")


def test_without_leave_there_is_no_button(browser: Browser, table: Table) -> None:
    table.services.schedule_clustering(["value"], cancellable=True)
    with served(table) as client:
        page = open_console(browser, client)
        page.wait_for("document.querySelectorAll('#plans td').length > 0")
        assert page.text("#mode") == "read only"
        assert page.run("document.querySelectorAll('[data-action]').length") == 0
        assert page.run("document.querySelector('#services').hidden") is True


def test_the_page_goes_on_when_the_console_comes_back(browser: Browser, table: Table) -> None:
    with served(table) as client:
        page = open_console(browser, client)
        page.wait_for(f"{TOTAL} === 3")
    page.wait_for("document.querySelector('#connection').textContent.startsWith('cut off')")
    table.upsert(trips(("x", "sf", 1)))
    with served(table, port=client.port):
        page.wait_for(IS_LIVE)
        page.wait_for(f"{TOTAL} === 4")


def test_another_table_is_chosen(browser: Browser, table: Table, tmp_path: Path) -> None:
    other = a_table(tmp_path / "other", name="rides").with_commits(1).create()
    with served(table, other) as client:
        page = open_console(browser, client)
        page.wait_for(f"{TOTAL} === 3")
        page.click("#instants .line button")
        page.wait_for("!!document.querySelector('#details-body dl')")
        page.run(
            "document.querySelector('#tables').value = 1;"
            "document.querySelector('#tables').dispatchEvent(new Event('change'))"
        )
        page.wait_for(f"{TOTAL} === 1")
        assert page.text("#where") == other.uri
        assert page.text("#details-title") == "No instant is chosen"
        assert page.run("document.querySelectorAll('#instants .line').length") == 1


@pytest.mark.parametrize(
    ("mode", "nobody"),
    [(LOCKED, "Nobody holds the lock."), (FENCED, "This table needs no lock, it has a journal.")],
    ids=["lock", "journal"],
)
def test_who_holds_the_lock_is_said(
    browser: Browser, tmp_path: Path, mode: dict[str, str], nobody: str
) -> None:
    table = a_table(tmp_path, options={**LOCK, **mode}).create()
    with served(table) as client:
        page = open_console(browser, client)
        assert page.text("#locks").startswith(nobody)
        held = table.context.components.locks.acquire(timeout_ms=60_000)
        page.wait_for("document.querySelector('#locks').innerText.includes('Owner')")
        assert str(table.context.ids.owner.pid) in page.text("#locks")
        held.release()
        page.wait_for(f"document.querySelector('#locks').innerText.startsWith('{nobody}')")


def test_what_cannot_be_read_is_said(browser: Browser, tmp_path: Path) -> None:
    # Of one with a journal the plan would still be known.
    made = a_table(tmp_path, table_type=MOR, buckets=2, options={**LOCK, **LOCKED})
    table = made.with_commits(2).create()
    with served(table) as client:
        page = open_console(browser, client)
        plan = Path(table.uri.removeprefix("file://"), table.context.layout.timeline)
        table.services.schedule_compaction()
        (requested,) = plan.glob("*.compaction.requested")
        requested.write_bytes(b"broken")
        page.wait_for("!document.querySelector('#troubles').hidden")
        assert requested.name in page.text("#troubles")


@dataclass
class Advised:
    why: str
    gain_bytes: int


def test_advice_is_shown_where_services_give_it(
    browser: Browser, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [Advised("most of it lies in logs", 3 << 20)]
    monkeypatch.setattr(Services, "advise", lambda _: given, raising=False)
    with served(table) as client:
        page = open_console(browser, client)
        page.wait_for("!document.querySelector('#advice').hidden")
        assert "most of it lies in logs" in page.text("#advice")
        assert "3.0 MiB" in page.text("#advice")
