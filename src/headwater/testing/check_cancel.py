"""The invariants of cancelling and aborting plans (3.2, and what 3.5 says about archiving them).

INV-07, INV-08 and INV-12 as "never two ends" are among the checks of the timeline. The rest is
here, and every check looks at the world alone: whether an entry may be there, not who made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.format.timeline.records import decode_record
from headwater.kernel.layout import cancel_path
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.attempts import Purpose
from headwater.kernel.txn.changes import clustered_groups
from headwater.kernel.txn.markers import Marker, MarkerKind
from headwater.model.files import FileGroupId
from headwater.model.instant import Action, InstantTime, State
from headwater.model.plan_flags import says_cancellable
from headwater.model.plans import ClusteringPlan, RequestedReplace
from headwater.testing.check import Checks
from headwater.testing.history import Move, Step
from headwater.testing.simulation import Invariant, Simulation
from headwater.testing.table import (
    TIMELINE,
    Area,
    attempts_in,
    current_state,
    place_of,
    state_of,
    timeline_files,
)
from headwater.testing.world import World

# Notes an actor leaves: it has announced all its groups and cancelled what it met; and what its
# write lost to.
PUBLISHED = "published"  # (instant,)
LOST_TO = "lost_to"  # (instant, the other instant)

_TIMELINE = f"{TIMELINE}/"
_ENDS = (State.COMPLETED, State.ABORTED)


class CancelChecks:
    """What to add to the checks of a table whose plans may be cancelled."""

    def __init__(self, basic: Checks) -> None:
        self._basic = basic

    def invariants(self) -> tuple[Invariant, ...]:
        """INV-09 to INV-12, INV-14 to INV-16, INV-36 and INV-37."""
        return (
            Invariant(id="INV-09", check=_cancel_is_final),
            Invariant(id="INV-10", check=_only_pending_is_cancelled),
            Invariant(id="INV-11", check=self._only_cancelled_is_deleted),
            Invariant(id="INV-12", check=_aborted_never_completes, under=_TIMELINE),
            Invariant(id="INV-14", check=_published_write_wins, under=None),
            Invariant(id="INV-15", check=_overridden_never_completes, under=_TIMELINE),
            Invariant(id="INV-16", check=_only_cancellable_is_cancelled),
            Invariant(id="INV-36", check=_end_goes_last, under=_TIMELINE),
            Invariant(id="INV-37", check=_cancelled_is_not_archived, under=_TIMELINE),
        )

    def learn(self, step: Step, simulation: Simulation) -> None:
        """Remember which plans a commit has overridden, and which entries came too late."""
        place = place_of(step.path) if step.path else None
        if place is not None and place.area is Area.CANCEL and step.action.move is Move.LAND:
            state = state_of(place.time, timeline_files(simulation.world))
            if state is None or not state.is_pending:
                simulation.facts.learn(("stale", place.time))
        if place is None or place.file is None or step.after is None or step.before is not None:
            return
        is_commit = place.file.state is State.COMPLETED and _is_write(place.time, simulation.world)
        if not is_commit:
            return
        groups = {_group_of(path) for path in self._basic.files_of(step.after)}
        for time, plan in _pending_plans(simulation.world):
            if groups & set(clustered_groups(plan)) and _is_cancellable(plan):
                simulation.facts.learn(("overridden", time), place.time)

    def hear(self, step: Step, simulation: Simulation) -> None:
        """Remember which plans had completed when a write was published."""
        for note in step.notes:
            if note.name == PUBLISHED:
                files = timeline_files(simulation.world)
                done = sorted(
                    file.requested_time
                    for file in files
                    if state_of(file.requested_time, files) is State.COMPLETED
                )
                simulation.facts.learn(("published", note.values[0]), tuple(dict.fromkeys(done)))

    def _only_cancelled_is_deleted(self, step: Step, simulation: Simulation) -> Iterator[str]:
        if not step.path or step.after is not None or place_of(step.path).area is not Area.DATA:
            return
        owner = self._basic.attempt_of(step.path)
        if owner is None or _is_cancelled(InstantTime(owner[0]), simulation):
            return
        aborting = [
            attempt
            for _, _, attempt in attempts_in(simulation.world)
            if attempt.instant == owner[0] and attempt.purpose is Purpose.ABORT
        ]
        if aborting:
            yield f"{step.path} is deleted to abort {owner[0]}, which nobody cancelled"


def _is_cancelled(time: InstantTime, simulation: Simulation) -> bool:
    """Whether a cancellation was decided, in this run or before it."""
    is_waiting = cancel_path(time) in simulation.world.objects
    return is_waiting or bool(simulation.facts.get(("cancelled", time)))


def _cancel_is_final(step: Step, simulation: Simulation) -> Iterator[str]:
    place = place_of(step.path)
    if place.area is not Area.CANCEL or step.after is not None:
        return
    state = state_of(place.time, timeline_files(simulation.world))
    if state is not None and state is not State.ABORTED:
        yield f"{step.path} is deleted although {place.time} is {state}"


def _only_pending_is_cancelled(step: Step, simulation: Simulation) -> Iterator[str]:
    place = place_of(step.path)
    if place.area is not Area.CANCEL or step.after is None or step.before is not None:
        return
    if step.action.move is Move.LAND:
        return  # It was decided earlier; what it means now is nothing, and whoever aborts drops it.
    state = state_of(place.time, timeline_files(simulation.world))
    if state is None or not state.is_pending:
        yield f"{step.path} appears although {place.time} is {state or 'absent'}"


def _only_cancellable_is_cancelled(step: Step, simulation: Simulation) -> Iterator[str]:
    place = place_of(step.path)
    if place.area is not Area.CANCEL or step.after is None or step.before is not None:
        return
    plans = dict(_pending_plans(simulation.world))
    if place.time in plans and not _is_cancellable(plans[place.time]):
        yield f"{step.path} appears although {place.time} is not cancellable"


def _aborted_never_completes(step: Step, simulation: Simulation) -> Iterator[str]:
    file = place_of(step.path).file
    is_completed = file is not None and file.state is State.COMPLETED and step.after is not None
    if file is not None and is_completed and simulation.facts.get(("aborted", file.requested_time)):
        yield f"{file.requested_time} completes although it was aborted"


def _published_write_wins(step: Step, simulation: Simulation) -> Iterator[str]:
    for note in step.notes:
        if note.name == LOST_TO:
            time, other = note.values
            done = simulation.facts.get(("published", time))
            if done is not None and other not in done:
                yield f"{time} fails because of {other}, which completed after it was published"


def _overridden_never_completes(step: Step, simulation: Simulation) -> Iterator[str]:
    file = place_of(step.path).file
    if file is None or file.state is not State.COMPLETED or step.after is None:
        return
    by = simulation.facts.get(("overridden", file.requested_time))
    if by is not None:
        yield f"{file.requested_time} completes although {by} committed on the same groups"


def _end_goes_last(step: Step, simulation: Simulation) -> Iterator[str]:
    file = place_of(step.path).file
    if file is None or step.after is not None or file.state not in _ENDS:
        return
    left = state_of(file.requested_time, timeline_files(simulation.world))
    if left is not None and left.is_pending:
        yield f"{step.path} is deleted, so that {file.requested_time} looks {left}"


def _cancelled_is_not_archived(step: Step, simulation: Simulation) -> Iterator[str]:
    file = place_of(step.path).file
    if file is None or step.after is not None or file.state not in _ENDS:
        return
    # One that landed after all was over says nothing (INV-17).
    is_stale = simulation.facts.get(("stale", file.requested_time)) is not None
    if cancel_path(file.requested_time) in simulation.world.objects and not is_stale:
        yield f"{step.path} is deleted although {file.requested_time} has an entry in .cancel"


def check_left_behind(world: World, time: InstantTime) -> Iterator[str]:
    """INV-38: give what is left of an aborted instant beside its aborted file."""
    aborted = f"{TIMELINE}/{file_name(time, Action.CLUSTERING, State.ABORTED)}"
    for path in world.paths:
        if time in path and path != aborted:
            yield path


def is_aborted(world: World, time: InstantTime) -> bool:
    return current_state(world, time) is State.ABORTED


def _is_write(time: InstantTime, world: World) -> bool:
    files = (file for file in timeline_files(world) if file.requested_time == time)
    return all(file.action.is_ingestion for file in files if file.state is not State.COMPLETED)


def _pending_plans(world: World) -> Iterable[tuple[InstantTime, ClusteringPlan | None]]:
    files = timeline_files(world)
    for file in files:
        is_request = file.action is Action.CLUSTERING and file.state is State.REQUESTED
        state = state_of(file.requested_time, files)
        if is_request and state is not None and state.is_pending:
            data = world.objects[f"{TIMELINE}/{file_name(*file)}"].data
            yield (
                file.requested_time,
                decode_record(RequestedReplace, data, path="").clustering_plan,
            )


def _is_cancellable(plan: ClusteringPlan | None) -> bool:
    return plan is not None and says_cancellable(plan.extra_metadata)


def _group_of(path: str) -> FileGroupId:
    return Marker(path, MarkerKind.CREATE).group
