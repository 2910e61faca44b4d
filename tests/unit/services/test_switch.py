"""Tables that get a journal and lose it again, beside processes that had them open before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import hudi
import pytest
from tests.support.dying import DyingStorage, Killed
from tests.support.hudi_rs import location_for_hudi_rs
from tests.support.tables import FAST, MOR, a_table, trips

import headwater as hw
from headwater.config.registry import check_options
from headwater.config.table_options import FENCED
from headwater.errors import ConflictError, ErrorKind, NotFoundError
from headwater.kernel.journal.journal import Journal
from headwater.kernel.journal.slots import Listing
from headwater.kernel.journal.state import Areas
from headwater.kernel.journal.storage import find_journal
from headwater.kernel.layout import JOURNAL, TableLayout
from headwater.kernel.table_config import load_table_config
from headwater.kernel.txn.index_births import births_of
from headwater.opening import Place, open_context
from headwater.seams.clock import SystemClock
from headwater.seams.ids import SystemIds
from headwater.seams.local import LocalStorage
from headwater.services import Services
from headwater.services.switch import run_switch

OPTIONS = {
    **FAST,
    "hoodie.write.lock.provider": "in_process",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
}
TIMELINE = TableLayout().timeline
BOTH = pytest.mark.parametrize("fenced", [True, False], ids=["to fenced", "to lock"])


def a_trip_table(tmp_path: Path, *, fenced: bool) -> hw.Table:
    shape = a_table(tmp_path).with_options({**OPTIONS, FENCED.key: FENCED.encode(fenced)})
    return shape.with_commits(2).create()


def open_again(tmp_path: Path) -> hw.Table:
    return hw.open_table(tmp_path / "trips", OPTIONS)


def switch(tmp_path: Path, *, fenced: bool) -> bool:
    """Switch a table; return whether that changed it."""
    done = hw.upgrade_table(tmp_path / "trips", OPTIONS, fenced=fenced)
    assert open_again(tmp_path).config.is_fenced is fenced
    return FENCED.key in done.properties


def values(table: hw.Table) -> dict[str, int]:
    return {row["id"]: row["value"] for row in table.read_arrow().to_pylist()}


def values_of_hudi_rs(table: hw.Table) -> dict[str, int]:
    read = hudi.HudiTableBuilder.from_base_uri(location_for_hudi_rs(table)).build()
    return {
        row["id"]: row["value"]
        for batch in read.read(hudi.HudiReadOptions())
        for row in batch.to_pylist()
    }


def check_switched_error(call: Callable[[], object]) -> None:
    with pytest.raises(ConflictError, match="Open the table again") as raised:
        call()
    assert raised.value.kind is ErrorKind.TABLE_SWITCHED


def journal_of(tmp_path: Path) -> Journal:
    storage = LocalStorage(str(tmp_path / "trips"))
    return Journal(storage, SystemClock(), SystemIds(), Areas(TIMELINE))


def test_back_and_forth_with_writes_between(tmp_path: Path) -> None:
    expected = values(a_trip_table(tmp_path, fenced=False))
    numbers = []
    for turn in range(6):
        fenced = turn % 2 == 0
        assert switch(tmp_path, fenced=fenced)
        assert not switch(tmp_path, fenced=fenced)  # There is nothing to do any more.
        table = open_again(tmp_path)
        for value in (turn * 10, turn * 10 + 1):
            table.upsert(trips(("a", "sf", value), (f"t{value}", "la", value)))
            expected |= {"a": value, f"t{value}": value}
        assert values(table) == values(open_again(tmp_path)) == expected
        assert values_of_hudi_rs(table) == expected
        numbers.append(journal_of(tmp_path).look().state.number)
    assert numbers == sorted(numbers)  # No slot number is used twice.
    assert numbers[0] < numbers[2] < numbers[4]


@BOTH
def test_who_had_it_open_is_told_and_writes_once_it_is_opened_again(
    tmp_path: Path, fenced: bool
) -> None:
    early = a_trip_table(tmp_path, fenced=not fenced)
    expected = values(early)
    switch(tmp_path, fenced=fenced)
    for _ in range(2):
        check_switched_error(lambda: early.upsert(trips(("x", "sf", 1))))
    assert values(early) == expected
    late = open_again(tmp_path)
    late.upsert(trips(("y", "sf", 2)))
    assert values(early) == values(late) == {**expected, "y": 2}  # Readers go on.
    assert values_of_hudi_rs(late) == {**expected, "y": 2}
    check_switched_error(lambda: early.delete(trips(("y", "sf", 2))))
    assert values(early) == {**expected, "y": 2}


@BOTH
def test_a_table_that_is_loaded_again_is_reached_as_it_is_by_then(
    tmp_path: Path, fenced: bool
) -> None:
    early = a_trip_table(tmp_path, fenced=not fenced)
    expected = values(early)
    assert early.reload().context.txn is early.context.txn  # What it has seen is not forgotten.
    switch(tmp_path, fenced=fenced)
    late = early.reload()
    assert late.config.is_fenced is fenced
    assert find_journal(late.storage) == ((late.storage if fenced else None), "")
    late.upsert(trips(("x", "sf", 1)))
    late.services.clean()
    switch(tmp_path, fenced=not fenced)
    last = late.reload()
    last.upsert(trips(("y", "sf", 2)))
    assert values(last) == values(open_again(tmp_path)) == {**expected, "x": 1, "y": 2}
    assert last.inspect.problems(deep=True).num_rows == 0


@BOTH
def test_who_had_it_open_twice_ago_goes_on(tmp_path: Path, fenced: bool) -> None:
    early = a_trip_table(tmp_path, fenced=not fenced)
    for each in (fenced, not fenced):
        switch(tmp_path, fenced=each)
        open_again(tmp_path).upsert(trips((f"between {each}", "sf", 1)))
    early.upsert(trips(("x", "sf", 5)))
    assert values(early) == values(open_again(tmp_path))
    assert {"x", "between True", "between False"} <= values(early).keys()


@BOTH
def test_a_switch_that_dies_after_any_write_is_finished_by_the_next_one(
    tmp_path: Path, fenced: bool
) -> None:
    (tmp_path / "made").mkdir()
    made = a_trip_table(tmp_path / "made", fenced=not fenced)
    for each in (fenced, not fenced):  # So that there is a journal that was closed once.
        switch(tmp_path / "made", fenced=each)
        open_again(tmp_path / "made").upsert(trips((f"between {each}", "sf", 1)))
    expected = values(made)
    folder = tmp_path / "trips"
    for writes in count():
        for afterwards in (fenced, not fenced):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(tmp_path / "made" / "trips", folder)
            early = open_again(tmp_path)
            is_dead = dies_while_switching(folder, writes, fenced=fenced)
            assert values(early) == values(open_again(tmp_path)) == expected
            switch(tmp_path, fenced=afterwards)
            late = open_again(tmp_path)
            late.upsert(trips(("x", "sf", writes)))
            assert values(late) == values_of_hudi_rs(late) == {**expected, "x": writes}
            is_open = not journal_of(tmp_path).look().state.is_closed
            assert is_open is afterwards
        if not is_dead:
            break
    assert writes >= 2


def dies_while_switching(folder: Path, writes: int, *, fenced: bool) -> bool:
    storage: Any = DyingStorage(LocalStorage(str(folder), fsync=False), writes)
    # The lock is given back by whoever lives; that of a dead process is nobody's.
    options = check_options({**OPTIONS, "hoodie.write.lock.provider": "in_process"})
    place = Place.at(folder, options)
    try:
        context = open_context(
            Place(storage=storage, clock=place.clock, ids=place.ids, options=options)
        )
        run_switch(context, to_fenced=fenced)
    except Killed:
        return True
    return False


def test_between_its_two_writes_nobody_decides(tmp_path: Path) -> None:
    """The journal is closed, and table config does not say so yet."""
    table = a_trip_table(tmp_path, fenced=True)
    expected = values(table)
    journal = journal_of(tmp_path)
    assert journal.close(journal.look()) is not None
    for each in (table, open_again(tmp_path)):
        check_switched_error(partial(each.upsert, trips(("x", "sf", 1))))
        assert values(each) == expected
    switch(tmp_path, fenced=False)
    open_again(tmp_path).upsert(trips(("x", "sf", 1)))
    assert values(table) == {**expected, "x": 1}


def test_a_switch_that_stood_still_undoes_nothing(tmp_path: Path) -> None:
    """It closed the journal, and the table was fenced again before it wrote table config."""
    a_trip_table(tmp_path, fenced=True)
    storage = LocalStorage(str(tmp_path / "trips"))

    class Stalled(LocalStorage):
        is_stalled = True

        def replace(self, path: str, data: bytes, *, version: str) -> str:
            if self.is_stalled:
                self.is_stalled = False
                place = Place.at(tmp_path / "trips", unlocked)
                run_switch(open_context(place), to_fenced=True)
            return super().replace(path, data, version=version)

    # The lock has expired meanwhile: each side has one of its own.
    unlocked = check_options({**OPTIONS, "hoodie.write.lock.provider": "filesystem"})
    place = Place.at(tmp_path / "trips", check_options(OPTIONS))
    context = open_context(
        Place(
            storage=Stalled(str(tmp_path / "trips")),
            clock=place.clock,
            ids=place.ids,
            options=place.options,
        )
    )
    check_switched_error(lambda: run_switch(context, to_fenced=False))
    assert load_table_config(storage, SystemClock()).is_fenced
    assert not journal_of(tmp_path).look().state.is_closed
    open_again(tmp_path).upsert(trips(("x", "sf", 1)))


@pytest.mark.parametrize("is_dead", [False, True], ids=["goes on", "dies"])
def test_a_file_that_comes_after_the_switch_although_it_was_erased(
    tmp_path: Path, is_dead: bool
) -> None:
    """Its author stood still until its commit was taken back and the journal was closed."""
    table = a_trip_table(tmp_path, fenced=True)
    expected = values(table)

    class Stalled(LocalStorage):
        is_stalled = True

        def put_if_absent(self, path: str, data: bytes) -> None:
            if self.is_stalled and path.startswith(TIMELINE) and path.endswith("commit"):
                self.is_stalled = False
                other = open_again(tmp_path)
                other.services.rollback(path.rpartition("/")[2][:17])
                switch(tmp_path, fenced=False)
                super().put_if_absent(path, data)
                if is_dead:
                    raise Killed
            else:
                super().put_if_absent(path, data)

    place = Place.at(tmp_path / "trips", check_options(OPTIONS))
    stalled = replace(place, storage=Stalled(str(tmp_path / "trips")))
    with suppress(Killed):
        hw.Table(open_context(stalled)).upsert(trips(("late", "sf", 1)))
    if is_dead:
        switch(tmp_path, fenced=True)
    assert values(open_again(tmp_path)) == expected


def test_a_table_that_another_engine_writes_to_is_not_fenced(tmp_path: Path) -> None:
    table = a_trip_table(tmp_path, fenced=False)
    pending = tmp_path / "trips" / TIMELINE / "20260101000000000.commit.requested"
    pending.touch()
    with pytest.raises(ConflictError) as raised:
        hw.upgrade_table(tmp_path / "trips", OPTIONS, fenced=True)
    assert raised.value.kind is ErrorKind.FOREIGN_WRITER
    assert not open_again(tmp_path).config.is_fenced
    pending.unlink()
    switch(tmp_path, fenced=True)
    assert values(table) == values(open_again(tmp_path))


def test_an_instant_that_overlapped_is_seen_once_the_lock_is_trusted(tmp_path: Path) -> None:
    """What cannot be decided beside another engine can be left to a lock that both know."""
    table = a_trip_table(tmp_path, fenced=True)
    theirs = tmp_path / "trips" / TIMELINE / "20260101000000000.commit.requested"
    theirs.touch()
    with pytest.raises(ConflictError) as raised:
        table.upsert(trips(("x", "sf", 1)))
    assert raised.value.kind is ErrorKind.FOREIGN_WRITER
    switch(tmp_path, fenced=False)
    pending = open_again(tmp_path).inspect.timeline().to_pylist()
    assert "20260101000000000" in {row["requested_time"] for row in pending}


def test_a_dry_run_says_what_would_change(tmp_path: Path) -> None:
    a_trip_table(tmp_path, fenced=False)
    would = hw.upgrade_table(tmp_path / "trips", OPTIONS, dry_run=True, fenced=True)
    assert would.properties == {FENCED.key: "true"}
    assert not would.is_done
    assert hw.upgrade_table(tmp_path / "trips", OPTIONS, dry_run=True, fenced=False).is_done
    assert not open_again(tmp_path).config.is_fenced


def test_nothing_acknowledged_is_lost_beside_live_writers(tmp_path: Path) -> None:
    a_trip_table(tmp_path, fenced=False)
    acknowledged: dict[str, int] = {}
    failures: list[BaseException] = []

    def write(name: str) -> None:
        table = open_again(tmp_path)
        for value in range(5):
            while True:
                try:
                    table.upsert(trips((f"{name}{value}", f"city of {name}", value)))
                except ConflictError as error:
                    if error.kind is not ErrorKind.TABLE_SWITCHED:
                        failures.append(error)
                        return
                    table = open_again(tmp_path)
                    continue
                acknowledged[f"{name}{value}"] = value
                break

    writers = [Thread(target=write, args=(name,)) for name in "pqr"]
    for writer in writers:
        writer.start()
    for fenced in (True, False, True, False, True):
        switch(tmp_path, fenced=fenced)
    for writer in writers:
        writer.join()
    assert not failures
    assert len(acknowledged) == 15
    table = open_again(tmp_path)
    assert acknowledged.items() <= values(table).items()
    assert values_of_hudi_rs(table) == values(table)


def test_the_journal_of_a_table_that_is_switched_stays_short(tmp_path: Path) -> None:
    a_trip_table(tmp_path, fenced=True)
    storage = LocalStorage(str(tmp_path / "trips"), fsync=False)
    journal = Journal(storage, SystemClock(), SystemIds(), Areas(TIMELINE), every=4)
    for _ in range(20):
        assert journal.close(journal.look()) is not None
        opened = journal.reopen(journal.look())
        assert opened is not None
        journal.checkpoint(opened.look.state)
    assert len(Listing(storage.list_names(JOURNAL)).slots) <= 8
    assert values(open_again(tmp_path))


def test_indexes_of_either_kind_of_table_go_on_after_a_switch(tmp_path: Path) -> None:
    """A table that trusts its lock says nothing of plans: another engine may build indexes anew."""
    table = a_trip_table(tmp_path, fenced=True)
    table.indexes.create("column_stats", columns=["value"])
    assert births_of(table.context.load_config()).keys() == {"column_stats"}
    switch(tmp_path, fenced=False)
    table = open_again(tmp_path)
    assert table.config.indexes_planned == ()
    assert table.inspect.validate_metadata().num_rows == 0
    table.indexes.drop("column_stats")
    table.indexes.create("column_stats", columns=["id"])
    switch(tmp_path, fenced=True)
    table = open_again(tmp_path)
    assert table.inspect.validate_metadata().num_rows == 0
    table.indexes.drop("column_stats")
    table.indexes.create(["column_stats", "record_index"], columns={"column_stats": ["value"]})
    assert births_of(table.context.load_config()).keys() == {"column_stats", "record_index"}
    assert open_again(tmp_path).inspect.validate_metadata().num_rows == 0


# Loops -------------------------------------------------------------------------------------------


def busy_table(tmp_path: Path, *, fenced: bool) -> hw.Table:
    """A table with logs to compact."""
    options = {**OPTIONS, "hoodie.compact.inline.max.delta.commits": "1"}
    shape = a_table(tmp_path, table_type=MOR, buckets=1)
    table = shape.with_options({**options, FENCED.key: FENCED.encode(fenced)}).create()
    for value in range(3):
        table.upsert(trips(("a", "sf", value)))
    return table


class Never:
    """A signal that does not come: the loop must end by itself."""

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float) -> bool:
        raise AssertionError("The loop goes on")


LOOPS = pytest.mark.parametrize(
    "loop",
    [
        lambda table: table.services.run_forever(Never(), run=["compaction"]),
        lambda table: table.services.run_auto(Never()),
    ],
    ids=["services", "auto"],
)


@BOTH
@LOOPS
def test_n_182_a_loop_ends_when_its_table_was_switched(
    tmp_path: Path, loop: Callable[[hw.Table], object], fenced: bool
) -> None:
    table = busy_table(tmp_path, fenced=not fenced)
    switch(tmp_path, fenced=fenced)
    check_switched_error(lambda: loop(table))
    assert open_again(tmp_path).services.compact() is not None


@BOTH
@LOOPS
def test_n_182_a_loop_ends_when_its_table_was_deleted(
    tmp_path: Path, loop: Callable[[hw.Table], object], fenced: bool
) -> None:
    table = busy_table(tmp_path, fenced=fenced)
    shutil.rmtree(tmp_path / "trips")
    with pytest.raises(NotFoundError) as gone:
        loop(table)
    assert gone.value.kind is ErrorKind.NOT_A_TABLE


def test_n_182_a_write_stands_though_its_table_is_switched_before_its_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = busy_table(tmp_path, fenced=False)
    due = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    writer = hw.open_table(table.uri, {**OPTIONS, **due})
    after = Services.run_after_write

    def switched_first(self: Services) -> None:
        switch(tmp_path, fenced=True)
        after(self)

    monkeypatch.setattr(Services, "run_after_write", switched_first)
    writer.upsert(trips(("b", "la", 8)))
    assert values(open_again(tmp_path))["b"] == 8
    assert "no services after this write" in caplog.text
