"""The endpoint: what it answers, and whom it does not."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.support.collecting import total
from tests.support.tables import a_table

import headwater as hw
from headwater.errors import InvalidInputError
from headwater.seams.meters import is_listening
from headwater.telemetry.serve import MetricsServer


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with hw.serve_metrics(0) as server:
        yield server


def ask(
    server: MetricsServer, path: str = "/metrics", method: str = "GET", **headers: str
) -> tuple[int, str, str]:
    where = urlsplit(server.url)
    connection = HTTPConnection(str(where.hostname), where.port or 0, timeout=300)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-type") or "", answer.read().decode()
    finally:
        connection.close()


def test_what_is_done_is_answered(tmp_path: Path, server: MetricsServer) -> None:
    table = a_table(tmp_path).with_commits(2).create()
    status, kind, text = ask(server)
    assert status == 200
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert total(text, "headwater_commits_total", table=table.uri, outcome="ok") == 2
    assert total(text, "headwater_storage_requests_total", store="file", request="write") > 0
    assert text == server.text()


def test_nothing_else_is_answered(server: MetricsServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    assert ask(server, "/")[0] == 404
    assert ask(server, "/metrics", "POST")[0] == 405
    assert ask(server, Host="evil.example")[0] == 400
    assert ask(server, Host="localhost")[0] == 200


def test_a_port_that_is_taken_is_refused_and_nobody_listens_then(server: MetricsServer) -> None:
    with pytest.raises(InvalidInputError, match="Cannot listen"):
        hw.serve_metrics(urlsplit(server.url).port or 0)
    server.stop()
    assert not is_listening()
