"""The invariants of a table in whose history things are taken back, cleaned and archived.

The reference is the list of commits that stand: all that ever completed, without those that were
taken back. Merging their rows gives what the newest view must hold after every change of the
timeline and every deletion of a data file, and each savepoint what it held when its commit was the
last. Views are the product's.

What a run leaves behind is judged by a janitor: the product's own `clean`, left alone with the
table. Whatever died where, it must bring the table to rest (LIV-14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from headwater.config.table import TableConfig
from headwater.errors import HeadwaterError
from headwater.format.timeline.records import decode_record
from headwater.kernel.layout import ATTEMPTS, HEARTBEATS, MARKERS
from headwater.kernel.timeline.active import load_active
from headwater.kernel.timeline.names import TimelineFile, file_name
from headwater.kernel.txn.attempts import Purpose
from headwater.kernel.view.commits import COMMIT_ACTIONS
from headwater.metadata.view import load_view
from headwater.model.files import parse_data_file
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import RestorePlan
from headwater.testing.actor import Process
from headwater.testing.check import COMMITTED, ENDED, FAILED, FENCED, Checks
from headwater.testing.check_rows import READ, Done, difference_of, done_of, model_of
from headwater.testing.history import Step
from headwater.testing.operation import Kind, Op
from headwater.testing.rows import PARTITION, Row, attempt_of, read_slice
from headwater.testing.seams import SimClock, SimIds, SimLock, SimStorage
from headwater.testing.simulation import Invariant, Simulation, Violation
from headwater.testing.table import (
    LAYOUT,
    TIMELINE,
    Area,
    attempt_in,
    is_archived,
    place_of,
    rollback_of,
    state_of,
    timeline_files,
)
from headwater.testing.world import World

_TIMELINE = f"{TIMELINE}/"
_HISTORY = f"{LAYOUT.history}/"
_BASIC = Checks(files_of=lambda content: (), attempt_of=attempt_of)  # Views tell what is missing.
_REUSED = ("INV-05", "INV-57")

CLEAN = "the janitor"
_JANITOR_ROUNDS = 3
"""Once to see heartbeats, once to find that they have not moved, once for what that brought up."""

MakeClean = Callable[[Process], Callable[[], object]]


@dataclass(frozen=True, kw_only=True)
class UpkeepChecks:
    """The checks of one small table, made anew for each scenario.

    `before` are the commits that the set-up made, `expiry_ms` is how long heartbeats may stand
    still, and `make_clean` gives what the janitor does, again and again.
    """

    config: TableConfig
    before: tuple[Done, ...]
    expiry_ms: int
    make_clean: MakeClean
    # What a world shows is costly to find out and asked again in every state that has it.
    _shown: dict[object, tuple[Row, ...] | str] = field(default_factory=dict)
    _judged: dict[object, tuple[Violation, ...]] = field(default_factory=dict)

    def invariants(self) -> tuple[Invariant, ...]:
        reused = (*_BASIC.timeline(), *_BASIC.guard(), *_BASIC.data())
        return (
            *(invariant for invariant in reused if invariant.id in _REUSED),
            Invariant(id="INV-02", check=_has_one_end, under=_TIMELINE),
            Invariant(id="INV-03", check=_leaves_only_if_taken_back, under=_TIMELINE),
            Invariant(id="INV-19", check=_numbers_increase, under=f"{ATTEMPTS}/"),
            Invariant(id="INV-21", check=_live_claims_stay, under=f"{ATTEMPTS}/"),
            Invariant(id="INV-29", check=_one_rollback, under=_TIMELINE),
            Invariant(id="INV-33", check=self._savepoints_stay_whole),
            Invariant(id="INV-37", check=self._savepoints_stay_restorable),
            Invariant(id="INV-81", check=self._newest_view_is_right),
            Invariant(id="INV-86", check=self._restore_takes_all_back, under=_TIMELINE),
            Invariant(id="INV-84", check=self._told_the_truth, under=None),
            Invariant(id="INV-85", check=self._readers_get_one_moment, under=None),
            Invariant(id="INV-139", check=self._begins_with_a_commit, under=_TIMELINE),
        )

    def learn(self, step: Step, simulation: Simulation) -> None:
        _BASIC.learn(step, simulation)
        done = _commit_in(step, simulation)
        if done is not None:
            simulation.facts.learn(("done", done.time), done)
        if step.path and place_of(step.path).area is Area.ATTEMPT:
            if step.after is None:
                simulation.facts.forget(("beat", step.path))
            else:
                simulation.facts.learn(("beat", step.path), simulation.world.now_ms)
                attempt = attempt_in(step.after)
                if attempt is not None and attempt.purpose is not Purpose.WITHDRAW:
                    largest = simulation.facts.get(("executed", attempt.instant)) or 0
                    number = max(largest, attempt.attempt)
                    simulation.facts.learn(("executed", attempt.instant), number)

    def hear(self, step: Step, simulation: Simulation) -> None:
        """Remember nothing: what an actor was told is checked when it is told."""

    def commits(self, simulation: Simulation) -> list[Done]:
        """Return all that ever completed, in the order in which it took effect."""
        found = (value for name, value in simulation.facts.items() if name[0] == "done")
        return sorted([*self.before, *found])

    def _standing(self, world: World, commits: Iterable[Done]) -> list[Done]:
        active = {file.requested_time for file in _completed(world)}
        return [one for one in commits if one.time in active or is_archived(world, one.time)]

    def rows(self, world: World, as_of: InstantTime | None = None) -> tuple[Row, ...] | str:
        """Return what readers get, newest or as of a completion time, or why they get nothing."""
        shown = tuple(
            (path, world.objects[path].data)
            for path in world.paths
            if path.startswith((_TIMELINE, _HISTORY, PARTITION))
        )
        found = self._shown.get((shown, as_of))
        if found is None:
            found = self._shown[shown, as_of] = _load_rows(world, self.config, as_of)
        return found

    def _newest_view_is_right(self, step: Step, simulation: Simulation) -> Iterator[str]:
        if not _is_visible_change(step):
            return
        world = simulation.world
        commits = self.commits(simulation)
        new = _commit_in(step, simulation)
        commits = commits if new is None else sorted([*commits, new])
        difference = self._difference(world, self._standing(world, commits))
        if difference:
            yield f"after {step.path}: {difference}"

    def _difference(self, world: World, commits: list[Done]) -> str:
        rows = self.rows(world)
        last = max((one.completion_time for one in commits), default="")
        return rows if isinstance(rows, str) else difference_of(model_of(commits, last), rows)

    def _savepoints_stay_whole(self, step: Step, simulation: Simulation) -> Iterator[str]:
        if not _is_visible_change(step):
            return
        world, commits = simulation.world, self.commits(simulation)
        standing = self._standing(world, commits)
        for point in _savepoints(world):
            saved = next((one for one in standing if one.time == point), None)
            if saved is None:
                yield f"the commit of savepoint {point} is gone"
                continue
            rows = self.rows(world, saved.completion_time)
            if isinstance(rows, str):
                yield f"after {step.path}, savepoint {point}: {rows}"
                continue
            difference = difference_of(model_of(standing, saved.completion_time), rows)
            if difference:
                yield f"after {step.path}, savepoint {point}: {difference}"

    def _savepoints_stay_restorable(self, step: Step, simulation: Simulation) -> Iterator[str]:
        if not step.path.startswith((_TIMELINE, _HISTORY)):
            return
        world, commits = simulation.world, self.commits(simulation)
        for point in _savepoints(world):
            saved = next((one for one in commits if one.time == point), None)
            if saved is None:
                continue
            for one in commits:
                if one.completion_time >= saved.completion_time and is_archived(world, one.time):
                    yield f"{one.time} is archived, which a restore to savepoint {point} needs"

    def _restore_takes_all_back(self, step: Step, simulation: Simulation) -> Iterator[str]:
        place = place_of(step.path)
        file = place.file
        if file is None or file.action is not Action.RESTORE or file.state is not State.COMPLETED:
            return
        world = simulation.world
        name = file_name(file.requested_time, file.action, State.REQUESTED)
        plan = decode_record(RestorePlan, world.objects[f"{TIMELINE}/{name}"].data, path=name)
        commits = self.commits(simulation)
        saved = next(c for c in commits if c.time == plan.savepoint_to_restore_timestamp)
        for one in self._standing(world, commits):
            if saved.completion_time < one.completion_time < file.requested_time:
                yield f"restore {file.requested_time} completes, and {one.time} is still there"

    def _told_the_truth(self, step: Step, simulation: Simulation) -> Iterator[str]:
        for note in step.notes:
            if note.name != ENDED or not note.values[1]:
                continue
            word, time = note.values
            has_completed = any(one.time == time for one in self.commits(simulation))
            if word == COMMITTED and not has_completed:
                yield f"{step.actor} was told that {time} is committed, but it never completed"
            if word == FAILED and has_completed:
                yield f"{step.actor} was told that {time} failed, but it completed"

    def _readers_get_one_moment(self, step: Step, simulation: Simulation) -> Iterator[str]:
        """What a reader gets is what the table held when it looked, whatever became of it since.

        Commits that were taken back meanwhile may be in it or not, but only the last ones.
        """
        commits = self.commits(simulation)
        for note in step.notes:
            if note.name != READ:
                continue
            as_of, rows = note.values
            standing = self._standing(simulation.world, commits)
            gone = [one for one in commits if one not in standing]
            possible = [sorted([*standing, *gone[:kept]]) for kept in range(len(gone) + 1)]
            if all(difference_of(model_of(some, as_of), rows) for some in possible):
                yield f"{step.actor} read as of {as_of} what was never there"

    def _begins_with_a_commit(self, step: Step, simulation: Simulation) -> Iterator[str]:
        """Engines that list files take what is older than a timeline's first commit for one.

        Whoever takes back the commit that archival has left may leave none (N-190).
        """
        gone, world = place_of(step.path).file, simulation.world
        if gone is None or step.after is not None or gone.state is not State.COMPLETED:
            return
        if gone.action not in COMMIT_ACTIONS or not is_archived(world, gone.requested_time):
            return
        commits = self.commits(simulation)
        standing = self._standing(world, commits)
        taken_back = {one.time for one in commits if one not in standing}
        active = {f.requested_time for f in _completed(world) if f.action in COMMIT_ACTIONS}
        left = min(active | taken_back, default=None)
        files = timeline_files(world)
        for time in sorted({file.requested_time for file in files}):
            if left is not None and time > left:
                break
            state = state_of(time, files)
            if time > gone.requested_time and state is not None and state.is_pending:
                yield f"{time} is pending, and {gone.requested_time} was the last commit before it"

    # How a run ends.

    def check_end(self, simulation: Simulation) -> Iterator[Violation]:
        """Let the janitor in, and look at what it leaves."""
        key = repr((simulation.world.key(), self.commits(simulation)))
        found = self._judged.get(key)
        if found is None:
            found = self._judged[key] = tuple(self._judge(simulation))
        yield from found

    def _judge(self, simulation: Simulation) -> Iterator[Violation]:
        world = simulation.world.fork()
        world.locks = {}  # Sessions of the dead are over, and nobody else is there.
        try:
            clean = self.make_clean(_janitor(world))
            for _ in range(_JANITOR_ROUNDS):
                clean()
                world.advance_to(world.now_ms + self.expiry_ms + 1)
        except HeadwaterError as error:
            yield Violation("LIV-14", f"the table cannot be cleaned: {error}")
            return
        commits = self._standing(world, self.commits(simulation))
        difference = self._difference(world, commits)
        if difference:
            yield Violation("LIV-14", f"after the janitor: {difference}")
        for point in set(_savepoints(world)) - {one.time for one in commits}:
            yield Violation("INV-33", f"after the janitor the commit of savepoint {point} is gone")
        storage = SimStorage(lambda op: world.apply(CLEAN, op))
        for instant in load_active(storage, TIMELINE).pending:
            if instant.action.is_ingestion or instant.action in _FINISHED_BY_CLEAN:
                yield Violation("LIV-14", f"after the janitor {instant} is pending")
        if _has_late_effects(simulation):
            return  # Who is taken over, or whose call lands late, leaves what nobody knows of.
        yield from _leftovers(world, commits)


_FINISHED_BY_CLEAN = (Action.ROLLBACK, Action.RESTORE, Action.CLEAN)


def _janitor(world: World) -> Process:
    """Return a process whose calls take effect at once; its pauses pass the world's time."""

    def call(op: Op) -> object:
        if op.kind is Kind.SLEEP:
            world.advance_to(world.now_ms + op.number)
        return world.apply(CLEAN, op)

    return Process(
        name=CLEAN,
        storage=SimStorage(call),
        clock=SimClock(call, lambda interval_ms, beat, name: _NoTimer()),
        ids=SimIds(CLEAN, 1),
        lock=SimLock(call),
        note=lambda *values: None,
    )


class _NoTimer:
    """The janitor is never slow enough to need a second beat."""

    def cancel(self) -> None:
        """Do nothing."""


def _has_late_effects(simulation: Simulation) -> bool:
    left, whole = simulation.budgets, simulation.scenario.faults.budgets()
    if FENCED in simulation.results().values():
        return True
    return left.ticks != whole.ticks or left.limbos != whole.limbos


def _leftovers(world: World, commits: Iterable[Done]) -> Iterator[Violation]:
    listed = {file.path for one in commits for file in one.files}
    pending = {file.requested_time for file in timeline_files(world)}
    pending -= {file.requested_time for file in _completed(world)}
    for path in world.paths:
        place = place_of(path)
        if path.startswith((f"{ATTEMPTS}/", f"{HEARTBEATS}/", f"{MARKERS}/")):
            # The largest claim stays: it keeps its time from being issued again.
            if place.time not in pending and place.time < _largest(world):
                yield Violation("LIV-14", f"after the janitor {path} is still there")
        elif place.area is Area.DATA and path not in listed:
            file = parse_data_file(path)
            if file is not None and file.instant_time not in pending:
                yield Violation("LIV-14", f"after the janitor nothing lists {path}")


def _largest(world: World) -> str:
    files = timeline_files(world)
    return max((file.completion_time or file.requested_time for file in files), default="")


def _completed(world: World) -> Iterator[TimelineFile]:
    """Give the completed files of the active timeline, without those of savepoints."""
    for file in timeline_files(world):
        if file.state is State.COMPLETED and file.action is not Action.SAVEPOINT:
            yield file


def _savepoints(world: World) -> list[InstantTime]:
    return [
        file.requested_time
        for file in timeline_files(world)
        if file.state is State.COMPLETED and file.action is Action.SAVEPOINT
    ]


def _commit_in(step: Step, simulation: Simulation) -> Done | None:
    """Return the commit that a step made visible."""
    file = place_of(step.path).file if step.path else None
    if file is None or file.state is not State.COMPLETED or file.action not in COMMIT_ACTIONS:
        return None
    if step.before is not None or step.after is None or file.completion_time is None:
        return None
    instant = Instant(file.requested_time, file.action, State.COMPLETED, file.completion_time)
    return done_of(instant, step.after, None, simulation.world)


def _is_visible_change(step: Step) -> bool:
    """Whether a step may change what readers get: it ends or takes back something, or deletes."""
    if not step.path:
        return False
    place = place_of(step.path)
    if place.file is not None:
        return place.file.state is State.COMPLETED or place.file.action is Action.LOG_COMPACTION
    return place.area is Area.DATA and step.after is None


def _load_rows(
    world: World, config: TableConfig, as_of: InstantTime | None
) -> tuple[Row, ...] | str:
    storage = SimStorage(lambda op: world.apply("checker", op))
    try:
        slices = load_view(storage, config, as_of=as_of).slices([PARTITION])
        return tuple(row for one in slices for row in read_slice(storage, one).values())
    except HeadwaterError as error:
        return f"it cannot be read: {error}"


def _has_one_end(step: Step, simulation: Simulation) -> Iterator[str]:
    time = place_of(step.path).time
    ends = [file for file in _completed(simulation.world) if file.requested_time == time]
    if len(ends) > 1:
        yield f"{time} has {len(ends)} completed files"


def _leaves_only_if_taken_back(step: Step, simulation: Simulation) -> Iterator[str]:
    file = place_of(step.path).file
    if file is None or file.state is not State.COMPLETED or step.before is None:
        return
    if file.action is Action.SAVEPOINT:
        return
    if step.after is not None:
        yield f"{step.path} is written again"
    elif not is_archived(simulation.world, file.requested_time):
        rollback = rollback_of(simulation.world, file.requested_time)
        if rollback is None or rollback.is_done:
            yield f"{step.path} is deleted, and nobody takes it back"


def _numbers_increase(step: Step, simulation: Simulation) -> Iterator[str]:
    """A fence is above every execution; who died over one left nobody behind to be mistaken for."""
    attempt = None if step.after is None else attempt_in(step.after)
    if attempt is None or step.before is not None:
        return
    largest = simulation.facts.get(("executed", attempt.instant)) or 0
    if attempt.purpose is Purpose.WITHDRAW and attempt.attempt <= largest:
        yield f"fence {attempt.attempt} of {attempt.instant} follows attempt {largest}"


def _one_rollback(step: Step, simulation: Simulation) -> Iterator[str]:
    yield from next(i for i in _BASIC.rollback() if i.id == "INV-29").check(step, simulation)


def _live_claims_stay(step: Step, simulation: Simulation) -> Iterator[str]:
    """Others may delete a claim only if its instant has ended, or its owner has."""
    if step.before is None or step.after is not None:
        return
    attempt = attempt_in(step.before)
    if attempt is None or attempt.is_released or attempt.owner.host == step.actor:
        return
    world = simulation.world
    files = [file for file in timeline_files(world) if file.requested_time == attempt.instant]
    has_ended = any(file.state is State.COMPLETED for file in files)
    rollback = rollback_of(world, attempt.instant)
    if has_ended or rollback is not None or is_archived(world, attempt.instant):
        return
    beat_ms = simulation.facts.get(("beat", step.path))
    if beat_ms is not None and world.now_ms < beat_ms + attempt.expiry_ms:
        yield f"{step.actor} deletes {step.path}, whose owner may be alive"
