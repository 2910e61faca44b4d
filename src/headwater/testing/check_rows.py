"""The invariants of many writers: who may commit after whom, and what readers get of it.

The reference is the list of commits in the order of their completion times. Merging their rows in
that order gives what every view must hold, as of every completion time: nothing lost, nothing
doubled, nothing that nobody wrote. Views are the product's, evaluated on the world after each
change of a completed file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from headwater.config.table import TableConfig
from headwater.errors import HeadwaterError
from headwater.format.timeline.records import decode_record
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.changes import clustered_groups
from headwater.metadata.view import load_view
from headwater.model.files import BaseFile, DataFile, FileGroupId, LogFile
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plan_flags import says_cancellable
from headwater.model.plans import CompactionPlan, RequestedReplace
from headwater.testing.check import Checks
from headwater.testing.history import Facts, Step
from headwater.testing.rows import (
    PARTITION,
    Row,
    Rows,
    attempt_of,
    decode_any_commit,
    decode_rows,
    files_of,
    merge_rows,
    read_slice,
)
from headwater.testing.seams import SimStorage
from headwater.testing.simulation import Invariant, Simulation
from headwater.testing.table import TIMELINE, place_of, state_of, timeline_files
from headwater.testing.world import World

# Notes an actor leaves: up to which completion time it saw the table, when it planned a write and
# when it read rows.
PLANNED = "planned"  # (instant, completion time or "")
READ = "read"  # (completion time or "", rows)

_TIMELINE = f"{TIMELINE}/"
_BASIC = Checks(files_of=files_of, attempt_of=attempt_of)


class Done(NamedTuple):
    """A commit, as the reference remembers it. They order by completion time."""

    completion_time: InstantTime
    time: InstantTime
    saw: str
    """The completion time up to which it had seen the table when it was planned."""
    files: tuple[DataFile, ...]
    replaced: tuple[FileGroupId, ...]
    rows: tuple[Row, ...]
    is_compaction: bool
    is_clustering: bool
    columns: frozenset[str] = frozenset()
    """The columns that it left, if the scenario has any."""

    @property
    def groups(self) -> frozenset[FileGroupId]:
        """fg: what it writes or replaces."""
        return frozenset({*(file.group for file in self.files), *self.replaced})

    @property
    def is_service(self) -> bool:
        return self.is_compaction or self.is_clustering

    @property
    def is_append(self) -> bool:
        return not self.replaced and all(isinstance(file, LogFile) for file in self.files)


class View(NamedTuple):
    """What readers get as of one completion time."""

    rows: Rows
    doubled: tuple[str, ...]
    groups: tuple[FileGroupId, ...]
    error: str = ""


Views = dict[InstantTime, View]


@dataclass(frozen=True, kw_only=True)
class RowChecks:
    """The checks of one small table, made anew for each scenario.

    `before` are the commits that the set-up made.
    """

    config: TableConfig
    is_non_blocking: bool = False
    keeps_order: bool = False
    """Whether appends to one group complete in the order of their requests."""
    before: tuple[Done, ...] = ()
    # What a world shows is costly to find out and asked again in every state that has it. Kept
    # here and not for good: a mutant changes what the same world shows.
    _views: dict[object, Views] = field(default_factory=dict)
    _moments: list[_Moment] = field(default_factory=list)

    def invariants(self) -> tuple[Invariant, ...]:
        """INV-35, 45, 48, 52, 53, 61 to 65, 81, 82, 85 and 100, and 133 where it holds."""
        in_order = (self._at_commit("INV-133", _passes_no_later_one),) if self.keeps_order else ()
        return (
            *in_order,
            *_BASIC.timeline(),
            *_BASIC.guard(),
            *_BASIC.data(),
            Invariant(id="INV-45", check=self._plans_are_exact, under=_TIMELINE),
            self._at_commit("INV-61", _misses_nobody),
            self._at_commit("INV-62", _misses_no_straggler),
            self._at_commit("INV-63", _replaced_is_dead),
            self._at_commit("INV-64", _keeps_off_pending_clustering),
            self._at_commit("INV-65", _buckets_have_one_group),
            self._at_commit("INV-100", _no_column_is_lost),
            self._at_commit("INV-81", _no_row_is_lost),
            self._at_commit("INV-82", _no_key_is_doubled),
            self._at_commit("INV-48", _services_are_invisible),
            self._at_commit("INV-52", _views_are_stable),
            self._at_commit("INV-53", _is_inclusive),
            Invariant(id="INV-35", check=self._archival_is_invisible, under=_TIMELINE),
            Invariant(id="INV-85", check=self._readers_get_one_moment, under=None),
        )

    def learn(self, step: Step, simulation: Simulation) -> None:
        _BASIC.learn(step, simulation)
        done = _commit_in(step, simulation)
        if done is not None:
            simulation.facts.learn(("done", done.time), done)
            simulation.facts.forget(("planned", done.time))

    def hear(self, step: Step, simulation: Simulation) -> None:
        _BASIC.hear(step, simulation)
        for note in step.notes:
            if note.name == PLANNED:
                time, saw = note.values
                simulation.facts.learn(("planned", time), saw)

    def commits(self, facts: Facts) -> list[Done]:
        """Return the commits so far in the order in which they took effect."""
        found = (value for name, value in facts.items() if name[0] == "done")
        return sorted([*self.before, *found])

    def views(self, world: World, times: Iterable[InstantTime]) -> Views:
        """Return what readers get as of each of some completion times."""
        wanted = tuple(times)
        shown = tuple(
            (path, world.objects[path].data)
            for path in world.paths
            if path.startswith((_TIMELINE, PARTITION))
        )
        found = self._views.get((shown, wanted))
        if found is None:
            found = self._views[shown, wanted] = _load_views(world, self.config, wanted)
        return found

    def _at_commit(self, id: str, check: Callable[[_Moment], Iterable[str]]) -> Invariant:
        def run(step: Step, simulation: Simulation) -> Iterable[str]:
            moment = self._moment_of(step, simulation)
            return () if moment is None else check(moment)

        return Invariant(id=id, check=run, under=_TIMELINE)

    def _moment_of(self, step: Step, simulation: Simulation) -> _Moment | None:
        if self._moments and self._moments[0].step is step:
            return self._moments[0]
        done = _commit_in(step, simulation)
        if done is None:
            return None
        commits = self.commits(simulation.facts)
        self._moments[:] = [_Moment(step, done, commits, simulation.world, self)]
        return self._moments[0]

    def _plans_are_exact(self, step: Step, simulation: Simulation) -> Iterator[str]:
        requests = list(_requests(simulation.world, Action.COMPACTION))
        if not requests or step.after is None:
            return
        done = _commit_in(step, simulation)
        commits = self.commits(simulation.facts) + ([] if done is None else [done])
        for time, data in requests:
            plan = decode_record(CompactionPlan, data, path="")
            listed = {name for one in plan.operations or () for name in one.delta_file_paths or ()}
            due = _due_logs(time, commits) - _taken_in(simulation.world, time, commits)
            if listed != due:
                yield f"compaction {time} lists {sorted(listed)}, but {sorted(due)} were complete"

    def _archival_is_invisible(self, step: Step, simulation: Simulation) -> Iterator[str]:
        file = place_of(step.path).file
        if step.after is not None or file is None or file.state is not State.COMPLETED:
            return
        commits = self.commits(simulation.facts)
        views = self.views(simulation.world, (one.completion_time for one in commits))
        for time, difference in _differences(views, commits):
            yield f"without {step.path}, as of {time}: {difference}"

    def _readers_get_one_moment(self, step: Step, simulation: Simulation) -> Iterator[str]:
        for note in step.notes:
            if note.name == READ:
                time, rows = note.values
                difference = difference_of(model_of(self.commits(simulation.facts), time), rows)
                if difference:
                    yield f"{step.actor} read as of {time}: {difference}"


@dataclass(frozen=True)
class _Moment:
    """A commit at the moment it takes effect, after those that did before."""

    step: Step
    done: Done
    commits: list[Done]
    world: World
    checks: RowChecks

    @cached_property
    def views(self) -> Views:
        times = [one.completion_time for one in (*self.commits, self.done)]
        return self.checks.views(self.world, times)

    @cached_property
    def differences(self) -> list[tuple[InstantTime, str]]:
        return list(_differences(self.views, [*self.commits, self.done]))

    @cached_property
    def missed(self) -> list[Done]:
        """The commits on the same groups that this one had not seen and does not fit with."""
        return [
            other
            for other in self.commits
            if other.completion_time > self.done.saw
            and self.done.groups & other.groups
            and not self._fits(other)
        ]

    def _fits(self, other: Done) -> bool:
        mine = self.done
        if mine.is_append and other.is_append:
            return self.checks.is_non_blocking
        return (mine.is_append and other.is_compaction) or (mine.is_compaction and other.is_append)


# Conflicts.


def _misses_nobody(moment: _Moment) -> Iterator[str]:
    for other in moment.missed:
        groups = ", ".join(map(str, sorted(moment.done.groups & other.groups)))
        yield f"{moment.done.time} commits on {groups} without having seen {other.time}"


def _misses_no_straggler(moment: _Moment) -> Iterator[str]:
    done = moment.done
    files = timeline_files(moment.world)
    for other in moment.missed:
        if state_of(other.time, files) is None:
            yield f"{done.time} commits without having seen {other.time}, archived since"
        if is_straggler(other, done.saw, moment.commits):
            yield f"{done.time} commits without having seen {other.time}, requested long before"


def _passes_no_later_one(moment: _Moment) -> Iterator[str]:
    done = moment.done
    for other in moment.commits:
        if done.is_append and other.is_append and other.time > done.time:
            for group in sorted(done.groups & other.groups):
                yield f"{done.time} appends to {group} above {other.time}, requested after it"


def is_straggler(other: Done, saw: str, commits: Iterable[Done]) -> bool:
    """Whether a commit came after a snapshot that has an instant requested later (H-69)."""
    is_after = other.completion_time > saw
    return is_after and any(o.completion_time <= saw and o.time > other.time for o in commits)


def _replaced_is_dead(moment: _Moment) -> Iterator[str]:
    for other in moment.commits:
        for file in moment.done.files:
            if file.group in other.replaced:
                yield f"{moment.done.time} lists {file.path}, whose group {other.time} replaced"


def _keeps_off_pending_clustering(moment: _Moment) -> Iterator[str]:
    files = timeline_files(moment.world)
    for time, data in _requests(moment.world, Action.CLUSTERING):
        state = state_of(time, files)
        if moment.done.is_service or state is None or not state.is_pending:
            continue
        plan = decode_record(RequestedReplace, data, path="").clustering_plan
        if plan is not None and says_cancellable(plan.extra_metadata):
            continue  # It gives way; that it is cancelled by then is INV-15.
        if moment.done.groups & set(clustered_groups(plan)):
            yield f"{moment.done.time} commits on groups of clustering {time}, which is pending"


def _buckets_have_one_group(moment: _Moment) -> Iterator[str]:
    if moment.checks.config.index_type is None:
        return
    for time, view in moment.views.items():
        buckets = {(group.partition, group.file_id[:8]) for group in view.groups}
        if len(buckets) < len(view.groups):
            yield f"as of {time} a bucket has two groups: {', '.join(map(str, view.groups))}"


def _no_column_is_lost(moment: _Moment) -> Iterator[str]:
    writes = [one for one in moment.commits if not one.is_service]
    lost = (writes[-1].columns if writes else frozenset()) - moment.done.columns
    if lost and not moment.done.is_service:
        yield f"{moment.done.time} takes back columns of {writes[-1].time}: {sorted(lost)}"


def _due_logs(time: InstantTime, commits: list[Done]) -> set[str]:
    """Return the logs that a compaction requested at a time has to take in."""
    cuts: dict[FileGroupId, str] = {}
    for file in (file for one in commits for file in one.files):
        if isinstance(file, BaseFile) and file.instant_time < time:
            cuts[file.group] = max(file.instant_time, cuts.get(file.group, ""))
    return {
        file.name
        for one in commits
        for file in one.files
        if isinstance(file, LogFile) and cuts.get(file.group, "") < one.completion_time < time
    }


def _taken_in(world: World, time: InstantTime, commits: list[Done]) -> set[str]:
    """Return the logs that log compactions had taken in before a time (INV-51)."""
    done = {one.time for one in commits if one.completion_time < time}
    return {
        name
        for requested, data in _requests(world, Action.LOG_COMPACTION)
        if requested in done
        for one in decode_record(CompactionPlan, data, path="").operations or ()
        for name in one.delta_file_paths or ()
    }


# Views.


def _no_row_is_lost(moment: _Moment) -> Iterator[str]:
    for time, difference in moment.differences:
        if not moment.done.is_service and time == moment.done.completion_time:
            yield f"after {moment.done.time}: {difference}"


def _no_key_is_doubled(moment: _Moment) -> Iterator[str]:
    for time, view in moment.views.items():
        if view.doubled:
            yield f"as of {time} there are two rows of {', '.join(view.doubled)}"


def _services_are_invisible(moment: _Moment) -> Iterator[str]:
    if moment.done.is_service:
        for time, difference in moment.differences:
            yield f"{moment.done.time} changes what is read as of {time}: {difference}"


def _views_are_stable(moment: _Moment) -> Iterator[str]:
    for time, difference in moment.differences:
        if not moment.done.is_service and time != moment.done.completion_time:
            yield f"{moment.done.time} changes what was read as of {time}: {difference}"


def _is_inclusive(moment: _Moment) -> Iterator[str]:
    done = moment.done
    rows = moment.views[done.completion_time].rows
    if done.rows and not done.is_service and all(row.by != done.time for row in rows.values()):
        yield f"the view as of {done.completion_time} has no row of {done.time}"


def _differences(views: Views, commits: list[Done]) -> Iterator[tuple[InstantTime, str]]:
    """Give the completion times as of which readers do not get what the reference holds."""
    for time, view in views.items():
        difference = view.error or difference_of(model_of(commits, time), view.rows.values())
        if difference:
            yield time, difference


def model_of(commits: Iterable[Done], as_of: str) -> Rows:
    """Return the rows that a table holds as of a completion time."""
    rows: dict[str, Row] = {}
    for commit in commits:
        if commit.completion_time <= as_of and not commit.is_service:
            # A write that replaces leaves nothing of what was before: it replaces all groups.
            rows = merge_rows([() if commit.replaced else rows.values(), commit.rows])
    return rows


def difference_of(model: Rows, found: Iterable[Row]) -> str:
    """Return in words how rows differ from what they must be, or nothing."""
    rows = {row.key: row for row in found}
    if rows == model:
        return ""
    lacking = sorted(row for row in model.values() if rows.get(row.key) != row)
    extra = sorted(row for row in rows.values() if model.get(row.key) != row)
    return "; ".join(
        f"{words} {', '.join(f'{row.key} by {row.by}' for row in some)}"
        for words, some in (("there is no", lacking), ("there is", extra))
        if some
    )


def _load_views(world: World, config: TableConfig, times: Iterable[InstantTime]) -> Views:
    storage = SimStorage(lambda op: world.apply("checker", op))
    views: Views = {}
    for time in times:
        try:
            slices = load_view(storage, config).slices_up_to(time, [PARTITION])
            parts = [read_slice(storage, one) for one in slices]
        except HeadwaterError as error:
            views[time] = View({}, (), (), f"it cannot be read: {error}")
            continue
        rows = merge_rows(part.values() for part in parts)
        keys = [key for part in parts for key in part]
        doubled = tuple(key for key in rows if keys.count(key) > 1)
        views[time] = View(rows, doubled, tuple(one.group for one in slices))
    return views


# What the world holds.


def _commit_in(step: Step, simulation: Simulation) -> Done | None:
    """Return the commit that a step made visible."""
    file = place_of(step.path).file if step.path else None
    if file is None or file.state is not State.COMPLETED or step.before is not None:
        return None
    if step.after is None or file.completion_time is None:
        return None
    saw = simulation.facts.get(("planned", file.requested_time))
    instant = Instant(file.requested_time, file.action, State.COMPLETED, file.completion_time)
    return done_of(instant, step.after, saw, simulation.world)


def done_of(instant: Instant, content: bytes, saw: str | None, world: World) -> Done:
    """Return a commit as the reference remembers it; a plan has seen all up to its request."""
    commit = decode_any_commit(instant, content)
    rows = (row for file in commit.files for row in _rows_in(file, world))
    return Done(
        commit.completion_time,
        commit.requested_time,
        commit.requested_time if saw is None else saw,
        commit.files,
        tuple(commit.replaced_groups()),
        tuple(sorted(row for row in rows if row.by == commit.requested_time)),
        commit.is_any_compaction,
        commit.is_table_service and not commit.is_any_compaction,
        frozenset((commit.schema or "").split()),
    )


def _rows_in(file: DataFile, world: World) -> tuple[Row, ...]:
    found = world.objects.get(file.path)
    return () if found is None else decode_rows(found.data)


def _requests(world: World, action: Action) -> Iterator[tuple[InstantTime, bytes]]:
    """Give the plans of an action on the active timeline."""
    for file in timeline_files(world):
        if file.action is action and file.state is State.REQUESTED:
            path = f"{TIMELINE}/{file_name(file.requested_time, action, State.REQUESTED)}"
            yield file.requested_time, world.objects[path].data
