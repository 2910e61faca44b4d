"""The console with ten thousand instants: what is drawn, and of how many elements."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.chromium import Browser
from tests.support.console_client import served
from tests.support.console_page import IN_CHROMIUM, TOTAL, open_console, picture_of
from tests.support.tables import LOCKED, a_table, trips

import headwater as hw
from headwater.model.instant import instant_time_at
from headwater.table import Table

pytestmark = IN_CHROMIUM


MANY = 10_000
# Those that are added by hand are in no journal.
KEEP = {"hoodie.clean.commits.retained": "1", **LOCKED}
NODES_MAX = 1_500
"""How many elements the page may have, however many instants there are."""


def make_many(table: Table) -> None:
    """Add completed instants until there are ten thousand, of a commit that wrote nothing."""
    folder = Path(table.uri.removeprefix("file://")) / table.context.layout.timeline
    (like,) = (path for path in folder.iterdir() if path.suffix == ".clean")
    first_ms = table.context.clock.now_ms() - 90 * 24 * 3_600_000
    for number in range(MANY - len(table.context.load_timeline())):
        start_ms = first_ms + number * 60_000
        times = (instant_time_at(start_ms), instant_time_at(start_ms + 5_000 + number % 7 * 9_000))
        os.link(like, folder / f"{'_'.join(times)}.clean")


def test_ten_thousand_instants_are_drawn_and_scrolled(browser: Browser, tmp_path: Path) -> None:
    table = a_table(tmp_path, options=KEEP).with_commits(4).create()
    assert table.services.clean()
    make_many(table)
    with served(table) as client:
        page = open_console(browser, client)
        assert page.run(TOTAL) == MANY
        nodes = "document.querySelectorAll('*').length"
        assert page.run(nodes) < NODES_MAX
        times = table.inspect.timeline()["requested_time"].to_pylist()[::-1]
        for place in (0, MANY // 2, MANY - 20):
            page.run(f"document.querySelector('#instants .body').scrollTop = {place} * 28")
            line = f"document.querySelector('#instants [aria-rowindex=\"{place + 2}\"]')"
            page.wait_for(f"!!{line}")
            assert page.run(f"{line}.firstChild.innerText") == times[place]
            assert page.run(nodes) < NODES_MAX
        # The newest hundred, then all: many of them share a pixel and are drawn once.
        drawn = "Number(document.querySelector('#lanes').dataset.drawn)"
        assert page.run(drawn) <= 200
        page.click("#all")
        page.wait_for(f"{drawn} > 500")
        assert page.run(drawn) < MANY
        before = picture_of(page)
        page.click("#zoom-in")
        page.click("#earlier")
        page.wait_for(
            f"document.querySelector('#lanes').toDataURL() !== {json.dumps(before)}"
            " && document.querySelector('#follow').getAttribute('aria-pressed') === 'false'"
        )
        assert page.run(nodes) < NODES_MAX


def test_one_new_instant_among_ten_thousand_is_one_row_on_the_wire(tmp_path: Path) -> None:
    table = a_table(tmp_path, options=KEEP).with_commits(4).create()
    table.services.clean()
    make_many(table)
    with served(table) as client, client.stream() as stream:
        assert len(stream.next()["sections"]["instants"]) == MANY
        done = hw.open_table(table.uri).upsert(trips(("z", "sf", 1)))
        changed: set[str] = set()
        key = f"{done.instant} {done_action(table, str(done.instant))}"
        while stream.sections["instants"].get(key, {}).get("state") != "completed":
            changed |= set(stream.next()["sections"].get("instants", {}))
        assert changed == {key}


def done_action(table: Table, instant: str) -> str:
    rows = table.inspect.timeline().to_pylist()
    return str(next(row["action"] for row in rows if row["requested_time"] == instant))
