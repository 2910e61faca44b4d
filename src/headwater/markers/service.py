"""The marker service: markers of one instant over HTTP.

    POST    /instants/<T>/markers    create markers; answered once they are durable
    GET     /instants/<T>/markers    those of this service, or of ?partition=<path>&file_id=<id>
    DELETE  /instants/<T>/markers    forget all, after T has reached its end; ends the service
    GET     /health                  whether anybody is there

Requests carry `Authorization: Bearer <token>`, known to the driver and, through the plan, to its
tasks. It travels in the clear, as Spark's own traffic does unless it is encrypted: the service is
for networks whose machines trust each other. It keeps out strays, such as tasks of a dead driver
whose port was given away.

    {"markers": [{"path": "city=sf/...parquet", "kind": "CREATE"}]}     what POST takes, GET gives
    {"error": "<a sentence>"}                                          every refusal
    {"error": ..., "conflict": {"other": "<instant>", ...}}            a conflict

    400  the request makes no sense         401  the token is wrong      404  not served here
    409  a conflict; do not go on           410  the write has ended     413  too large
    502  storage failed; may be retried     503  too many wait; retry after the given seconds

Creating a marker twice is no harm, so a client that got no answer asks again.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headwater.errors import EarlyConflictError, InvalidInputError, StorageError
from headwater.format.strict_json import load_json
from headwater.kernel.txn.markers import Marker, MarkerKind, delete_markers
from headwater.markers.batch_writer import QUEUE_MAX, Added, BatchWriter
from headwater.markers.bloom_markers import FilterFile
from headwater.markers.data_path import check_marker_of
from headwater.markers.limits import MARKERS_PER_REQUEST_MAX, REQUEST_BYTES_MAX
from headwater.model.files import FileGroupId
from headwater.model.instant import InstantTime
from headwater.seams.http_server import AsgiApp
from headwater.seams.storage import Storage

RETRY_AFTER_S = 1


class ConflictWatch(Protocol):
    """Looks for conflicts with other writers; see `markers.checker`."""

    async def admit(self, markers: Sequence[Marker]) -> EarlyConflictError | None:
        """Return the conflict that forbids these markers, if one is known; on the event loop."""
        ...

    def new_filter(self, name: str) -> FilterFile | None:
        """Return the filter to keep for a file of markers, if any."""
        ...

    def start(self) -> None:
        """Begin to look in the background."""
        ...

    def stop(self) -> None:
        """Look no more; may be called twice."""
        ...


class NoConflictWatch:
    """Lets every marker pass."""

    async def admit(self, markers: Sequence[Marker]) -> EarlyConflictError | None:
        return None

    def new_filter(self, name: str) -> FilterFile | None:
        return None

    def start(self) -> None:
        """Look for nothing."""

    def stop(self) -> None:
        """Go on looking for nothing."""


_Endpoint = Callable[[Request], Awaitable[Response]]


class MarkerService:
    """What the driver serves to the tasks of one instant."""

    def __init__(
        self,
        storage: Storage,
        time: InstantTime,
        *,
        token: str,
        file_count: int,
        conflicts: ConflictWatch | None = None,
        queue_max: int = QUEUE_MAX,
    ) -> None:
        """Prepare the instant's folder of markers.

        Raises:
            StorageError: storage failed.
        """
        self._storage = storage
        self._time = time
        self._authorization = f"Bearer {token}".encode()
        self._conflicts = conflicts or NoConflictWatch()
        self._writer = BatchWriter(
            storage,
            time,
            file_count=file_count,
            queue_max=queue_max,
            new_filter=self._conflicts.new_filter,
        )

    @property
    def app(self) -> AsgiApp:
        markers = "/instants/{time}/markers"
        return Starlette(
            routes=[
                Route(markers, self._guarded(self._create), methods=["POST"]),
                Route(markers, self._guarded(self._list), methods=["GET"]),
                Route(markers, self._guarded(self._delete), methods=["DELETE"]),
                Route("/health", _health, methods=["GET"]),
            ],
            exception_handlers={
                HTTPException: _refuse,
                StorageError: _report_storage,
                ClientDisconnect: _give_up,
                Exception: _report_bug,
            },
        )

    async def seal(self) -> None:
        """Create no marker any more, and return once those under way are durable, or failed."""
        await self._writer.seal()

    def _guarded(self, endpoint: _Endpoint) -> _Endpoint:
        async def guarded(request: Request) -> Response:
            given = request.headers.get("authorization", "")
            if not hmac.compare_digest(given.encode("latin-1"), self._authorization):
                raise HTTPException(401, "The token is not that of this write")
            if request.path_params["time"] != self._time:
                raise HTTPException(404, f"Only markers of instant {self._time} are served here")
            return await endpoint(request)

        return guarded

    async def _create(self, request: Request) -> Response:
        markers = _parse_request(await _read_body(request))
        for marker in markers:
            try:
                check_marker_of(self._time, marker)
            except InvalidInputError as error:
                raise HTTPException(400, error.message) from error
        conflict = await self._conflicts.admit(markers)
        if conflict is not None:
            return JSONResponse(
                {"error": conflict.message, "conflict": conflict.context}, status_code=409
            )
        match await self._writer.add(markers):
            case Added.BUSY:
                raise HTTPException(
                    503,
                    "Too many markers wait to be stored; try again",
                    headers={"Retry-After": str(RETRY_AFTER_S)},
                )
            case Added.SEALED:
                raise HTTPException(410, f"The write of instant {self._time} has ended")
            case Added.DURABLE:
                return JSONResponse({"created": len(markers)})

    async def _list(self, request: Request) -> Response:
        markers = self._writer.markers()
        file_id = request.query_params.get("file_id")
        if file_id is not None:
            group = FileGroupId(request.query_params.get("partition", ""), file_id)
            markers = [marker for marker in markers if marker.group == group]
        return JSONResponse({"markers": [{"path": m.data_path, "kind": m.kind} for m in markers]})

    async def _delete(self, request: Request) -> Response:
        await self._writer.seal()
        await asyncio.to_thread(delete_markers, self._storage, self._time)
        return JSONResponse({"deleted": True})


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "up"})


async def _read_body(request: Request) -> bytes:
    """Return the body, of which no more than the allowed size is ever held."""
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > REQUEST_BYTES_MAX:
        raise _too_large()
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > REQUEST_BYTES_MAX:
            raise _too_large()
    return bytes(body)


def _too_large() -> HTTPException:
    # What is left of the body would be taken for the next request.
    return HTTPException(
        413,
        f"A request has at most {REQUEST_BYTES_MAX} bytes and {MARKERS_PER_REQUEST_MAX} markers; "
        "send several",
        headers={"Connection": "close"},
    )


def _parse_request(body: bytes) -> list[Marker]:
    try:
        given: Any = load_json(body)
        entries = given["markers"]
        if not isinstance(entries, list):
            raise TypeError
        if len(entries) > MARKERS_PER_REQUEST_MAX:
            raise _too_large()
        return [_parse_marker(entry) for entry in entries]
    # Deeply nested text exhausts the stack of the parser.
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HTTPException(
            400,
            'The body must be {"markers": [{"path": <text>, "kind": <one of '
            f"{', '.join(MarkerKind)}>}}, ...]}}",
        ) from error


def _parse_marker(entry: Any) -> Marker:
    path = entry["path"]
    if not isinstance(path, str):
        raise TypeError
    return Marker(path, MarkerKind(entry["kind"]))


def _error(status: int, sentence: str, headers: Any = None) -> Response:
    return JSONResponse({"error": sentence}, status_code=status, headers=headers)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.detail, error.headers)


async def _report_storage(request: Request, error: Exception) -> Response:
    return _error(502, str(error))


async def _give_up(request: Request, error: Exception) -> Response:
    """Answer, although nobody is there to read it."""
    return _error(400, "The request ended before its body did")


async def _report_bug(request: Request, error: Exception) -> Response:
    return _error(500, f"The marker service failed: {error}. Its log has more")
