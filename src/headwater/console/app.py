"""What the console answers.

    GET   /                                    the page, and /style.css, /main.js, ... of it
    GET   /api/tables                          the tables by number, and the actions on offer
    GET   /api/tables/<N>/stream               how the table looks, and every change (events)
    GET   /api/tables/<N>/instants/<T>         all there is to know of one instant
    GET   /api/tables/<N>/problems?deep=1      what `headwater fsck` finds; deep reads all files
    POST  /api/tables/<N>/actions              {"action": <name>, "instant": <T or empty>}

    {"error": "<a sentence>"}                  every refusal

The stream has events whose data is `{"now", "now_ms", "sections"}`; see `state.changes_between`.
The first tells all there is. It is read with `fetch`, because `EventSource` sends no header, and
the token is one (see `guard`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from headwater.console.actions import ACTIONS, Jobs
from headwater.console.details import load_details
from headwater.console.state import Sections, changes_between, plain_rows
from headwater.console.watch import TableWatch
from headwater.errors import (
    ConflictError,
    FencedError,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from headwater.format.strict_json import load_json
from headwater.seams.http_server import AsgiApp

if TYPE_CHECKING:
    from headwater.table import Table

STREAMS_MAX = 16
QUIET_MS_MAX = 15_000
"""How long a stream may have nothing to tell before it shows that it lives."""

_ASSETS = files("headwater.console") / "assets"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_STATUSES: tuple[tuple[type[HeadwaterError], int], ...] = (
    (InvalidInputError, 400),
    (NotFoundError, 404),
    (ConflictError, 409),
    (FencedError, 409),
    (UnsupportedError, 422),
    (StorageError, 502),
)
"""The first class that fits decides; all else is 500."""

_Endpoint = Callable[[Request], Awaitable[Response]]


class ConsoleApp:
    """The tables that were given, for whoever may ask (see `guard`)."""

    def __init__(self, tables: Sequence[Table], *, allows_actions: bool, every_ms: int) -> None:
        self._watches = [TableWatch(table, every_ms=every_ms) for table in tables]
        self._jobs = [Jobs(table) for table in tables]
        self._checking = [asyncio.Lock() for _ in tables]
        self._allows_actions = allows_actions
        self._stream_count = 0
        self._stopped = asyncio.Event()

    @property
    def app(self) -> AsgiApp:
        table = "/api/tables/{number:int}"
        return Starlette(
            routes=[
                *_asset_routes(),
                Route("/api/tables", self._tables),
                Route(f"{table}/stream", self._stream),
                Route(f"{table}/instants/{{time}}", self._instant),
                Route(f"{table}/problems", self._problems),
                Route(f"{table}/actions", self._act, methods=["POST"]),
            ],
            exception_handlers={
                HTTPException: _refuse,
                HeadwaterError: _report,
                ClientDisconnect: _give_up,
                Exception: _report_bug,
            },
        )

    async def stop(self) -> None:
        """End the streams, so that the server can end."""
        self._stopped.set()

    async def _tables(self, request: Request) -> Response:
        shown = [
            {
                "number": number,
                "name": watch.table.name,
                "uri": watch.table.uri,
                "type": watch.table.config.table_type.value,
                "is_utc": watch.table.config.is_utc,
                "is_fenced": watch.table.config.is_fenced,
            }
            for number, watch in enumerate(self._watches)
        ]
        actions = {
            name: {"title": action.title, "what": action.what, "instant": action.needs_instant}
            for name, action in ACTIONS.items()
            if self._allows_actions
        }
        return JSONResponse({"tables": shown, "actions": actions})

    async def _stream(self, request: Request) -> Response:
        number = self._number(request)
        if self._stream_count >= STREAMS_MAX:
            raise HTTPException(503, f"{STREAMS_MAX} pages watch already; close some")
        return StreamingResponse(self._events(number), media_type="text/event-stream")

    async def _events(self, number: int) -> AsyncIterator[str]:
        watch, jobs = self._watches[number], self._jobs[number]
        clock = watch.table.context.clock
        known: Sections | None = None
        told_ms = clock.monotonic_ms()
        self._stream_count += 1
        try:
            while not self._stopped.is_set():
                look = await watch.newest()
                sections = {**look.sections, "jobs": jobs.rows()}
                changes = changes_between(known, sections)
                if changes or known is None:
                    yield _event({"now": look.now, "now_ms": look.now_ms, "sections": changes})
                    told_ms = clock.monotonic_ms()
                elif clock.monotonic_ms() - told_ms > QUIET_MS_MAX:
                    yield ": nothing new\n\n"
                    told_ms = clock.monotonic_ms()
                known = sections
                await self._pause(watch.every_ms)
        finally:
            self._stream_count -= 1

    async def _pause(self, pause_ms: int) -> None:
        try:
            await asyncio.wait_for(self._stopped.wait(), pause_ms / 1000)
        except TimeoutError:
            return

    async def _instant(self, request: Request) -> Response:
        table = self._watches[self._number(request)].table
        time = request.path_params["time"]
        return JSONResponse(await asyncio.to_thread(load_details, table, time))

    async def _problems(self, request: Request) -> Response:
        number = self._number(request)
        table, checking = self._watches[number].table, self._checking[number]
        is_deep = request.query_params.get("deep") == "1"
        if checking.locked():
            raise HTTPException(409, f"{table.name} is being checked already; wait for that")
        async with checking:
            rows = await asyncio.to_thread(table.inspect.problems, deep=is_deep)
        return JSONResponse({"problems": plain_rows(rows)})

    async def _act(self, request: Request) -> Response:
        number = self._number(request)
        if not self._allows_actions:
            raise HTTPException(
                403, "This console only looks; start it with --allow-actions to act"
            )
        if request.headers.get("content-type") != "application/json":
            raise HTTPException(415, "An action is asked for in JSON")
        name, instant = _parse_action(await request.body())
        job = self._jobs[number].start(name, instant)
        return JSONResponse({"job": job.number}, status_code=202)

    def _number(self, request: Request) -> int:
        number: int = request.path_params["number"]
        if number >= len(self._watches):
            raise HTTPException(404, f"There is no table {number} here")
        return number


def _asset_routes() -> list[Route]:
    """Return a route for each file of the page: no name in a request becomes a path."""
    found = [asset for asset in _ASSETS.iterdir() if asset.is_file()]
    return [
        Route("/" if asset.name == "index.html" else f"/{asset.name}", _asset(asset))
        for asset in found
    ]


def _asset(asset: Any) -> _Endpoint:
    content, kind = asset.read_bytes(), _TYPES[f".{asset.name.rpartition('.')[2]}"]

    async def answer(request: Request) -> Response:
        return Response(content, headers={"Content-Type": kind})

    return answer


def _event(value: Any) -> str:
    return f"data: {json.dumps(value, separators=(',', ':'), ensure_ascii=False)}\n\n"


def _parse_action(body: bytes) -> tuple[str, str]:
    try:
        given = load_json(body)
        name, instant = given["action"], given.get("instant", "")
        if not isinstance(name, str) or not isinstance(instant, str):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HTTPException(
            400, 'The body must be {"action": <name>, "instant": <17 digits>}'
        ) from error
    return name, instant


def _error(status: int, sentence: str, headers: Any = None) -> Response:
    return JSONResponse({"error": sentence}, status_code=status, headers=headers)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.detail, error.headers)


async def _report(request: Request, error: Exception) -> Response:
    status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
    return _error(status, str(error))


async def _give_up(request: Request, error: Exception) -> Response:
    """Answer, although nobody is there to read it."""
    return _error(400, "The request ended before its body did")


async def _report_bug(request: Request, error: Exception) -> Response:
    return _error(500, f"The console failed: {error}. Its log has more")
