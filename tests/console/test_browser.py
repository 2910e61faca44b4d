"""The console in a real Chromium: what people see and press, and what a hostile page gets.

`make test-console` runs them. They need Debian's package `chromium`, or HEADWATER_CHROMIUM; the one
that looks for what people with disabilities stumble over needs axe-core, which
scripts/get-console-tools.sh fetches. HEADWATER_CONSOLE_SHOTS is a folder to write pictures to.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.chromium import CHROMIUM, WAIT_S_MAX, Browser, Page, running_chromium
from tests.support.console_client import TOKEN, ConsoleClient, served
from tests.support.tables import MOR, a_table, trips

import headwater as hw
from headwater.model.instant import instant_time_at
from headwater.table import Table

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

WRITER = Path(__file__).parents[1] / "processes" / "writer.py"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater" / "console"
AXE = Path(os.environ.get("HEADWATER_AXE") or CACHE / "node_modules" / "axe-core" / "axe.min.js")
SHOTS = os.environ.get("HEADWATER_CONSOLE_SHOTS")
LOCK = {"hoodie.write.lock.provider": "filesystem"}
MANY = 10_000
NODES_MAX = 1_500
"""How many elements the page may have, however many instants there are."""
IS_LIVE = "document.querySelector('#connection').textContent === 'live'"
TOTAL = "Number(document.querySelector('#lanes').dataset.total)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_chromium(tmp_path_factory.mktemp("chromium") / "profile") as running:
        yield running


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = a_table(tmp_path, table_type=MOR, partition_by="city", buckets=2, options=LOCK)
    return made.with_commits(3).create()


@pytest.fixture
def client(table: Table) -> Iterator[ConsoleClient]:
    with served(table, allows_actions=True) as made:
        yield made


def console(browser: Browser, client: ConsoleClient, token: str = TOKEN) -> Page:
    """Open the console as its command says, and return it once it shows the table."""
    page = browser.open(f"http://127.0.0.1:{client.port}/#token={token}")
    page.wait_for(IS_LIVE)
    return page


def picture_of(page: Page) -> str:
    """Return what is drawn on the canvas of the timeline."""
    return str(page.run("document.querySelector('#lanes').toDataURL()"))


def aborted(table: Table) -> list[str]:
    names = table.storage.list_names(table.context.layout.timeline)
    return [name for name in names if name.endswith(".aborted")]


def test_lanes_move_while_writers_work(browser: Browser, tmp_path: Path) -> None:
    schema = "id string, writer long, number long, ts long"
    table = a_table(
        tmp_path, schema, table_type=MOR, buckets=2, ordering="ts", options=LOCK
    ).create()
    with served(table) as client, ExitStack() as stack:
        page = console(browser, client)
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
    page = console(browser, client)
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
        page = console(browser, client)
        page.wait_for("document.querySelectorAll('#plans td').length > 0")
        assert page.text("#mode") == "read only"
        assert page.run("document.querySelectorAll('[data-action]').length") == 0
        assert page.run("document.querySelector('#services').hidden") is True


def test_a_wrong_token_is_refused_in_words(browser: Browser, client: ConsoleClient) -> None:
    page = browser.open(f"http://127.0.0.1:{client.port}/#token={'x' * 40}")
    page.wait_for("!document.querySelector('#refused').hidden")
    assert "open the address that the command printed" in page.text("#refused")
    assert page.run(f"{TOTAL} || 0") == 0
    assert "trips" not in page.text("body")


def test_the_token_leaves_the_address_and_survives_a_reload(
    browser: Browser, client: ConsoleClient
) -> None:
    page = console(browser, client)
    assert page.run("location.href") == f"http://127.0.0.1:{client.port}/"
    page.call("Page.reload")
    page.wait_for(IS_LIVE)
    assert page.run("document.cookie") == ""
    # Another tab knows nothing of it.
    other = browser.open(f"http://127.0.0.1:{client.port}/")
    other.wait_for("!document.querySelector('#refused').hidden")


def test_the_page_goes_on_when_the_console_comes_back(browser: Browser, table: Table) -> None:
    with served(table) as client:
        page = console(browser, client)
        page.wait_for(f"{TOTAL} === 3")
    page.wait_for("document.querySelector('#connection').textContent.startsWith('cut off')")
    table.upsert(trips(("x", "sf", 1)))
    with served(table, port=client.port):
        page.wait_for(IS_LIVE)
        page.wait_for(f"{TOTAL} === 4")


def test_another_table_is_chosen(browser: Browser, table: Table, tmp_path: Path) -> None:
    other = a_table(tmp_path / "other", name="rides").with_commits(1).create()
    with served(table, other) as client:
        page = console(browser, client)
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


def test_who_holds_the_lock_and_what_cannot_be_read_is_said(
    browser: Browser, table: Table, client: ConsoleClient
) -> None:
    page = console(browser, client)
    assert "Nobody holds the lock." in page.text("#work")
    held = table.context.components.locks.acquire(timeout_ms=60_000)
    page.wait_for("document.querySelector('#locks').innerText.includes('Owner')")
    assert str(table.context.ids.owner.pid) in page.text("#locks")
    held.release()
    page.wait_for("document.querySelector('#locks').innerText.includes('Nobody')")
    plan = Path(table.uri.removeprefix("file://"), table.context.layout.timeline)
    table.services.schedule_compaction()
    (requested,) = plan.glob("*.compaction.requested")
    requested.write_bytes(b"broken")
    page.wait_for("!document.querySelector('#troubles').hidden")
    assert requested.name in page.text("#troubles")


HOSTILE = """
(async () => {
  const at = ADDRESS;
  const got = {};
  const tried = async (name, attempt) => {
    try { got[name] = await attempt(); } catch (error) { got[name] = "nothing"; }
  };
  const loads = (element, source) => new Promise((done) => {
    element.onload = () => done("loaded");
    element.onerror = () => done("nothing");
    element.src = source;
    document.body.append(element);
  });
  const body = JSON.stringify({action: "cancel", instant: PLAN});
  const post = (options) => fetch(`${at}/api/tables/0/actions`, {method: "POST", body, ...options});
  await tried("page", async () => (await fetch(`${at}/`)).text());
  await tried("tables", async () => (await fetch(`${at}/api/tables`)).text());
  await tried("with cookies", async () =>
    (await fetch(`${at}/api/tables`, {credentials: "include"})).text());
  await tried("with a token", async () =>
    (await fetch(`${at}/api/tables`, {headers: {Authorization: "Bearer TOKEN"}})).text());
  await tried("unseen", async () =>
    (await (await fetch(`${at}/api/tables`, {mode: "no-cors"})).text()) || "nothing");
  await tried("act", async () => (await post({})).text());
  await tried("act in JSON", async () =>
    (await post({headers: {"Content-Type": "application/json"}})).text());
  await tried("act unseen", async () =>
    (await (await post({mode: "no-cors"})).text()) || "nothing");
  await tried("act with a token", async () => (await post({headers: {
    "Content-Type": "application/json", Authorization: "Bearer TOKEN"}})).text());
  await tried("script", () => loads(document.createElement("script"), `${at}/main.js`));
  await tried("image", () => loads(document.createElement("img"), `${at}/icon.svg`));
  await tried("stream", () => new Promise((done) => {
    const source = new EventSource(`${at}/api/tables/0/stream`);
    source.onmessage = () => done("events");
    source.onerror = () => { source.close(); done("nothing"); };
  }));
  await tried("frame", async () => {
    const frame = document.createElement("iframe");
    await loads(frame, `${at}/`);
    return frame.contentDocument ? "its document" : "nothing";
  });
  await tried("window", async () => {
    const opened = window.open(`${at}/`);
    return opened && opened.document.body.innerText ? "its text" : "nothing";
  });
  await tried("storage", async () => JSON.stringify({...sessionStorage, ...localStorage}));
  return got;
})()
"""


@contextmanager
def hostile_server() -> Iterator[int]:
    """Serve an empty page from another port of this machine: the same site, another origin."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>hostile</title><body>")
            seen.append(dict(self.headers))

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    seen: list[dict[str, str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert not [one for one in seen if "Cookie" in one or "Authorization" in one]


@pytest.mark.parametrize("by", ["127.0.0.1", "localhost"])
def test_a_hostile_page_in_the_same_browser_gets_nothing(
    browser: Browser, table: Table, client: ConsoleClient, by: str
) -> None:
    """Even if it knows the token: no page of another origin is answered."""
    plan = table.services.schedule_clustering(["value"], cancellable=True)
    page = console(browser, client)
    before = table.storage.list_names(table.context.layout.timeline)
    address = f"http://127.0.0.1:{client.port}"
    script = HOSTILE.replace("ADDRESS", json.dumps(address)).replace("PLAN", json.dumps(plan))
    with hostile_server() as port:
        hostile = browser.open(f"http://{by}:{port}/")
        got = hostile.run(script.replace("TOKEN", TOKEN))
    assert got.pop("storage") == "{}"
    assert len(got) == 14
    assert {name: one for name, one in got.items() if one != "nothing"} == {}
    assert table.storage.list_names(table.context.layout.timeline) == before
    # Whoever sits before the browser goes on as before.
    assert page.run(IS_LIVE)


def test_names_that_are_markup_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    table = a_table(tmp_path, partition_by="city", buckets=1, name=name).create()
    table.insert(trips(("a", name, 1)))
    with served(table) as client:
        page = console(browser, client)
        page.wait_for("document.querySelectorAll('#group-rows .line').length > 0")
        assert page.run("document.querySelectorAll('img').length") == 0
        assert page.text("#tables option") == name


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
    keep = {"hoodie.clean.commits.retained": "1"}
    table = a_table(tmp_path, options=keep).with_commits(4).create()
    assert table.services.clean()
    make_many(table)
    with served(table) as client:
        page = console(browser, client)
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
    keep = {"hoodie.clean.commits.retained": "1"}
    table = a_table(tmp_path, options=keep).with_commits(4).create()
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


def test_everything_can_be_reached_by_keyboard(
    browser: Browser, table: Table, client: ConsoleClient
) -> None:
    plan = table.services.schedule_clustering(["value"], cancellable=True)
    page = console(browser, client)
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
    page = console(browser, client)
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
    page = console(browser, client)
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
    page = console(browser, client)
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
