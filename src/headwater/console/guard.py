"""Who may ask the console, and what every answer forbids the browser.

The console shows what is in a table and may change it, so it must answer nobody but the person that
started it. Defended against:

a page of another origin in the same browser
    The token travels in the header `Authorization`, which no page can add to a request to another
    origin without being asked for leave (a preflight), and leave is never given: no answer has a
    CORS header. There is no cookie, because browsers send cookies to every port of a host: any
    other server on this machine would be given it, and `SameSite` does not tell ports apart.
    Besides, whatever names another origin in `Origin` or `Sec-Fetch-Site` is refused unread, but a
    visit: a link to the page may be anywhere, and whoever follows it comes without the token.
a name of the attacker's that leads here (DNS rebinding)
    `Host` must be an address that the console was started for.
a guess
    The token is random, 244 bits, and is compared in constant time.
a token left in histories and logs
    It is in the fragment of the address that the command prints: browsers do not send fragments.
    The page takes it out of the address, and keeps it for this tab and origin only.
names in tables that are HTML
    The page makes text nodes only; the content security policy has no inline script, and its
    trusted types leave no way to make elements of text. Nothing is loaded from elsewhere.
being framed, embedded, cached or taken for something else
    `X-Frame-Options`, `Cross-Origin-Resource-Policy`, `no-store`, `nosniff`.
other files
    Tables are asked for by number and instants by their 17 digits; no request names a path.
exhaustion
    Connections, streams, bodies, jobs and the time for a request to arrive are limited.

Without the token only the files of the page are answered: they are the same in every wheel.

Not defended against: other programs of the same user, who can read the memory of this process, and
whoever reads the network, if the console is told to listen elsewhere than on loopback: there is no
TLS here.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from headwater.seams.http_server import AsgiApp
from headwater.seams.network import LOOPBACK_NAMES, host_in_url, is_loopback

API = "/api/"
BODY_BYTES_MAX = 4_096
"""Every request of the page's fits into some hundred bytes."""
TOKEN_CHARACTERS_MIN = 32

_SCHEMES = ("http", "https")  # The latter through a proxy.
_ASKED_BY_ITSELF = ("same-origin", "none")
"""What browsers say of a request by the page itself, and of one by the person at the keyboard."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Guard:
    """An app that passes on to another what may be asked."""

    def __init__(self, app: AsgiApp, *, token: str) -> None:
        self._app = app
        self._authorization = f"Bearer {token}".encode()
        self.hosts: frozenset[str] = frozenset()
        """What `Host` may be, ports included; nothing until somebody knows. See `hosts_of`."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refusal = self._refusal(scope["path"], Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, path: str, headers: Headers) -> JSONResponse | None:
        host = headers.get("host", "").lower()
        if host not in self.hosts:
            return _refuse(HTTPStatus.MISDIRECTED_REQUEST, "The console is not served by that name")
        if not (self._is_of_this_origin(headers) or _is_visit(path, headers)):
            return _refuse(HTTPStatus.FORBIDDEN, "The console does not answer other pages")
        given = headers.get("authorization", "").encode("latin-1")
        if path.startswith(API) and not hmac.compare_digest(given, self._authorization):
            return _refuse(
                HTTPStatus.UNAUTHORIZED,
                "The token is not that of this console; open the address that the command printed",
            )
        announced = headers.get("content-length", "0")
        is_chunked = "transfer-encoding" in headers
        if is_chunked or not announced.isdecimal() or int(announced) > BODY_BYTES_MAX:
            return _refuse(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"A request says its length, which is at most {BODY_BYTES_MAX} bytes",
            )
        return None

    def _is_of_this_origin(self, headers: Headers) -> bool:
        scheme, _, host = headers.get("origin", "").lower().partition("://")
        is_ours = "origin" not in headers or (scheme in _SCHEMES and host in self.hosts)
        return is_ours and headers.get("sec-fetch-site", "none") in _ASKED_BY_ITSELF


def hosts_of(host: str, port: int, names: Iterable[str] = ()) -> frozenset[str]:
    """Return what `Host` may be of a server that listens there, and is known by more names.

    A name without a port is taken as it is, as it comes through a proxy on a port of its own.
    """
    shown = host_in_url(host)
    known = {shown, *LOOPBACK_NAMES} if is_loopback(host) else {shown}
    return frozenset({*(f"{one}:{port}" for one in known), *(name.lower() for name in names)})


def _is_visit(path: str, headers: Headers) -> bool:
    """Whether the browser shows the page in a tab of its own, wherever the link to it was."""
    fetch = {name: headers.get(f"sec-fetch-{name}") for name in ("mode", "dest")}
    is_tab = fetch == {"mode": "navigate", "dest": "document"}
    return path == "/" and is_tab and "origin" not in headers


def _refuse(status: HTTPStatus, sentence: str) -> JSONResponse:
    # What is left of a body that nobody reads would be taken for the next request.
    return JSONResponse(
        {"error": sentence}, status_code=status.value, headers={"Connection": "close"}
    )
