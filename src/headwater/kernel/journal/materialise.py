"""The files of the slots: what Apache Hudi and hudi-rs read, in the order of the journal.

Each slot's files are written before those of the next, so other engines see a prefix of the journal
at every moment (INV-134). Two kinds of files say nothing alone and may come earlier: what is told
to the metadata table, which counts when its instant completes (INV-72); and what begins a write,
whose files come at any time before those that end it, and are not proven by later ones.

The author of a slot writes its files before it answers, and whatever is missing of the slots before
its own; a slot that begins a write may wait until the write is at work (`catch_up`).

All of it may be done twice, by several at once, and late: a path that is created again has the same
content, so a file that is there is the right one, and what is overwritten is compared with what the
journal says.

A process that stalls here may put a file that others have erased meanwhile, or delete one that
others have created again: a plan that goes back to its request and is executed once more, a
savepoint that is made again, begin under the same name, with an empty file. It looks at the journal
once more when it is done, takes the one away and puts the other back. If it dies before that, our
readers know better from the journal; the one stays, and whoever decides next and has seen the other
puts it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import chain, compress
from operator import not_

from headwater.errors import CommitUnknownError, ConflictError, NotFoundError, StorageError
from headwater.kernel.journal.journal import Appended, Journal, Look
from headwater.kernel.journal.lasting import force_files, is_from_before_start, unforced
from headwater.kernel.journal.paths import time_of
from headwater.kernel.journal.slots import Entry, Slot, Verb, Wave, slot_path
from headwater.kernel.journal.state import Areas, JournalState, folder_of
from headwater.kernel.layout import JOURNAL, METADATA_TIMELINE
from headwater.kernel.write_once import put_if_missing, put_surely
from headwater.model.instant import Action, State
from headwater.seams.clock import Clock
from headwater.seams.storage import Storage, StoredObject, both_at_once

log = logging.getLogger(__name__)

_TRIES_MAX = 5
_PENDING_WRITES = frozenset(
    (
        "inflight",  # Of a commit.
        *(
            f"{action}.{state}"
            for action in Action
            if action.is_ingestion
            for state in (State.REQUESTED, State.INFLIGHT)
        ),
    )
)
"""How files of the timeline that say that a write is pending go on behind its time."""


class Materialiser:
    """Writes files for one process, which knows up to where they are there; for all its threads."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._done = 0
        self._own: set[int] = set()
        self._begun: set[int] = set()
        """Slots beyond these whose files are there, too; they begin writes."""
        self._written: list[Entry] = []
        """What it did to files since it looked at the journal last."""
        self._has_recovered = False

    @property
    def _storage(self) -> Storage:
        return self._journal.storage

    @property
    def _clock(self) -> Clock:
        return self._journal.clock

    @property
    def _areas(self) -> Areas:
        return self._journal.known.areas

    def write(self, put: Appended, there: Collection[str] | None = None) -> bool:
        """Confirm a slot and put it into files, with those before it that are not.

        Args:
            there: names on the timeline, listed before; they spare a listing.

        Returns whether it counts. Meanwhile that is written which means nothing without the rest.
        If files fail the slot stands all the same: the next decision writes them, and our readers
        miss nothing until then.

        Raises: see `Journal.confirm`.
        """
        state, slot, counts = put.look.state, put.slot, False
        failed: list[StorageError | CommitUnknownError] = []

        def confirm() -> None:
            nonlocal counts
            counts = self._journal.confirm(put)

        def list_timeline() -> None:
            nonlocal there
            there = self._list_files_of(s for s in put.look.slots if s.number > self._done)

        def quietly(call: Callable[[], None]) -> Callable[[], None]:
            """Only what confirms the slot may say that it does not count."""

            def run() -> None:
                try:
                    call()
                except (StorageError, CommitUnknownError) as error:
                    failed.append(error)

            return run

        early: Wave = ()
        calls: list[Callable[[], None]] = [confirm]
        is_next = self._done >= slot.number - 1  # Nothing of slots before it is missing.
        if is_next and self._means_nothing_alone(slot.waves[0]):
            early = slot.waves[0]
            calls.append(quietly(partial(self._write_wave, early, state)))
        elif not is_next and there is None:
            calls.append(quietly(list_timeline))
        self._own.add(slot.number)
        self._storage.at_once(lambda call: call(), calls)
        if counts and not failed:
            quietly(partial(self._write_slots, put.look, early, there))()
        if counts and failed:
            log.warning(
                "other engines do not see decision %d yet, the next one shows it table=%s error=%s",
                slot.number,
                self._storage.uri,
                failed[0],
            )
        if not counts:
            self._written += slot.entries()
            self._make_good()
        return counts

    def begin(self, put: Appended) -> bool:
        """Confirm a slot whose files are written by `catch_up`, or with the next decision.

        Returns whether it counts.

        Raises: see `Journal.confirm`.
        """
        self._own.add(put.slot.number)
        return self._journal.confirm(put)

    def catch_up(self) -> None:
        """Put the writes that this process has begun into files.

        What others have decided meanwhile they write themselves; if one of them has died, the next
        decision does.

        Raises:
            StorageError, CommitUnknownError: files are missing; the next decision writes them.
        """
        look = self._journal.known_look
        unsure = [slot for slot in look.slots if slot.number > self._done]
        own = [slot for slot in unsure if slot.number in self._own and self._begins_write(slot)]
        if len(own) == len(unsure):
            self._write_slots(look)
        else:
            self._write_begun(own, look.state)

    def settle(self, look: Look) -> None:
        """Make files say what the slots say, so that the journal can be closed behind them.

        Raises:
            StorageError, CommitUnknownError: files are missing, or some are too many.
        """
        self._write_slots(look)
        self._force(look.state)
        for path in filter(self._areas.is_shared, look.state.paths):
            self._overwrite(path)
        for folder in self._areas.timelines:
            stored = (f"{folder}/{name}" for name in self._storage.list_names(folder))
            self._storage.delete_many([path for path in stored if path in look.state.erased])

    def finish(self, put: Appended) -> None:
        """Make good what this process did too late; write a checkpoint now and then.

        That there is nothing to do a state tells that no listing has proven. If it should be wrong,
        for this process stood still again, that is left which one leaves that dies here.

        Raises:
            StorageError, CommitUnknownError: the next decision does it.
        """
        written, state = self._written_before(self._journal.peek)
        if any(self._wrong(written, state)):
            self._written += written
            self._make_good()
        if self._done >= put.slot.number and self._journal.is_checkpoint_due(put.look.state):
            self._force(put.look.state)
            self._journal.checkpoint(put.look.state)

    def give_up(self) -> None:
        """Make good what this process did too late, if no decision of ours follows.

        Raises:
            StorageError, CommitUnknownError: it stays; our readers know better from the journal.
        """
        if self._written:
            self._make_good()

    def recover(self, look: Look) -> None:
        """Look after the files once, if the machine was started since the last decision.

        Raises:
            StorageError, CommitUnknownError: the next decision tries again.
        """
        if not self._has_recovered and look.slots:
            newest = slot_path(look.slots[-1].number)
            if is_from_before_start(self._storage, newest):
                self._force(look.state)
        self._has_recovered = True

    def _force(self, state: JournalState) -> None:
        """Have files on the disk; write those again that a power cut has taken.

        Missing may also be what a writer that has just begun has not written yet.
        """
        wrong = force_files(self._storage, state)
        there = self._journal.look().state.paths if wrong else {}
        for path, is_missing in wrong:
            if path not in there:
                continue  # It was erased since.
            self._written.append(Entry(Verb.CREATE, path))
            data = state.paths[path].data or b""
            if is_missing:
                put_if_missing(self._storage, self._clock, path, data)
            else:
                log.warning("a file was not what the journal says and is put again path=%s", path)
                put_surely(self._storage, self._clock, path, data)
        if wrong:
            self._make_good()

    def put_again(self, state: JournalState, missing: Iterable[str]) -> None:
        """Put back what a process that stood still has deleted, and may be dead by now.

        Args:
            missing: names of the timeline that the state has, and that a later listing has not.

        Raises:
            StorageError, CommitUnknownError: it stays as it is; the next decision tries again.
        """
        for name in missing:
            path = f"{self._areas.timeline}/{name}"
            if state.paths[path].slot <= self._done and self._areas.is_used_again(path):
                log.warning("a file was deleted late and is put again path=%s", path)
                self._put_again(path, state)

    def write_again(self, paths: Iterable[str]) -> None:
        """Put back files that are not what the journal says, as far as it holds their content.

        Raises:
            StorageError, CommitUnknownError: storage failed; some are as they were.
        """
        for path in paths:
            self._overwrite(path)

    def _put_again(self, path: str, state: JournalState) -> None:
        self._written.append(Entry(Verb.CREATE, path))
        # What is in files is not held in the state; whatever can be created again is empty.
        put_if_missing(self._storage, self._clock, path, state.paths[path].data or b"")

    def _write_slots(
        self, look: Look, early: Wave = (), there: Collection[str] | None = None
    ) -> None:
        state, has = look.state, self._areas.has
        unsure = [slot for slot in look.slots if slot.number > self._done]
        if there is None:
            is_one = len(unsure) < 2  # A listing would cost more than to put it once more.
            there = () if is_one else self._list_files_of(unsure)
        shown, missing = self._split(unsure, there)
        for slot in shown:
            # Others write only what is journaled of it.
            if slot.number in self._own and slot.number not in self._begun:
                rest = tuple(entry for entry in slot.entries() if not has(entry.path))
                self._write_wave(rest, state)
        is_begun = [self._begins_write(slot) for slot in missing]
        begun = [*compress(missing, is_begun)]
        ended = [*compress(missing, map(not_, is_begun))]
        others = (slot for slot in begun if slot.number not in self._own)
        self._begun |= {slot.number for slot in others if self._shows(slot, there)}
        first, beside = self._of_ended(begun, ended)
        self._write_begun(first, state)
        both_at_once(
            self._storage,
            partial(self._write_ended, ended, early, state),
            partial(self._write_begun, beside, state),
        )
        self._done = max(self._done, state.number)
        for numbers in (self._own, self._begun):
            # In place, and from a copy: other threads add to them.
            numbers.difference_update([each for each in tuple(numbers) if each <= self._done])

    def _write_ended(self, slots: Sequence[Slot], early: Wave, state: JournalState) -> None:
        """Put slots into files one after the other: what means nothing alone first, of all."""
        self._written += (entry for slot in slots for entry in slot.entries())
        waves = [[self._mine(slot, wave) for wave in slot.waves] for slot in slots]
        ahead = [own.pop(0) for own in waves if own and self._means_nothing_alone(own[0])]
        self._write_wave(tuple(chain.from_iterable(w for w in ahead if w is not early)), state)
        for wave in chain.from_iterable(waves):
            self._write_wave(wave, state)

    def _mine(self, slot: Slot, wave: Wave) -> Wave:
        """Return what of a wave this process writes: of others' slots what is journaled."""
        if slot.number in self._own:
            return wave
        return tuple(entry for entry in wave if self._areas.has(entry.path))

    def _of_ended(
        self, begun: Sequence[Slot], ended: Iterable[Slot]
    ) -> tuple[Sequence[Slot], Sequence[Slot]]:
        """Return which of the writes that were begun are ended here as well, and which are not."""
        times = self._times_of(ended)
        is_ended = [not times.isdisjoint(self._times_of([slot])) for slot in begun]
        return [*compress(begun, is_ended)], [*compress(begun, map(not_, is_ended))]

    def _list_files_of(self, slots: Iterable[Slot]) -> frozenset[str]:
        """Return the names on the timeline, from those of the first of these instants on."""
        first = min(self._times_of(slots), default="")
        return frozenset(self._storage.list_names(self._areas.timeline, first))

    def _times_of(self, slots: Iterable[Slot]) -> set[str]:
        paths = (entry.path for slot in slots for entry in slot.entries())
        own = (path for path in paths if folder_of(path) == self._areas.timeline)
        return {time_of(path.rpartition("/")[2]) for path in own}

    def _begins_write(self, slot: Slot) -> bool:
        """Whether a slot does nothing but to begin a write."""
        return any(map(self._is_of_pending_write, slot.entries())) and all(
            self._is_of_pending_write(entry)
            or self._areas.is_claim(entry.path)
            or not self._areas.has(entry.path)
            for entry in slot.entries()
        )

    def _shows(self, slot: Slot, there: Collection[str]) -> bool:
        """Whether the files of a slot that begins a write are there: those of the timeline last."""
        pending = filter(self._is_of_pending_write, slot.entries())
        return all(entry.path.rpartition("/")[2] in there for entry in pending)

    def _is_of_pending_write(self, entry: Entry) -> bool:
        folder, _, name = entry.path.rpartition("/")
        is_pending = name.partition(".")[2] in _PENDING_WRITES
        return entry.verb is Verb.CREATE and folder == self._areas.timeline and is_pending

    def _write_begun(self, slots: Sequence[Slot], state: JournalState) -> None:
        """Put slots that begin writes into files: their claims first, for they say whose it is."""
        missing = [slot for slot in slots if slot.number not in self._begun]
        self._written += (entry for slot in missing for entry in slot.entries())
        entries = [
            entry
            for slot in missing
            for entry in slot.entries()
            if slot.number in self._own or self._areas.has(entry.path)
        ]
        pending = tuple(filter(self._is_of_pending_write, entries))
        self._write_wave(tuple(entry for entry in entries if entry not in pending), state)
        self._write_wave(pending, state)
        self._begun |= {slot.number for slot in missing}

    def _write_wave(self, wave: Wave, state: JournalState) -> None:
        calls = [
            partial(self._apply, entry, state) for entry in wave if entry.verb is not Verb.ERASE
        ]
        if erased := [entry.path for entry in wave if entry.verb is Verb.ERASE]:
            calls.append(partial(self._erase, erased, state))
        self._storage.at_once(lambda call: call(), calls)

    def _erase(self, paths: Iterable[str], state: JournalState) -> None:
        files = (path for path in paths if not path.startswith(f"{JOURNAL}/"))
        # Or a later slot has it again.
        self._storage.delete_many([path for path in files if path not in state.paths])

    def _means_nothing_alone(self, wave: Wave) -> bool:
        return all(
            entry.verb is Verb.CREATE
            and (self._areas.is_claim(entry.path) or folder_of(entry.path) == METADATA_TIMELINE)
            for entry in wave
        )

    def _split(
        self, unsure: Sequence[Slot], there: Collection[str]
    ) -> tuple[Sequence[Slot], Sequence[Slot]]:
        """Return the slots whose files are there, and the others.

        The file that a slot creates last shows that all before it are there, but for those that
        begin writes: they may be written at the same time.
        """
        for place in reversed(range(len(unsure))):
            name = self._last_name(unsure[place])
            if name is not None and name in there:
                before = unsure[: place + 1]
                is_late = [self._begins_write(s) and not self._shows(s, there) for s in before]
                shown = [*compress(before, map(not_, is_late))]
                return shown, [*compress(before, is_late), *unsure[place + 1 :]]
        return [], unsure

    def _last_name(self, slot: Slot) -> str | None:
        """Return the file of the timeline that a slot creates last of all it does, if it does.

        Files of pending writes may be there before those of slots before them.
        """
        if self._begins_write(slot):
            return None
        *_, last = slot.entries()
        is_shown = last.verb is Verb.CREATE and folder_of(last.path) == self._areas.timeline
        return last.path.rpartition("/")[2] if is_shown and len(slot.waves[-1]) == 1 else None

    def _apply(self, entry: Entry, state: JournalState) -> None:
        storage, clock = self._storage, self._clock
        match entry.verb:
            case Verb.ADOPT | Verb.NOTE:
                return
            case Verb.ERASE:
                raise AssertionError("Erased together, where waves are written")
            case Verb.CREATE:
                if entry.path in state.paths:  # Or a later slot has erased it.
                    put_if_missing(unforced(storage), clock, entry.path, entry.data)
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

    def _make_good(self) -> None:
        for _ in range(_TRIES_MAX):
            written, state = self._written_before(self._journal.look)
            late, lost = self._wrong(written, state)
            if late:
                self._storage.delete_many(late)
            for path in lost:
                self._put_again(path, state)
            if not self._written:
                return  # Nothing was put that could have been erased meanwhile.

    def _written_before(self, look: Callable[[], Look]) -> tuple[list[Entry], JournalState]:
        """Return what was written, and a state of afterwards: it has all of that which stands.

        What another thread decides meanwhile, and writes, such a state may lack.
        """
        written, self._written = self._written, []
        try:
            return written, look().state
        except BaseException:
            self._written += written
            raise

    def _wrong(
        self, written: Iterable[Entry], state: JournalState
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return what was put too late, and what was deleted too late."""
        # Claims are left to their owners, who may have deleted theirs.
        files = [entry for entry in written if folder_of(entry.path) in self._areas.folders]
        created = (entry.path for entry in files if entry.verb is Verb.CREATE)
        erased = (entry.path for entry in files if entry.verb is Verb.ERASE)
        is_used_again = self._areas.is_used_again
        return (
            [path for path in created if self._is_late(path, state)],
            [path for path in erased if path in state.paths and is_used_again(path)],
        )

    def _is_late(self, path: str, state: JournalState) -> bool:
        """Whether a file was erased before it was put."""
        if not state.is_closed:
            return path not in state.paths
        return state.was_erased(path)  # Files are what there is by now.
