"""Marker services on real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from headwater.markers.client import MarkerServiceAddress
from headwater.markers.service import MarkerService
from headwater.model.instant import InstantTime
from headwater.seams.http_server import HttpServer
from headwater.seams.network import LOOPBACK
from headwater.seams.storage import Storage

T = InstantTime("20260101000000000")
TOKEN = "a-token"


class Serve(Protocol):
    def __call__(self, storage: Storage, **options: Any) -> MarkerServiceAddress: ...


@pytest.fixture(scope="module")
def servers() -> Iterator[list[HttpServer]]:
    """Wait, once for all tests of a file, until the threads of their servers have ended."""
    started: list[HttpServer] = []
    yield started
    for server in started:
        server.stop()


@pytest.fixture
def serve(servers: list[HttpServer]) -> Iterator[Serve]:
    """Return a function that serves the markers of an instant until the test ends."""
    with ExitStack() as stack:

        def serve(storage: Storage, **options: Any) -> MarkerServiceAddress:
            service = MarkerService(storage, T, token=TOKEN, **{"file_count": 20, **options})
            server = HttpServer(service.app)
            server.start()
            servers.append(server)
            stack.callback(server.stop, waits=False)
            return MarkerServiceAddress(LOOPBACK, server.port, T, TOKEN)

        yield serve
