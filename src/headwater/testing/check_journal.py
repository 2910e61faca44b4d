"""What other engines see of a fenced table: its files are a prefix of the journal (INV-134).

Files follow the slots, and any process may write them, late and twice. Whoever knows nothing of the
journal must not notice: at every moment the instants that have ended in files are those after some
slot, and perhaps some of the next one. Nothing that was shown is taken back but by a slot. What was
told to the metadata table for an instant that has not completed says nothing (INV-72), so that
there may be more of it.

One window is documented (`kernel.journal.materialise`): a process that stalls may put a file that
was erased meanwhile, or the delta commit to the metadata table of a slot that turns out to have
come too late, and takes it back before it answers; and it may delete one that was created again
meanwhile, which says that a plan is being executed, and puts it back before it answers. If it dies
or storage fails in between, the one stays and the other is missing. A delta commit of an instant
that has not completed says nothing to any engine: it is what every writer leaves that dies between
its two commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.kernel.journal.paths import time_of
from headwater.kernel.journal.state import folder_of
from headwater.kernel.layout import METADATA_TIMELINE
from headwater.testing.fenced_world import FILES, FencedWorld, says_end
from headwater.testing.history import Move, Step
from headwater.testing.simulation import Invariant, Simulation
from headwater.testing.table import TIMELINE

_SHOWN = "shown"
"""The fact how far files have come: an index of `FencedWorld.prefixes`."""
_LATE = "late"
"""The fact that a file was put late, by whom."""
_TAKEN = "taken"
"""The fact that a file was deleted late, by whom."""


def journal_invariants() -> tuple[Invariant, ...]:
    """INV-134."""
    return (
        Invariant(id="INV-134", check=_files_are_a_prefix, under=f"{FILES}/"),
        Invariant(id="INV-134", check=_late_work_is_made_good, under=None),
    )


def learn_files(step: Step, simulation: Simulation) -> None:
    """Remember how far files have come, and which were put late."""
    if not step.path.startswith(f"{FILES}/"):
        return
    world, facts, path = _world(simulation), simulation.facts, _file_of(step)
    late = _late_after(step, simulation)
    if path in late:
        facts.learn((_LATE, path), late[path])
    else:
        facts.forget((_LATE, path))
    if step.after is None and path in world.state.paths:
        # What storage does late is nobody's to make good.
        is_own = step.action.move not in (Move.LAND, Move.CRASH)
        facts.learn((_TAKEN, path), step.actor if is_own else "")
    else:
        facts.forget((_TAKEN, path))
    shown = _prefix_in(world, frozenset(late), facts.get(_SHOWN) or 0)
    if shown:
        facts.learn(_SHOWN, shown)


def _files_are_a_prefix(step: Step, simulation: Simulation) -> Iterator[str]:
    world, path = _world(simulation), _file_of(step)
    if step.after is None and path in world.state.paths and says_end(path):
        yield f"the journal has {path}, and its file was taken away"
    is_known = not says_end(path) or any(path in files for files in world.prefixes)
    if step.after is not None and not is_known and not _says_nothing(path, world):
        yield f"the journal never had {path}, and there is a file"
    known = world.state.paths.get(path)
    if known is not None and known.data is not None and step.after not in (None, known.data):
        yield f"the file {path} is not what the journal says"
    late = frozenset(_late_after(step, simulation))
    since = simulation.facts.get(_SHOWN) or 0
    if _prefix_in(world, late, since) is None:
        newest = world.prefixes[-1]
        files = world.ended_files() - late
        yield (
            f"files show no prefix of the journal from state {since} on: beyond the newest state "
            f"they have {sorted(files - newest)}, and they lack {sorted(newest - files)}"
        )


def _says_nothing(path: str, world: FencedWorld) -> bool:
    """Whether a file is a commit to the metadata table for an instant that has not completed."""
    folder, _, name = path.rpartition("/")
    own = world.state.areas.timeline
    completed = (one for one in world.state.names(own) if says_end(f"{own}/{one}"))
    return folder == METADATA_TIMELINE and time_of(name) not in map(time_of, completed)


def _late_work_is_made_good(step: Step, simulation: Simulation) -> Iterator[str]:
    if step.outcome is None or _has_storage_failed(simulation):
        return
    there = _world(simulation).state.paths
    for name, by in simulation.facts.items():
        if not isinstance(name, tuple) or by != step.actor:
            continue
        kind, path = name
        if kind == _LATE and path not in there:  # Else it was created once more since.
            yield f"{by} put {path} after it was erased, and did not take it back"
        if kind == _TAKEN and path in there:
            yield f"{by} deleted {path} after it was created again, and did not put it back"


def _has_storage_failed(simulation: Simulation) -> bool:
    left, given = simulation.budgets, simulation.scenario.faults.budgets()
    return (left.failures, left.lost_replies, left.limbos) != (
        given.failures,
        given.lost_replies,
        given.limbos,
    )


def _prefix_in(world: FencedWorld, late: frozenset[str], since: int) -> int | None:
    """Return the first state from `since` on after which files are, or some of the next slot."""
    there = world.ended_files()
    said = there - late - _early(world, there)
    states = world.prefixes
    for place in range(since, len(states)):
        state, following = states[place], states[min(place + 1, len(states) - 1)]
        if state & following <= there and said <= state | following:
            return place
    return None


def _early(world: FencedWorld, there: Iterable[str]) -> frozenset[str]:
    """Return the commits to the metadata table whose instants have not completed in files yet."""
    folders: dict[str, list[str]] = {}
    for path in there:
        folders.setdefault(folder_of(path), []).append(path)
    completed = {time_of(path.rpartition("/")[2]) for path in folders.get(TIMELINE, ())}
    told = (path for path in folders.get(METADATA_TIMELINE, ()) if path in world.state.paths)
    return frozenset(p for p in told if time_of(p.rpartition("/")[2]) not in completed)


def _late_after(step: Step, simulation: Simulation) -> dict[str, str]:
    """Return the files that are there although a slot had erased them when they were put."""
    late = {
        name[1]: by
        for name, by in simulation.facts.items()
        if isinstance(name, tuple) and name[0] == _LATE
    }
    path = _file_of(step)
    late.pop(path, None)
    if step.after is not None and path not in _world(simulation).state.paths:
        # What storage lands late is nobody's to take back.
        late[path] = "" if step.action.move in (Move.LAND, Move.CRASH) else step.actor
    return late


def _file_of(step: Step) -> str:
    return step.path.removeprefix(f"{FILES}/")


def _world(simulation: Simulation) -> FencedWorld:
    world = simulation.world
    assert isinstance(world, FencedWorld)
    return world
