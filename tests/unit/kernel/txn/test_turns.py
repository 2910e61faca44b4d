"""Turns on fenced tables: who lost too often is waited for, and never for ever."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.errors import StorageError
from headwater.kernel.journal.journal import Journal
from headwater.kernel.journal.slots import turn_patience_ms
from headwater.kernel.journal.state import Areas
from headwater.kernel.journal.storage import JournaledStorage
from headwater.kernel.layout import JOURNAL, TableLayout
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
        return journaled, Turns(journaled.journal, self.clock, SystemIds(Owner("host", 1, name)))

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


def asked(journaled: JournaledStorage) -> tuple[str, ...]:
    """Return who asks for a turn."""
    journaled.journal.look()
    return journaled.journal.turns


def test_others_wait_until_its_author_has_decided() -> None:
    site = Site()
    _, theirs = site.turns("planner")
    name = theirs.ask(took_ms=100)
    writer, ours = site.turns("writer")
    polls = 0

    def give_back_at_the_third_poll() -> bool:
        nonlocal polls
        polls += 1
        if polls == 3:
            theirs.give_back(name)
        return polls < 3

    site.clock.every_ms(10, give_back_at_the_third_poll, "planner")
    ours.wait(writer.journal.look(), None)
    assert polls == 3
    assert not asked(writer)


def test_n_170_to_ask_is_no_race() -> None:
    site = Site()
    journaled, turns = site.turns("planner")
    before = journaled.journal.look().state
    turns.ask(took_ms=100)
    assert journaled.journal.look().state == before


def test_its_author_does_not_wait_for_itself() -> None:
    site = Site()
    planner, turns = site.turns("planner")
    name = turns.ask(took_ms=100)
    before_ms = site.clock.monotonic_ms()
    turns.wait(planner.journal.look(), name)
    assert site.clock.monotonic_ms() == before_ms


def test_nor_does_it_if_nobody_said_that_its_turn_landed(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    planner, turns = site.turns("planner")
    put = MemoryStorage.put_if_absent

    def put_and_fail(storage: MemoryStorage, path: str, data: bytes) -> None:
        put(storage, path, data)
        raise StorageError("The reply was lost")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryStorage, "put_if_absent", put_and_fail)
        name = turns.ask(took_ms=100)
    before_ms = site.clock.monotonic_ms()
    turns.wait(planner.journal.look(), name)
    assert site.clock.monotonic_ms() == before_ms
    turns.give_back(name)
    assert not asked(planner)


def test_of_two_who_ask_the_second_waits_for_the_first() -> None:
    site = Site()
    planner, turns = site.turns("planner")
    first = turns.ask(took_ms=100)
    site.clock.sleep_ms(1)
    other, theirs = site.turns("other")
    second = theirs.ask(took_ms=100)
    before_ms = site.clock.monotonic_ms()
    turns.wait(planner.journal.look(), first)
    assert site.clock.monotonic_ms() == before_ms
    theirs.wait(other.journal.look(), second)
    assert site.clock.monotonic_ms() >= before_ms + 500


def test_who_gives_its_turn_back_does_not_wait_for_it() -> None:
    site = Site()
    journaled, turns = site.turns("planner")
    name = turns.ask(took_ms=1_000)
    asked_ms = site.clock.monotonic_ms()
    turns.give_back(name)
    assert site.clock.monotonic_ms() == asked_ms
    assert not asked(journaled)


def test_who_died_is_waited_for_once_and_its_turn_goes() -> None:
    site = Site()
    _, dead = site.turns("dead")
    dead.ask(took_ms=1_000)
    writer, turns = site.turns("writer")
    turns.wait(writer.journal.look(), None)
    waited_ms = site.clock.monotonic_ms()
    assert waited_ms >= 3_000
    assert not asked(writer)
    turns.wait(writer.journal.look(), None)
    assert site.clock.monotonic_ms() == waited_ms


def test_nobody_waits_longer_than_the_most_however_long_it_took() -> None:
    site = Site()
    _, dead = site.turns("dead")
    dead.ask(took_ms=3_600_000, asked_before=1_000)
    writer, turns = site.turns("writer")
    turns.wait(writer.journal.look(), None)
    assert site.clock.monotonic_ms() < 60_000


def test_who_was_waited_for_in_vain_is_waited_for_longer() -> None:
    site = Site()
    journaled, turns = site.turns("slow")
    turns.ask(took_ms=1, asked_before=3)
    (name,) = asked(journaled)
    assert turn_patience_ms(name) == 4_000


@pytest.mark.parametrize("name", ["x.turn", "1-2..turn", "1-2.²5.turn", ".turn"])
def test_a_name_that_says_nothing_is_waited_for_by_nobody(name: str) -> None:
    site = Site()
    site.storage.put(f"{JOURNAL}/{name}", b"")
    writer, turns = site.turns("writer")
    turns.wait(writer.journal.look(), None)
    assert site.clock.monotonic_ms() == 0
    assert not asked(writer)


def test_a_plan_gets_made_however_often_others_decide_meanwhile() -> None:
    site = Site()
    components, txn = site.process("planner")
    journaled = txn._journaled
    tries = 0

    def make() -> bytes:
        nonlocal tries
        tries += 1
        if not asked(journaled):
            site.begin_write()  # As long as nobody asks them to wait, others are faster.
        return b"plan"

    planned = schedule_plan(txn, Action.COMPACTION, make, lambda: site.claim(components))
    assert planned is not None
    assert tries == 6
    assert not asked(journaled)
    site.begin_write()  # Nobody is waited for any more.


def test_who_finds_nothing_to_do_lets_the_others_go_on() -> None:
    site = Site()
    components, txn = site.process("planner")
    journaled = txn._journaled
    tries = 0

    def make() -> bytes | None:
        nonlocal tries
        tries += 1
        if not asked(journaled):
            site.begin_write()
            return b"plan"
        return None

    assert schedule_plan(txn, Action.COMPACTION, make, lambda: site.claim(components)) is None
    assert tries == 6
    assert not asked(journaled)
