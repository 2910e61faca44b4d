"""The console in a real Chromium: by keyboard, on a phone, in light and dark, and by axe-core.

The last needs axe-core, which scripts/get-console-tools.sh fetches. The pictures of the guide are
made here as well: HEADWATER_CONSOLE_SHOTS is the folder to write them to.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.chromium import Browser, Page
from tests.support.console_client import ConsoleClient
from tests.support.console_page import IN_CHROMIUM, TOTAL, open_console
from tests.support.tables import trips

from headwater.table import Table

pytestmark = IN_CHROMIUM


CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater" / "console"
AXE = Path(os.environ.get("HEADWATER_AXE") or CACHE / "node_modules" / "axe-core" / "axe.min.js")
SHOTS = os.environ.get("HEADWATER_CONSOLE_SHOTS")


def test_everything_can_be_reached_by_keyboard(
    browser: Browser, table: Table, client: ConsoleClient
) -> None:
    plan = table.services.schedule_clustering(["value"], cancellable=True)
    page = open_console(browser, client)
    page.wait_for(f"{TOTAL} === 4")
    reached = []
    for _ in range(60):
        page.press("Tab")
        reached.append(
            page.run("document.activeElement.id || document.activeElement.dataset.action || ''")
        )
        if reached[-1] == "cancel":
            break
    for name in ("tables", "zoom-in", "follow", "lanes", "cancel"):
        assert name in reached
    page.press("Enter")
    page.wait_for("document.querySelector('#ask').open")
    page.press("Escape")
    page.wait_for("!document.querySelector('#ask').open")
    page.run("document.querySelector('#lanes').focus()")
    page.press("ArrowDown")
    assert str(plan) in page.text("#announced")
    page.press("Enter")
    page.wait_for("!!document.querySelector('#details-body dl')")
    assert str(plan) in page.text("#details-title")
    span = "Number(document.querySelector('#lanes').dataset.span)"
    before = page.run(span)
    page.press("-")
    page.wait_for(f"{span} > {before}")


def test_it_fits_a_phone(browser: Browser, table: Table, client: ConsoleClient) -> None:
    table.services.schedule_clustering(["value"], cancellable=True)
    page = open_console(browser, client)
    page.resize(360, 740, is_phone=True)
    page.click("#plans [data-key^=link]")
    page.wait_for("!!document.querySelector('#details-body dl')")
    assert page.run("document.documentElement.scrollWidth") <= 360
    assert page.run("document.querySelector('#lanes').clientWidth") > 300


def fill(table: Table) -> str:
    """Let a table have something in every part of the page; return a plan that waits."""
    for number in range(4):
        table.upsert(trips(*((f"k{number}-{row}", "sf", row) for row in range(50 * (number + 1)))))
    table.indexes.create("column_stats")
    table.services.compact()
    cancelled = str(table.services.schedule_clustering(["value"], cancellable=True))
    table.services.request_cancel(cancelled, reason="it was in the way of an import")
    table.services.execute_abort(cancelled)
    table.services.savepoint(comment="before the import")
    table.upsert(trips(("late", "sf", 1), ("later", "ny", 2)))
    return str(table.services.schedule_clustering(["value"], cancellable=True))


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not here: scripts/get-console-tools.sh")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nobody_is_shut_out(
    browser: Browser, table: Table, client: ConsoleClient, scheme: str, width: int
) -> None:
    fill(table)
    page = open_console(browser, client)
    page.resize(width, 900, is_phone=width < 500)
    page.prefer(scheme)
    page.click("#plans [data-key^=link]")
    page.wait_for("!!document.querySelector('#details-body dl')")
    page.click("#check-quick")
    page.wait_for("document.querySelector('#check-said').textContent.includes('No problems')")
    page.run(AXE.read_text() + "; 0")
    assert violations(page) == []
    page.click("#plans [data-action=cancel]")
    page.wait_for("document.querySelector('#ask').open")
    assert violations(page) == []


def violations(page: Page) -> list[str]:
    found = page.run("axe.run().then((all) => all.violations)")
    return [
        f"{one['id']} ({one['impact']}): {one['help']}; {one['nodes'][0]['html']}"
        for one in found
        if one["impact"] in ("serious", "critical", "moderate")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_for_the_guide(
    browser: Browser, table: Table, client: ConsoleClient, tmp_path: Path, scheme: str
) -> None:
    plan = fill(table)
    page = open_console(browser, client)
    page.resize(1100, 860)
    page.prefer(scheme)
    page.click("#plans [data-key^=link]")
    page.wait_for("!!document.querySelector('#details-body dl')")
    page.click("#all")
    page.run("window.scrollTo({top: 0, behavior: 'instant'})")
    page.run("document.querySelector('#where').textContent = '/tables/trips'")
    # Two frames: what was asked for is drawn by then.
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert plan in page.text("#details-title")
    shot = page.screenshot()
    assert shot[8:12] == b"WEBP"
    folder = Path(SHOTS) if SHOTS else tmp_path
    (folder / f"console-{scheme}.webp").write_bytes(shot)
