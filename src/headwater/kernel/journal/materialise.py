"""The files of the slots: what Apache Hudi and hudi-rs read, in the order of the journal.

Each slot's files are written before those of the next, so other engines see a prefix of the journal
at every moment. The author of a slot writes them before it answers, and whatever is missing of the
slots before its own. All of it may be done twice, by several at once, and late: created paths are
never used again, so a file that is there is the right one, and what is overwritten is compared with
what the journal says.

A process that stalls here may put a file that others have erased meanwhile. It looks at the journal
once more when it is done, and takes such a file away. If it dies before that, the file stays; our
readers know it from the journal, which does not have it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from headwater.errors import ConflictError, NotFoundError
from headwater.kernel.journal.journal import Journal, Look
from headwater.kernel.journal.slots import Entry, Slot, Verb
from headwater.kernel.journal.state import Areas, JournalState, folder_of
from headwater.kernel.write_once import put_if_missing, put_surely
from headwater.seams.clock import Clock
from headwater.seams.storage import Storage, StoredObject

log = logging.getLogger(__name__)

_TRIES_MAX = 5


class Materialiser:
    """Writes files for one process, which knows up to where they are there."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._done = 0

    @property
    def _storage(self) -> Storage:
        return self._journal.storage

    @property
    def _clock(self) -> Clock:
        return self._journal.clock

    def write(self, look: Look, there: Collection[str] | None = None) -> None:
        """Put the slots into files that are not; the last one is what this process decided.

        Args:
            there: names on the timeline, listed before; they spare a listing.

        Raises:
            StorageError, CommitUnknownError: files are missing; the next decision writes them.
        """
        self._write(look, self._missing(look, there), own=look.state.number)

    def settle(self, look: Look) -> None:
        """Make files say what the slots say, so that the journal can be closed behind them.

        Raises:
            StorageError, CommitUnknownError: files are missing, or some are too many.
        """
        self._write(look, self._missing(look, None), own=None)
        for path in filter(self._areas.is_shared, look.state.paths):
            self._overwrite(path)
        for folder in self._areas.timelines:
            stored = (f"{folder}/{name}" for name in self._storage.list_names(folder))
            self._storage.delete_many([path for path in stored if path in look.state.erased])

    def _write(self, look: Look, missing: Sequence[Slot], own: int | None) -> None:
        """Apply slots; `own` is the one whose author this is, with what is not journaled."""
        for slot in missing:
            for wave in slot.waves:
                entries = [
                    entry for entry in wave if self._areas.has(entry.path) or slot.number == own
                ]
                self._storage.at_once(lambda entry: self._apply(entry, look.state), entries)
        self._done = max(self._done, look.state.number)
        self._take_back(missing)
        self._journal.checkpoint(look.state)

    @property
    def _areas(self) -> Areas:
        return self._journal.known.areas

    def _missing(self, look: Look, there: Collection[str] | None) -> list[Slot]:
        """Return the slots whose files may be missing; what the last of one shows is there."""
        unsure = [slot for slot in look.slots if slot.number > self._done]
        if len(unsure) < 2:
            return unsure
        if there is None:
            there = set(self._storage.list_names(self._areas.timeline))
        for place in reversed(range(len(unsure))):
            name = self._last_name(unsure[place])
            if name is not None and name in there:
                return unsure[place + 1 :]
        return unsure

    def _last_name(self, slot: Slot) -> str | None:
        """Return the file of the timeline that a slot creates last of all it does, if it does."""
        *_, last = slot.entries()
        is_shown = last.verb is Verb.CREATE and folder_of(last.path) == self._areas.timeline
        return last.path.rpartition("/")[2] if is_shown and len(slot.waves[-1]) == 1 else None

    def _apply(self, entry: Entry, state: JournalState) -> None:
        storage, clock = self._storage, self._clock
        match entry.verb:
            case Verb.ADOPT | Verb.NOTE:
                return
            case Verb.ERASE:
                if entry.path not in state.paths:  # Or a later slot has it again.
                    storage.delete(entry.path)
            case Verb.CREATE:
                if entry.path in state.paths:  # Or a later slot has erased it.
                    put_if_missing(storage, clock, entry.path, entry.data)
            case Verb.SET:
                if not self._areas.is_shared(entry.path):
                    put_surely(storage, clock, entry.path, entry.data)
                else:
                    self._overwrite(entry.path)

    def _overwrite(self, path: str) -> None:
        """Make the object what the journal says *now*, so that a late process undoes nothing."""
        for _ in range(_TRIES_MAX):
            # The version comes first: what is stored by then is of no later slot than the look
            # shows. The other way round an older content could replace a newer one.
            stored = self._read_versioned(path)
            known = self._journal.look().state.paths.get(path)
            if known is None or known.data is None:
                return  # No slot has changed it, or the journal is closed.
            if stored is None:
                put_if_missing(self._storage, self._clock, path, known.data)
                return
            if stored.data == known.data:
                return
            if not self._storage.can_replace:
                put_surely(self._storage, self._clock, path, known.data)
                return
            try:
                self._storage.replace(path, known.data, version=stored.version)
            except ConflictError:
                continue
            # What was decided between the look and the replace is written by its author.
            return
        log.warning("an object was overwritten by others all the time path=%s", path)

    def _read_versioned(self, path: str) -> StoredObject | None:
        try:
            return self._storage.read_versioned(path)
        except NotFoundError:
            return None

    def _take_back(self, written: Sequence[Slot]) -> None:
        state = self._journal.look().state
        if state.is_closed:
            return  # Its files are what there is.
        created = (e.path for slot in written for e in slot.entries() if e.verb is Verb.CREATE)
        # Claims are left to their owners, who may have deleted theirs.
        files = (path for path in created if folder_of(path) in self._areas.folders)
        self._storage.delete_many([path for path in files if path not in state.paths])
