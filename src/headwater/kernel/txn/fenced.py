"""Transactions without a lock: decide on the state after slot n, put the decision at slot n + 1.

1. look at the journal; all that the step sees is of that moment, as far as it is journaled. Beside
   it the timeline is listed for instants of other engines (see `other_engines`);
2. issue the next instant time: above every time that a slot has issued;
3. let the step decide;
4. put its events as one slot. If the slot is taken, somebody else decided meanwhile: again from 1;
5. look whether the slot came to a name that was deleted: then it means nothing, again from 1;
6. write the files of the slot, and those that are missing of the slots before.

Nothing was written when a step is asked again, so it may be asked any number of times. Whatever
this process read between 1 and 4 that was newer than the state, it read because a later slot
exists, and then 4 fails. So a decision that is put was made on exactly the state before it (M9).

After 4 the decision stands or not, whoever dies or stalls; 5 only tells. Before 4 there is nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import NamedTuple, TypeGuard, TypeVar, Unpack, assert_never

from headwater.config.table_options import CONFIG_SLOT
from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    ErrorKind,
    NotFoundError,
    StorageError,
)
from headwater.kernel.journal.journal import (
    LISTED_LATELY_MS,
    Appended,
    Look,
    check_free,
    table_switched,
)
from headwater.kernel.journal.slots import Entry, Verb, Wave
from headwater.kernel.journal.state import BARRED, BEING_ARCHIVED, JournalState
from headwater.kernel.journal.storage import JournaledStorage, find_journal
from headwater.kernel.layout import PROPERTIES, TableLayout
from headwater.kernel.table_config import changed_table_config
from headwater.kernel.timeline.history.write import write_history
from headwater.kernel.txn.events import (
    Archived,
    ChangeConfig,
    Completed,
    Delete,
    Ensure,
    Event,
    Put,
    PutOnce,
    Together,
    Write,
    WriteHistory,
    writes_of,
)
from headwater.kernel.txn.foreign import PendingElsewhere
from headwater.kernel.txn.heartbeat import HeartbeatWatch
from headwater.kernel.txn.metering import meter_decision, meter_ensured, meter_refusal
from headwater.kernel.txn.other_engines import OtherEngines, Seen
from headwater.kernel.txn.others_found import find_others, shows_others
from headwater.kernel.txn.prefix import LoadingWays, Prefix, PrefixLoader
from headwater.kernel.txn.transaction import (
    Beside,
    CheckMode,
    Decided,
    Decision,
    LockTransaction,
    Refusal,
    Step,
    Transaction,
    give_up_claim,
    release_quietly,
)
from headwater.kernel.txn.turns import Turns
from headwater.seams.components import Components
from headwater.seams.mutex import PerThread
from headwater.seams.storage import both_at_once

log = logging.getLogger(__name__)

R = TypeVar("R")
T = TypeVar("T")

_TURN_AFTER = 20
_TURN_OF_BLOCK_AFTER = 5
"""After how many lost slots a process asks the others to wait for it (LIV-15).

All others pay for it. Who decides in a moment loses nothing by another try; a block that reads much
on each one has no other chance.
"""
_PAUSE_MS = 4  # At random up to this, doubled with every loss, so many times.
_PAUSES_DOUBLED_MAX = 4


class MovedError(BaseException):
    """Somebody decided between a look and a decision that belong together.

    It passes everything that mends failures on its way: nothing has failed, the block runs again.
    """


_Put = tuple[Decided[R], Decision[R], Appended | None]


class _Listed(NamedTuple):
    """The names on the timeline, and when they were asked for by this process's own clock."""

    names: frozenset[str]
    at_ms: int | None


class FencedTransaction:
    """Transactions that trust nothing but put-if-absent (mode F)."""

    def __init__(
        self,
        components: Components,
        layout: TableLayout,
        journaled: JournaledStorage,
        *,
        folder: str = "",
        lock_timeout_ms: int = 60_000,
        elsewhere: PendingElsewhere | None = None,
        **ways: Unpack[LoadingWays],
    ) -> None:
        """`folder` is where the table is that this decides for, below that of the journal.

        Args:
            elsewhere: tells what other engines have left; see `OtherEngines`.
        """
        self._components = components
        self._layout = layout
        self._table = components.storage.uri
        self._journaled = journaled
        self._folder = folder
        self._queue_timeout_ms = lock_timeout_ms
        self._prefixes = PrefixLoader(components, layout, **ways)
        self._is_queued: PerThread[bool] = PerThread()
        self._turns = Turns(journaled.journal, components.clock, components.ids)
        self._turn: PerThread[str] = PerThread()
        self._listed: PerThread[frozenset[str]] = PerThread()
        """What was on the timeline when the decision of this thread began."""
        self._listed_ahead = _Listed(frozenset(), None)
        """What was there a moment ago, beside other work: a decision needs no listing of its own.
        """
        self._listed_before: PerThread[_Listed] = PerThread()
        """The same of the last try of this decision: who has lost its slot need not list again."""
        timeline = journaled.journal.known.areas.timeline
        if folder:  # Other engines are looked for on the timeline of the whole table.
            layout = replace(layout, timeline=timeline, history=f"{timeline}/history")
        self._others = OtherEngines(journaled.journal, layout, elsewhere)

    @property
    def watch(self) -> HeartbeatWatch:
        return self._prefixes.watch

    def run(self, step: Step[R], beside: Beside[R] | None = None) -> Decided[R]:
        while True:
            try:
                decided, decision, put = self._decide(step)
                if self._carry_out(decided, decision, put, beside):
                    return decided
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                give_up_claim(step, error, self._components.ids)
                raise
            if self._journaled.pin is not None:
                raise MovedError

    def catch_up(self) -> None:
        try:
            both_at_once(self._journaled.stored, self._journaled.files.catch_up, self._list_ahead)
        except (StorageError, CommitUnknownError) as error:
            log.warning("files follow with the next decision table=%s error=%s", self._table, error)

    def _list_ahead(self) -> None:
        stored = self._journaled.stored
        if stored.is_distant:
            areas = self._journaled.journal.known.areas
            began_ms = self._components.clock.monotonic_ms()
            names = frozenset(stored.list_names(areas.timeline))
            self._listed_ahead = _Listed(names, began_ms)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Take the table lock as a queue: those who lost too often go one after the other.

        Others do not ask for it, so the holder may still lose. Safety does not depend on it.
        """
        if self._is_queued.value:
            yield
            return
        held = self._components.locks.acquire(timeout_ms=self._queue_timeout_ms)
        try:
            self._is_queued.value = True
            yield
        finally:
            self._is_queued.value = None
            release_quietly(held)

    def undisturbed(self, block: Callable[[], T]) -> T:
        if self._journaled.pin is not None:
            return block()
        return self._until_won(block, turn_after=_TURN_OF_BLOCK_AFTER)

    def _decide(self, step: Step[R]) -> _Put[R]:
        if self._journaled.pin is not None:
            return self._decide_pinned(step)
        decide = partial(self._decide_pinned, step)
        return self._until_won(decide, turn_after=_TURN_AFTER, may_guess=True)

    def _until_won(self, block: Callable[[], T], *, turn_after: int, may_guess: bool = False) -> T:
        """Run a block on one state after the other, until nobody else decides meanwhile."""
        ids, clock = self._components.ids, self._components.clock
        began_ms = clock.monotonic_ms()
        look: Look | None = None
        self._listed_before.value = None
        with ExitStack() as turn:
            for lost in count():
                if lost and lost % turn_after == 0:
                    took_ms = (clock.monotonic_ms() - began_ms) // lost
                    turn.close()  # Others may have waited for the one before in vain.
                    turn.enter_context(self._taking_turn(took_ms, lost // turn_after - 1))
                elif 0 < lost < turn_after and not self._is_outdated(look):
                    clock.sleep_ms(ids.jitter(_PAUSE_MS << min(lost, _PAUSES_DOUBLED_MAX)))
                begun = self._begin(look, may_guess=may_guess and not lost)
                self._journaled.files.recover(begun)
                look = self._turns.wait(begun, self._turn.value)
                if look.state.is_closed:
                    raise table_switched(self._table, "its journal was closed")
                self._listed.value = None
                try:
                    with self._journaled.pinned(look):
                        return block()
                except MovedError:
                    continue
                except NotFoundError:
                    # What the journal had may be archived by now, and its file gone.
                    if not self._has_moved(look):
                        raise
        raise AssertionError("It is tried until it is won")

    def _is_outdated(self, look: Look | None) -> bool:
        newest = self._journaled.journal.newest
        return look is not None and newest.state.number > look.state.number

    def _begin(self, tried: Look | None, *, may_guess: bool) -> Look:
        """Return the state to decide on. The first is a guess, if nobody else decided lately.

        After a loss it is what was read with the refusal. Else, where it costs a round trip, the
        timeline is listed at the same time, for instants of other engines.
        """
        journal, stored = self._journaled.journal, self._journaled.stored
        if self._is_outdated(tried):
            return journal.newest
        if may_guess and journal.guess is not None:
            return journal.guess
        if not stored.is_distant or self._is_lately(self._listed_ahead, is_for_later=True):
            return journal.peek()
        look, _ = both_at_once(stored, journal.peek, self._list_ahead)
        return look

    @contextmanager
    def _taking_turn(self, took_ms: int, asked_before: int) -> Iterator[None]:
        """Have the others wait for this thread's decision."""
        name = self._turns.ask(took_ms, asked_before)
        try:
            self._turn.value = name
            yield
        finally:
            self._turn.value = None
            self._turns.give_back(name)

    def _has_moved(self, look: Look) -> bool:
        return self._journaled.journal.look().state.digest != look.state.digest

    def _load(self, step: Step[R], pin: Look) -> Prefix:
        """Read what a step must see, and beside it what other engines have put on the timeline.

        Raises:
            ConflictError: kind FOREIGN_WRITER.
            MovedError: their instants were adopted, or somebody decided meanwhile.
        """
        load = partial(self._prefixes.load, step.needs, pin.state.issued)
        if self._listed.value is not None or not pin.state.has_begun:
            return load()
        lately = filter(self._is_lately, (self._listed_ahead, self._listed_before.value))
        if any(not shows_others(pin.state, listed.names) for listed in lately):
            return load()
        stored = self._journaled.stored
        list_timeline = partial(stored.list_names, pin.state.areas.timeline)
        began_ms = self._components.clock.monotonic_ms()
        prefix, names = both_at_once(self._components.storage, load, list_timeline)
        listed = self._listed.value = frozenset(names)
        self._listed_before.value = _Listed(listed, began_ms)
        found = find_others(pin.state, listed)
        if not found.is_nothing:
            put = self._others.adopt(found, Seen(pin, listed))
            if put is not None and self._journaled.files.write(put, listed):
                self._finish(put)
            raise MovedError
        self._put_again(found.missing, pin.state)
        return prefix

    def _put_again(self, missing: Collection[str], state: JournalState) -> None:
        try:
            self._journaled.files.put_again(state, missing)
        except (StorageError, CommitUnknownError) as error:
            log.warning(
                "files that were deleted late are missing table=%s error=%s", self._table, error
            )

    def _is_lately(
        self, listed: _Listed | None, *, is_for_later: bool = False
    ) -> TypeGuard[_Listed]:
        """Whether a listing is as good as new; that of a long write, when it began, is not.

        Args:
            is_for_later: whether it still is so after a look, beside which it would cost nothing.
        """
        if listed is None or listed.at_ms is None:
            return False
        age_ms = self._components.clock.monotonic_ms() - listed.at_ms
        return age_ms <= LISTED_LATELY_MS * (3 if is_for_later else 4) // 4

    def _decide_pinned(self, step: Step[R]) -> _Put[R]:
        pin = self._journaled.pin
        assert pin is not None
        prefix = self._load(step, pin)
        decision: Decision[R] | Refusal = step.decide(prefix)
        if not pin.state.has_begun and self._journaled.journal.look().state.has_begun:
            raise MovedError  # What was read from files is of no one moment.
        if isinstance(decision, Refusal):
            if self._has_moved(pin):
                raise MovedError
            meter_refusal(self._table, decision.error)
            self._give_up_files()
            raise decision.error
        self._check_not_barred(decision.events, pin.state)
        waves = tuple(wave for wave in self._waves(decision.events, pin.state) if wave)
        check_free(self._journaled, waves, pin.state.paths)
        put: Appended | None = None
        if waves:
            put = self._journaled.journal.append(pin, waves, prefix.next_time)
            if put is None:
                raise MovedError
            self._journaled.advance_pin(put.look)
            for entry in put.slot.entries():  # Not before: a slot that is lost is decided again.
                if entry.verb is Verb.CREATE:
                    meter_ensured(self._table, entry.path)
        elif self._has_moved(pin):
            raise MovedError
        completed = {event.time for event in decision.events if isinstance(event, Completed)}
        seen = self._prefixes.note_seen(prefix.timeline, completed)
        meter_decision(self._table, prefix, decision.events, seen)
        return Decided(decision.result, 0, prefix.timeline), decision, put

    def _check_not_barred(self, events: Iterable[Event], state: JournalState) -> None:
        for event in events:
            if isinstance(event, Completed) and f"{BARRED}/{event.time}" in state.paths:
                raise ConflictError(
                    f"Another engine wrote to this fenced table and completed while {event.time} "
                    "was at work, so that neither knew of the other. Nothing was committed; write "
                    "the batch again. If both are to write at once, `headwater table upgrade "
                    "--no-fenced` gives the table back to a lock; use one that both know",
                    kind=ErrorKind.FOREIGN_WRITER,
                    table=self._table,
                    instant=event.time,
                )

    def _carry_out(
        self,
        decided: Decided[R],
        decision: Decision[R],
        put: Appended | None,
        beside: Beside[R] | None,
    ) -> bool:
        """Confirm a decision and do what it leads to; return False if it came too late to count.

        What begins a write goes on beside it at once, and its files wait until the write is at work
        (`catch_up`). What ends one is tidied up when other engines see the end.

        Raises:
            CommitUnknownError, StorageError: it is not to be known whether it counts; or the
                archived timeline was not written, which the next archival does.
        """
        files, storage = self._journaled.files, self._components.storage
        go_on: Callable[[], object] = (lambda: None) if beside is None else partial(beside, decided)
        if put is None:
            self._write_history(decision.events)  # Noted by another, which may have died over it.
            go_on()
            return True
        if beside is not None and not any(isinstance(e, Completed) for e in decision.events):
            # On the very state that it was begun on: if that does not count, this neither.
            go_on = self._journaled.on(put.look, go_on)
            counts, _ = both_at_once(storage, partial(files.begin, put), go_on)
            return counts
        if not files.write(put, self._listed.value):
            return False
        self._write_history(decision.events)
        both_at_once(storage, partial(self._finish, put), go_on)
        return True

    def _write_history(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Archived):
                write_history(self._components.storage, self._layout, event.instants)

    def _give_up_files(self) -> None:
        """Leave no files of a write that others have rolled back: other engines would see it."""
        try:
            self._journaled.files.give_up()
        except (StorageError, CommitUnknownError) as error:
            log.warning("late files are left behind table=%s error=%s", self._table, error)

    def _finish(self, put: Appended) -> None:
        try:
            self._journaled.files.finish(put)
        except (StorageError, CommitUnknownError) as error:
            log.warning("a checkpoint is left to others table=%s error=%s", self._table, error)

    def _waves(self, events: Iterable[Event], state: JournalState) -> Iterator[Wave]:
        for write in writes_of(events, self._layout):
            if isinstance(write, Together):
                yield tuple(self._entry_of(put, state) for put in write.puts)
            elif isinstance(write, WriteHistory):
                # From here on they are archived for every decision; the files are written after.
                yield tuple(
                    Entry(Verb.NOTE, note)
                    for instant in write.instants
                    if (note := f"{BEING_ARCHIVED}/{instant.requested_time}") not in state.paths
                )
            elif isinstance(write, Ensure):
                if self._path(write.path) not in state.paths:
                    yield (Entry(Verb.CREATE, self._path(write.path), write.data),)
            else:
                yield (self._entry_of(write, state),)

    def _entry_of(self, write: Write, state: JournalState) -> Entry:
        match write:
            case PutOnce(path, data):
                return Entry(Verb.CREATE, self._path(path), data)
            case Put(path, data):
                return Entry(Verb.SET, self._path(path), data)
            case Delete(path):
                return Entry(Verb.ERASE, self._path(path))
            case ChangeConfig(changes):
                stamped = {**changes, CONFIG_SLOT.key: CONFIG_SLOT.encode(state.number + 1)}
                data = changed_table_config(
                    self._components.storage, self._components.clock, stamped
                )
                return Entry(Verb.SET, self._path(PROPERTIES), data)
            case WriteHistory() | Ensure() | Together():
                raise AssertionError("Handled where waves are made")
            case _:
                assert_never(write)

    def _path(self, path: str) -> str:
        return f"{self._folder}/{path}" if self._folder else path


def transaction_on(
    components: Components,
    layout: TableLayout,
    *,
    lock_timeout_ms: int = 60_000,
    check_mode: CheckMode | None = None,
    elsewhere: PendingElsewhere | None = None,
    **ways: Unpack[LoadingWays],
) -> Transaction:
    """Return transactions as the table has them: by its journal if it has one, else by its lock.

    Args:
        elsewhere: tells those that trust a journal what other engines have left.
        check_mode: tells those that trust the lock that the table has a journal by now. A journal
            says by itself that it is closed.
    """
    journaled, folder = find_journal(components.storage)
    if journaled is not None:
        return FencedTransaction(
            components,
            layout,
            journaled,
            folder=folder,
            lock_timeout_ms=lock_timeout_ms,
            elsewhere=elsewhere,
            **ways,
        )
    return LockTransaction(
        components, layout, lock_timeout_ms=lock_timeout_ms, check_mode=check_mode, **ways
    )
