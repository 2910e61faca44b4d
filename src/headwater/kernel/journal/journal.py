"""Reading and appending slots.

`look` lists the journal and reads what came since. `append` puts a slot behind the state that it
was decided on; it is refused if somebody else's slot is there. A name that was deleted can be taken
again, so whoever appended looks at the floor afterwards (`confirm`): a slot at or below the newest
checkpoint, which is there before any slot is deleted, was put too late and means nothing (M5).

What a crash leaves behind, by the last write that landed:

    after         state                                      who repairs
    slot          decided; files may be missing              whoever decides next materialises it
    some files    the same                                   the same
    checkpoint    nothing is missing; old slots remain       the next checkpoint deletes them
    some deletes  the same                                   the same
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from headwater.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    CorruptTableError,
    ErrorKind,
    NotFoundError,
    Retry,
    StorageError,
)
from headwater.kernel.journal.pace import Pace
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
    names_from,
    slot_path,
)
from headwater.kernel.journal.state import (
    CLAIMS,
    CLOSED,
    SHARED,
    Areas,
    JournalState,
    decode_checkpoint,
    encode_checkpoint,
)
from headwater.kernel.layout import JOURNAL, PROPERTIES, PROPERTIES_BACKUP
from headwater.kernel.write_once import name_taken, put_if_missing, put_once
from headwater.model.instant import InstantTime
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids
from headwater.seams.mutex import new_mutex
from headwater.seams.storage import Storage, both_at_once

CHECKPOINT_EVERY = 64
_TRIES_MAX = 5
_PAUSE_MS = 50  # Doubled after every try, as for what is put once.
_READ_AHEAD_MAX = 8  # Slots that are read before it is known that they are there.
_TAKEN_READ = 2  # As many at least behind a slot that was taken: who took it may have gone on.
_RACES_MAX = 4  # Slots after a lost one that are put while others' are read.
LISTED_LATELY_MS = 1_000
"""For how long a listing is good enough, where another would cost a round trip."""
_LOOKS_MAX = 10
"""How often a look starts over: each time others must have written a checkpoint meanwhile."""


class Look(NamedTuple):
    """The newest state, and the slots after the newest checkpoint that it was made of."""

    state: JournalState
    slots: tuple[Slot, ...]

    def without(self, floor: int) -> Look:
        """Return it without what a checkpoint stands for."""
        kept = tuple(slot for slot in self.slots if slot.number > floor)
        return Look(self.state.without_data(floor), kept)


class Appended(NamedTuple):
    """A slot that was put, and what there is behind it if it counts."""

    look: Look
    data: bytes

    @property
    def slot(self) -> Slot:
        return self.look.slots[-1]


class _Read(NamedTuple):
    """A state, and the slot behind which slots were read, or put, for it.

    It is true if a listing that begins afterwards shows no floor above that slot: then none of
    their names can have been used twice.
    """

    look: Look
    since: int

    @property
    def is_proven(self) -> bool:
        return self.since == self.look.state.number


class _Race:
    """A slot that is put while others may be faster: what they put is read at the same time.

    Who loses can decide again at once. So on a distant store many who decide at once are as fast as
    one request after the other, where it would take two for each decision to put and then to read.
    """

    def __init__(self, journal: Journal, number: int) -> None:
        self._journal = journal
        self._number = number
        self._seen: Mapping[int, bytes] = {}

    def put(self, path: str, data: bytes) -> None:
        """Raises: see `Storage.put_if_absent`."""
        storage = self._journal.storage

        def create() -> AlreadyExistsError | None:
            try:
                storage.put_if_absent(path, data)
            except AlreadyExistsError as taken:
                return taken
            return None

        taken, self._seen = both_at_once(storage, create, self._look)
        if taken is not None:
            raise taken

    def _look(self) -> Mapping[int, bytes]:
        try:
            return self._journal.read_next(self._number)
        except StorageError:
            return {}  # It would only have saved a request.

    def take(self) -> Mapping[int, bytes]:
        """Return the slots that were read, once: the one that was put, and those behind it."""
        seen, self._seen = self._seen, {}
        return seen


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
        self._unproven: _Read | None = None
        """What came behind the known state, until the next listing proves it."""
        self._own_number = 0
        self._pace = Pace(clock)
        self._races = 0
        """How many slots more are read while one is put in their place: others were first lately.
        """
        self._is_alone = False
        self._read_ms = 0, 0
        """When the last look for a decision began, and when it ended."""
        self.turns: tuple[str, ...] = ()
        """Who asked for a turn when the journal was listed last."""
        self._floor = 0
        self._listed_ms = -LISTED_LATELY_MS

    @property
    def known(self) -> JournalState:
        """The state as it was read last."""
        return self._known.state

    @property
    def known_look(self) -> Look:
        """The same with its slots, whose files may be missing."""
        return self._known

    @property
    def guess(self) -> Look | None:
        """What the next look will most likely show.

        That is so if nobody else decided around the last one; or if that was just now, so that
        what another shows is not newer by much. A decision on it is as good as any other: if it is
        outdated its slot is taken.
        """
        newest = self.newest
        is_good = self._is_alone or (self.storage.is_distant and self._is_just_read)
        return newest if is_good and newest.state.has_begun else None

    @property
    def _is_just_read(self) -> bool:
        began_ms, ended_ms = self._read_ms
        return self.clock.monotonic_ms() - ended_ms < ended_ms - began_ms

    @property
    def newest(self) -> Look:
        """The newest state that was read, for a decision, which is confirmed before it counts."""
        return self._start().look

    def look(self) -> Look:
        """Return the state of now.

        What it read of slots it takes for true once a listing that begins afterwards shows that
        none of their names can have been used twice meanwhile. So where several decide at once
        their slots are read first, and one listing will do.

        Raises:
            CorruptTableError: kind CORRUPT_JOURNAL.
            StorageError: storage failed.
        """
        for _ in range(_LOOKS_MAX):
            known = max(self._known.state.number, self._own_number)
            near = self._read_near(self._ahead) if self._expected > 1 else None
            found = near or self._read_on()
            if near is not None or not found.is_proven:
                floor = self._list(found.since).floor
                if floor > found.since:
                    continue
                found = _Read(found.look.without(floor), found.since)
            self._is_alone = found.look.state.number <= known
            self._note(found.look)
            return found.look
        raise _kept_changing()

    def peek(self) -> Look:
        """Return the state of now for a decision, which is confirmed before it counts.

        Raises: see `look`.
        """
        if not self.storage.is_distant:
            return self._read_on().look
        began_ms = self.clock.monotonic_ms()
        near = self._read_near(self._ahead) if self._is_listed_lately else None
        found = near or self._read_on()
        self._read_ms = began_ms, self.clock.monotonic_ms()
        return found.look

    def _read_near(self, ahead: int) -> _Read | None:
        """Read what came since without a listing, so many slots at once.

        None if that takes a listing: what is there does not follow what is known.
        """
        start = self._start()
        if not self._is_near(start):
            return None
        found: _Read | None = start
        further = _TAKEN_READ
        while found is not None:
            number = found.look.state.number
            at_hand = self._read_if_there(range(number + 1, number + 1 + ahead))
            found = self._follow(found, at_hand)
            if found is not None and found.look.state.number < number + ahead:
                self._note_came(found.look.state.number - start.look.state.number)
                break
            ahead, further = further, min(2 * further, _READ_AHEAD_MAX)
        return found

    def _is_near(self, start: _Read) -> bool:
        """Whether the slots behind a state can be read without a listing, which costs as much.

        They are there as far as this process knows. If they were deleted since, the listing that
        follows tells.
        """
        has_begun = start.look.state.has_begun
        return self.storage.is_distant and has_begun and self._floor <= start.since

    @property
    def _is_listed_lately(self) -> bool:
        """Whether slots that are not found are not there, rather than deleted, most likely."""
        return self.clock.monotonic_ms() - self._listed_ms <= LISTED_LATELY_MS

    @property
    def _ahead(self) -> int:
        """How many slots are read at once: one more than are expected, for that shows the end."""
        return min(1 + self._expected, _READ_AHEAD_MAX)

    @property
    def _expected(self) -> int:
        return self._pace.expected if self.storage.is_distant else 0

    def read_next(self, number: int) -> Mapping[int, bytes]:
        """Read a slot and those behind it."""
        return self._read_if_there(range(number, number + self._ahead))

    def _read_if_there(self, numbers: Sequence[int]) -> Mapping[int, bytes]:
        contents = zip(numbers, self._read_slots(numbers), strict=True)
        return {each: data for each, data in contents if data is not None}

    def _follow(self, start: _Read, at_hand: Mapping[int, bytes]) -> _Read | None:
        """Return the state after slots that were read without a listing; the next one proves it."""
        try:
            look = _followed(start.look, at_hand)
        except CorruptTableError:
            return None  # They may be of names that were used twice.
        found = _Read(look, start.since)
        self._keep(found)
        return found

    def _read_on(self) -> _Read:
        """Read what came since."""
        for _ in range(_LOOKS_MAX):
            start = self._start()
            listing, at_hand = self._list_and_read(start)
            if (found := self._read_behind(start, listing, at_hand)) is not None:
                return found
        raise _kept_changing()

    def _start(self) -> _Read:
        with self._mutex:
            unproven, known = self._unproven, self._known
        if unproven is not None and unproven.look.state.number > known.state.number:
            return unproven
        return _Read(known, known.state.number)

    def _read_behind(
        self, start: _Read, listing: Listing, at_hand: Mapping[int, bytes]
    ) -> _Read | None:
        """Read what a listing shows behind a state that was read before it; None: start over."""
        number = start.look.state.number
        if not start.is_proven and listing.floor > start.since:
            with self._mutex:
                self._unproven = None
            return None
        self._note(start.look)
        found = self._read_up_to(start.look, listing, at_hand)
        if found is None:
            return None
        self._note_came(found.state.number - number)
        read = _Read(found, max(number, listing.floor))
        self._keep(read)
        return read

    def _note_came(self, count: int) -> None:
        if count:
            self._is_alone = False
        if self.storage.is_distant:
            self._pace.note(count)

    def _keep(self, read: _Read) -> None:
        """Go on from here next time."""
        with self._mutex:
            if self._unproven is None or read.look.state.number >= self._unproven.look.state.number:
                self._unproven = read

    def _since(self, look: Look) -> int | None:
        """Return behind which slot a state was read; None if that is forgotten."""
        start = self._start()
        if start.look.state.digest == look.state.digest:
            return start.since
        known = self._known.state
        return known.number if known.digest == look.state.digest else None

    def _list_and_read(
        self, start: _Read, at_least: int = 0
    ) -> tuple[Listing, Mapping[int, bytes]]:
        """List the journal; from a distant store read meanwhile the slots that are expected."""
        storage, number = self.storage, start.look.state.number + 1
        list_behind = partial(self._list, start.since)
        ahead = min(max(at_least, self._expected), _READ_AHEAD_MAX)
        if not storage.is_distant or number == 1 or not ahead:
            return list_behind(), {}
        read = partial(self._read_if_there, range(number, number + ahead))
        return both_at_once(storage, list_behind, read)

    def _list(self, since: int = 0) -> Listing:
        """List the journal from a slot on that is known to be there, all of it by default.

        Raises:
            NotFoundError: kind NOT_A_TABLE; it is not there any more.
        """
        listing = self._list_from(since)
        if since and not listing.has_reached(since):
            raise self._gone()
        return listing

    def _list_from(self, since: int) -> Listing:
        """List the journal from a slot on.

        Where a checkpoint may have come below that slot, from the newest that is known: it is to
        be known that nobody needs to write it.
        """
        if self.storage.is_distant:
            self._listed_ms = self.clock.monotonic_ms()
        known = self._floor
        begin = since if since < known + self._every else known
        names = self.storage.list_names(JOURNAL, names_from(begin) if begin else "")
        listing = Listing(names, floor=known if begin else 0)
        self._floor = max(self._floor, listing.floor)
        self.turns = listing.turns
        return listing

    def _gone(self) -> NotFoundError:
        """Return the error of a process whose newest slot, which is never deleted, is not there."""
        properties = self.storage.read_many([PROPERTIES, PROPERTIES_BACKUP])
        return table_gone(self.storage.uri, is_another_there=properties != [None, None])

    def append(
        self, look: Look, waves: Sequence[Wave], issued: InstantTime | None = None
    ) -> Appended | None:
        """Put a decision behind what it was made on; None if another decision is there.

        It stands once it is confirmed.

        Raises:
            ConflictError: kind TABLE_SWITCHED; the journal is closed. Or somebody who trusted the
                lock had a path before the first slot, and died without putting it to use.
            CommitUnknownError: storage did not say whether the slot landed.
            StorageError: the store refuses for good, and nothing was written.
        """
        if look.state.is_closed:
            raise table_switched(self.storage.uri, "its journal was closed")
        return self._append(look, waves, issued)

    def close(self, look: Look) -> Appended | None:
        """Put the last slot, behind which files say what there is; None if another slot is there.

        All that the slots before it say must be in files.

        Raises:
            HeadwaterError: as `append`.
        """
        return self.append(look, [(Entry(Verb.NOTE, CLOSED),)])

    def reopen(self, look: Look) -> Appended | None:
        """Put a slot behind the closing one, which adopts the files that there are by now.

        Raises:
            HeadwaterError: as `append`.
        """
        return self._append(look, [(Entry(Verb.ERASE, CLOSED),)], None)

    def _append(
        self, look: Look, waves: Sequence[Wave], issued: InstantTime | None
    ) -> Appended | None:
        if not look.state.has_begun:
            adopted = self._adopted(look.state)
            try:
                check_free(self.storage, waves, {entry.path for entry in adopted})
            except ConflictError:
                if self.look().state.number > look.state.number:
                    return None  # It is a file of the slot that is there by now.
                raise
            waves = (adopted, *waves)
        slot = Slot(
            number=look.state.number + 1,
            follows=look.state.digest,
            operation=self._ids.new_uuid(),
            owner=str(self._ids.owner),
            issued=issued,
            waves=tuple(waves),
        )
        data = encode_slot(slot)
        since = self._since(look)
        race = _Race(self, slot.number) if self._races and self.storage.is_distant else None
        read_back = partial(self._read_back, look, since, data, race)
        put = None if race is None else race.put
        path = slot_path(slot.number)
        try:
            put_once(self.storage, self.clock, path, data, put=put, read_back=read_back)
        except ConflictError:
            self._is_alone = False
            self._races = _RACES_MAX
            return None
        self._races = max(self._races - 1, 0)
        appended = Look(look.state.after(slot, digest_of(data)), (*look.slots, slot))
        self._own_number = slot.number
        if since is not None:
            self._keep(_Read(appended, since))
        return Appended(appended, data)

    def _read_back(
        self, look: Look, since: int | None, mine: bytes, race: _Race | None
    ) -> bytes | None:
        """Read who has a slot, and meanwhile what came behind it: whoever lost it decides on that.

        Raises:
            NotFoundError: nobody has it.
            StorageError: storage failed.
        """
        number = look.state.number + 1
        if not self.storage.is_distant or number == 1:
            return self.storage.read(slot_path(number))
        start = None if since is None else _Read(look, since)
        seen = {} if race is None else race.take()
        is_lost = seen.get(number, mine) != mine
        if start and is_lost and self._is_near(start) and (found := self._follow(start, seen)):
            self._note_came(found.look.state.number - number + 1)
            return seen[number]
        behind = start or _Read(look, self._floor)
        listing, at_hand = self._list_and_read(behind, _TAKEN_READ)
        if start and at_hand.get(number, mine) != mine:
            self._read_behind(start, listing, at_hand)
        return at_hand.get(number)

    def confirm(self, put: Appended) -> bool:
        """Whether a slot that was put is part of the journal, or came to a name that was deleted.

        Raises:
            CommitUnknownError: it is not to be known any more, or storage did not answer. The slot
                is there, so no failure means that nothing was decided.
        """
        error: StorageError | None = None
        for tried in range(_TRIES_MAX):
            if tried:
                self.clock.sleep_ms(_PAUSE_MS << (tried - 1))
            try:
                return self._counts(put)
            except StorageError as failed:
                error = failed
        raise CommitUnknownError(
            "The decision was written, and storage did not say whether it came in time. Do not "
            "clean up: load the timeline again once storage answers, it will tell",
            table=self.storage.uri,
            path=slot_path(put.slot.number),
        ) from error

    def _counts(self, put: Appended) -> bool:
        number, mine = put.slot.number, digest_of(put.data)
        listing = self._list_from(number - 1)
        if number > 1 and not listing.has_reached(number - 1):
            self._take_back(put)
            raise self._gone()
        if listing.floor < number:
            self._is_alone = listing.tail == number
            self._note(put.look)
            return True
        # Others wrote a checkpoint since. Who follows tells, if its name cannot have been deleted.
        (following,) = self._read_slots([number + 1])
        if following is not None and self._list().deleted <= number:
            return decode_slot(following, number=number + 1).follows == mine
        if listing.floor == number:
            (checkpoint,) = self.storage.read_many([checkpoint_path(number)])
            if checkpoint is not None:
                areas = self.known.areas
                return decode_checkpoint(checkpoint, areas, number=number).digest == mine
        # Its paths would prove nothing: another decision may have used the same time.
        raise CommitUnknownError(
            f"This process stood still while others came {listing.floor - number} decisions "
            "further than its own. Load the timeline to see what became of it",
            table=self.storage.uri,
            path=slot_path(number),
        )

    def check_same(self, state: JournalState) -> None:
        """Check that the journal which is stored is the one of a state, where others wrote beside.

        Raises:
            NotFoundError: kind NOT_A_TABLE; another table has taken the place of the one that was
                opened.
            CorruptTableError: kind CORRUPT_JOURNAL.
            StorageError: storage failed.
        """
        (data,) = self._read_slots([state.number])
        if data is not None and digest_of(data) != state.digest:
            decode_slot(data, number=state.number)
            raise self._gone()

    def _take_back(self, put: Appended) -> None:
        """Delete a slot that came to another table: nobody there could read past it.

        Only where the slot before it is surely not there: whoever has decided on ours needs it.
        """
        number = put.slot.number
        if self._read_slots([number - 1, number]) == [None, put.data]:
            self.storage.delete_many([slot_path(number)])

    def _adopted(self, state: JournalState) -> Wave:
        """Return what the first slot takes over: all journaled paths that there are.

        So does one that opens a closed journal, without what slots had erased before.
        """
        areas = state.areas
        names = self.storage.at_once(self.storage.list_names, areas.folders)
        paths = [
            f"{folder}/{name}"
            for folder, found in zip(areas.folders, names, strict=True)
            for name in sorted(found)
            if not state.was_erased(f"{folder}/{name}")
        ]
        claims = (info.path for folder in CLAIMS for info in self.storage.list_tree(folder[:-1]))
        found = zip(SHARED, self.storage.read_many(SHARED), strict=True)
        return (
            *(Entry(Verb.ADOPT, path) for path in (*paths, *claims)),
            *(Entry(Verb.SET, path, data) for path, data in found if data is not None),
        )

    def is_checkpoint_due(self, state: JournalState) -> bool:
        # That slot may have been put by one who wrote no files yet, so a later one will do.
        return not state.number % self._every or state.number >= self._floor + 2 * self._every

    def checkpoint(self, state: JournalState) -> None:
        """Write what the slots add up to, and delete those that it stands for.

        All of them are in files. The slots of one checkpoint stay, for those who are reading them.
        """
        path = checkpoint_path(state.number)
        put_if_missing(self.storage, self.clock, path, encode_checkpoint(state))
        listing = self._list()
        older = max((each for each in listing.checkpoints if each < state.number), default=0)
        self.storage.delete_many(
            [
                *(slot_path(each) for each in sorted(listing.slots) if each <= older),
                *(checkpoint_path(each) for each in sorted(listing.checkpoints) if each < older),
            ]
        )

    def _read_up_to(
        self, known: Look, listing: Listing, at_hand: Mapping[int, bytes]
    ) -> Look | None:
        """Read what came since, as far as it is not at hand; None if it was deleted meanwhile."""
        is_behind = listing.floor > known.state.number
        if is_behind:
            data = self.storage.read_many([checkpoint_path(listing.floor)])[0]
            if data is None:
                return None
            areas = known.state.areas
            known = Look(decode_checkpoint(data, areas, number=listing.floor), ())
        state = known.state
        # What is at hand may have come after the listing: the newest is as good.
        tail = max(listing.tail, *at_hand, 0)
        wanted = [each for each in range(state.number + 1, tail + 1) if each not in at_hand]
        found = dict(at_hand) | dict(zip(wanted, self._read_slots(wanted), strict=True))
        try:
            state, slots = _followed(known, found)
        except CorruptTableError as error:
            if state.number and not is_behind and self._is_another():
                raise self._gone() from error
            raise
        if state.number < tail:
            return None
        return Look(state, slots).without(listing.floor)

    def _is_another(self) -> bool:
        """Whether the journal that is stored is whole: then it is not the one that is known."""
        stored = Journal(self.storage, self.clock, self._ids, self.known.areas)
        try:
            stored.look()
        except CorruptTableError:
            return False
        return True

    def _read_slots(self, numbers: Sequence[int]) -> list[bytes | None]:
        return self.storage.read_many([slot_path(number) for number in numbers]) if numbers else []

    def _note(self, found: Look) -> None:
        with self._mutex:
            if found.state.number >= self._known.state.number:
                self._known = found


def _followed(look: Look, contents: Mapping[int, bytes | None]) -> Look:
    """Return what there is after the slots behind a state, up to the first that is missing.

    Raises:
        CorruptTableError: kind CORRUPT_JOURNAL; one is damaged, or does not follow the one before.
    """
    state, slots = look.state, [*look.slots]
    while (data := contents.get(state.number + 1)) is not None:
        slot = decode_slot(data, number=state.number + 1)
        state = state.after(slot, digest_of(data))
        slots.append(slot)
    return Look(state, tuple(slots))


def table_gone(table: str, *, is_another_there: bool) -> NotFoundError:
    """Return the error of a process that opened a table which is no more."""
    what = (
        "Another table, or an older copy of it, is in its place; open that one"
        if is_another_there
        else "It was deleted, or its folder was moved"
    )
    return NotFoundError(
        f"The table that was opened at {table} is not there any more. {what}",
        kind=ErrorKind.NOT_A_TABLE,
        table=table,
    )


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


def check_free(storage: Storage, waves: Iterable[Wave], taken: Container[str]) -> None:
    """Raises:
    ConflictError: a path that is to be created is taken.
    """
    for entry in (entry for wave in waves for entry in wave):
        if entry.verb is Verb.CREATE and entry.path in taken:
            raise name_taken(storage, entry.path)


def _kept_changing() -> CorruptTableError:
    return corrupt_journal(JOURNAL, f"slots were missing {_LOOKS_MAX} times in a row")
