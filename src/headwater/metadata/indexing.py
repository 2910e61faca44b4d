"""Building indexes beside everybody else's work (RFC-45, with the resolutions of H-48 to H-61).

P is an index plan, p a partition of the metadata table that it builds.

**Schedule**, with nobody deciding meanwhile: list what is left of earlier p, claim P's time, wipe
what was listed, make the file groups of every p, request P with the definitions.

**Run**, by any process, any number of times:

1. claim an attempt of P; delete the base files of dead ones; P goes INFLIGHT;
2. build base files from what had completed before P. They carry P's time and the attempt;
3. catch up: write to p what completed since, many instants at a time, for as long as each round
   has at most half as many to catch up with as the one before; wait for what was pending before P
   and is alive, roll back writes that are not (H-52), and leave plans that nobody executes alone
   (H-54);
4. announce p: name it in table config as being built. From then on every commit tells p itself,
   because each asks in its own transaction which partitions there are (M9). Until then p costs
   writers nothing, however long it takes to build (N-54); and because it comes whether the build
   has caught up or not, the build ends however fast others commit (LIV-16);
5. catch up with what completed before that. Other engines' writers look at table config when they
   begin; so those that were at work when p was announced are waited for; so are their restores,
   which take the metadata table back as well;
6. complete P, if nothing came meanwhile that did not tell p (H-49); only then say in table config
   that p can be used (H-50).

A partition that cannot be built is left out, the others stay (H-51). If none is left, on timeout,
and on every other failure, P is **aborted**: table config, the timeline, definition and files of
each p, in this order. A process that was taken over stops, and takes nothing away but what it put
into an index of a later plan (`earlier_plans`).

Files are wiped by their names, and who stood still may wipe late (ADR 14). So names are listed
before the decision that allows it, and on a fenced table those are passed over that an instant may
still write to (`may_be_wiped`).

What a crash leaves behind, by the last step that was reached, and who repairs it:

    schedule    file groups, definition     the next plan for p wipes them
                request                     whoever runs or cancels P
    run 1 to 5  P pending, p not usable     the next run builds the base files anew; what p was told
                                            meanwhile stays, and is right: the next run catches up
                                            with all of it again. Once it was announced, commits go
                                            on telling it
    run 6       metadata commit             the same; it is withdrawn first
                completed file              `finish`: table config is brought up to it (INV-77)
                table config                nothing
    abort       table config                P is pending: the next run or cancel goes on
                P gone                      definition and files are left over: nothing looks at
                                            them, and the next plan for p wipes them
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique
from functools import partial
from itertools import count
from typing import Protocol

from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptTableError,
    ErrorKind,
    FencedError,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
)
from headwater.kernel.journal.storage import find_journal
from headwater.kernel.layout import (
    METADATA,
    METADATA_TIMELINE,
    TableLayout,
)
from headwater.kernel.table_config import load_table_config
from headwater.kernel.timeline.active import Timeline, instant_path, load_active
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.txn.attempts import Attempt, Purpose, load_attempt, load_newest_number
from headwater.kernel.txn.guard import beating, undo_dead_attempts
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.index_plan import (
    PlannedIndex,
    base_instant,
    catch_up_runs,
    completed_since,
    decode_index_plan,
    decode_index_result,
    pending_before,
    pending_indexings,
    pending_restores,
    taken_in,
)
from headwater.kernel.txn.indexing_steps import (
    AbortIndexing,
    AnnounceIndexing,
    ClaimIndexing,
    CompleteIndexing,
    DropIndex,
    PublishIndexes,
    RequestIndexing,
    index_exists,
)
from headwater.kernel.txn.leftovers import forget_attempts
from headwater.kernel.txn.metadata_commit import load_index_partitions, load_planned
from headwater.kernel.txn.steps import Claim, Ended, EnterInflight, Started, StartExecution
from headwater.kernel.txn.transaction import Transaction
from headwater.metadata.coverage import load_covered
from headwater.metadata.earlier_plans import wipe_earlier_plans
from headwater.metadata.partition_kinds import FILES, RECORD_INDEX, needs_of
from headwater.metadata.table import list_own_files
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import BaseFile, attempt_of, is_file_of, parse_data_file
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.components import Components

log = logging.getLogger(__name__)

LOOK_EVERY_MS = 1_000
"""How often the builder looks whether what it waits for has ended."""

_PUBLISHED_BEFORE_LOCK = 3
"""How often the builder tries to complete a plan while others commit, before it looks at what they
did under the lock (LIV-07)."""

_LAG_SMALL = 4
"""How many instants may be left to catch up with when an index is announced; beside writers that
never stop some always are."""

_BUILDS_MAX = 3
"""How often base files are built because what they were built on may have been taken back."""

_CLAIMS_MAX = 5
"""A time can be taken only when a lock failed or a clock repeats a time whose owner died right
after claiming it; each retry asks for a later one."""


@unique
class Stage(StrEnum):
    BUILDING = "building"
    CATCHING_UP = "catching up"
    PUBLISHED = "published"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexProgress:
    """How far a build has come."""

    instant: InstantTime
    stage: Stage
    partition: str = ""
    rows: int = 0
    files: int = 0
    files_total: int = 0
    lag: int = 0
    """How many instants the build still has to tell the index of, or to wait for."""


Report = Callable[[IndexProgress], None]


def log_progress(progress: IndexProgress) -> None:
    log.info(
        "index build instant=%s stage=%s index=%s rows=%d files=%d of=%d lag=%d",
        progress.instant,
        progress.stage,
        progress.partition,
        progress.rows,
        progress.files,
        progress.files_total,
        progress.lag,
    )


class IndexContent(Protocol):
    """What indexes contain, and their files. Knows nothing of plans and locks."""

    def initialise(self, planned: PlannedIndex, time: InstantTime) -> None:
        """Make the file groups of a partition, under the time of its plan."""
        ...

    def build(
        self, planned: PlannedIndex, attempt: Attempt, check: Callable[[], None], report: Report
    ) -> Sequence[WriteStat]:
        """Write base files of what completed before the attempt's instant, under its time.

        `check` raises once the attempt was taken over; long work calls it now and then.
        """
        ...

    def catch_up(
        self,
        partitions: frozenset[str],
        run: Sequence[Instant],
        timeline: Timeline,
        attempt: Attempt,
    ) -> Iterator[tuple[int, Sequence[WriteStat]]]:
        """Write what a run of instants, which have not, brought to partitions (`catch_up_runs`).

        One log for each file group that is concerned, under the `run_time`; a long run is cut into
        several. Gives how many instants are done since the last time, and their logs. Idempotent.
        """
        ...

    def encode_commit(self, stats: Sequence[WriteStat], covered: frozenset[str]) -> bytes:
        """Return the commit metadata of base files, and of logs in the place of instants."""
        ...


def may_be_wiped(path: str, pending: Collection[InstantTime]) -> bool:
    """Whether a file of an index that no plan and no table config names will never be needed again.

    Its name was there before an index of this name could be planned anew. What that one needs
    carries the time of its plan, or of an instant that completes after it; so only a pending
    instant can use a name twice. It takes away itself what it wrote for the index that is gone. A
    file that carries no time is of every index of the name.
    """
    file = parse_data_file(path)
    return file is not None and file.instant_time not in pending


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedPlan:
    """What became of a plan."""

    instant: Instant
    finished: frozenset[str]
    left_out: dict[str, HeadwaterError] = field(default_factory=dict)
    told: int = 0
    """How many logs the builder wrote in the place of instants that came meanwhile."""


@dataclass(slots=True)
class _Build:
    """What one run has come to."""

    attempt: Attempt
    heartbeat: Heartbeat
    planned: tuple[PlannedIndex, ...]
    stats: dict[str, Sequence[WriteStat]] = field(default_factory=dict)
    left_out: dict[str, HeadwaterError] = field(default_factory=dict)
    built_on: frozenset[InstantTime] = frozenset()
    covered: set[InstantTime] = field(default_factory=set)
    caught_up: set[InstantTime] = field(default_factory=set)
    """Those of `covered` that the build wrote logs for."""
    told: list[WriteStat] = field(default_factory=list)
    """These logs. The plan's commit lists them, or nobody would notice that one is lost."""
    unaware: frozenset[InstantTime] = frozenset()
    """What was pending when the partitions were announced."""

    @property
    def finished(self) -> tuple[PlannedIndex, ...]:
        return tuple(each for each in self.planned if each.partition in self.stats)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(each.partition for each in self.planned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexing:
    """Index plans of one table, as this process makes and runs them."""

    components: Components
    txn: Transaction
    layout: TableLayout
    content: IndexContent
    roll_back: Callable[[InstantTime], object]
    """Roll back a write whose writer is dead."""
    is_dead_elsewhere: Callable[[Instant], bool]
    """Whether a pending write of another engine is dead."""
    interval_ms: int
    tolerable_misses: int
    timeout_ms: int
    look_every_ms: int = LOOK_EVERY_MS
    report: Report = log_progress

    # Plans.

    def schedule(self, wanted: Sequence[PlannedIndex]) -> Instant | None:
        """Request a plan for those of the indexes that the table does not have; None if it has all.

        Raises:
            AlreadyExistsError: kind INDEX_EXISTS; one of them is being built. Nothing was changed.
            ConflictError: the lock was not to be had in time.
            CommitUnknownError: the timeline will tell whether the plan was requested.
        """
        self.finish()
        # The file groups are made between the claim of a time and the request.
        return self.txn.undisturbed(partial(self._schedule, tuple(wanted)))

    def _schedule(self, wanted: Sequence[PlannedIndex]) -> Instant | None:
        storage, clock = self.components.storage, self.components.clock
        in_use = load_table_config(storage, clock).metadata_partitions
        planned = tuple(each for each in wanted if each.partition not in in_use)
        if not planned:
            return None
        timeline = self._load_timeline()
        names = frozenset(each.partition for each in planned)
        lacking = frozenset().union(*map(needs_of, names)) - {*in_use, *names}
        if lacking:
            raise ConflictError(
                f"The index {', '.join(sorted(lacking))} was dropped meanwhile, and is needed for "
                f"{', '.join(sorted(names))}. Nothing was changed; create both at once",
                kind=ErrorKind.INDEXES_CHANGED,
                partitions=tuple(sorted(in_use)),
            )
        taken = names & {
            *load_index_partitions(storage, clock, self.layout, timeline),
            *load_planned(storage, self.layout, timeline),
        }
        if taken:
            raise index_exists(frozenset(taken))
        left_over = self._list_wipeable(names)
        time = self._claim_time()
        try:
            self._wipe(left_over)
            for each in planned:
                self.content.initialise(each, time)
            step = RequestIndexing(time, planned, base_instant(timeline))
            return self.txn.run(step).result
        except (CommitUnknownError, FencedError):
            raise
        except Exception:
            # Nobody knows of the plan, so what it made is in nobody's way; but why leave it.
            self._unmake_quietly(names, time)
            raise

    def run(self, time: InstantTime) -> IndexedPlan:
        """Build what a plan names, or return what became of it.

        Raises:
            ConflictError: kind ALREADY_RUNNING, another process is at it; kind INDEX_TIMEOUT, what
                the build waits for did not end in time, and the plan was aborted.
            FencedError: this process was taken over, or the plan cancelled; it touched nothing of
                the index since.
            NotFoundError: there is no such plan.
            CommitUnknownError: the timeline will tell whether the plan was completed.
            HeadwaterError: no index could be built; the plan was aborted.
        """
        self.check_plan(time)
        started = self.txn.run(StartExecution(time, Purpose.EXECUTE, self.claim())).result
        if isinstance(started, Ended):
            self.finish()
            return IndexedPlan(instant=started.instant, finished=self._result_of(started.instant))
        try:
            with beating(self.components, started) as heartbeat:
                done = self._run(started, heartbeat)
        except _Aborted as aborted:
            self._tidy(time)
            raise aborted.cause from aborted.cause.__cause__
        for name in sorted(done.finished):
            self.report(IndexProgress(instant=time, stage=Stage.PUBLISHED, partition=name))
        return done

    def cancel(self, time: InstantTime) -> frozenset[str]:
        """Abort a plan, whoever is building it; return the indexes that are gone.

        Raises:
            InvalidInputError: kind INVALID_STATE; it has completed.
            NotFoundError: there is no such plan.
        """
        self.check_plan(time)
        step = StartExecution(time, Purpose.ABORT, self.claim(), is_guarded=False)
        started = self.txn.run(step).result
        if isinstance(started, Ended):
            self.finish()
            raise InvalidInputError(
                f"{started.instant} has completed, so there is nothing to cancel. Drop the index "
                "instead",
                kind=ErrorKind.INVALID_STATE,
                instant=time,
            )
        with beating(self.components, started):
            names = self._abort(started.attempt)
        self._tidy(time)
        return names

    def drop(self, partition: str) -> None:
        """Take an index away: out of table config first, then its definition, then its files.

        Raises:
            NotFoundError: kind INDEX_NOT_FOUND; the table has no such index.
            InvalidInputError: kind INVALID_INDEX; another index needs it.
            ConflictError: a pending plan builds it.
        """
        try:
            self.finish()
        except CorruptTableError as error:
            # If it is what defines indexes, this drop ends that; else the step says so.
            log.warning("index is complete but not published yet: %s", error)
        self.txn.undisturbed(partial(self._drop, partition))

    def _drop(self, partition: str) -> None:
        left_over = self._list_wipeable([partition])
        needing = partial(_needing, partition)
        self.txn.run(DropIndex(partition, is_left_over=bool(left_over), needing=needing))
        self._wipe(left_over)

    def finish(self) -> frozenset[str]:
        """Bring table config up to plans that completed just before their process died (INV-77).

        Returns the indexes that can be used since.
        """
        storage, clock = self.components.storage, self.components.clock
        if not load_table_config(storage, clock).metadata_partitions_inflight:
            return frozenset()
        return self._publish()

    def pending_plan(self, wanted: Sequence[PlannedIndex]) -> InstantTime | None:
        """Return the pending plan that builds all of the indexes that the table does not have."""
        config = load_table_config(self.components.storage, self.components.clock)
        lacking = {
            (each.partition, each.definition)
            for each in wanted
            if each.partition not in config.metadata_partitions
        }
        for plan in pending_indexings(self._load_timeline()):
            if lacking and lacking <= {
                (each.partition, each.definition) for each in self.load_plan(plan)
            }:
                return plan.requested_time
        return None

    def load_plan(self, instant: Instant) -> tuple[PlannedIndex, ...]:
        """Raises:
        NotFoundError: kind INSTANT_NOT_FOUND; it left the active timeline.
        CorruptTableError: the plan is damaged.
        """
        folder = self.layout.timeline
        (data,) = load_contents(self.components.storage, folder, [instant], State.REQUESTED)
        return decode_index_plan(data, path=instant_path(folder, instant, State.REQUESTED))

    def check_plan(self, time: InstantTime) -> Instant:
        """Return the index plan of an instant time.

        Raises:
            NotFoundError: kind INSTANT_NOT_FOUND.
            InvalidInputError: it is no index plan.
        """
        instant = self._load_timeline().get(time)
        if instant.action is not Action.INDEXING:
            raise InvalidInputError(
                f"{instant} is no index plan; `t.inspect.indexes()` lists those", instant=time
            )
        return instant

    # One run.

    def _run(self, started: Started, heartbeat: Heartbeat) -> IndexedPlan:
        attempt = started.attempt
        try:
            planned = self.load_plan(started.instant)
            build = _Build(attempt, heartbeat, planned)
            undo_dead_attempts(self.txn, started, heartbeat, self._undo_before)
            heartbeat.check()
            self.txn.run(EnterInflight(attempt))
            done = self._build_and_complete(build)
        except CommitUnknownError:
            raise
        except FencedError:
            self._wipe_late_files(attempt)
            raise
        except Exception as error:
            try:
                heartbeat.check()
                self._abort(attempt)
            except FencedError:
                self._wipe_late_files(attempt)
                raise  # The plan is not ours to abort any more.
            except HeadwaterError as failed:
                log.warning("index plan stays pending instant=%s error=%s", attempt.instant, failed)
                raise error from failed
            raise _Aborted(error) from error
        return done

    def _undo_before(self, attempt: Attempt) -> None:
        """Delete base files of dead attempts. What writers logged to the partitions stays."""
        time, storage = attempt.instant, self.components.storage
        for each in self.load_plan(self.check_plan(time)):
            listed = (info.path for info in storage.list_tree(f"{METADATA}/{each.partition}"))
            storage.delete_many(
                path
                for path in listed
                if is_file_of(path, time, before_attempt=attempt.attempt)
                and isinstance(parse_data_file(path), BaseFile)
            )

    def _delete_late_base_files(self, lost: Attempt) -> None:
        """Delete base files of an attempt that lost where another attempt has put its own.

        To readers that go by names they are as good as those of the one that completed the plan
        (N-187). If nobody has, the next attempt deletes them.
        """
        listed = (info.path for info in self.components.storage.list_tree(METADATA))
        found = [path for path in listed if is_file_of(path, lost.instant)]
        bases = [file for file in map(parse_data_file, found) if isinstance(file, BaseFile)]
        late = [file for file in bases if attempt_of(file.write_token) == lost.attempt]
        others = {file.group for file in bases if file not in late}
        self.components.storage.delete_many(file.path for file in late if file.group in others)

    def _build_and_complete(self, build: _Build) -> IndexedPlan:
        for built_times in range(1, _BUILDS_MAX + 1):
            self._write_base_files(build)
            self._catch_up(build)
            self._announce(build)
            self._catch_up(build)
            try:
                return self._complete(build)
            except ConflictError as conflict:
                if conflict.kind is not ErrorKind.INDEX_OUTDATED or built_times == _BUILDS_MAX:
                    raise
                log.warning("index build starts again: %s", conflict)
        raise AssertionError("The last build either completes or raises")

    def _write_base_files(self, build: _Build) -> None:
        """Build every partition; one that cannot be built is left out, if any other can."""
        plan = build.attempt.instant
        done = taken_in(self._load_timeline(), plan)
        build.built_on = frozenset(instant.requested_time for instant in done)
        build.stats.clear()
        build.covered.clear()
        build.caught_up.clear()
        build.told.clear()
        for each in build.planned:
            if each.partition in build.left_out:
                continue
            build.heartbeat.check()
            try:
                build.stats[each.partition] = self.content.build(
                    each, build.attempt, build.heartbeat.check, self.report
                )
            except (FencedError, CommitUnknownError):
                raise
            except HeadwaterError as error:
                if len(build.planned) - len(build.left_out) == 1:
                    raise
                log.warning("index cannot be built index=%s error=%s", each.partition, error)
                build.left_out[each.partition] = error
                self.report(
                    IndexProgress(instant=plan, stage=Stage.LEFT_OUT, partition=each.partition)
                )

    def _announce(self, build: _Build) -> None:
        """Name the partitions in table config as being built: commits tell them from now on."""
        build.unaware = self.txn.run(AnnounceIndexing(build.attempt, build.names)).result

    def _catch_up(self, build: _Build) -> None:
        """Catch up with what has completed, and wait for what may complete without a word to it.

        Ends when nobody is waited for, and there was little to catch up with, or more than half as
        much as in the round before: others commit about as fast as this process catches up, and it
        would take long or for ever. Announced, the index is kept up by the commits themselves.

        Raises:
            ConflictError: kind INDEX_TIMEOUT.
        """
        plan, clock = build.attempt.instant, self.components.clock
        began_ms = clock.monotonic_ms()
        lag_before: int | None = None
        while True:
            build.heartbeat.check()
            timeline = self._load_timeline()
            lag = self._cover(build, timeline)
            waited_for = [
                *(
                    i
                    for i in pending_before(timeline, plan, also=build.unaware)
                    if self._is_waited_for(i, plan)
                ),
                *filter(self._is_of_another_engine, pending_restores(timeline)),
            ]
            self.report(IndexProgress(instant=plan, stage=Stage.CATCHING_UP, lag=len(waited_for)))
            is_behind = lag > _LAG_SMALL and (lag_before is None or lag <= lag_before // 2)
            if not waited_for and not is_behind:
                return
            lag_before = lag
            if waited_for:
                if clock.monotonic_ms() - began_ms >= self.timeout_ms:
                    raise _timed_out(plan, waited_for, self.timeout_ms)
                clock.sleep_ms(self.look_every_ms)

    def _is_waited_for(self, instant: Instant, plan: InstantTime) -> bool:
        """Whether an instant may still complete without knowing of the plan (H-52, H-54)."""
        storage, time = self.components.storage, instant.requested_time
        number = load_newest_number(storage, time)
        if not number:  # Another engine's, or it has just ended.
            if instant.action.is_ingestion:
                return not (self.is_dead_elsewhere(instant) and self._is_rolled_back(instant))
            # A plan that was not begun needs nobody's patience; of others only that engine knows.
            return instant.state is State.INFLIGHT
        attempt = load_attempt(storage, time, number)
        if attempt is None:
            return False  # It has ended since.
        if time > plan:
            return False  # Its commit asks under the lock.
        if self.txn.watch.is_active(attempt):
            return True
        if not instant.action.is_ingestion:
            return False  # Whoever executes the plan one day tells the index himself.
        return not self._is_rolled_back(instant)

    def _is_of_another_engine(self, instant: Instant) -> bool:
        return not load_newest_number(self.components.storage, instant.requested_time)

    def _is_rolled_back(self, dead: Instant) -> bool:
        try:
            self.roll_back(dead.requested_time)
        except ConflictError as conflict:
            log.info("index build waits for %s: %s", dead, conflict)
            return False
        except NotFoundError:
            pass  # Somebody else has rolled it back.
        return True

    def _cover(self, build: _Build, timeline: Timeline) -> int:
        """See to it that all that completed since the plan has told the partitions (H-48).

        Returns in the place of how many instants they were told.
        """
        plan, names = build.attempt.instant, frozenset(build.stats)
        since = completed_since(timeline, plan)
        unknown = [i for i in since if i.requested_time not in build.covered]
        told = load_covered(self.components.storage, [i.requested_time for i in unknown])
        missing: dict[InstantTime, frozenset[str]] = {}
        for instant in unknown:
            if instant.requested_time not in told:
                raise CorruptTableError(
                    f"{instant} has told the metadata table nothing, so the metadata table is "
                    "behind the table. Drop its indexes and create them anew",
                    kind=ErrorKind.CORRUPT_METADATA_TABLE,
                    instant=instant.requested_time,
                )
            missing[instant.requested_time] = names - told[instant.requested_time]
        runs = list(catch_up_runs(since, lambda one: missing.get(one.requested_time, frozenset())))
        count = lag = sum(len(run) for _, run in runs)
        for partitions, run in runs:
            self.report(IndexProgress(instant=plan, stage=Stage.CATCHING_UP, lag=lag))
            for done, logs in self.content.catch_up(partitions, run, timeline, build.attempt):
                build.heartbeat.check()
                build.told += logs
                lag -= done
                self.report(IndexProgress(instant=plan, stage=Stage.CATCHING_UP, lag=lag))
            build.caught_up.update(instant.requested_time for instant in run)
        build.covered.update(instant.requested_time for instant in unknown)
        return count

    def _complete(self, build: _Build) -> IndexedPlan:
        for tried in count(1):
            build.heartbeat.check()
            content = self._commit_content(build)
            try:
                done = self.txn.undisturbed(partial(self._complete_once, build, content, tried))
            except ConflictError as conflict:
                if conflict.kind is not ErrorKind.INDEX_UNCOVERED:
                    raise
            else:
                self._publish_quietly()
                return done
            self._cover(build, self._load_timeline())
        raise AssertionError("It is tried until it is done")

    def _complete_once(self, build: _Build, content: bytes, tried: int) -> IndexedPlan:
        if tried > _PUBLISHED_BEFORE_LOCK and self._cover(build, self._load_timeline()):
            content = self._commit_content(build)
        step = CompleteIndexing(
            attempt=build.attempt,
            finished=build.finished,
            content=content,
            covered=frozenset(build.covered),
            built_on=build.built_on | build.caught_up,
        )
        return IndexedPlan(
            instant=self.txn.run(step).result,
            finished=frozenset(build.stats),
            left_out=build.left_out,
            told=len(build.told),
        )

    def _commit_content(self, build: _Build) -> bytes:
        written = [stat for each in build.finished for stat in build.stats[each.partition]]
        return self.content.encode_commit([*written, *build.told], frozenset(build.stats))

    def _publish_quietly(self) -> None:
        """Publish; the plan is completed whatever becomes of that, and `finish` repairs it."""
        try:
            self._publish()
        except HeadwaterError as error:
            log.warning("index is complete but not published yet: %s", error)

    def _publish(self) -> frozenset[str]:
        def publish() -> frozenset[str]:
            config = load_table_config(self.components.storage, self.components.clock)
            building = config.metadata_partitions_inflight
            listed = {n: self._list_wipeable([n]) for n in building if self._is_fenced}
            done = self.txn.run(PublishIndexes()).result
            for name in sorted(done.left_out):
                self._wipe(listed[name] if self._is_fenced else self._list([name]))
            return done.finished

        finished = self.txn.undisturbed(publish)
        for name in sorted(finished):
            log.info("index can be used index=%s", name)
        return finished

    def _abort(self, attempt: Attempt) -> frozenset[str]:
        """Give a plan up; return the indexes that it was to build."""

        def abort() -> frozenset[str]:
            plan = self._load_timeline().find(attempt.instant)
            planned = () if plan is None else self.load_plan(plan)  # The step says why it is gone.
            listed = self._list_wipeable((each.partition for each in planned), attempt.instant)
            gone = self.txn.run(AbortIndexing(attempt)).result
            self._wipe(listed)
            return gone

        names = self.txn.undisturbed(abort)
        log.warning("index plan aborted instant=%s indexes=%s", attempt.instant, sorted(names))
        return names

    # What they share.

    @property
    def _is_fenced(self) -> bool:
        return find_journal(self.components.storage)[0] is not None

    def _list(self, partitions: Iterable[str]) -> list[str]:
        storage = self.components.storage
        return [i.path for name in partitions for i in storage.list_tree(f"{METADATA}/{name}")]

    def _list_wipeable(
        self, partitions: Iterable[str], ends: InstantTime | None = None
    ) -> list[str]:
        """List what may be deleted of partitions once it is decided that they are gone.

        Args:
            ends: the plan that ends with them, whose files nobody needs then.
        """
        found = self._list(sorted(partitions))
        if not self._is_fenced:
            return found  # Nobody else writes before the lock is given back.
        own = load_active(self.components.storage, METADATA_TIMELINE)
        pending = {i.requested_time for i in (*self._load_timeline().pending, *own.pending)}
        return [path for path in found if may_be_wiped(path, pending - {ends})]

    def _wipe(self, paths: Iterable[str]) -> None:
        self.components.storage.delete_many(paths)

    def _wipe_late_files(self, lost: Attempt) -> None:
        """Delete what this process wrote to indexes of others, now that it was taken over."""
        try:
            self._delete_late_base_files(lost)
            wipe_earlier_plans(self.components, list_own_files(self.components.storage))
        except HeadwaterError as error:
            log.warning(
                "files of an index that is gone may remain table=%s error=%s",
                self.components.storage.uri,
                error,
            )

    def _result_of(self, instant: Instant) -> frozenset[str]:
        folder = self.layout.timeline
        (data,) = load_contents(self.components.storage, folder, [instant])
        return decode_index_result(data, path=instant_path(folder, instant))

    def _load_timeline(self) -> Timeline:
        return load_active(self.components.storage, self.layout.timeline)

    def claim(self) -> Claim:
        return Claim.new(
            self.components.ids,
            interval_ms=self.interval_ms,
            tolerable_misses=self.tolerable_misses,
        )

    def _claim_time(self) -> InstantTime:
        for tried in range(1, _CLAIMS_MAX + 1):
            try:
                return self.txn.run(ClaimIndexing(self.claim())).result
            except ConflictError as conflict:
                if conflict.kind is not conflict.default_kind or tried == _CLAIMS_MAX:
                    raise
        raise AssertionError("The last claim either succeeds or raises")

    def _unmake_quietly(self, partitions: Iterable[str], time: InstantTime) -> None:
        """Delete the file groups of a plan that was not requested: no other has its time."""
        try:
            files = ((path, parse_data_file(path)) for path in self._list(sorted(partitions)))
            self._wipe(path for path, file in files if file and file.instant_time == time)
        except HeadwaterError as error:
            log.warning("file groups of an index that was not planned remain error=%s", error)

    def _tidy(self, time: InstantTime) -> None:
        """Delete the attempts of a plan that is off the timeline for good."""
        try:
            forget_attempts(self.components.storage, time)
        except HeadwaterError as error:
            log.warning("attempts of an index plan remain instant=%s error=%s", time, error)


def _needing(partition: str, others: frozenset[str]) -> frozenset[str]:
    """Return those of the other indexes that cannot be without one; all need `files`."""
    if partition == FILES:
        return others
    is_needed = partition == RECORD_INDEX  # Other statistics are merely of no use then.
    return frozenset(one for one in others if is_needed and partition in needs_of(one))


class _Aborted(Exception):
    """The plan was aborted because of this."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _timed_out(plan: InstantTime, waited_for: Sequence[Instant], timeout_ms: int) -> ConflictError:
    names = ", ".join(str(instant) for instant in waited_for)
    return ConflictError(
        f"The index plan {plan} was aborted: {names} began before it was announced and did "
        f"not end within {timeout_ms} ms. Schedule the index again when they have ended, or give "
        "it more time by hoodie.metadata.index.check.timeout.seconds",
        kind=ErrorKind.INDEX_TIMEOUT,
        instant=plan,
        waited_for=names,
    )
