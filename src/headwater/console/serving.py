"""The console on a port, from a thread of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from headwater.console.app import ConsoleApp
from headwater.console.guard import TOKEN_CHARACTERS_MIN, Guard, hosts_of
from headwater.errors import InvalidInputError
from headwater.seams.http_server import HttpServer
from headwater.seams.network import LOOPBACK

if TYPE_CHECKING:
    from headwater.seams.ids import Ids
    from headwater.table import Table

CONNECTIONS_MAX = 64
"""A browser makes six at most; several people may look."""
EVERY_MS = 1_000


class Console:
    """Serves tables while its block runs."""

    def __init__(
        self,
        tables: Sequence[Table],
        *,
        token: str,
        host: str = LOOPBACK,
        port: int = 0,
        names: Sequence[str] = (),
        allows_actions: bool = False,
        every_ms: int = EVERY_MS,
    ) -> None:
        """Take the port; 0 means any that is free.

        Args:
            names: what else `Host` may be, such as the name of a proxy in front.
            allows_actions: whether the page has buttons that change tables.
            every_ms: how often a table is looked at while somebody watches it.

        Raises:
            InvalidInputError: the token is short, or this machine cannot listen there.
        """
        if len(token) < TOKEN_CHARACTERS_MIN or not token.isascii() or not token.isprintable():
            raise InvalidInputError(
                f"A token has at least {TOKEN_CHARACTERS_MIN} characters, all of ASCII, for "
                "anybody can guess as often as they like"
            )
        self._token = token
        self._console = ConsoleApp(tables, allows_actions=allows_actions, every_ms=every_ms)
        guard = Guard(self._console.app, token=token)
        self._server = HttpServer(guard, host=host, port=port, connection_count_max=CONNECTIONS_MAX)
        guard.hosts = hosts_of(host, self._server.port, names)

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def url(self) -> str:
        """The address to open; the token is in its fragment, which browsers keep to themselves."""
        return f"{self._server.url}/#token={quote(self._token, safe='')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.run(self._console.stop)
        self._server.stop()


def new_token(ids: Ids) -> str:
    """Return a random token: two UUIDs, of 122 random bits each."""
    return (ids.new_uuid() + ids.new_uuid()).replace("-", "")
