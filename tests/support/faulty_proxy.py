"""A proxy before an HTTP server on loopback that misbehaves as it is told.

It holds a request back or answers it itself, loses a reply whose request came through, cuts an
answer off, and counts. Requests and answers are whole before they are passed on.
"""

from __future__ import annotations

import http.client
import http.server
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


LATE_S = 0.5
STALL_S = 3.0
"""Longer than clients of these tests wait for an answer."""


class Action(Enum):
    """What becomes of a request."""

    ANSWER = auto()  # It is answered with a status, and does not come through.
    LOSE = auto()  # It comes through, and nobody hears of it.
    RESET = auto()  # It does not come through, and nobody hears of it.
    CUT = auto()  # It comes through; half of the answer does.
    DENY = auto()  # It comes through, and is answered with a status as if it had not.
    LATE = auto()  # It is answered with a status, and comes through a moment later.
    STALL = auto()  # It comes through, and is answered when nobody waits for it any more.


@dataclass
class Fault:
    """What happens to some requests."""

    action: Action
    method: str = ".*"
    path: str = ".*"
    status: int = 503
    code: str = "SlowDown"
    times: int = 1
    skip: int = 0
    hits: int = 0

    def strikes(self, method: str, path: str) -> bool:
        if not re.fullmatch(self.method, method) or not re.search(self.path, path):
            return False
        self.skip -= 1
        if self.skip >= 0 or self.hits >= self.times:
            return False
        self.hits += 1
        return True


@dataclass
class Proxy:
    """The proxy that runs, the faults it has, and the requests that it saw."""

    port: int
    faults: list[Fault] = field(default_factory=list)
    delay_s: float = 0.0
    options: dict[str, str] = field(default_factory=dict)
    """How a client reaches the server through it."""
    requests: list[tuple[str, str]] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def set(self, *faults: Fault) -> None:
        self.faults = list(faults)
        self.requests.clear()

    def pick(self, method: str, path: str) -> Fault | None:
        return next((fault for fault in self.faults if fault.strikes(method, path)), None)


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


@contextmanager
def faulty_proxy(upstream_port: int) -> Iterator[Proxy]:
    """Serve what the server behind it serves, faults aside."""
    guard = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body in one packet: else the body waits some 40 ms for the client's kernel.
        wbufsize = -1
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with guard:
                proxy.requests.append((self.command, self.path))
                fault = proxy.pick(self.command, self.path)
            if proxy.delay_s:
                time.sleep(proxy.delay_s)
            action = fault.action if fault else None
            if action is Action.RESET:
                self.close_connection = True
                return
            if fault and action is Action.ANSWER:
                text = f"<Error><Code>{fault.code}</Code></Error>".encode()
                self.answer(fault.status, {}, text)
                return
            if fault and action is Action.LATE:
                later = threading.Timer(LATE_S, self.forward, (body,))
                later.daemon = True
                later.start()
            status, headers, data = (0, {}, b"") if action is Action.LATE else self.forward(body)
            if action is Action.STALL:
                time.sleep(STALL_S)
            if action in (Action.LOSE, Action.STALL):
                self.close_connection = True
                return
            if fault and action in (Action.DENY, Action.LATE):
                self.answer(fault.status, {}, f"<Error><Code>{fault.code}</Code></Error>".encode())
                return
            self.answer(status, headers, data, cut=action is Action.CUT)

        def forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", upstream_port)
            try:
                kept = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
                connection.request(self.command, self.path, body, kept)
                reply = connection.getresponse()
                data = reply.read()
                length = reply.getheader("Content-Length")
                headers = {k: v for k, v in reply.getheaders() if k.lower() not in _HOP_BY_HOP}
                if self.command == "HEAD" and length is not None:
                    headers["Content-Length"] = length
                return reply.status, headers, data
            finally:
                connection.close()

        def answer(
            self, status: int, headers: dict[str, str], data: bytes, *, cut: bool = False
        ) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers and status != 204:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if cut:
                data = data[: len(data) // 2]
                self.close_connection = True
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    with _Server(("127.0.0.1", 0), Handler) as server:
        proxy = Proxy(server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()
