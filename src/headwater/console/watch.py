"""Looking at a table once for all who watch it, and only while somebody does.

Every browser that watches is a stream of its own, which asks for the newest look; looks are made at
most so often, however many ask. A table is looked at in a thread, so that one whose storage is slow
keeps nobody from being answered, and with its config of now: it may be upgraded while it is
watched.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from headwater.console.state import Look, load_look
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.table import Table


class TableWatch:
    """One table, as those who watch it see it."""

    def __init__(self, table: Table, *, every_ms: int) -> None:
        self.table = table
        self.every_ms = every_ms
        self._look: Look | None = None
        self._looked_ms = 0
        self._looking = asyncio.Lock()

    async def newest(self) -> Look:
        """Return how the table looks: as of now, or of less than a pause ago."""
        clock = self.table.context.clock
        async with self._looking:
            is_old = clock.monotonic_ms() - self._looked_ms >= self.every_ms
            if self._look is None or is_old:
                self._look = await asyncio.to_thread(self._look_again)
                self._looked_ms = clock.monotonic_ms()
            return self._look

    def _look_again(self) -> Look:
        # What cannot be read the look says.
        with suppress(HeadwaterError):
            self.table = self.table.reload()
        return load_look(self.table, self._look)
