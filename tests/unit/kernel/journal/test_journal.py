"""The journal by itself: slots, states, races for a slot, checkpoints and the floor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage
from tests.support.round_trips import RoundTrips, RoundTripStorage

from headwater.errors import (
    CommitUnknownError,
    CorruptTableError,
    ErrorKind,
    NotFoundError,
    StorageError,
)
from headwater.kernel.journal.journal import Appended, Journal
from headwater.kernel.journal.slots import (
    Entry,
    Listing,
    Slot,
    Verb,
    Wave,
    decode_slot,
    digest_of,
    encode_slot,
    slot_path,
)
from headwater.kernel.journal.state import (
    Areas,
    JournalState,
    decode_checkpoint,
    encode_checkpoint,
)
from headwater.kernel.journal.storage import JournaledStorage, erase_files
from headwater.kernel.layout import (
    ATTEMPTS,
    JOURNAL,
    METADATA,
    METADATA_TIMELINE,
    PROPERTIES,
    TableLayout,
)
from headwater.model.instant import InstantTime
from headwater.seams.clock import SystemClock
from headwater.seams.ids import SystemIds

T = TypeVar("T")
R = TypeVar("R")

TIMELINE = TableLayout().timeline
AREAS = Areas(TIMELINE)
T1, T2 = InstantTime("20260101000000001"), InstantTime("20260101000000002")


def a_journal(storage: MemoryStorage, every: int = 64) -> Journal:
    return Journal(storage, SystemClock(), SystemIds(), AREAS, every=every)


def creates(*names: str) -> tuple[Wave, ...]:
    return tuple((Entry(Verb.CREATE, f"{TIMELINE}/{name}", name.encode()),) for name in names)


def decide(journal: Journal, name: str) -> None:
    done = journal.append(journal.look(), creates(name))
    assert done is not None
    assert journal.confirm(done)


def test_a_slot_is_read_as_it_was_written() -> None:
    waves = (*creates("a"), (Entry(Verb.ERASE, "b"), Entry(Verb.SET, PROPERTIES, b"\x00\xff")))
    slot = Slot(number=7, follows="f", operation="o", owner="w", issued=T1, waves=waves)
    assert decode_slot(encode_slot(slot), number=7) == slot


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"\xff"])
def test_a_damaged_slot_is_named(damage: bytes) -> None:
    with pytest.raises(CorruptTableError) as raised:
        decode_slot(damage, number=3)
    assert raised.value.kind is ErrorKind.CORRUPT_JOURNAL
    assert slot_path(3) in str(raised.value)


def test_a_slot_under_another_number_is_damage() -> None:
    slot = Slot(number=7, follows="", operation="o", owner="w", issued=None, waves=creates("a"))
    with pytest.raises(CorruptTableError, match="it says that it is slot 7"):
        decode_slot(encode_slot(slot), number=8)


def test_of_two_decisions_on_one_state_one_is_put() -> None:
    storage = MemoryStorage()
    mine, other = a_journal(storage), a_journal(storage)
    seen = mine.look()
    assert other.append(other.look(), creates("b")) is not None
    assert mine.append(seen, creates("a")) is None
    again = mine.append(mine.look(), creates("a"))
    assert again is not None
    assert sorted(again.look.state.names(TIMELINE)) == ["a", "b"]
    assert other.look().state == again.look.state


def test_who_loses_a_slot_of_a_distant_store_learns_with_the_refusal_what_came() -> None:
    storage, trips = MemoryStorage(), RoundTrips()
    mine = Journal(RoundTripStorage(storage, trips), SystemClock(), SystemIds(), AREAS)
    other = a_journal(storage)
    assert other.append(other.look(), creates("a")) is not None
    seen = mine.look()
    for name in "bc":
        assert other.append(other.look(), creates(name)) is not None
    trips.reset()
    assert mine.append(seen, creates("d")) is None
    put = mine.append(mine.newest, creates("d"))
    assert put is not None
    assert mine.confirm(put)
    assert trips.serial == 4, str(trips)  # The refusal, what came, the slot, its confirmation.
    assert other.look().state.names(TIMELINE) == ["a", "b", "c", "d"]


def test_who_has_lost_lately_reads_what_came_while_it_puts() -> None:
    storage, trips = MemoryStorage(), RoundTrips()
    mine = Journal(RoundTripStorage(storage, trips), SystemClock(), SystemIds(), AREAS)
    other = a_journal(storage)
    assert other.append(other.look(), creates("a")) is not None
    seen = mine.look()
    assert other.append(other.look(), creates("b")) is not None
    assert mine.append(seen, creates("mine")) is None
    for name in "cdefg":
        seen = mine.newest
        assert other.append(other.look(), creates(name)) is not None
        trips.reset()
        assert mine.append(seen, creates("mine")) is None
        assert trips.serial == 1, str(trips)
    trips.reset()
    put = mine.append(mine.newest, creates("mine"))
    assert put is not None
    assert mine.confirm(put)
    assert trips.serial == 2, str(trips)
    assert other.look().state == mine.look().state
    assert other.known.names(TIMELINE) == [*"abcdefg", "mine"]


def test_slots_of_a_distant_store_are_read_before_the_listing_where_some_came_lately() -> None:
    storage, trips, clock = MemoryStorage(), RoundTrips(), ManualClock()
    mine = Journal(RoundTripStorage(storage, trips), clock, SystemIds(), AREAS)
    other = a_journal(storage)
    assert other.append(other.look(), creates("a")) is not None
    mine.look()
    read: list[tuple[int, int, int]] = []
    for came in ("", "bcd", "efg", "", "", "", "", ""):
        for name in came:
            assert other.append(other.look(), creates(name)) is not None
        clock.advance_ms(500)
        trips.reset()
        assert mine.look().state == other.look().state
        slots = [request for request in trips.requests if request.path.endswith(".slot")]
        read.append((trips.serial, len(slots), len(trips.requests) - len(slots)))
    # The first that come cost a round trip, and a second listing that proves them. What is expected
    # is read before the one listing. Who is alone again reads nothing in vain before long.
    assert read[:4] == [(1, 0, 1), (3, 3, 2), (3, 5, 1), (2, 3, 1)]
    assert read[4:] == [(1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 0, 1)]


class NotingNames(MemoryStorage):
    """Notes how many names of the journal each listing tells."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[int] = []

    def list_names(self, folder: str, after: str = "") -> list[str]:
        names = super().list_names(folder, after)
        if folder == JOURNAL:
            self.told.append(len(names))
        return names


def test_a_look_lists_what_came_and_notices_every_checkpoint() -> None:
    storage = NotingNames()
    mine, other = a_journal(storage, every=8), a_journal(storage, every=8)
    files = JournaledStorage(other).files
    told = []
    for number in range(40):
        put = other.append(other.look(), creates(str(number)))
        assert put is not None
        assert files.write(put)
        files.finish(put)
        storage.told.clear()
        assert mine.look().state.digest == put.look.state.digest
        told.append(max(storage.told))
        assert not mine.is_checkpoint_due(mine.known) or (number + 1) % 8 == 0
    # Up to 16 slots and two checkpoints are there. Only who waits for a checkpoint lists them all.
    assert sorted(told)[: len(told) * 3 // 4][-1] <= 3, told


def test_a_slot_that_was_deleted_before_it_was_read_is_not_taken_for_one_that_never_came() -> None:
    """A process that knows of many decisions, and stood still, reads before it lists."""
    storage = MemoryStorage()
    late = Journal(RoundTripStorage(storage, RoundTrips()), SystemClock(), SystemIds(), AREAS)
    other = a_journal(storage, every=2)
    files = JournaledStorage(other).files

    def decide(names: str) -> None:
        for name in names:
            put = other.append(other.look(), creates(name))
            assert put is not None
            assert files.write(put)
            files.finish(put)

    decide("0")
    late.look()
    decide("12")
    assert late.look().state.names(TIMELINE) == list("012")
    decide("abcdefgh")
    assert storage.read_many([slot_path(late.known.number + 1)]) == [None]
    assert late.look().state.names(TIMELINE) == list("012abcdefgh")


def test_a_damaged_slot_of_a_distant_store_is_named_by_who_reads_without_a_listing() -> None:
    storage = MemoryStorage()
    mine = Journal(RoundTripStorage(storage, RoundTrips()), SystemClock(), SystemIds(), AREAS)
    assert mine.append(mine.look(), creates("a")) is not None
    mine.look()
    storage.put_if_absent(slot_path(2), b"damaged")
    with pytest.raises(CorruptTableError, match="damaged"):
        mine.peek()


def test_a_look_that_fails_beside_a_slot_is_made_again() -> None:
    class Failing(RoundTripStorage):
        fails = False

        def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
            if self.fails:
                self.fails = False
                raise StorageError("The store does not answer")
            return super().read_many(paths)

    storage = MemoryStorage()
    failing = Failing(storage, RoundTrips())
    mine, other = Journal(failing, SystemClock(), SystemIds(), AREAS), a_journal(storage)
    assert other.append(other.look(), creates("a")) is not None
    for name in "bc":
        seen = mine.look()
        assert other.append(other.look(), creates(name)) is not None
        failing.fails = name == "c"
        assert mine.append(seen, creates("mine")) is None
    assert not failing.fails
    assert mine.newest.state.names(TIMELINE) == [*"abc"]
    failing.fails = True
    assert mine.append(mine.newest, creates("mine")) is not None
    assert other.look().state.names(TIMELINE) == [*"abc", "mine"]


def test_what_was_read_is_not_taken_for_true_once_its_names_may_have_been_used_twice() -> None:
    storage = MemoryStorage()
    late, other = a_journal(storage), a_journal(storage, every=2)
    files = JournaledStorage(other).files
    assert other.append(other.look(), creates("0")) is not None
    seen = late.look()
    for name in "abcdefgh":
        put = other.append(other.look(), creates(name))
        assert put is not None
        assert files.write(put)
        files.finish(put)
    assert late.append(seen, creates("late")) is not None  # Its name was deleted.
    assert late.newest.state.names(TIMELINE) == ["0", "late"]
    assert late.peek().state.names(TIMELINE) == list("0abcdefgh")
    assert late.known.names(TIMELINE) == ["0"]
    assert late.look().state.names(TIMELINE) == list("0abcdefgh")


def test_times_that_slots_have_given_out_are_known() -> None:
    journal = a_journal(MemoryStorage())
    journal.append(journal.look(), creates("a"), T2)
    journal.append(journal.look(), creates("b"), T1)
    assert journal.look().state.issued == T2


def test_a_slot_that_does_not_follow_the_one_before_is_damage() -> None:
    storage = MemoryStorage()
    journal = a_journal(storage)
    journal.append(journal.look(), creates("a"))
    alien = Slot(number=2, follows="?", operation="o", owner="w", issued=None, waves=creates("b"))
    storage.put(slot_path(2), encode_slot(alien))
    with pytest.raises(CorruptTableError, match="does not follow"):
        journal.look()


def test_peeks_decode_a_slot_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[int] = []

    def decode_noted(data: bytes, *, number: int) -> Slot:
        decoded.append(number)
        return decode_slot(data, number=number)

    monkeypatch.setattr("headwater.kernel.journal.journal.decode_slot", decode_noted)
    storage = MemoryStorage()
    journal, other = a_journal(storage), a_journal(storage)
    for name in ("a", "b"):
        other.append(other.look(), creates(name))
    decoded.clear()
    first = journal.peek()
    assert journal.peek().state is first.state
    assert decoded == [1, 2]


def test_a_checkpoint_holds_what_the_slots_add_up_to() -> None:
    state = JournalState(areas=AREAS)
    waves = (*creates("a"), (Entry(Verb.SET, PROPERTIES, b"config"),))
    slot = Slot(number=1, follows="", operation="o", owner="w", issued=T1, waves=waves)
    after = state.after(slot, "digest")
    read = decode_checkpoint(encode_checkpoint(after), AREAS, number=1)
    assert (read.number, read.digest, read.issued) == (1, "digest", T1)
    assert read.paths.keys() == after.paths.keys()
    assert read.paths[PROPERTIES].data == b"config"
    assert read.paths[f"{TIMELINE}/a"].data is None  # Its file has it.


@pytest.mark.parametrize(
    ("timeline", "claims"), [(TIMELINE, ATTEMPTS), (METADATA_TIMELINE, f"{METADATA}/{ATTEMPTS}")]
)
def test_claims_go_with_the_last_file_of_their_instant(timeline: str, claims: str) -> None:
    files = [f"{timeline}/{T1}.commit.requested", f"{timeline}/{T1}_{T2}.commit"]
    claim, other = f"{claims}/{T1}/00001.json", f"{claims}/{T2}/00001.json"
    created = tuple(Entry(Verb.CREATE, path) for path in (*files, claim, other))
    state = JournalState(areas=AREAS)
    for number, wave in enumerate([created, *((Entry(Verb.ERASE, path),) for path in files)], 1):
        assert number == 1 or claim in state.paths
        slot = Slot(
            number=number, follows=state.digest, operation="", owner="", issued=None, waves=(wave,)
        )
        state = state.after(slot, digest_of(encode_slot(slot)))
    assert {*state.paths} == {other}


def test_the_journal_stays_short_and_says_the_same() -> None:
    storage = MemoryStorage()
    journaled = JournaledStorage(a_journal(storage, every=4))
    for number in range(50):
        done = journaled.journal.append(journaled.journal.look(), creates(f"{number:03d}"))
        assert done is not None
        journaled.files.write(done)
        journaled.files.finish(done)
    assert len(storage.list_names(JOURNAL)) <= 2 * 4 + 2
    fresh = JournaledStorage(a_journal(storage, every=4))
    names = [f"{number:03d}" for number in range(50)]
    assert sorted(fresh.list_names(TIMELINE)) == sorted(storage.list_names(TIMELINE)) == names
    assert fresh.read(f"{TIMELINE}/007") == b"007"


def test_a_slot_that_comes_to_a_deleted_name_means_nothing() -> None:
    storage = MemoryStorage()
    stalled = a_journal(storage, every=4)
    seen = stalled.look()
    others = JournaledStorage(a_journal(storage, every=4))
    for number in range(16):
        done = others.journal.append(others.journal.look(), creates(f"{number:03d}"))
        assert done is not None
        others.files.write(done)
        others.files.finish(done)
    assert 1 not in Listing(storage.list_names(JOURNAL)).slots
    # Its put succeeds, for nobody remembers the name; it must not be taken for a decision.
    put = stalled.append(seen, creates("late"))
    assert put is not None
    with pytest.raises(CommitUnknownError, match="stood still"):
        stalled.confirm(put)
    assert "late" not in others.list_names(TIMELINE)
    assert "late" not in JournaledStorage(a_journal(storage)).list_names(TIMELINE)


def test_n_176_a_slot_that_came_to_the_journal_of_another_table_is_taken_back() -> None:
    """Its process stood still between its look and its slot."""
    storage = MemoryStorage()
    old, new = a_journal(storage), a_journal(storage)
    for name in "abc":
        decide(old, name)
    look = old.look()
    storage.delete_many([f"{JOURNAL}/{name}" for name in storage.list_names(JOURNAL)])
    decide(new, "x")

    late = old.append(look, creates("late"))
    assert late is not None
    with pytest.raises(NotFoundError) as raised:
        old.confirm(late)
    assert raised.value.kind is ErrorKind.NOT_A_TABLE
    decide(new, "y")
    assert a_journal(storage).look().state.names(TIMELINE) == ["x", "y"]


def test_a_slot_is_not_taken_back_for_a_listing_that_does_not_show_what_is_there() -> None:
    class Forgetful(MemoryStorage):
        forgets = False

        def list_names(self, folder: str, after: str = "") -> list[str]:
            return [] if self.forgets else super().list_names(folder, after)

    storage = Forgetful()
    journal = a_journal(storage)
    decide(journal, "a")
    late = journal.append(journal.look(), creates("b"))
    assert late is not None
    storage.forgets = True
    with pytest.raises(NotFoundError):
        journal.confirm(late)
    storage.forgets = False
    assert a_journal(storage).look().state.names(TIMELINE) == ["a", "b"]


def test_what_there_was_before_the_first_slot_is_adopted() -> None:
    storage = MemoryStorage()
    storage.put(f"{TIMELINE}/old", b"o")
    journaled = JournaledStorage(a_journal(storage))
    assert journaled.list_names(TIMELINE) == ["old"]
    journaled.journal.append(journaled.journal.look(), creates("new"))
    assert sorted(journaled.list_names(TIMELINE)) == ["new", "old"]
    assert (journaled.read(f"{TIMELINE}/old"), journaled.read(f"{TIMELINE}/new")) == (b"o", b"new")


def test_who_finds_the_files_of_the_first_slot_has_lost_it() -> None:
    """N-164."""
    storage = MemoryStorage()
    mine, other = a_journal(storage), a_journal(storage)
    seen, files = mine.look(), JournaledStorage(other).files
    put = other.append(other.look(), creates("a"))
    assert put is not None
    assert files.write(put)
    assert mine.append(seen, creates("a")) is None
    assert mine.look().state.names(TIMELINE) == ["a"]


def test_files_follow_in_order_and_others_write_what_is_missing() -> None:
    storage = MemoryStorage()
    dead = a_journal(storage)
    dead.append(dead.look(), creates("1", "2"))
    journaled = JournaledStorage(a_journal(storage))
    assert sorted(journaled.list_names(TIMELINE)) == ["1", "2"]
    assert journaled.read(f"{TIMELINE}/1") == b"1"  # It is in no file yet.
    assert storage.list_names(TIMELINE) == []
    done = journaled.journal.append(journaled.journal.look(), creates("3"))
    assert done is not None
    journaled.files.write(done)
    journaled.files.finish(done)
    assert sorted(storage.list_names(TIMELINE)) == ["1", "2", "3"]


def test_what_begins_a_write_is_put_into_files_also_if_later_ones_are_there() -> None:
    """Both may be written at the same time by one who dies over it."""
    storage = MemoryStorage()
    dead, other = a_journal(storage), a_journal(storage)
    begun = [f"{T1}.deltacommit.requested", f"{T1}.deltacommit.inflight"]
    assert dead.append(dead.look(), creates(*begun)) is not None
    assert other.append(other.look(), creates(f"{T2}_{T2}.commit")) is not None
    storage.put(f"{TIMELINE}/{T2}_{T2}.commit", f"{T2}_{T2}.commit".encode())
    next_one = a_journal(storage)
    put = next_one.append(next_one.look(), creates("3_4.commit"))
    assert put is not None
    assert JournaledStorage(next_one).files.write(put)
    assert set(storage.list_names(TIMELINE)) == {*begun, f"{T2}_{T2}.commit", "3_4.commit"}


def test_a_write_that_is_ended_at_once_is_begun_in_files_before() -> None:
    order: list[str] = []

    class Noting(MemoryStorage):
        def put_if_absent(self, path: str, data: bytes) -> None:
            super().put_if_absent(path, data)
            order.append(path.rpartition("/")[2])

    storage = Noting()
    dead, last = a_journal(storage), a_journal(storage)
    names = [
        (f"{T1}.deltacommit.requested", f"{T1}.deltacommit.inflight"),
        (f"{T2}.deltacommit.requested", f"{T2}.deltacommit.inflight"),
        (f"{T1}_{T2}.deltacommit",),
    ]
    for each in names:
        assert dead.append(dead.look(), creates(*each)) is not None
    put = last.append(last.look(), creates("9_9.commit"))
    assert put is not None
    order.clear()
    assert JournaledStorage(last).files.write(put)
    ends = order.index(f"{T1}_{T2}.deltacommit")
    assert {*names[0]} <= {*order[:ends]}
    assert {*names[1]} <= {*order}
    assert order.index("9_9.commit") > ends


def test_what_is_told_to_the_metadata_table_is_written_before_the_commits_of_all() -> None:
    order: list[str] = []

    class Noting(MemoryStorage):
        def put_if_absent(self, path: str, data: bytes) -> None:
            super().put_if_absent(path, data)
            order.append(path)

    storage = Noting()
    dead, last = a_journal(storage), a_journal(storage)

    def commits(name: str) -> tuple[Wave, ...]:
        told = Entry(Verb.CREATE, f"{METADATA_TIMELINE}/{name}.deltacommit", b"told")
        return ((told,), *creates(f"{name}.deltacommit"))

    names = ["1_2", "3_4", "5_6"]
    for name in names[:2]:
        assert dead.append(dead.look(), commits(name)) is not None
    put = last.append(last.look(), commits(names[2]))
    assert put is not None
    order.clear()
    assert JournaledStorage(last).files.write(put)
    assert {*order[:3]} == {f"{METADATA_TIMELINE}/{name}.deltacommit" for name in names}
    assert order[3:] == [f"{TIMELINE}/{name}.deltacommit" for name in names]


class LastFirst(MemoryStorage):
    """Does what goes out at once in the other order; listing the timeline may fail."""

    is_broken = False

    def at_once(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return super().at_once(call, items[::-1])[::-1]

    def list_names(self, folder: str, after: str = "") -> list[str]:
        if self.is_broken and folder == TIMELINE:
            raise StorageError("Storage did not answer")
        return super().list_names(folder, after)


def test_n_167_files_that_fail_say_nothing_about_their_slot() -> None:
    """Whoever took it for a refusal would delete the data files of its commit."""
    storage = LastFirst()
    other, mine = a_journal(storage), JournaledStorage(a_journal(storage))
    other.append(other.look(), creates("1"))
    done = mine.journal.append(mine.journal.look(), creates("2"))
    assert done is not None
    storage.is_broken = True
    assert mine.files.write(done)
    storage.is_broken = False
    assert mine.list_names(TIMELINE) == ["1", "2"]
    assert storage.list_names(TIMELINE) == []  # The next decision writes them.


def test_a_write_at_work_leaves_to_others_what_they_decided() -> None:
    storage = MemoryStorage()
    first, second = JournaledStorage(a_journal(storage)), JournaledStorage(a_journal(storage))
    completed = f"{T1}_{T2}.deltacommit"
    assert first.journal.append(first.journal.look(), creates(completed)) is not None
    begun = creates(f"{T2}.deltacommit.requested")
    put = second.journal.append(second.journal.look(), begun)
    assert put is not None
    assert second.files.begin(put)
    second.files.catch_up()
    assert storage.list_names(TIMELINE) == [f"{T2}.deltacommit.requested"]
    put = second.journal.append(second.journal.look(), creates("b"))
    assert put is not None
    assert second.files.write(put)  # It answers, so nothing may be missing before it.
    assert sorted(storage.list_names(TIMELINE)) == sorted(
        [f"{T2}.deltacommit.requested", completed, "b"]
    )


def test_a_file_that_is_put_late_is_taken_back() -> None:
    storage = MemoryStorage()
    stalled = JournaledStorage(a_journal(storage))
    done = stalled.journal.append(stalled.journal.look(), creates("a"))
    assert done is not None
    other = JournaledStorage(a_journal(storage))
    erase_files(other, [[f"{TIMELINE}/a"]])
    stalled.files.write(done)
    stalled.files.finish(done)
    assert storage.list_names(TIMELINE) == []


def test_n_173_what_another_thread_writes_meanwhile_is_not_late() -> None:
    """The look behind the files of one may end before the other has decided."""
    between: list[Callable[[], object]] = []

    class Between(MemoryStorage):
        def list_names(self, folder: str, after: str = "") -> list[str]:
            names = super().list_names(folder, after)
            if folder == JOURNAL and between:
                between.pop()()
            return names

    storage = Between()
    mine = JournaledStorage(a_journal(storage))

    def decide(name: str) -> Appended:
        put = mine.journal.append(mine.journal.look(), creates(name))
        assert put is not None
        assert mine.files.write(put)
        return put

    first = decide("1_2.commit")
    between.append(partial(decide, "3_4.commit"))
    mine.files.finish(first)
    assert set(storage.list_names(TIMELINE)) == {"1_2.commit", "3_4.commit"}


def test_a_file_that_no_slot_has_means_nothing() -> None:
    storage = MemoryStorage()
    journaled = JournaledStorage(a_journal(storage))
    journaled.journal.append(journaled.journal.look(), creates("a"))
    storage.put(f"{TIMELINE}/ghost", b"")
    assert journaled.list_names(TIMELINE) == ["a"]
    assert journaled.read_many([f"{TIMELINE}/ghost"]) == [None]
