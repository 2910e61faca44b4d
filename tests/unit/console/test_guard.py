"""Nobody is answered but who has the token, by the right name, from the page itself."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.support.console_client import TOKEN, WAIT_S_MAX, ConsoleClient, served
from tests.support.tables import a_table

from headwater.console.app import STREAMS_MAX
from headwater.console.guard import BODY_BYTES_MAX, hosts_of
from headwater.console.serving import CONNECTIONS_MAX, Console, new_token
from headwater.errors import InvalidInputError
from headwater.seams.ids import SystemIds
from headwater.table import Table

ASKED = [
    "/api/tables",
    "/api/tables/0/stream",
    "/api/tables/0/instants/20260101000000000",
    "/api/tables/0/problems",
    "/api/no/such",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return a_table(tmp_path_factory.mktemp("guarded")).with_commits(1).create()


@pytest.fixture(scope="module")
def client(table: Table) -> Iterator[ConsoleClient]:
    with served(table, allows_actions=True) as made:
        yield made


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], f"{TOKEN}x", "\xff"])
def test_without_the_token_nothing_of_a_table_is_answered(
    client: ConsoleClient, path: str, token: str | None
) -> None:
    answer = client.ask(path, token=token)
    assert answer.status == 401
    assert "the address that the command printed" in answer.json["error"]


def test_the_token_counts_in_its_header_only(client: ConsoleClient) -> None:
    for path in (f"/api/tables?token={TOKEN}", f"/api/tables#token={TOKEN}"):
        assert client.ask(path, token=None, headers={"Cookie": f"token={TOKEN}"}).status == 401


def test_without_the_token_the_page_itself_is_answered(client: ConsoleClient) -> None:
    page = client.ask("/", token=None)
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for name in ("style.css", "main.js", "icon.svg"):
        assert client.ask(f"/{name}", token=None).status == 200
        assert f'"{name}"'.encode() in page.body


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "[::1]"])
@pytest.mark.parametrize("path", ["/", "/api/tables"])
def test_another_name_is_refused(client: ConsoleClient, host: str, path: str) -> None:
    """A name of the attacker's that leads here: DNS rebinding."""
    assert client.ask(path, headers={"Host": host.format(port=client.port)}).status == 421


def test_names_of_this_machine_are_answered(client: ConsoleClient) -> None:
    for host in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        headers = {"Host": f"{host}:{client.port}"}
        assert client.ask("/api/tables", headers=headers).status == 200


def test_who_listens_elsewhere_is_known_by_that_address_and_the_names_given() -> None:
    hosts = hosts_of("10.0.0.7", 81, ["tables.example"])
    assert hosts == {"10.0.0.7:81", "tables.example"}
    assert "[fe80::1]:81" in hosts_of("fe80::1", 81)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "file://"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/tables"])
def test_another_page_is_refused_even_with_the_token(
    client: ConsoleClient, headers: dict[str, str], path: str
) -> None:
    answer = client.ask(path, headers=headers)
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_link_to_the_page_may_be_anywhere_but_only_to_the_page(client: ConsoleClient) -> None:
    """Such as in the web page of a terminal; who frames it or posts a form to it is refused."""
    visit = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    assert client.ask("/", token=None, headers=visit).status == 200
    assert client.ask("/api/tables", headers=visit).status == 403
    framed = {**visit, "Sec-Fetch-Dest": "iframe"}
    assert client.ask("/", token=None, headers=framed).status == 403
    posted = {**visit, "Origin": "http://evil.example"}
    assert client.ask("/", token=None, headers=posted).status == 403


def test_the_page_itself_is_answered(client: ConsoleClient) -> None:
    headers = {"Origin": f"http://127.0.0.1:{client.port}", "Sec-Fetch-Site": "same-origin"}
    assert client.ask("/api/tables", headers=headers).status == 200


def test_the_page_is_answered_through_a_proxy_with_tls(table: Table) -> None:
    """Whichever name the proxy passes on; but by no other name than the one given."""
    with served(table, names=["Tables.example"]) as client:
        for host in ("tables.example", f"127.0.0.1:{client.port}"):
            headers = {"Host": host, "Origin": "https://tables.example"}
            assert client.ask("/api/tables", headers=headers).status == 200
        headers = {"Host": "tables.example", "Origin": "https://tables.example.evil.example"}
        assert client.ask("/api/tables", headers=headers).status == 403


def test_no_leave_is_given_to_other_pages(client: ConsoleClient) -> None:
    for headers in ({"Origin": "http://evil.example"}, {}):
        asked = {"Access-Control-Request-Headers": "authorization", **headers}
        answer = client.ask("/api/tables/0/actions", method="OPTIONS", headers=asked)
        assert answer.status in (403, 405)
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/..%2f..%2fapp.py",
        "/%2e%2e/app.py",
        "/app.py",
        "/assets/main.js",
        "/api/tables/1/stream",
        "/api/tables/-1/stream",
        "/api/tables/0/instants/..%2f..%2fhoodie.properties",
        "/api/tables/0/instants/20260101000000000.commit",
        "/api/tables/%2e%2e/stream",
    ],
)
def test_no_path_leads_outside_of_the_given_tables(client: ConsoleClient, path: str) -> None:
    answer = client.ask(path)
    assert answer.status in (400, 404)
    assert b"hoodie.table" not in answer.body


@pytest.mark.parametrize("path", ["/", "/main.js", "/api/tables", "/api/no/such", "/nothing"])
@pytest.mark.parametrize("token", [None, TOKEN])
def test_every_answer_forbids_the_browser_what_nobody_needs(
    client: ConsoleClient, path: str, token: str | None
) -> None:
    headers = client.ask(path, token=token).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in headers
    assert "set-cookie" not in headers


def test_the_page_has_nothing_inline_and_nothing_from_elsewhere(client: ConsoleClient) -> None:
    page = client.ask("/").body.decode()
    assert "<script>" not in page
    assert " style=" not in page
    assert not re.search(r"\son[a-z]+=", page)
    scripts = ["main", "dom", "groups", "model", "panels", "rows", "session", "timeline"]
    sources = [page, *(client.ask(f"/{name}.js").body.decode() for name in scripts)]
    for source in sources:
        assert "://" not in source
        assert "innerHTML" not in source


def test_a_large_body_is_refused_unread(client: ConsoleClient) -> None:
    path = "/api/tables/0/actions"
    body = b"x" * (BODY_BYTES_MAX + 1)
    assert client.ask(path, method="POST", body=body).status == 413
    # Neither is one whose length nobody knows beforehand.
    headers = {"Transfer-Encoding": "chunked"}
    assert client.ask(path, method="POST", body=b"0\r\n\r\n", headers=headers).status == 413
    assert client.ask("/api/tables").status == 200


def test_more_connections_than_there_may_be_are_closed(table: Table) -> None:
    with served(table) as client, ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            stack.enter_context(socket.create_connection(("127.0.0.1", client.port), WAIT_S_MAX))
        refused = False
        while not refused:  # The server may not have taken all of them yet.
            extra = HTTPConnection("127.0.0.1", client.port, timeout=WAIT_S_MAX)
            stack.callback(extra.close)
            with suppress(TimeoutError):
                try:
                    extra.request("GET", "/")
                    extra.getresponse().read()
                except OSError:
                    refused = True
        stack.close()
        while True:  # Who waits is served once the others have gone.
            with suppress(OSError):
                assert client.ask("/api/tables").status == 200
                break


def test_more_streams_than_there_may_be_are_refused(table: Table) -> None:
    with served(table) as client, ExitStack() as stack:
        for _ in range(STREAMS_MAX):
            stack.enter_context(client.stream()).next()
        assert client.ask("/api/tables/0/stream").status == 503
        stack.close()
        status = 503
        while status == 503:  # Those that ended count no more, once the server has noticed.
            with client.stream() as stream:
                status = stream.response.status
        assert status == 200


def test_tokens_are_random_and_short_ones_refused(table: Table) -> None:
    ids = SystemIds()
    assert new_token(ids) != new_token(ids)
    assert len(new_token(ids)) == 64
    for token in ("short", "ü" * 40, "line\n" * 10):
        with pytest.raises(InvalidInputError, match="at least 32 characters"):
            Console([table], token=token)


def test_the_address_has_the_token_where_browsers_keep_it(table: Table) -> None:
    with Console([table], token=TOKEN) as console:
        assert console.url == f"http://127.0.0.1:{console.port}/#token={TOKEN}"


def test_assets_are_part_of_the_package() -> None:
    """The wheel takes all below src/headwater, as hatch does unless told otherwise."""
    import headwater.console

    assets = Path(headwater.console.__file__).parent / "assets"
    assert {path.suffix for path in assets.iterdir()} == {".html", ".css", ".js", ".svg"}
