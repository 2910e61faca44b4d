"""Where the tasks of a write find their table, and how each of them sees it.

A task asks indexes and looks at what others commit. The files of a table with a journal may be
behind what is decided, and behind what the plan of the write has seen: a key that such a commit
brought would be looked up in vain, and be there twice (N-165). So a task sees the table through the
journal. Tasks in the process of the writer share the one that it has; others read their own, if
they look at anything that is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.kernel.journal.journal import Journal
from headwater.kernel.journal.state import Areas
from headwater.kernel.journal.storage import JournaledStorage, find_journal
from headwater.seams.clock import SystemClock
from headwater.seams.ids import SystemIds
from headwater.seams.open_storage import open_storage
from headwater.seams.storage import Storage


@dataclass(frozen=True, slots=True)
class TableLocation:
    """What a task opens. It travels to other processes, without the journal of its own one."""

    uri: str
    options: Mapping[str, str] = field(repr=False)
    journaled: Areas | None = None
    """What of the table is in its journal; None if it has none."""
    _journal: Journal | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, storage: Storage, options: Mapping[str, str]) -> TableLocation:
        """Return the location of a table that this process has open."""
        journaled, _ = find_journal(storage)
        if journaled is None:
            return cls(storage.uri, options)
        journal = journaled.journal
        return cls(storage.uri, options, journal.known.areas, journal)

    def open(self) -> Storage:
        """Return the storage of the table. Nothing is contacted."""
        if self._journal is not None:
            return JournaledStorage(self._journal)
        storage = open_storage(self.uri, self.options)
        if self.journaled is None:
            return storage
        return JournaledStorage(Journal(storage, SystemClock(), SystemIds(), self.journaled))

    def __reduce__(self) -> tuple[Any, ...]:
        return TableLocation, (self.uri, self.options, self.journaled)
