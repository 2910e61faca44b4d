"""The invariants of the protocol as functions over one step and the state after it.

They look at the world only, never into an actor, and run after every step: a violation that a
later step repairs is one all the same. What they must remember beyond the world is in `Facts`:
`Checks.learn` and `Checks.hear` keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from headwater.kernel.layout import (
    ATTEMPTS,
    CLOCK,
    MARKERS,
    attempt_path,
    cancel_path,
    heartbeat_path,
)
from headwater.kernel.timeline.names import TimelineFile, file_name
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.plan_flags import FLAGGED, decode_flags
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.testing.check_index import index_invariants
from headwater.testing.history import Facts, Move, Step
from headwater.testing.operation import Kind, Op
from headwater.testing.simulation import Invariant, Simulation
from headwater.testing.table import (
    TIMELINE,
    Area,
    Place,
    attempt_in,
    attempt_numbers,
    attempts_in,
    current_state,
    files_without,
    is_archived,
    place_of,
    rollback_of,
    rollbacks_in,
    state_of,
    timeline_files,
    times_of,
)

_STATE_CHANGES = frozenset(
    {
        (None, State.REQUESTED),
        (State.REQUESTED, State.INFLIGHT),
        (State.INFLIGHT, State.COMPLETED),
        (State.REQUESTED, State.ABORTED),
        (State.INFLIGHT, State.ABORTED),
        (State.INFLIGHT, State.REQUESTED),
        (State.REQUESTED, None),
        (State.INFLIGHT, None),
    }
)

_TIMELINE = f"{TIMELINE}/"
_ATTEMPTS = f"{ATTEMPTS}/"
_MARKERS = f"{MARKERS}/"
_ENDS = (State.COMPLETED, State.ABORTED)

# Notes an actor leaves for the checks: it begins an operation, and ends it in one of these ways.
BEGUN = "begun"
ENDED = "ended"  # (result word, instant or "")
READ_BACK = "read_back"  # (instant, whether it is completed)

COMMITTED = "committed"
RETURNED = "returned"
REFUSED = "refused"
FENCED = "fenced"
ABORTED = "aborted"  # The plan was cancelled and has ended.
FAILED = "failed"  # Definitely: the commit was not written and never will be.
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """The checks of one kind of table.

    `files_of` returns the data files that the completed file of a write or plan lists; `attempt_of`
    the instant and attempt that a data file's name tells.
    """

    files_of: Callable[[bytes], Iterable[str]]
    attempt_of: Callable[[str], tuple[str, int] | None]

    def timeline(self) -> tuple[Invariant, ...]:
        """INV-01 to INV-08 and INV-40 to INV-42."""
        return (
            Invariant(id="INV-01", check=_state_changes, under=_TIMELINE),
            Invariant(id="INV-02", check=_one_end, under=_TIMELINE),
            Invariant(id="INV-03", check=_end_is_final, under=_TIMELINE),
            Invariant(id="INV-04", check=_no_ghosts),
            Invariant(id="INV-05", check=_timeline_is_write_once, under=_TIMELINE),
            Invariant(id="INV-06", check=_requested_times_are_unique, under=_TIMELINE),
            Invariant(id="INV-07", check=_cancelled_never_completes, under=_TIMELINE),
            Invariant(id="INV-08", check=_aborted_only_after_cancel, under=_TIMELINE),
            Invariant(id="INV-40", check=_times_increase, under=_TIMELINE),
            Invariant(id="INV-41", check=_no_late_arrivals, under=_TIMELINE),
            Invariant(id="INV-42", check=_completion_after_request, under=_TIMELINE),
        )

    def guard(self) -> tuple[Invariant, ...]:
        """INV-18 to INV-24 and INV-111."""
        return (
            Invariant(id="INV-18", check=self._one_live_attempt_commits, under=_TIMELINE),
            Invariant(id="INV-19", check=_attempt_numbers_increase, under=_ATTEMPTS),
            Invariant(id="INV-20", check=_start_only_without_live_attempt, under=_ATTEMPTS),
            Invariant(id="INV-21", check=_own_heartbeats_only, under=_ATTEMPTS),
            Invariant(id="INV-21", check=_lapsed_beats_no_more, under=_ATTEMPTS),
            Invariant(id="INV-21", check=_plain_heartbeat_stays),
            Invariant(id="INV-22", check=_taken_over_writes_no_timeline, under=_TIMELINE),
            Invariant(id="INV-22", check=_lapsed_writes_no_timeline, under=_TIMELINE),
            Invariant(id="INV-23", check=_refusal_changes_nothing, under=None),
            Invariant(id="INV-24", check=_ended_plan_is_returned, under=None),
            Invariant(id="INV-111", check=_heartbeat_before_instant, under=_TIMELINE),
        )

    def rollback(self) -> tuple[Invariant, ...]:
        """INV-25 to INV-29, INV-31 and INV-32; INV-30 is about how a run ends."""
        return (
            Invariant(id="INV-25", check=_requested_plan_stays, under=_TIMELINE),
            Invariant(id="INV-26", check=_target_is_not_executed),
            Invariant(id="INV-27", check=self._only_dead_files_are_deleted),
            Invariant(id="INV-28", check=_rolled_back_only_if_failed, under=_TIMELINE),
            Invariant(id="INV-29", check=_one_rollback_per_target, under=_TIMELINE),
            Invariant(id="INV-31", check=_target_never_completes, under=_TIMELINE),
            Invariant(id="INV-32", check=_rolled_back_leaves_nothing, under=_TIMELINE),
        )

    def data(self) -> tuple[Invariant, ...]:
        """INV-57, INV-59, INV-60, INV-71 to INV-80 and INV-84."""
        return (
            Invariant(id="INV-57", check=_data_is_write_once),
            Invariant(id="INV-59", check=self._no_dangling_files),
            Invariant(id="INV-60", check=_markers_stay_until_the_end, under=_MARKERS),
            Invariant(id="INV-84", check=_acknowledgements_are_true, under=None),
            Invariant(id="INV-84", check=_acknowledgements_stay_true, under=_TIMELINE),
            *index_invariants(),
        )

    def all(self) -> tuple[Invariant, ...]:
        return (*self.timeline(), *self.guard(), *self.rollback(), *self.data())

    def learn(self, step: Step, simulation: Simulation) -> None:
        """Remember what later checks need of a call and of what it changed."""
        if step.op is not None and step.action.move is Move.RUN:
            _learn_from_call(step, simulation)
        if step.op is not None and step.action.move is not Move.LAND:
            _learn_given_up(step, step.op, simulation.facts)
        if step.path:
            self._learn_from_change(step, simulation)
        if step.action.move is Move.CRASH:
            _forget_actor(step.actor, simulation.facts)

    def hear(self, step: Step, simulation: Simulation) -> None:
        """Remember what an actor began, and what it was told."""
        facts, actor = simulation.facts, step.actor
        for note in step.notes:
            match note.name, note.values:
                case name, _ if name == BEGUN:
                    facts.forget(("wrote", actor))
                    facts.forget(("found_ended", actor))
                case name, (str(word), str(time)) if name == ENDED and time:
                    if word in (COMMITTED, RETURNED, FAILED, UNKNOWN):
                        facts.learn(("told", time, actor), word)
                case name, (str(time), bool(is_completed)) if name == READ_BACK:
                    facts.learn(("told", time, actor), COMMITTED if is_completed else FAILED)
        if step.outcome is not None:
            _forget_actor(actor, facts)

    def _learn_from_change(self, step: Step, simulation: Simulation) -> None:
        facts, place = simulation.facts, place_of(step.path)
        # Asking the store for its time puts an object and takes it away.
        if step.action.move is not Move.LAND and step.path != CLOCK:
            facts.learn(("wrote", step.actor))
        match place.area:
            case Area.TIMELINE | Area.DATA if step.after is not None:
                facts.learn(("bytes", step.path), _digest(step.after))
            case Area.ATTEMPT if step.after is not None:
                largest = facts.get(("attempt", place.time)) or 0
                facts.learn(("attempt", place.time), max(largest, place.attempt))
            case Area.ATTEMPT if _is_undone(place.time, simulation):
                gone = None if step.before is None else attempt_in(step.before)
                if gone is not None:
                    facts.learn(("claim", step.path), gone.token)
            case Area.CANCEL if step.after is not None:
                facts.learn(("cancelled", place.time))
            case _:
                pass
        if place.file is not None and step.after is None and _is_plan_given_up(place.file):
            facts.learn(("aborted", place.time))
        if place.file is None or step.after is None:
            return
        if place.file.state is State.REQUESTED and step.before is None:
            facts.learn(("requester", place.time), step.actor)
        for time in (place.file.requested_time, place.file.completion_time or ""):
            facts.learn(("largest",), max(facts.get(("largest",)) or "", time))
        if place.file.state is State.ABORTED:
            facts.learn(("aborted", place.time))
        if place.file.state is State.COMPLETED:
            for path in self._listed(place, step.after):
                facts.learn(("listed", path), place.time)

    def _listed(self, place: Place, content: bytes) -> Iterable[str]:
        """Return the data files that a completed file lists; a rollback lists what is gone."""
        is_rollback = place.file is not None and place.file.action is Action.ROLLBACK
        return () if is_rollback else self.files_of(content)

    def _one_live_attempt_commits(self, step: Step, simulation: Simulation) -> Iterator[str]:
        completed = _created(step, State.COMPLETED)
        if completed is None or step.after is None:
            return
        found = {self.attempt_of(path) for path in self._listed(completed, step.after)} - {None}
        if len(found) > 1:
            yield f"{completed.time} completes with files of several attempts: {found}"
        newest = max(attempt_numbers(simulation.world, completed.time), default=0)
        for owner in found:
            if owner is not None and owner[1] < newest:
                yield (
                    f"{completed.time} completes with files of attempt {owner[1]}, which attempt "
                    f"{newest} had declared dead"
                )

    def _no_dangling_files(self, step: Step, simulation: Simulation) -> Iterator[str]:
        if not step.path:
            return
        completed = _created(step, State.COMPLETED)
        if completed is not None and step.after is not None:
            for path in self._listed(completed, step.after):
                if path not in simulation.world.objects:
                    yield f"{completed.time} completes and lists {path}, which does not exist"
        elif step.after is None:
            lister = simulation.facts.get(("listed", step.path))
            lister = lister or self._lister(step.path, simulation)
            if lister is not None:
                yield f"{step.path} is deleted, though the completed {lister} lists it"

    def _lister(self, path: str, simulation: Simulation) -> InstantTime | None:
        """Return the completed instant that lists a file, also one from before the run."""
        for file in timeline_files(simulation.world):
            if file.state is State.COMPLETED:
                name = f"{TIMELINE}/{file_name(*file)}"
                if path in self._listed(place_of(name), simulation.world.objects[name].data):
                    return file.requested_time
        return None

    def _only_dead_files_are_deleted(self, step: Step, simulation: Simulation) -> Iterator[str]:
        if not step.path or step.after is not None or step.action.move is Move.LAND:
            return
        owner = self.attempt_of(step.path) if place_of(step.path).area is Area.DATA else None
        if owner is None:
            return
        world, time, number = simulation.world, InstantTime(owner[0]), owner[1]
        rollback = rollback_of(world, time)
        if (rollback is not None and rollback.is_done) or simulation.facts.get(("aborted", time)):
            return  # None of its attempts can ever complete; what is left is swept.
        claim = world.objects.get(attempt_path(time, number))
        attempt = None if claim is None else attempt_in(claim.data)
        is_own = attempt is not None and _is_owner(step.actor, attempt, simulation)
        # Who stood still puts a file after the plan was made, and takes it back before it gives up.
        is_at_it = is_own and attempt is not None and not attempt.is_released
        if rollback is not None and step.path not in rollback.paths and not is_at_it:
            yield f"{step.path} is deleted, which the plan of rollback {rollback.time} lacks"
        if number >= max(attempt_numbers(world, time), default=0) and not is_own:
            yield f"{step.path} is deleted although attempt {number} of {time} is not dead"


def _forget_actor(actor: str, facts: Facts) -> None:
    """Drop what only mattered while the actor lived."""
    for name in ("wrote", "found_ended", "lapsed", "saw", "gave_up"):
        facts.forget((name, actor))
    for name, _ in list(facts.items()):
        if name[0] == "overdue" and name[1].partition("/")[0] == actor:
            facts.forget(name)


# Timeline.


def _timeline_place(step: Step) -> Place | None:
    if not step.path:
        return None
    place = place_of(step.path)
    return place if place.area is Area.TIMELINE else None


def _created(step: Step, state: State) -> Place | None:
    place = _timeline_place(step)
    if place is None or place.file is None or step.before is not None or step.after is None:
        return None
    return place if place.file.state is state else None


def _states(step: Step, place: Place, simulation: Simulation) -> tuple[State | None, State | None]:
    """Return σ of the touched instant before and after the step."""
    assert place.file is not None
    now = timeline_files(simulation.world)
    others = files_without(now, place.file)
    with_it = (*others, place.file)
    before = others if step.before is None else with_it
    return state_of(place.time, before), state_of(place.time, now)


def _is_archival(step: Step, simulation: Simulation) -> bool:
    """Whether a file leaves the active timeline whose instant the archived one shows.

    An aborted instant is on no archived timeline. Its pending files are tidied away while its
    aborted file is there, and that one is deleted when nothing else is left.
    """
    place = _timeline_place(step)
    if place is None or place.file is None or step.after is not None:
        return False
    if place.file.state is State.ABORTED:
        return state_of(place.time, timeline_files(simulation.world)) is None
    is_aborted = state_of(place.time, timeline_files(simulation.world)) is State.ABORTED
    return is_aborted or is_archived(simulation.world, place.time)


def _state_changes(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _timeline_place(step)
    if place is None or place.file is None:
        return
    before, after = _states(step, place, simulation)
    if before is after or (after is None and _is_archival(step, simulation)):
        return
    is_ingestion = place.file.action.is_ingestion
    is_plan_taken_back = (before, after) == (State.INFLIGHT, State.REQUESTED)
    if is_ingestion and (before, after) == (None, State.INFLIGHT):
        return  # Its request comes at the same time (N-90).
    if (before, after) not in _STATE_CHANGES or (is_plan_taken_back and is_ingestion):
        yield f"{place.time} goes from {before or 'absent'} to {after or 'absent'}"


def _one_end(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _timeline_place(step)
    if place is None or step.after is None:
        return
    ends = [
        file
        for file in timeline_files(simulation.world)
        if file.requested_time == place.time and file.state in _ENDS
    ]
    if len(ends) > 1:
        shown = ", ".join(f"{end.state} {end.completion_time or ''}".strip() for end in ends)
        yield f"{place.time} has {len(ends)} ends: {shown}"


def _end_is_final(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _timeline_place(step)
    if place is None or place.file is None or step.before is None:
        return
    if _is_archival(step, simulation):
        return
    if place.file.state in _ENDS and step.after != step.before:
        yield f"the {place.file.state} file of {place.time} is changed or deleted"


def _no_ghosts(step: Step, simulation: Simulation) -> Iterator[str]:
    if not step.path or step.before is not None or step.after is None:
        return
    place = place_of(step.path)
    is_end = place.file is not None and place.file.state in _ENDS
    # An entry that lands late means nothing any more (INV-17).
    is_entry = place.area is Area.CANCEL and step.action.move is not Move.LAND
    if not is_end and not is_entry:
        return
    files = timeline_files(simulation.world)
    if not any(f.requested_time == place.time and f.state is State.REQUESTED for f in files):
        yield f"{step.path} appears although {place.time} has no requested file"


def _timeline_is_write_once(step: Step, simulation: Simulation) -> Iterator[str]:
    if _timeline_place(step) is not None:
        yield from _same_bytes_as_ever(step, simulation)


def _same_bytes_as_ever(step: Step, simulation: Simulation) -> Iterator[str]:
    if step.after is None:
        return
    known = simulation.facts.get(("bytes", step.path))
    if step.before is not None:
        known = _digest(step.before)
    if known is not None and known != _digest(step.after):
        yield f"the bytes of {step.path} change"


def _requested_times_are_unique(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _timeline_place(step)
    if place is None or place.file is None or step.after is None:
        return
    actions = {
        file.action
        for file in timeline_files(simulation.world)
        if file.requested_time == place.time and file.state is not State.COMPLETED
    }
    if len(actions) > 1:
        yield f"{place.time} is several instants: {', '.join(sorted(actions))}"
    requester = simulation.facts.get(("requester", place.time))
    if place.file.state is State.REQUESTED and requester not in (None, step.actor):
        yield f"{place.time} is requested by {requester} and again by {step.actor}"


def _cancelled_never_completes(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _created(step, State.COMPLETED)
    if place is None:
        return
    is_waiting = cancel_path(place.time) in simulation.world.objects
    if is_waiting or simulation.facts.get(("cancelled", place.time)):
        yield f"{place.time} completes although its cancellation was decided"


def _aborted_only_after_cancel(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _created(step, State.ABORTED)
    if place is None or simulation.facts.get(("cancelled", place.time)):
        return
    if cancel_path(place.time) not in simulation.world.objects:  # As it was before the run.
        yield f"{place.time} is aborted although nobody asked for it"


# Time.


def _times_increase(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _timeline_place(step)
    if place is None or place.file is None or step.before is not None or step.after is None:
        return
    others = files_without(timeline_files(simulation.world), place.file)
    known = times_of(others)
    if place.file.completion_time is not None:
        new = place.file.completion_time
    elif place.time not in known:
        new = place.time
    else:
        return
    if new in known:
        yield f"{new} is given out twice"
    # A late landing shows an old time late; it was issued in order all the same (see INV-41).
    largest = max([*known, simulation.facts.get(("largest",)) or ""])
    if new < largest and step.action.move is not Move.LAND:
        yield f"{new} is given out after {largest}"


def _no_late_arrivals(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _created(step, State.COMPLETED)
    if place is None or place.file is None or place.file.completion_time is None:
        return
    others = files_without(timeline_files(simulation.world), place.file)
    largest = max([*times_of(others), simulation.facts.get(("largest",)) or ""])
    if place.file.completion_time < largest:
        yield (
            f"{place.time} becomes visible as completed at {place.file.completion_time} although "
            f"{largest} was given out before"
        )


def _completion_after_request(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _created(step, State.COMPLETED)
    if place is None or place.file is None or place.file.completion_time is None:
        return
    if place.file.completion_time <= place.time:
        yield f"{place.time} completes at {place.file.completion_time}, not after its request"


# Attempts and heartbeats.


def _learn_given_up(step: Step, op: Op, facts: Facts) -> None:
    """Remember the attempts that a process gave up, whether or not it could say so (N-96)."""
    if op.kind is Kind.PUT and place_of(op.target).area is Area.ATTEMPT:
        attempt = attempt_in(op.data)
        if attempt is not None and attempt.is_released:
            key = ("gave_up", step.actor)
            facts.learn(key, (*(facts.get(key) or ()), op.target))


def _learn_from_call(step: Step, simulation: Simulation) -> None:
    """Remember what an actor saw last: the clock, the attempt it read, and what had ended."""
    facts, op, actor = simulation.facts, step.op, step.actor
    assert op is not None
    if op.kind is Kind.MONOTONIC:
        overdue = _overdue(actor, step.answer, simulation)
        _learn_or_forget(facts, ("overdue", _thread(step)), overdue)
    elif op.kind is Kind.READ and isinstance(step.answer, bytes):
        found = simulation.world.objects.get(op.target)
        if found is not None and place_of(op.target).area is Area.ATTEMPT:
            facts.learn(("saw", actor), (op.target, found.modified_ms))
    elif op.kind is Kind.DELETE and place_of(op.target).area is Area.DATA:
        if any(op.target in rollback.paths for rollback in rollbacks_in(simulation.world)):
            facts.learn(("swept", op.target))  # Also if there was nothing to delete.
    elif op.kind is Kind.ACQUIRE and not step.has_failed:
        overdue = facts.get(("overdue", _thread(step))) or ()
        lapsed = tuple(place_of(path).time for path in overdue)
        _learn_or_forget(facts, ("lapsed", actor), lapsed)
        if facts.get(("wrote", actor)) is None:
            files = timeline_files(simulation.world)
            ended = {f.requested_time for f in files if f.state in _ENDS}
            _learn_or_forget(facts, ("found_ended", actor), tuple(sorted(ended)))


def _thread(step: Step) -> str:
    """Return who made a call: what one thread of a process was told, another need not know yet."""
    return f"{step.actor}/{step.action.thread}"


def _overdue(actor: str, clock_ms: int, simulation: Simulation) -> tuple[str, ...]:
    """Return the heartbeats of `actor` that have lapsed by what its clock just told it."""
    newest: dict[InstantTime, tuple[str, int, Attempt]] = {}
    for path, modified_ms, attempt in attempts_in(simulation.world):
        if _is_owner(actor, attempt, simulation):
            newest[attempt.instant] = (path, modified_ms, attempt)  # Paths come in order.
    return tuple(
        path
        for path, modified_ms, attempt in newest.values()
        if clock_ms >= modified_ms + attempt.expiry_ms
    )


def _is_owner(actor: str, attempt: Attempt, simulation: Simulation) -> bool:
    """Whether an attempt is this actor's, and not its former self's."""
    incarnation = simulation.seats[actor].program.incarnation
    return (attempt.owner.host, attempt.owner.pid) == (actor, incarnation)


def _learn_or_forget(facts: Facts, name: tuple[str, str], value: tuple[str, ...]) -> None:
    if value:
        facts.learn(name, value)
    else:
        facts.forget(name)


def _attempt_place(step: Step) -> Place | None:
    if not step.path:
        return None
    place = place_of(step.path)
    return place if place.area is Area.ATTEMPT else None


def _started(step: Step, simulation: Simulation) -> Place | None:
    """Return the attempt that this step claims: a new object, or one with another token.

    An object that comes back with its token after its instant was rolled back is the last word of
    an owner that stalled, and claims nothing.
    """
    place = _attempt_place(step)
    if place is None or step.after is None:
        return None
    old = None if step.before is None else attempt_in(step.before)
    known = simulation.facts.get(("claim", step.path)) if old is None else old.token
    new = attempt_in(step.after)
    return None if new is not None and new.token == known else place


def _attempt_numbers_increase(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _started(step, simulation)
    if place is None or step.action.move is Move.LAND:
        return
    used = simulation.facts.get(("attempt", place.time)) or 0
    others = [k for k in attempt_numbers(simulation.world, place.time) if k != place.attempt]
    largest = max([used, *others])
    if place.attempt <= largest:
        yield f"attempt {place.attempt} of {place.time} starts after attempt {largest}"


def _start_only_without_live_attempt(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _started(step, simulation)
    if place is None or step.action.move is Move.LAND:
        return
    others = [k for k in attempt_numbers(simulation.world, place.time) if k != place.attempt]
    if not others:
        return
    # By the starter's rule: what it read must have been released, or unchanged for the expiry.
    saw = simulation.facts.get(("saw", step.actor))
    newest_path = attempt_path(place.time, max(others))
    found = simulation.world.objects[newest_path]
    other = attempt_in(found.data)
    if other is None or other.is_released or _is_cancel_of_index(step, place, simulation):
        return
    if newest_path in (simulation.facts.get(("gave_up", step.actor)) or ()):
        return  # The starter knows that nobody is at it: it was at it itself.
    modified_ms = saw[1] if saw is not None and saw[0] == newest_path else found.modified_ms
    if simulation.world.now_ms < modified_ms + other.expiry_ms:
        yield f"attempt {place.attempt} of {place.time} starts while {other} is alive"


def _is_cancel_of_index(step: Step, place: Place, simulation: Simulation) -> bool:
    """Whether somebody was told to give up an index plan, whoever is building it."""
    attempt = None if step.after is None else attempt_in(step.after)
    return (
        attempt is not None
        and attempt.purpose is Purpose.ABORT
        and any(
            file.requested_time == place.time and file.action is Action.INDEXING
            for file in timeline_files(simulation.world)
        )
    )


def _is_plan_given_up(gone: TimelineFile) -> bool:
    """Whether the file that leaves is the last of an index plan, which nothing else ends so."""
    return gone.action is Action.INDEXING and gone.state is State.REQUESTED


def _own_heartbeats_only(step: Step, simulation: Simulation) -> Iterator[str]:
    if _attempt_place(step) is None or step.before is None:
        return
    old = attempt_in(step.before)
    if old is None:
        return
    if step.after is None and (
        _is_rolled_back(old.instant, simulation) or simulation.facts.get(("aborted", old.instant))
    ):
        return  # Whoever tidies up after an instant removes its attempts.
    is_former_self = step.action.move is Move.LAND and old.owner.host == step.actor
    if not is_former_self and not _is_owner(step.actor, old, simulation):
        yield f"{step.actor} touches {step.path}, the heartbeat of {old.owner.host}"


def _lapsed_beats_no_more(step: Step, simulation: Simulation) -> Iterator[str]:
    # Lapsed is what others would call so: unchanged in storage for the expiry. The owner must not
    # refresh it once its own clock, read by this very thread, has told it.
    if _attempt_place(step) is None or step.before is None or step.action.move is Move.LAND:
        return
    new = None if step.after is None else attempt_in(step.after)
    if new is None or new.is_released:
        return
    if step.path in (simulation.facts.get(("overdue", _thread(step))) or ()):
        yield f"{step.actor} refreshes {step.path} although it knows that it lapsed"


def _plain_heartbeat_stays(step: Step, simulation: Simulation) -> Iterator[str]:
    if not step.path or step.after is not None or place_of(step.path).area is not Area.HEARTBEAT:
        return
    if step.action.move is Move.LAND:
        return
    time = place_of(step.path).time
    newest = _newest_attempt(simulation, time)
    is_over = newest is None or current_state(simulation.world, time) in _ENDS
    if is_over or newest is None or _is_owner(step.actor, newest, simulation):
        return
    # All attempts of an instant share the plain file that stock Hudi looks at, and there is no
    # conditional delete: a process that stalls between looking at its clock and deleting the file
    # may hit its successor's. It must not do so knowingly, or when it had invited successors.
    overdue = simulation.facts.get(("overdue", _thread(step))) or ()
    for path, _, attempt in attempts_in(simulation.world):
        is_mine = _is_owner(step.actor, attempt, simulation) and attempt.instant == time
        if is_mine and (attempt.is_released or path in overdue):
            yield f"{step.actor} deletes {step.path}, which {newest} keeps fresh"


def _heartbeat_before_instant(step: Step, simulation: Simulation) -> Iterator[str]:
    # What lands after its writer gave it up may find its time swept; nobody is at work there.
    if step.before is not None or step.after is None or step.action.move is Move.LAND:
        return
    place = _timeline_place(step)
    if place is None or place.file is None or not place.file.action.is_ingestion:
        return
    is_begun = place.file.state in (State.REQUESTED, State.INFLIGHT)
    is_ours = _newest_attempt(simulation, place.time) is not None
    if is_begun and is_ours and heartbeat_path(place.time) not in simulation.world.objects:
        yield f"{step.path} is there before the heartbeat that other engines look at"


def _taken_over_writes_no_timeline(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _timeline_place(step)
    newest = None if place is None else _newest_attempt(simulation, _guarding(place, simulation))
    if _is_archival(step, simulation) or _is_late_deletion_of_a_rollback(step, simulation):
        return
    if newest is None or str(newest.owner) == simulation.world.author:
        return
    if not _is_owner(step.actor, newest, simulation):
        yield f"{step.actor} writes {step.path} although {newest} has taken over"


def _is_late_deletion_of_a_rollback(step: Step, simulation: Simulation) -> bool:
    """Whether a deletion lands that a rollback had given up as failed.

    Whoever took the rollback over deletes the same file, and no name is used twice (N-132).
    """
    file = place_of(step.path).file if step.path else None
    is_deletion = step.action.move is Move.LAND and step.after is None
    if not is_deletion or file is None or file.state is not State.REQUESTED:
        return False
    return rollback_of(simulation.world, place_of(step.path).time) is not None


def _lapsed_writes_no_timeline(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _timeline_place(step)
    if place is None:
        return
    if _guarding(place, simulation) in (simulation.facts.get(("lapsed", step.actor)) or ()):
        yield f"{step.actor} writes {step.path} although it knew that its heartbeat had lapsed"


def _guarding(place: Place, simulation: Simulation) -> InstantTime:
    """Return the instant whose attempts guard a timeline file: its own, or that of its rollback."""
    rollback = rollback_of(simulation.world, place.time)
    return place.time if rollback is None else rollback.time


def _is_rolled_back(time: InstantTime, simulation: Simulation) -> bool:
    """Whether an instant is the target of a completed rollback, or that rollback itself."""
    done = (rollback for rollback in rollbacks_in(simulation.world) if rollback.is_done)
    return any(time in (rollback.time, rollback.target) for rollback in done)


def _is_undone(time: InstantTime, simulation: Simulation) -> bool:
    """Whether an instant can only end without a commit: by a rollback, or because it has."""
    is_target = rollback_of(simulation.world, time) is not None
    return is_target or bool(simulation.facts.get(("aborted", time)))


def _newest_attempt(simulation: Simulation, time: InstantTime) -> Attempt | None:
    newest = max(attempt_numbers(simulation.world, time), default=0)
    if not newest:
        return None
    return attempt_in(simulation.world.objects[attempt_path(time, newest)].data)


def _refusal_changes_nothing(step: Step, simulation: Simulation) -> Iterator[str]:
    for note in step.notes:
        has_written = simulation.facts.get(("wrote", step.actor))
        if note.name == ENDED and note.values[0] == REFUSED and has_written:
            yield f"{step.actor} was refused, yet it wrote"


def _ended_plan_is_returned(step: Step, simulation: Simulation) -> Iterator[str]:
    found_ended = simulation.facts.get(("found_ended", step.actor)) or ()
    for note in step.notes:
        if note.name != ENDED:
            continue
        word, time = note.values
        if word == RETURNED and current_state(simulation.world, time) is not State.COMPLETED:
            yield f"{step.actor} returned {time}, which is not completed"
        if word == RETURNED and simulation.facts.get(("wrote", step.actor)):
            yield f"{step.actor} returned {time}, which had ended before, yet it wrote"
        is_aborted = bool(simulation.facts.get(("aborted", time)))
        if time in found_ended and word != (ABORTED if is_aborted else RETURNED):
            yield f"{step.actor} began after {time} had ended, and was {word}"


# Rollback.


def _requested_plan_stays(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _timeline_place(step)
    if place is None or place.file is None or step.after is not None:
        return
    is_plan = place.file.state is State.REQUESTED and not place.file.action.is_ingestion
    if place.file.action is Action.INDEXING:
        return  # Whoever fails to build an index gives the plan up (INV-76).
    if is_plan and _is_removable(place, step.before):
        return
    if is_plan and current_state(simulation.world, place.time) not in _ENDS:
        yield f"{step.path} is deleted, though a plan stays until it has been executed"


def _is_removable(place: Place, request: bytes | None) -> bool:
    """Whether the request of a plan says that a failed execution takes the plan with it."""
    if place.file is None or request is None or place.file.action not in FLAGGED:
        return False
    instant = Instant(place.time, place.file.action, State.REQUESTED)
    return decode_flags(instant, request, path="").is_removable


def _removable_target(time: InstantTime, simulation: Simulation) -> bool:
    for file in timeline_files(simulation.world):
        if file.requested_time == time and file.state is State.REQUESTED:
            path = f"{TIMELINE}/{file_name(*file)}"
            return _is_removable(place_of(path), simulation.world.objects[path].data)
    return False


def _target_is_not_executed(step: Step, simulation: Simulation) -> Iterator[str]:
    if not step.path or step.before is not None or step.after is None:
        return
    place = place_of(step.path)
    attempt = attempt_in(step.after) if place.area is Area.ATTEMPT else None
    is_start = (
        _started(step, simulation) is not None
        and attempt is not None
        and attempt.purpose is not Purpose.ROLLBACK
    )
    is_inflight = place.file is not None and place.file.state is State.INFLIGHT
    if (is_start or is_inflight) and rollback_of(simulation.world, place.time) is not None:
        yield f"{step.path} appears although {place.time} is being rolled back"
    has_begun = current_state(simulation.world, place.time) is State.INFLIGHT
    if is_start and has_begun and _removable_target(place.time, simulation):
        yield f"{step.path} appears although the execution of {place.time} has failed"


def _rolled_back_only_if_failed(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _created(step, State.REQUESTED)
    for rollback in rollbacks_in(simulation.world):
        if place is None or rollback.time != place.time:
            continue
        files = timeline_files(simulation.world)
        actions = {file.action for file in files if file.requested_time == rollback.target}
        state = state_of(rollback.target, files)
        if state is None or not state.is_pending:
            yield f"a rollback of {rollback.target} is scheduled, which is {state or 'absent'}"
        is_write = all(action.is_ingestion for action in actions)
        if not is_write and not _removable_target(rollback.target, simulation):
            yield f"a rollback of {rollback.target} is scheduled, which is a plan"
        newest = _newest_attempt(simulation, rollback.target)
        is_fenced = newest is not None and newest.purpose is Purpose.ROLLBACK
        if newest is None or not is_fenced or not _is_owner(step.actor, newest, simulation):
            yield f"a rollback of {rollback.target} is scheduled, whose attempts are not dead"


def _one_rollback_per_target(step: Step, simulation: Simulation) -> Iterator[str]:
    pending = [found for found in rollbacks_in(simulation.world) if not found.is_done]
    for target in {found.target for found in pending}:
        times = [found.time for found in pending if found.target == target]
        if len(times) > 1:
            yield f"{target} is rolled back by {' and '.join(times)}"


def _target_never_completes(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _created(step, State.COMPLETED)
    rollback = None if place is None else rollback_of(simulation.world, place.time)
    if place is not None and rollback is not None:
        yield f"{place.time} completes although rollback {rollback.time} of it was scheduled"


def _rolled_back_leaves_nothing(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _created(step, State.COMPLETED)
    for rollback in rollbacks_in(simulation.world):
        if place is None or rollback.time != place.time:
            continue
        if current_state(simulation.world, rollback.target) is not None:
            yield f"rollback {rollback.time} completes, {rollback.target} is on the timeline"
        for path in rollback.paths:
            # What a stalled writer writes afterwards is an orphan; nobody can prevent that.
            is_swept = simulation.facts.get(("swept", path)) is not None
            if path in simulation.world.objects and not is_swept:
                yield f"rollback {rollback.time} completes, {path} is still there"


# Data and acknowledgements.


def _markers_stay_until_the_end(step: Step, simulation: Simulation) -> Iterator[str]:
    place = place_of(step.path)
    state = current_state(simulation.world, place.time)
    if step.after is None and state is not None and state.is_pending:
        yield f"{step.path} is deleted although {place.time} is {state}"


def _data_is_write_once(step: Step, simulation: Simulation) -> Iterator[str]:
    if step.path and place_of(step.path).area is Area.DATA:
        yield from _same_bytes_as_ever(step, simulation)


def _acknowledgements_are_true(step: Step, simulation: Simulation) -> Iterator[str]:
    for note in step.notes:
        match note.name, note.values:
            case name, (str(word), str(time)) if name == ENDED and time:
                yield from _check_told(word, InstantTime(time), step.actor, simulation)
            case name, (str(time), bool(is_completed)) if name == READ_BACK:
                word = COMMITTED if is_completed else FAILED
                yield from _check_told(word, InstantTime(time), step.actor, simulation)
            case _:
                pass


def _acknowledgements_stay_true(step: Step, simulation: Simulation) -> Iterator[str]:
    place = _timeline_place(step)
    if place is None:
        return
    for name, word in simulation.facts.items():
        if name[0] == "told" and name[1] == place.time:
            yield from _check_told(word, place.time, name[2], simulation)


def _check_told(word: str, time: InstantTime, actor: str, simulation: Simulation) -> Iterator[str]:
    is_completed = current_state(simulation.world, time) is State.COMPLETED
    if word in (COMMITTED, RETURNED) and not is_completed:
        yield f"{actor} was told that {time} is {word}, but it is not visible"
    if word == FAILED and is_completed:
        yield f"{actor} was told that {time} failed, but it is visible"


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
