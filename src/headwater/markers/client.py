"""How a task creates markers through the service on the driver.

One connection for each task, kept open. A request that got no answer is sent again, since creating
a marker twice is no harm; after a few tries, or when the service says that the task is not its own
any more, the task fails. It has then written no file that is not announced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from headwater.errors import (
    EarlyConflictError,
    ErrorKind,
    HeadwaterError,
    InvalidInputError,
    StorageError,
)
from headwater.format.strict_json import load_json
from headwater.kernel.txn.markers import Marker, MarkerKind
from headwater.markers.limits import MARKERS_PER_REQUEST_MAX
from headwater.model.files import FileGroupId
from headwater.model.instant import InstantTime
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids

CONNECT_S_MAX = 10.0
ANSWER_S_MAX = 60.0
"""A batch of markers is one or two writes away, each of which the store may retry by itself."""

TRIES_MAX = 6
_PAUSE_MS = 100  # Doubled after every try: 3.1 seconds for all of them, and jitter.

BUSY_MS_MAX = 120_000
"""How long a task waits for a service that says it is alive but has too much to do."""


@dataclass(frozen=True, slots=True)
class MarkerServiceAddress:
    """Where the markers of an instant are created; part of the plan that tasks get."""

    host: str
    port: int
    instant_time: InstantTime
    token: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class _Answer(NamedTuple):
    status: int
    body: dict[str, Any]
    retry_after_s: int

    @property
    def sentence(self) -> str:
        return str(self.body.get("error", f"status {self.status}"))


class MarkerClient:
    """Markers of one instant, created by its service; for one thread, in a `with` block."""

    def __init__(self, address: MarkerServiceAddress, clock: Clock, ids: Ids) -> None:
        self._address = address
        self._clock = clock
        self._ids = ids
        self._connection: HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def create(self, marker: Marker) -> None:
        """Return once the marker is durable.

        Raises: see `create_all`.
        """
        self.create_all([marker])

    def create_all(self, markers: Sequence[Marker]) -> None:
        """Return once all markers are durable.

        Raises:
            EarlyConflictError: another writer holds what this instant writes.
            InvalidInputError: a marker does not name a data file of the instant.
            StorageError: kind MARKER_SERVICE, if the service cannot be reached, has ended, or could
                not store the markers.
        """
        for start in range(0, len(markers), MARKERS_PER_REQUEST_MAX):
            part = markers[start : start + MARKERS_PER_REQUEST_MAX]
            body = {"markers": [{"path": m.data_path, "kind": m.kind} for m in part]}
            self._request("POST", "", json.dumps(body).encode())

    def markers(self, group: FileGroupId | None = None) -> list[Marker]:
        """Return the durable markers of the service, or those of one file group.

        Raises: see `create_all`.
        """
        query = ""
        if group is not None:
            query = "?" + urlencode({"partition": group.partition, "file_id": group.file_id})
        found = self._request("GET", query)["markers"]
        return [Marker(entry["path"], MarkerKind(entry["kind"])) for entry in found]

    def delete_all(self) -> None:
        """Forget all markers of an instant that has reached its end (INV-60), and end the service.

        Raises: see `create_all`.
        """
        self._request("DELETE", "")

    def _request(self, method: str, query: str, body: bytes | None = None) -> dict[str, Any]:
        failures = 0
        busy_until_ms = self._clock.monotonic_ms() + BUSY_MS_MAX
        while True:
            is_kept_open = self._connection is not None
            cause: Exception | None = None
            pause_ms = _PAUSE_MS << failures
            try:
                answer = self._exchange(method, query, body)
            except (OSError, HTTPException) as error:
                self.close()
                if is_kept_open:
                    continue  # The server closes idle connections; a new one will tell.
                cause, problem = error, f"{type(error).__name__}: {error}"
                failures += 1
            else:
                if answer.status == 200:
                    return answer.body
                problem = answer.sentence
                if answer.status == 503 and self._clock.monotonic_ms() < busy_until_ms:
                    pause_ms = max(pause_ms, 1_000 * answer.retry_after_s)
                elif answer.status in (500, 502):
                    failures += 1
                else:
                    raise self._refusal(answer)
            if failures >= TRIES_MAX:
                raise self._failure(f"failed {failures} times, last with {problem}") from cause
            self._clock.sleep_ms(pause_ms + self._ids.jitter(pause_ms))

    def _exchange(self, method: str, query: str, body: bytes | None) -> _Answer:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request(
            method,
            f"/instants/{self._address.instant_time}/markers{query}",
            body,
            {"Authorization": f"Bearer {self._address.token}", "Content-Type": "application/json"},
        )
        response = self._connection.getresponse()
        data = response.read()
        retry_after = response.headers.get("Retry-After", "")
        try:
            found = load_json(data)
        except ValueError:
            # Not all refusals are the service's own: the server itself has a limit, and the port
            # may belong to another program by now.
            found = {"error": f"status {response.status}, {data[:100]!r}"}
        return _Answer(
            response.status,
            found if isinstance(found, dict) else {},
            int(retry_after) if retry_after.isdecimal() else 0,
        )

    def _connect(self) -> HTTPConnection:
        connection = HTTPConnection(self._address.host, self._address.port, timeout=CONNECT_S_MAX)
        connection.connect()
        connection.sock.settimeout(ANSWER_S_MAX)
        return connection

    def _refusal(self, answer: _Answer) -> HeadwaterError:
        match answer.status:
            case 409:
                found = answer.body.get("conflict")
                context: dict[str, Any] = {"instant": self._address.instant_time}
                context |= found if isinstance(found, dict) else {}
                return EarlyConflictError(answer.sentence, **context)
            case 400 | 413:
                return InvalidInputError(
                    f"The marker service refused a marker: {answer.sentence}",
                    instant=self._address.instant_time,
                )
            case _:
                return self._failure(f"refused: {answer.sentence}")

    def _failure(self, what: str) -> StorageError:
        time = self._address.instant_time
        return StorageError(
            f"The marker service of instant {time} at {self._address} {what}. Without markers this "
            "task must not write, and without the task nothing is committed. If the driver is "
            "gone, start the write again; if it lives, see that this machine can reach that port",
            kind=ErrorKind.MARKER_SERVICE,
        )
