"""The HTTP server seam: any ASGI app, in a thread, on a port of its own."""

from __future__ import annotations

import logging
import threading
from http.client import HTTPConnection
from typing import Any

import pytest

from headwater.errors import InternalError, InvalidInputError
from headwater.seams.http_server import HttpServer


async def say_where(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the name of the thread that answers."""
    if scope["type"] != "http":
        return
    name = threading.current_thread().name.encode()
    length = str(len(name)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"length", length)]})
    await send({"type": "http.response.body", "body": name})


def get(port: int, host: str = "127.0.0.1") -> tuple[bytes, dict[str, str]]:
    connection = HTTPConnection(host, port, timeout=300)
    try:
        connection.request("GET", "/")
        response = connection.getresponse()
        return response.read(), dict(response.getheaders())
    finally:
        connection.close()


def test_an_app_is_served_from_a_thread_until_it_is_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = set(threading.enumerate())
    server = HttpServer(say_where)
    server.start()
    assert server.host == "127.0.0.1"
    assert server.port > 0
    content, headers = get(server.port)
    assert content == b"http-server"
    assert "server" not in headers
    server.stop()
    # Not as many as before: threads of earlier tests may end meanwhile.
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectionRefusedError):
        get(server.port)
    server.stop()
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


def test_work_runs_where_the_app_runs() -> None:
    async def name() -> str:
        return threading.current_thread().name

    async def fail() -> str:
        raise LookupError("nothing there")

    server = HttpServer(say_where)
    with pytest.raises(InternalError, match="after it has started"):
        server.run(name)
    server.start()
    assert server.run(name) == "http-server"
    with pytest.raises(LookupError, match="nothing there"):
        server.run(fail)
    server.stop()


def test_several_servers_run_side_by_side() -> None:
    servers = [HttpServer(say_where) for _ in range(3)]
    for server in servers:
        server.start()
    assert len({server.port for server in servers}) == 3
    assert all(get(server.port)[0] for server in servers)
    for server in servers:
        server.stop()


def test_a_server_that_never_started_gives_its_port_back() -> None:
    server = HttpServer(say_where)
    server.stop()
    again = HttpServer(say_where, port=server.port)
    again.stop()


def test_a_port_or_host_that_cannot_be_had_is_named() -> None:
    server = HttpServer(say_where)
    with pytest.raises(InvalidInputError, match=f"port {server.port}"):
        HttpServer(say_where, port=server.port)
    server.stop()
    # An address kept for documentation, which no machine has.
    with pytest.raises(InvalidInputError, match=r"192\.0\.2\.1"):
        HttpServer(say_where, host="192.0.2.1")
