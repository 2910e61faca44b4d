"""Turns on fenced tables: who lost too often is waited for, and never for ever."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.kernel.journal.journal import Journal
from headwater.kernel.journal.slots import Entry, Verb
from headwater.kernel.journal.state import TURNS, Areas
from headwater.kernel.journal.storage import JournaledStorage
from headwater.kernel.layout import TableLayout
from headwater.kernel.txn.fenced import FencedTransaction
from headwater.kernel.txn.locks.storage_based import StorageBasedLockProvider
from headwater.kernel.txn.schedule import schedule_plan
from headwater.kernel.txn.steps import Claim
from headwater.kernel.txn.turns import Turns
from headwater.kernel.txn.writes import request_write
from headwater.model.instant import Action
from headwater.seams.components import Components
from headwater.seams.ids import Owner, SystemIds

LAYOUT = TableLayout()
AREAS = Areas(LAYOUT.timeline)


@dataclass
class Site:
    """A fenced table, and the clock that its processes share."""

    storage: MemoryStorage = field(default_factory=MemoryStorage)
    clock: ManualClock = field(default_factory=ManualClock)

    def journaled(self, name: str) -> JournaledStorage:
        ids = SystemIds(Owner("host", 1, name))
        return JournaledStorage(Journal(self.storage, self.clock, ids, AREAS))

    def turns(self, name: str) -> tuple[JournaledStorage, Turns]:
        journaled = self.journaled(name)
        return journaled, Turns(journaled, self.clock, SystemIds(Owner("host", 1, name)))

    def process(self, name: str) -> tuple[Components, FencedTransaction]:
        journaled = self.journaled(name)
        ids = SystemIds(Owner("host", 1, name))
        locks = StorageBasedLockProvider(self.storage, self.clock, ids)
        components = Components(journaled, self.clock, ids, locks)
        return components, FencedTransaction(components, LAYOUT, journaled)

    def claim(self, components: Components) -> Claim:
        return Claim.new(components.ids, interval_ms=1_000, tolerable_misses=2)

    def begin_write(self) -> None:
        components, txn = self.process("writer")
        write = request_write(components, txn, Action.DELTA_COMMIT, self.claim(components))
        write.abandon()


def notes(journaled: JournaledStorage) -> list[str]:
    return journaled.journal.look().state.names(TURNS)


def test_others_wait_until_its_author_has_decided() -> None:
    site = Site()
    planner, theirs = site.turns("planner")
    note = theirs.ask(took_ms=100)
    writer, ours = site.turns("writer")
    polls = 0

    def decide_at_the_third_poll() -> bool:
        nonlocal polls
        polls += 1
        if polls == 3:
            wave = (*theirs.ended_by(planner.journal.known, note), Entry(Verb.NOTE, "x"))
            put = planner.journal.append(planner.journal.look(), [wave])
            assert put is not None
        return polls < 3

    site.clock.every_ms(10, decide_at_the_third_poll, "planner")
    look = ours.wait(writer.journal.peek(), None)
    assert polls == 3
    assert not look.state.names(TURNS)


def test_its_author_does_not_wait_for_itself() -> None:
    site = Site()
    planner, turns = site.turns("planner")
    note = turns.ask(took_ms=100)
    before_ms = site.clock.monotonic_ms()
    turns.wait(planner.journal.peek(), note)
    assert site.clock.monotonic_ms() == before_ms


def test_who_gives_its_turn_back_does_not_wait_for_it() -> None:
    site = Site()
    journaled, turns = site.turns("planner")
    note = turns.ask(took_ms=1_000)
    asked_ms = site.clock.monotonic_ms()
    turns.give_back(note)
    assert site.clock.monotonic_ms() == asked_ms
    assert not notes(journaled)


def test_who_died_is_waited_for_once_and_its_note_goes() -> None:
    site = Site()
    _, dead = site.turns("dead")
    dead.ask(took_ms=1_000)
    writer, turns = site.turns("writer")
    look = turns.wait(writer.journal.peek(), None)
    waited_ms = site.clock.monotonic_ms()
    assert waited_ms >= 3_000
    assert turns.ended_by(look.state, None)  # The next decision takes it away.
    turns.wait(writer.journal.peek(), None)
    assert site.clock.monotonic_ms() == waited_ms


def test_nobody_waits_longer_than_the_most_however_long_it_took() -> None:
    site = Site()
    _, dead = site.turns("dead")
    dead.ask(took_ms=3_600_000)
    writer, turns = site.turns("writer")
    turns.wait(writer.journal.peek(), None)
    assert site.clock.monotonic_ms() < 60_000


def test_a_plan_gets_made_however_often_others_decide_meanwhile() -> None:
    site = Site()
    components, txn = site.process("planner")
    journaled = txn._journaled
    tries = 0

    def make() -> bytes:
        nonlocal tries
        tries += 1
        if not notes(journaled):
            site.begin_write()  # As long as nobody asks them to wait, others are faster.
        return b"plan"

    planned = schedule_plan(txn, Action.COMPACTION, make, lambda: site.claim(components))
    assert planned is not None
    assert tries == 6
    assert not notes(journaled)
    site.begin_write()  # Nobody is waited for any more.


def test_who_finds_nothing_to_do_lets_the_others_go_on() -> None:
    site = Site()
    components, txn = site.process("planner")
    journaled = txn._journaled
    tries = 0

    def make() -> bytes | None:
        nonlocal tries
        tries += 1
        if not notes(journaled):
            site.begin_write()
            return b"plan"
        return None

    assert schedule_plan(txn, Action.COMPACTION, make, lambda: site.claim(components)) is None
    assert tries == 6
    assert not notes(journaled)
