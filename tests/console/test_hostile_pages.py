"""The console in a real Chromium: who has no token, or is another page, gets nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.chromium import ATTACKERS_NAME, Browser
from tests.support.console_client import TOKEN, ConsoleClient, served
from tests.support.console_page import IN_CHROMIUM, IS_LIVE, TOTAL, open_console
from tests.support.tables import a_table, trips

from headwater.table import Table

pytestmark = IN_CHROMIUM


def test_a_wrong_token_is_refused_in_words(browser: Browser, client: ConsoleClient) -> None:
    page = browser.open(f"http://127.0.0.1:{client.port}/#token={'x' * 40}")
    page.wait_for("!document.querySelector('#refused').hidden")
    assert "open the address that the command printed" in page.text("#refused")
    assert page.run(f"{TOTAL} || 0") == 0
    assert "trips" not in page.text("body")


def test_the_token_leaves_the_address_and_survives_a_reload(
    browser: Browser, client: ConsoleClient
) -> None:
    page = open_console(browser, client)
    assert page.run("location.href") == f"http://127.0.0.1:{client.port}/"
    page.call("Page.reload")
    page.wait_for(IS_LIVE)
    assert page.run("document.cookie") == ""
    # Another tab knows nothing of it.
    other = browser.open(f"http://127.0.0.1:{client.port}/")
    other.wait_for("!document.querySelector('#refused').hidden")


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
    page = open_console(browser, client)
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


def test_a_name_of_the_attackers_that_leads_here_gets_nothing(
    browser: Browser, client: ConsoleClient
) -> None:
    """DNS rebinding: to the browser it is the attacker's own origin, so it may read answers."""
    hostile = browser.open(f"http://{ATTACKERS_NAME}:{client.port}/")
    assert hostile.text("body") == '{"error":"The console is not served by that name"}'
    options = json.dumps({"headers": {"Authorization": f"Bearer {TOKEN}"}})
    assert hostile.run(f"fetch('/api/tables', {options}).then((got) => got.status)") == 421


def test_names_that_are_markup_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    table = a_table(tmp_path, partition_by="city", buckets=1, name=name).create()
    table.insert(trips(("a", name, 1)))
    with served(table) as client:
        page = open_console(browser, client)
        page.wait_for("document.querySelectorAll('#group-rows .line').length > 0")
        assert page.run("document.querySelectorAll('img').length") == 0
        assert page.text("#tables option") == name
