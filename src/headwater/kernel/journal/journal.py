"""Reading and appending slots.

`look` lists the journal and reads what came since. `append` puts a slot behind the state that it
was decided on; it is refused if somebody else's slot is there. A name that was deleted can be taken
again, so whoever appended looks at the floor afterwards: a slot at or below the newest checkpoint,
which is there before any slot is deleted, was put too late and means nothing (M5).

What a crash leaves behind, by the last write that landed:

    after         state                                      who repairs
    slot          decided; files may be missing              whoever decides next materialises it
    some files    the same                                   the same
    checkpoint    nothing is missing; old slots remain       the next checkpoint deletes them
    some deletes  the same                                   the same
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.errors import CommitUnknownError, ConflictError, ErrorKind, Retry
from headwater.kernel.journal.slots import (
    Entry,
    Listing,
    Slot,
    Verb,
    Wave,
    checkpoint_path,
    corrupt_journal,
    decode_slot,
    digest_of,
    encode_slot,
    parse_listing,
    slot_path,
)
from headwater.kernel.journal.state import (
    CLAIMS,
    CLOSED,
    Areas,
    JournalState,
    decode_checkpoint,
    encode_checkpoint,
)
from headwater.kernel.layout import JOURNAL
from headwater.kernel.write_once import put_if_missing, put_once
from headwater.model.instant import InstantTime
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids
from headwater.seams.mutex import new_mutex
from headwater.seams.storage import Storage

CHECKPOINT_EVERY = 64
_LOOKS_MAX = 10
"""How often a look starts over: each time others must have written a checkpoint meanwhile."""


class Look(NamedTuple):
    """The newest state, and the slots after the newest checkpoint that it was made of."""

    state: JournalState
    slots: tuple[Slot, ...]


class Journal:
    """The journal of one table, as this process has read it. Threads may share it."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        areas: Areas,
        every: int = CHECKPOINT_EVERY,
    ) -> None:
        self.storage = storage
        self.clock = clock
        self._ids = ids
        self._every = every
        self._mutex = new_mutex()
        self._known = Look(JournalState(areas=areas), ())

    @property
    def known(self) -> JournalState:
        """The state as it was read last."""
        return self._known.state

    def look(self) -> Look:
        """Return the state of now.

        Raises:
            CorruptTableError: kind CORRUPT_JOURNAL.
            StorageError: storage failed.
        """
        for _ in range(_LOOKS_MAX):
            listing = parse_listing(self.storage.list_names(JOURNAL))
            found = self._read_up_to(listing)
            if found is not None:
                self._note(found)
                return found
        raise corrupt_journal(JOURNAL, f"slots were missing {_LOOKS_MAX} times in a row")

    def append(
        self, look: Look, waves: Sequence[Wave], issued: InstantTime | None = None
    ) -> Look | None:
        """Put a decision behind what it was made on; None if another decision is there.

        Raises:
            ConflictError: kind TABLE_SWITCHED; the journal is closed.
            CommitUnknownError: storage did not say whether the slot landed, or what became of it
                while this process was stalled.
            StorageError: the store refuses for good, and nothing was written.
        """
        if look.state.is_closed:
            raise table_switched(self.storage.uri, "its journal was closed")
        return self._append(look, waves, issued)

    def close(self, look: Look) -> Look | None:
        """Put the last slot, behind which files say what there is; None if another slot is there.

        All that the slots before it say must be in files.

        Raises:
            HeadwaterError: as `append`.
        """
        return self.append(look, [(Entry(Verb.NOTE, CLOSED),)])

    def reopen(self, look: Look) -> Look | None:
        """Put a slot behind the closing one, which adopts the files that there are by now.

        Raises:
            HeadwaterError: as `append`.
        """
        return self._append(look, [(Entry(Verb.ERASE, CLOSED),)], None)

    def _append(self, look: Look, waves: Sequence[Wave], issued: InstantTime | None) -> Look | None:
        if not look.state.has_begun:
            waves = (self._adopted(), *waves)
        slot = Slot(
            number=look.state.number + 1,
            follows=look.state.digest,
            operation=self._ids.new_uuid(),
            owner=str(self._ids.owner),
            issued=issued,
            waves=tuple(waves),
        )
        data = encode_slot(slot)
        try:
            put_once(self.storage, self.clock, slot_path(slot.number), data)
        except ConflictError:
            return None
        if not self._counts(slot, data):
            return None
        after = Look(look.state.after(slot, digest_of(data)), (*look.slots, slot))
        self._note(after)
        return after

    def _adopted(self) -> Wave:
        """Return what the first slot takes over: all journaled paths that there are."""
        areas = self.known.areas
        names = self.storage.at_once(self.storage.list_names, areas.folders)
        paths = [
            f"{folder}/{name}"
            for folder, found in zip(areas.folders, names, strict=True)
            for name in sorted(found)
        ]
        claims = (info.path for folder in CLAIMS for info in self.storage.list_tree(folder[:-1]))
        return tuple(Entry(Verb.ADOPT, path) for path in (*paths, *claims))

    def checkpoint(self, state: JournalState) -> None:
        """Write what the slots add up to, now and then, and delete those that it stands for.

        All of them are in files. The slots of one checkpoint stay, for those who are reading them.
        """
        if state.number % self._every:
            return
        path = checkpoint_path(state.number)
        put_if_missing(self.storage, self.clock, path, encode_checkpoint(state))
        listing = parse_listing(self.storage.list_names(JOURNAL))
        older = max((each for each in listing.checkpoints if each < state.number), default=0)
        self.storage.delete_many(
            [
                *(slot_path(each) for each in sorted(listing.slots) if each <= older),
                *(checkpoint_path(each) for each in sorted(listing.checkpoints) if each < older),
            ]
        )

    def _counts(self, slot: Slot, data: bytes) -> bool:
        """Whether a slot that was put is part of the journal, or came to a name that was deleted.

        Raises:
            CommitUnknownError: it is not to be known any more.
        """
        listing = parse_listing(self.storage.list_names(JOURNAL))
        if listing.floor < slot.number:
            return True
        found = self.look()
        for later in found.slots:
            if later.number == slot.number + 1:
                return later.follows == digest_of(data)
        # Its paths would prove nothing: another decision may have used the same time.
        raise CommitUnknownError(
            f"This process stood still while others came {listing.floor - slot.number} decisions "
            "further than its own. Load the timeline to see what became of it",
            path=slot_path(slot.number),
        )

    def _read_up_to(self, listing: Listing) -> Look | None:
        """Read what came since; None if some of it was deleted meanwhile."""
        known = self._known
        if listing.floor > known.state.number:
            data = self.storage.read_many([checkpoint_path(listing.floor)])[0]
            if data is None:
                return None
            areas = known.state.areas
            known = Look(decode_checkpoint(data, areas, number=listing.floor), ())
        state, slots = known
        wanted = range(state.number + 1, listing.tail + 1)
        for number, data in zip(wanted, self._read_slots(wanted), strict=True):
            if data is None:
                return None
            slot = decode_slot(data, number=number)
            state = state.after(slot, digest_of(data))
            slots = (*slots, slot)
        kept = tuple(slot for slot in slots if slot.number > listing.floor)
        return Look(state.without_data(listing.floor), kept)

    def _read_slots(self, numbers: range) -> list[bytes | None]:
        return self.storage.read_many([slot_path(number) for number in numbers]) if numbers else []

    def _note(self, found: Look) -> None:
        with self._mutex:
            if found.state.number >= self._known.state.number:
                self._known = found


def table_switched(table: str, what: str) -> ConflictError:
    """Return the error of a process that opened a table before it was switched over."""
    return ConflictError(
        f"The table was switched with `headwater table upgrade` after this process had opened it: "
        f"{what}. Nothing was changed and nothing is lost. Open the table again; if that does not "
        "help, the switch died on its way: run it again, and it is finished",
        kind=ErrorKind.TABLE_SWITCHED,
        retry=Retry.NEVER,
        table=table,
    )
