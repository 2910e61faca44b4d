"""Processes that stand still while they create or drop an index of a fenced table.

Others give up what the stopped one has planned, drop what it has built, write, and perhaps build an
index of the same name on another column. Then it goes on. The index that there is then must be one
that was asked for, defined as it was, and hold what the table has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.processes.stalls import (
    OPTIONS,
    Operation,
    Scene,
    Writes,
    is_slot_put,
    patient,
    rows_by_us,
    try_to,
)
from tests.support.stopped_process import Told, before_call
from tests.support.tables import COW, a_table, columns

from headwater import opening
from headwater.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    FencedError,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
)
from headwater.kernel.index_definitions import load_index_definitions
from headwater.kernel.journal.journal import Journal
from headwater.kernel.journal.storage import JournaledStorage
from headwater.kernel.layout import INDEX_DEFINITIONS
from headwater.kernel.txn.index_births import births_of
from headwater.kernel.txn.index_plan import pending_indexings
from headwater.metadata.partition_files import is_of_earlier_plan
from headwater.metadata.table import list_own_files
from headwater.table import Table

SCHEMA = columns("id string not null, ts long, value long")
INDEX = "column_stats"
FIRST, SECOND = "value", "ts"
"""The columns that the stopped one and the others want the index on."""
CHECKPOINT_EVERY = 4
TOLD = (ConflictError, FencedError, CommitUnknownError, AlreadyExistsError, NotFoundError)


@pytest.fixture(autouse=True)
def short_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slots be forgotten soon, by this process and its children."""
    monkeypatch.setattr(opening, "Journal", partial(Journal, every=CHECKPOINT_EVERY))


def _write(table: Table, writes: Writes) -> None:
    for number in range(2):
        writes.upsert(table, ("a", number, number), (f"first-{number}", 1, number))


def _write_and_build(table: Table, writes: Writes) -> None:
    _write(table, writes)
    _create(table, None)
    writes.upsert(table, ("b", 1, 1))


def _create(table: Table, _: None, column: str = FIRST) -> None:
    table.indexes.create(INDEX, columns=[column])


def _drop(table: Table, _: None = None) -> None:
    table.indexes.drop(INDEX)


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    builder = a_table(tmp_path, SCHEMA, ordering="ts", table_type=COW, buckets=1)
    table = builder.with_options(OPTIONS)
    create, drop = Operation(table, _write, _create), Operation(table, _write_and_build, _drop)
    operation = {"create": create, "drop": drop}[request.param]
    return Scene.of(operation, tmp_path / "first")


def calls_of(scene: Scene) -> list[str]:
    """Return the calls that the operation makes if nobody disturbs it."""
    with scene.copied(scene.path.with_name("undisturbed")).start() as process:
        told = process.wait()
    assert told.error is None, repr(told.error)
    return told.calls


def act_meanwhile(scene: Scene, *, is_replaced: bool) -> None:
    """Take away what the stopped one has planned or built; perhaps build another in its place."""
    with patient():
        table = scene.open()
    _take_away(table)
    try_to(partial(scene.writes.upsert, table, ("a", 10, 10), ("other", 1, 1)))
    if is_replaced:
        _create(table, None, SECOND)
        scene.writes.upsert(table, ("a", 11, 11), ("another", 1, 1))
        table.services.clean()


def _take_away(table: Table) -> None:
    """Give up what is planned, and drop what is built."""
    for plan in pending_indexings(table.context.load_timeline()):
        table.indexes.cancel(plan.requested_time)
    table.indexes.finish()
    if INDEX in table.context.load_config().metadata_partitions:
        _drop(table)


def check_stall(scene: Scene, number: int, *, is_replaced: bool, notices: bool = False) -> None:
    """Stop the operation before a call, let others act, let it go on, and look at the index."""
    here = scene.copied(scene.path.with_name(f"stalled-{number}-{is_replaced}-{notices}"))
    with here.start(stops=before_call(number), notices=notices) as process:
        process.wait_until_stopped()
        act_meanwhile(here, is_replaced=is_replaced)
        told = process.resume()
    check_told(told)
    check_index(
        here, told, is_replaced=is_replaced, is_decided=is_dropped_before(here, told, number)
    )
    here.remove()


def check_told(told: Told[Any]) -> None:
    error = told.error
    if error is not None and not isinstance(error, HeadwaterError):
        raise error
    is_known = error is None or isinstance(error, TOLD)
    assert is_known or isinstance(error, InvalidInputError), repr(error)


def is_dropped_before(scene: Scene, told: Told[Any], number: int) -> bool:
    """Whether the stopped one has decided nothing about the index that others have built."""
    is_last = not any(is_slot_put(call) for call in told.calls[number:])
    return is_last or told.error is not None or scene.operation.act is _create


def check_index(scene: Scene, told: Told[Any], *, is_replaced: bool, is_decided: bool) -> None:
    table = scene.open()
    in_use = table.context.load_config().metadata_partitions
    if is_replaced and is_decided:
        assert INDEX in in_use
        assert _columns(table) == SECOND
    elif INDEX in in_use:
        assert _columns(table) in (FIRST, SECOND)
    if not isinstance(told.error, CommitUnknownError):
        assert _late_files(table) == []
    _check_all(scene, table)
    # And it goes on: whatever was left over is in nobody's way.
    with patient():
        table = scene.open()
    _take_away(table)
    _create(table, None)
    scene.writes.upsert(table, ("a", 60, 60), ("after", 1, 1))
    table = scene.open()
    assert _columns(table) == FIRST
    _check_all(scene, table)


def _late_files(table: Table) -> list[str]:
    """Return what other engines would count to the index, and what is of an earlier one."""
    birth = births_of(table.context.load_config()).get(INDEX)
    files = list_own_files(table.storage, INDEX) if birth else []
    return [file.path for file in files if birth and is_of_earlier_plan(file, birth)]


def _columns(table: Table) -> str:
    """Return the column that the index is on, of those that somebody has chosen."""
    fields = load_index_definitions(table.storage, table.context.load_config())[INDEX].source_fields
    (chosen,) = {FIRST, SECOND} & set(fields)
    return chosen


def _check_all(scene: Scene, table: Table) -> None:
    assert rows_by_us(table) == scene.writes.expected(set())
    found = table.inspect.validate_metadata()
    wrong = [row for row in found.to_pylist() if row["problem"] != "stale"]
    assert wrong == []
    storage = table.storage
    assert isinstance(storage, JournaledStorage)
    if INDEX in table.context.load_config().metadata_partitions:
        # What other engines read is what was decided.
        assert storage.stored.read(INDEX_DEFINITIONS) == storage.read(INDEX_DEFINITIONS)
    assert isinstance(found, pa.Table)


def some_stalls(calls: Sequence[str]) -> Iterator[tuple[int, bool]]:
    """Give a few calls that matter: decisions, the wipe, file groups, and what comes after."""
    decisions = [place for place, call in enumerate(calls) if is_slot_put(call)]
    yield decisions[0] + 1, True
    yield decisions[-1], True
    yield decisions[-1], False
    yield decisions[-1] + 1, True
    yield (decisions[0] + decisions[-1]) // 2, False
    files = [
        place
        for place, call in enumerate(calls)
        if f"metadata/{INDEX}/" in call and call.startswith(("put", "delete"))
    ]
    yield files[0] - 1, True  # What it did last before: a late look at what to delete.
    yield files[0], True
    yield files[-1], True


@pytest.mark.parametrize("scene", ["create", "drop"], indirect=True)
def test_who_stood_still_at_an_index_harms_no_other(scene: Scene) -> None:
    for number, is_replaced in sorted(set(some_stalls(calls_of(scene)))):
        check_stall(scene, number, is_replaced=is_replaced)


@pytest.mark.long
@pytest.mark.parametrize("notices", [False, True], ids=["unaware", "aware"])
@pytest.mark.parametrize("is_replaced", [False, True], ids=["taken-away", "replaced"])
@pytest.mark.parametrize("scene", ["create", "drop"], indirect=True)
def test_who_stood_still_at_any_call_about_an_index_harms_no_other(
    scene: Scene, is_replaced: bool, notices: bool
) -> None:
    for number in range(len(calls_of(scene))):
        check_stall(scene, number, is_replaced=is_replaced, notices=notices)
