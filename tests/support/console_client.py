"""A client of the console: requests as a browser or an attacker would make them, and its stream."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from headwater.console.serving import Console
from headwater.table import Table

TOKEN = "a-token-of-the-tests-which-is-long-enough"
WAIT_S_MAX = 300.0
"""Only a failure takes as long."""

Sections = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class ConsoleClient:
    """Asks one console."""

    port: int

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        body: bytes | None = None,
        token: str | None = TOKEN,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask once, with the token unless told otherwise."""
        with closing(self._connection()) as connection:
            connection.request(method, path, body, {**_authorization(token), **(headers or {})})
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, named, response.read())

    def act(self, action: str, instant: str = "", *, number: int = 0) -> Answer:
        body = json.dumps({"action": action, "instant": instant}).encode()
        return self.ask(
            f"/api/tables/{number}/actions",
            method="POST",
            body=body,
            headers={"Content-Type": "application/json"},
        )

    @contextmanager
    def stream(self, number: int = 0) -> Iterator[Stream]:
        with closing(self._connection()) as connection:
            connection.request("GET", f"/api/tables/{number}/stream", headers=_authorization(TOKEN))
            yield Stream(connection.getresponse())

    def wait_for_job(self, number: int) -> Any:
        """Return a job once it has ended."""

        def ended(sections: Sections) -> Any:
            job = sections["jobs"].get(str(number))
            return job if job and job["state"] != "running" else None

        with self.stream() as stream:
            return stream.wait_for(ended)

    def _connection(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S_MAX)


class Stream:
    """The events of a stream, and what they tell together."""

    def __init__(self, response: HTTPResponse) -> None:
        self.response = response
        self.sections: Sections = {}

    def next(self) -> Any:
        """Return the next event."""
        while True:
            line = self.response.readline()
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                event = json.loads(line[len(b"data: ") :])
                self._take(event["sections"])
                return event

    def wait_for(self, found: Callable[[Sections], Any]) -> Any:
        """Take events until something is found in what they tell together."""
        deadline_s = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < deadline_s:
            self.next()
            answer = found(self.sections)
            if answer:
                return answer
        raise AssertionError(f"not found in {self.sections}")

    def _take(self, changes: Sections) -> None:
        for name in ("jobs", *changes):
            self.sections.setdefault(name, {})
        for name, rows in changes.items():
            for key, row in rows.items():
                if row is None:
                    del self.sections[name][key]
                else:
                    self.sections[name][key] = row


@contextmanager
def served(*tables: Table, **arguments: Any) -> Iterator[ConsoleClient]:
    """Serve tables, looking at them often."""
    with Console(tables, token=TOKEN, **{"every_ms": 50, **arguments}) as console:
        yield ConsoleClient(console.port)


def _authorization(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}
