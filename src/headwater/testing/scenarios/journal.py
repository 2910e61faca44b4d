"""journal: what fenced tables have that others do not, which is slots, floors and late files.

    journal_floor     a writer beside one that writes three times, and a checkpoint at every second
                      slot: slots are deleted, and some are put where one was
    journal_files     two writers, and the files of their slots are written one by one
    journal_archive   a writer and an archiver, the same with checkpoints
    journal_cancel    a write and the plan that it overrides, the same
    journal_again     two executors of a plan that a dead process has begun: its inflight file goes
                      and comes again, and the files of slots are written one by one

Everything else runs as in the scenarios of mode L (`fenced`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headwater.kernel.journal.slots import Listing
from headwater.testing.actor import Body, Process
from headwater.testing.faults import Faults
from headwater.testing.fenced import fenced
from headwater.testing.fenced_world import FILES, FencedWorld
from headwater.testing.history import Step
from headwater.testing.operation import Kind
from headwater.testing.scenarios.cancel import cancel_commit
from headwater.testing.scenarios.guard import guard_2
from headwater.testing.scenarios.ingest import writer
from headwater.testing.scenarios.unknown import unknown
from headwater.testing.scenarios.upkeep import beside
from headwater.testing.simulation import Scenario, Simulation

_EVERY = 2


def journal_floor(faults: Faults, *, marks: tuple[str, ...] = ()) -> Scenario:
    """One writer stands still while another takes the floor past its slot."""
    scenario = unknown(faults, name="journal_floor")
    actors = {"W": writer(), "R": _again(writer(), 3)}
    return _on_journal(replace(scenario, actors=actors), marks)


def journal_files(faults: Faults) -> Scenario:
    """Two writers whose files come late and one by one."""
    scenario = replace(unknown(faults, name="journal_files"), marks={})
    return fenced(scenario, has_private_files=False)


def journal_archive(faults: Faults) -> Scenario:
    """A writer, an archiver and checkpoints: files are erased that somebody still has to put."""
    scenario = beside("archive", "write", faults)
    return fenced(
        replace(scenario, name="journal_archive", marks={}),
        checkpoint_every=_EVERY,
        has_private_files=False,
    )


def journal_cancel(faults: Faults) -> Scenario:
    """A write and the clustering that it cancels, or that is faster."""
    scenario = replace(cancel_commit(faults), name="journal_cancel", marks={})
    return fenced(scenario, checkpoint_every=_EVERY, has_private_files=False)


def journal_again(faults: Faults, *, marks: tuple[str, ...] = ()) -> Scenario:
    """Who takes an attempt back may stand still until the plan is inflight again."""
    scenario = replace(guard_2(faults, is_after_death=True), name="journal_again")
    wrapped = fenced(scenario, has_private_files=False)
    return replace(wrapped, marks={mark: MARKS[mark] for mark in marks})


def _on_journal(scenario: Scenario, marks: tuple[str, ...]) -> Scenario:
    wrapped = fenced(scenario, checkpoint_every=_EVERY)
    return replace(wrapped, marks={mark: MARKS[mark] for mark in marks})


def _again(body: Body, times: int) -> Body:
    def repeated(process: Process) -> str:
        words = [str(body(process)) for _ in range(times)]
        return words[-1]

    return repeated


# Situations that the search must have met, or it proves nothing.


def _is_put_too_late(step: Step, simulation: Simulation) -> bool:
    world, op = simulation.world, step.op
    if op is None or op.kind is not Kind.PUT_IF_ABSENT or step.has_failed:
        return False
    assert isinstance(world, FencedWorld)
    slots = Listing([op.target.rpartition("/")[2]]).slots
    return any(number < world.state.number for number in slots) and op.target in world.disk.objects


def _is_slot_deleted(step: Step, simulation: Simulation) -> bool:
    op = step.op
    return (
        op is not None
        and op.kind is Kind.DELETE
        and bool(Listing([op.target.rpartition("/")[2]]).slots)
    )


def _is_deleted_late(step: Step, simulation: Simulation) -> bool:
    world = simulation.world
    assert isinstance(world, FencedWorld)
    is_file = step.path.startswith(f"{FILES}/") and step.after is None
    return is_file and step.path.removeprefix(f"{FILES}/") in world.state.paths


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "file deleted that was created again": _is_deleted_late,
    "slot put below the floor": _is_put_too_late,
    "slot deleted": _is_slot_deleted,
}
