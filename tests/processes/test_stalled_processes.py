"""Processes that are stopped at any call of storage on a fenced table, for longer than any lease.

Others take them for dead, roll back what they began, write, rewrite, clean and archive, and let the
journal forget where they were. Then they go on, as processes do whose machine was suspended: most
of them know nothing of it. Whatever they are told must be so, and nobody loses anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.processes.stalls import (
    OPERATIONS,
    Scene,
    act_meanwhile,
    before_slot,
    check_table,
    check_told,
    is_slot_put,
    operation_on,
    patient,
    rows_by_us,
)
from tests.support.stopped_process import Told, before_call

from headwater import opening
from headwater.errors import FencedError, HeadwaterError
from headwater.kernel.journal.journal import Journal

pytest.importorskip("hudi", reason="hudi-rs is not installed")

CHECKPOINT_EVERY = 4
BY_LOCK = {"headwater.timeline.fenced": "false", "hoodie.write.lock.provider": "storage"}


@pytest.fixture(autouse=True)
def short_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slots be forgotten soon, by this process and its children."""
    monkeypatch.setattr(opening, "Journal", partial(Journal, every=CHECKPOINT_EVERY))


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    return Scene.of(operation_on(tmp_path, request.param), tmp_path / "first")


def calls_of(scene: Scene) -> list[str]:
    """Return the calls that the operation makes if nobody disturbs it."""
    with scene.copied(scene.path.with_name("undisturbed")).start() as process:
        told = process.wait()
    assert told.error is None, repr(told.error)
    return told.calls


def check_stall(
    scene: Scene, number: int, *, is_busy: bool, notices: bool = False
) -> Told[Any] | None:
    """Stop the operation before a call, let others act, let it go on, and look at all of it."""
    here = scene.copied(scene.path.with_name(f"stalled-{number}-{is_busy}-{notices}"))
    with here.start(stops=before_call(number), notices=notices) as process:
        process.wait_until_stopped()
        act_meanwhile(here, is_busy=is_busy)
        told = process.resume()
    check_told(here, told)
    check_table(here)
    here.remove()
    return told


def some_stalls(calls: Sequence[str]) -> Iterator[tuple[int, bool]]:
    """Give a few calls that matter, and whether others are busy: the decisions, and one between."""
    decisions = [place for place, call in enumerate(calls) if is_slot_put(call)]
    yield decisions[0] + 1, False  # Its look whether the slot counts.
    yield (decisions[0] + decisions[-1]) // 2, True
    yield decisions[-1], True
    yield min(decisions[-1] + 2, len(calls) - 1), True  # What it shows other engines.


@pytest.mark.parametrize("scene", OPERATIONS, indirect=True)
def test_a_process_that_stood_still_at_a_decision_harms_nobody(scene: Scene) -> None:
    for number, is_busy in some_stalls(calls_of(scene)):
        check_stall(scene, number, is_busy=is_busy)


@pytest.mark.long
@pytest.mark.parametrize("notices", [False, True], ids=["unaware", "aware"])
@pytest.mark.parametrize("is_busy", [False, True], ids=["one-commit", "busy"])
@pytest.mark.parametrize("scene", OPERATIONS, indirect=True)
def test_a_process_that_stood_still_at_any_call_harms_nobody(
    scene: Scene, is_busy: bool, notices: bool
) -> None:
    for number in range(len(calls_of(scene))):
        check_stall(scene, number, is_busy=is_busy, notices=notices)


@pytest.mark.parametrize("is_busy", [False, True], ids=["one-commit", "busy"])
@pytest.mark.parametrize("scene", ["clustering", "compaction"], indirect=True)
def test_n_187_a_file_that_comes_late_is_taken_away(scene: Scene, is_busy: bool) -> None:
    """Others have completed the plan by then, and readers that go by names would show it."""
    published = [n for n, call in enumerate(calls_of(scene)) if call.startswith("publish")]
    assert published
    for number in published:
        check_stall(scene, number, is_busy=is_busy)


COMMITS = [name for name in OPERATIONS if name.startswith("commit")]


@pytest.mark.parametrize("scene", COMMITS, indirect=True)
def test_a_writer_that_was_rolled_back_is_not_acknowledged(scene: Scene) -> None:
    """A stall between the last look and the write, which a lock that expires does not survive."""
    with scene.start(stops=before_slot(2)) as process:
        process.wait_until_stopped()
        with patient():
            cleaner = scene.open()
        (done,) = cleaner.services.rollback_failed_writes(wait=True)
        told = process.resume()
    if told.error is None:
        assert told.answer != done.instant  # It has written everything again.
    else:
        assert isinstance(told.error, FencedError), repr(told.error)
    check_told(scene, told)
    check_table(scene)


@pytest.mark.parametrize("scene", ["commit-mor-optimistic"], indirect=True)
def test_the_same_stall_breaks_a_table_that_trusts_its_lock(tmp_path: Path, scene: Scene) -> None:
    """A1 is an assumption there, and what is looked for here is found if it does not hold."""
    operation = replace(scene.operation, table=scene.operation.table.with_options(BY_LOCK))
    locked = Scene.of(operation, tmp_path / "locked")
    with locked.start(stops=before_completion) as process:
        process.wait_until_stopped()
        with patient():
            cleaner = locked.open()
        (done,) = cleaner.services.rollback_failed_writes(wait=True)
        told = process.resume()
    assert (told.answer, told.error) == (done.instant, None)
    with pytest.raises(HeadwaterError):
        rows_by_us(locked.open())


def before_completion(calls: Sequence[str]) -> bool:
    """Stop before the put of the file that completes a write: the lock was looked at before."""
    method, _, path = calls[-1].partition(" ")
    folder, _, name = path.rpartition("/")
    return (method, folder) == ("put_if_absent", ".hoodie/timeline") and "_" in name
