"""Files that follow slots after a power cut: lost or empty, and put again before slots go."""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path

import hudi
import pyarrow as pa
import pytest
from tests.support.tables import FENCED, a_table, trips

import headwater as hw
from headwater import opening
from headwater.errors import StorageError
from headwater.kernel.journal import lasting
from headwater.kernel.journal.journal import Journal
from headwater.kernel.journal.state import folder_of
from headwater.kernel.journal.storage import JournaledStorage, find_journal
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import start_write
from headwater.seams.local import LocalStorage
from headwater.table import Table

FORCED = {**FENCED, "headwater.storage.fsync": "true"}
EVERY = 8


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let checkpoints come often."""
    monkeypatch.setattr(opening, "Journal", partial(Journal, every=EVERY))


@pytest.fixture
def just_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine have been started after all that was written so far."""
    monkeypatch.setattr(lasting, "started_at_s", lambda: 2**40)


def commit(table: Table, *numbers: int) -> None:
    for number in numbers:
        table.upsert(trips(("a", "sf", number), (f"n{number}", "ny", number)))


def journal_of(table: Table) -> JournaledStorage:
    journaled, _ = find_journal(table.storage)
    assert journaled is not None
    return journaled


def files_of_slots(table: Table) -> dict[Path, bytes]:
    """Return the files that slots hold the contents of; owners beat in claims."""
    state = journal_of(table).journal.look().state
    return {
        Path(table.uri, path): known.data
        for path, known in state.paths.items()
        if known.data is not None and folder_of(path) in state.areas.folders
    }


def cut_power(table: Table, choice: random.Random) -> list[Path]:
    """Take some files of slots, and the bytes of others; return them."""
    hit = []
    for path in files_of_slots(table):
        match choice.choice(["whole", "empty", "gone"]):
            case "empty":
                path.write_bytes(b"")
                hit.append(path)
            case "gone":
                path.unlink(missing_ok=True)
                hit.append(path)
    return hit


def check_whole(table: Table, last: int) -> None:
    expected = {"a": last} | {f"n{number}": number for number in range(last + 1)}
    assert {row["id"]: row["value"] for row in table.read_arrow().to_pylist()} == expected
    assert {path: path.read_bytes() for path in files_of_slots(table)} == files_of_slots(table)
    theirs = pa.Table.from_batches(hudi.HudiTableBuilder.from_base_uri(table.uri).build().read())
    assert dict(zip(theirs["id"].to_pylist(), theirs["value"].to_pylist(), strict=True)) == expected
    assert table.inspect.problems(deep=True).num_rows == 0


@pytest.mark.usefixtures("just_started")
@pytest.mark.parametrize("seed", range(6))
def test_who_comes_after_a_power_cut_puts_files_again(tmp_path: Path, seed: int) -> None:
    table = a_table(tmp_path, options=FORCED).create()
    commit(table, *range(3 + seed))
    assert cut_power(table, random.Random(seed))
    again = hw.open_table(table.uri, FORCED)
    commit(again, 3 + seed)
    check_whole(again, 3 + seed)


@pytest.mark.usefixtures("often")
def test_a_checkpoint_puts_files_again_that_nobody_missed(tmp_path: Path) -> None:
    """Where it cannot be told when the machine was started, if its clock was wrong."""
    table = a_table(tmp_path, options=FORCED).create()
    commit(table, 0, 1)
    hit = cut_power(table, random.Random(1))
    again = hw.open_table(table.uri, FORCED)
    commit(again, *range(2, 2 + EVERY))
    assert all(path.exists() for path in hit)
    check_whole(again, 1 + EVERY)


@pytest.mark.usefixtures("often")
def test_no_checkpoint_stands_for_files_that_are_not_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_storage: LocalStorage, _paths: object) -> None:
        raise StorageError("The disk failed")

    table = a_table(tmp_path, options=FORCED).create()
    monkeypatch.setattr(LocalStorage, "force", fail)
    commit(table, *range(EVERY))
    names = os.listdir(tmp_path / "trips/.hoodie/.journal")
    assert not [name for name in names if name.endswith(".checkpoint")]
    assert len(names) > EVERY


def test_a_claim_without_its_bytes_is_read_from_its_slot(tmp_path: Path) -> None:
    table = a_table(tmp_path, options=FORCED).create()
    commit(table, 0)
    path = next(path for path in begun(table) if "/.attempts/" in path)
    Path(table.uri, path).write_bytes(b"")
    (shown,) = hw.open_table(table.uri, FORCED).inspect.heartbeats().to_pylist()
    assert shown["purpose"] == "write"


def begun(table: Table) -> list[str]:
    """Begin a write, and return the paths that its slot holds."""
    rows = trips(("b", "sf", 1))
    running = start_write(
        table.context, WriteRequest(operation=Operation.UPSERT, columns=rows.schema)
    )
    table.context.txn.catch_up()
    state = journal_of(table).journal.look().state
    return [path for path in state.paths if running.plan.instant_time in path]


def test_what_is_older_than_the_start_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("a", b"")
    written_s = storage.info("a").modified_ms // 1000
    for started, is_old in ((written_s, False), (written_s + 1, True), (None, True)):
        monkeypatch.setattr(lasting, "started_at_s", lambda started=started: started)
        assert lasting.is_from_before_start(storage, "a") is is_old
    monkeypatch.setattr(lasting, "started_at_s", lambda: written_s + 1)
    assert not lasting.is_from_before_start(storage, "gone")
