"""Questions people ask about a table. Every answer is a pyarrow table; nothing is changed."""

from __future__ import annotations

import pyarrow as pa

from headwater.inspect.heartbeats import list_heartbeats
from headwater.inspect.locks import list_locks
from headwater.inspect.timeline import list_instants
from headwater.kernel.layout import TableLayout
from headwater.seams.components import Components


class Inspect:
    """`table.inspect`: one method per question."""

    def __init__(self, components: Components, layout: TableLayout) -> None:
        self._components = components
        self._layout = layout

    def timeline(self) -> pa.Table:
        """The instants of the active timeline, oldest first."""
        return list_instants(self._components.storage, self._layout)

    def heartbeats(self) -> pa.Table:
        """Who is at work, or was when it died: one row per attempt and per plain heartbeat."""
        return list_heartbeats(self._components.storage, self._components.clock)

    def locks(self) -> pa.Table:
        """Who holds the table lock; no row when it is free."""
        return list_locks(self._components.locks)
