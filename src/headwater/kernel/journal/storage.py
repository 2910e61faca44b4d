"""The storage of a fenced table: its timeline is what the journal says, all else what is stored.

Everything that reads a table reads through this, so nothing else knows of the journal. A listing
looks at the journal; reading a file that it listed does not. Within `pinned` all of it is one
moment: that is how a decision sees the state it will be put behind.

Journaled paths change by decisions only, so writing one here is a defect. Claims of attempts are
the exception: their owners beat in them and delete them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import BinaryIO, TypeVar

from headwater.errors import NotFoundError, raise_internal
from headwater.kernel.journal.journal import Journal, Look
from headwater.kernel.journal.materialise import Materialiser
from headwater.kernel.journal.slots import Entry, Verb
from headwater.kernel.journal.state import BEING_ARCHIVED, CLAIMS, JournalState, folder_of
from headwater.model.instant import InstantTime
from headwater.seams.mutex import PerThread
from headwater.seams.storage import ObjectInfo, Storage, StoredObject, both_at_once
from headwater.seams.sub_storage import SubStorage

T = TypeVar("T")
R = TypeVar("R")

Foresee = Callable[[Look, frozenset[str]], Look]
"""Return what the next decision goes on from, by a look and the names on the timeline."""


class JournaledStorage:
    """A fenced table as its journal has it."""

    def __init__(self, journal: Journal, foresee: Foresee = lambda look, _: look) -> None:
        """`foresee` adds what other engines completed, for readers: the next decision adopts it."""
        self.journal = journal
        self.stored = journal.storage
        """The storage as it is."""
        self._foresee = foresee
        self._shown: JournalState | None = None
        """What a reader was shown last."""
        self.files = Materialiser(journal)
        self._pin: PerThread[Look] = PerThread()

    @property
    def pin(self) -> Look | None:
        """What this thread sees, if it is within `pinned`."""
        return self._pin.value

    def advance_pin(self, look: Look) -> None:
        """Go on, within `pinned`, from what this thread has decided."""
        self._pin.value = look

    @contextmanager
    def pinned(self, look: Look) -> Iterator[None]:
        """Show this state for the whole block, to this thread and what it does at once."""
        before, self._pin.value = self._pin.value, look
        try:
            yield
        finally:
            self._pin.value = before

    def on(self, look: Look, block: Callable[[], T]) -> Callable[[], T]:
        """Return the block as one that sees this state, in whichever thread it runs."""

        def run() -> T:
            with self.pinned(look):
                return block()

        return run

    @property
    def uri(self) -> str:
        return self.stored.uri

    @property
    def page_size(self) -> int:
        return self.stored.page_size

    @property
    def can_replace(self) -> bool:
        return self.stored.can_replace

    @property
    def is_distant(self) -> bool:
        return self.stored.is_distant

    def read(self, path: str) -> bytes:
        areas = self.journal.known.areas
        if not areas.has(path):
            return self.stored.read(path)
        state = self._state_with(path)
        known = state.paths.get(path)
        if known is None:
            if areas.is_shared(path) or areas.is_claim(path) or not state.has_begun:
                return self.stored.read(path)  # No decision has changed it, or it is a leftover.
            raise NotFoundError("There is no such object", path=path)
        if known.data is None:
            return self.stored.read(path)
        if areas.is_claim(path):
            with suppress(NotFoundError):
                return self.stored.read(path) or known.data  # A power cut may take its bytes.
        return known.data

    def read_versioned(self, path: str) -> StoredObject:
        return self.stored.read_versioned(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self.stored.read_range(path, start, length)

    def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
        wanted = list(paths)
        areas = self.journal.known.areas
        if not any(map(areas.has, wanted)):
            return self.stored.read_many(wanted)
        return self.at_once(self._read_or_none, wanted)

    def _read_or_none(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except NotFoundError:
            return None

    def open_input(self, path: str, size_bytes: int | None = None) -> BinaryIO:
        return self.stored.open_input(path, size_bytes)

    def info(self, path: str) -> ObjectInfo:
        return self.stored.info(path)

    def list_names(self, folder: str, after: str = "") -> list[str]:
        areas = self.journal.known.areas
        if folder not in areas.folders and not folder.startswith(CLAIMS):
            return self.stored.list_names(folder, after)
        state = self.state(has_others=folder in areas.timelines)
        if not state.has_begun:
            names = self.stored.list_names(folder, after)
            state = self.state()
            if not state.has_begun:  # Or its first slot came between.
                return names
        names = state.names(folder)
        if not names and folder.startswith(CLAIMS):
            return self.stored.list_names(folder, after)  # Left of an instant that is gone.
        return [name for name in names if name > after] if after else names

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        return self.stored.list_tree(folder)

    def put(self, path: str, data: bytes) -> None:
        self._check_free(path)
        self.stored.put(path, data)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        for path in objects:
            self._check_free(path)
        self.stored.put_many(objects)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._check_free(path)
        self.stored.put_if_absent(path, data)

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        return self.stored.open_output(path)

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        self.stored.create_many(objects)

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        self._check_free(path)
        return self.stored.replace(path, data, version=version)

    def delete(self, path: str) -> None:
        self._check_free(path)
        self.stored.delete(path)

    def delete_many(self, paths: Iterable[str]) -> None:
        wanted = list(paths)
        for path in wanted:
            self._check_free(path)
        self.stored.delete_many(wanted)

    def at_once(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        look = self._pin.value
        if look is None:
            return self.stored.at_once(call, items)

        def call_pinned(item: T) -> R:
            with self.pinned(look):
                return call(item)

        return self.stored.at_once(call_pinned, items)

    def state(self, *, has_others: bool = False) -> JournalState:
        """What this thread sees: the state that is pinned, or that of now.

        Args:
            has_others: with what other engines completed, if nothing is pinned.
        """
        now = self.look if has_others else self.journal.look
        return (self._pin.value or now()).state

    def look(self) -> Look:
        """Return the state of now with what other engines completed, for a reader.

        Raises:
            CorruptTableError: kind CORRUPT_JOURNAL.
            StorageError: storage failed.
        """
        timeline = self.journal.known.areas.timeline
        look, names = both_at_once(
            self.stored, self.journal.look, lambda: self.stored.list_names(timeline)
        )
        look = self._foresee(look, frozenset(names))
        self._shown = look.state
        return look

    def _state_with(self, path: str) -> JournalState:
        """Return a state that has the path, if there is one; who listed it needs no other look."""
        if self._pin.value is not None:
            return self._pin.value.state
        areas = self.journal.known.areas
        if not areas.is_shared(path):
            for known in filter(None, (self.journal.known, self._shown)):
                if path in known.paths:
                    return known
        others_change = areas.is_shared(path) or folder_of(path) in areas.timelines
        return self.state(has_others=others_change)

    def _check_free(self, path: str) -> None:
        areas = self.journal.known.areas
        if areas.has(path) and not areas.is_claim(path):
            raise_internal("A journaled path changes by decisions only", path=path)


def find_journal(storage: Storage) -> tuple[JournaledStorage | None, str]:
    """Return the storage that has the journal, and the folder of it that `storage` is."""
    whole, folder = (
        (storage.whole, storage.folder) if isinstance(storage, SubStorage) else (storage, "")
    )
    return (whole if isinstance(whole, JournaledStorage) else None), folder


@contextmanager
def one_moment(storage: Storage, *, is_for_decision: bool = False) -> Iterator[None]:
    """Show all that is journaled as of now, for the whole block; it is looked for once.

    Args:
        is_for_decision: what comes of it is decided on again, by a slot. Then it is not proven, and
            what other engines have put is not looked for: that decision does both.

    Raises:
        CorruptTableError: kind CORRUPT_JOURNAL.
        StorageError: storage failed.
    """
    journaled, _ = find_journal(storage)
    if journaled is None or journaled.pin is not None:
        yield
        return
    with journaled.pinned(journaled.journal.peek() if is_for_decision else journaled.look()):
        yield


def being_archived(storage: Storage) -> list[InstantTime]:
    """Return the instants whose archival is decided and that are on the timeline still."""
    journaled, folder = find_journal(storage)
    if journaled is None or folder:
        return []
    return [InstantTime(name) for name in journaled.state().names(BEING_ARCHIVED)]


def erase_files(storage: Storage, waves: Iterable[Sequence[str]]) -> None:
    """Take files of instants that have ended off a timeline, one wave after the other.

    Nothing is to be decided about them: whoever does it late, or twice, changes nothing.

    Raises:
        CommitUnknownError: storage did not say whether the slot landed.
        StorageError: storage failed; some of them may be gone.
    """
    journaled, folder = find_journal(storage)
    if journaled is None:
        for paths in filter(None, waves):
            storage.delete_many(paths)
        return
    whole = [[f"{folder}/{path}" if folder else path for path in paths] for paths in waves]
    while True:
        look = journaled.journal.look()
        state = look.state
        left = [
            tuple(Entry(Verb.ERASE, p) for p in paths if p in state.paths or not state.has_begun)
            for paths in whole
        ]
        if not any(left):
            return
        put = journaled.journal.append(look, [wave for wave in left if wave])
        if put is not None and journaled.files.write(put):
            journaled.files.finish(put)
            return
