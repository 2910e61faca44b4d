"""The HTTP server seam: any ASGI app, in a thread, on a port of its own."""

from __future__ import annotations

import logging
import resource
import socket
import threading
from contextlib import suppress
from http.client import HTTPConnection, RemoteDisconnected
from typing import Any

import pytest

from headwater.errors import InternalError, InvalidInputError
from headwater.seams.bounded_http import connections_max
from headwater.seams.http_server import HttpServer


async def say_where(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the name of the thread that answers."""
    if scope["type"] != "http":
        return
    name = threading.current_thread().name.encode()
    length = str(len(name)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"length", length)]})
    await send({"type": "http.response.body", "body": name})


async def wait_for_body(scope: Any, receive: Any, send: Any) -> None:
    """Answer once all of the request is there."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        await say_where(scope, receive, send)


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
    assert server.port > 0
    assert server.url == f"http://127.0.0.1:{server.port}"
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


def closed_by_server(connection: socket.socket) -> bool:
    connection.settimeout(300)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HTTP/1.1\r\nX",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
    ],
)
def test_a_connection_whose_request_does_not_end_is_closed(begun: bytes) -> None:
    server = HttpServer(wait_for_body, request_s_max=0.2)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(begun)
            assert closed_by_server(connection)
    finally:
        server.stop()


def test_connections_are_bounded_and_those_within_the_bound_are_served() -> None:
    server = HttpServer(say_where, connection_count_max=3)
    server.start()
    try:
        within = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        for connection in within:  # The server has seen each of them before the next ones come.
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"
        with socket.create_connection(("127.0.0.1", server.port)) as one_more:
            assert closed_by_server(one_more)
        within.pop().close()
        for connection in within:
            connection.close()
        assert get_once_there_is_room(server.port) == b"http-server"
    finally:
        server.stop()


def get_once_there_is_room(port: int) -> bytes:
    while True:  # The server sees that connections were closed a moment later.
        with suppress(ConnectionResetError, RemoteDisconnected):
            return get(port)[0]


def test_most_of_the_descriptors_stay_with_the_process() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, hard))
        assert connections_max() == 250
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
