"""A rewrite dies after every single write of its driver, and another process comes.

Tasks write through storage of their own, so their files and markers are there whenever the driver
has got that far. What a task leaves that dies half-way has a test of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import answers_of
from tests.support.manual_clock import ManualClock
from tests.support.tables import a_table
from tests.support.tables import trips as rows

from headwater.context import TableContext
from headwater.engine.engine import Poll, TaskContext, never_stops
from headwater.engine.inline import InlineEngine
from headwater.errors import ConflictError, ErrorKind, FencedError, StorageError
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.metadata.view import load_view
from headwater.model.files import attempt_of, parse_data_file
from headwater.seams.components import Components
from headwater.seams.ids import Owner, SystemIds
from headwater.services import Services
from headwater.table import Table

Dying = Callable[..., Any]
Copies = Callable[[Table], Iterator[Table]]

OPTIONS = {"headwater.storage.fsync": "false", "hoodie.log.compaction.blocks.threshold": "2"}
WRITES_MIN = 8
"""A rewrite of two groups writes more often than this; fewer would mean that nothing was tried."""

INTERVAL_MS = 1_000
EXPIRY_MS = 2 * INTERVAL_MS

SERVICES: dict[str, Callable[[Services], Any]] = {
    "compaction": lambda services: services.compact(),
    "log compaction": lambda services: services.log_compact(),
    "clustering": lambda services: services.cluster(services.schedule_clustering()),
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    # A base file and two logs in each group.
    writes = [rows(("a", "x", value), ("b", "y", value)) for value in (1, 2, 3)]
    shape = a_table(tmp_path, partition_by="city", buckets=1, table_type="MERGE_ON_READ")
    return shape.with_options(OPTIONS).with_upserts(*writes).create()


def services_of(
    name: str, table: Table, clock: ManualClock, storage: Any = None, engine: Any = None
) -> Services:
    """Return the services of a process of its own."""
    ids = SystemIds(Owner(name, 1, name))
    locks = InProcessLockProvider(InProcessLocks(), clock, ids, table=table.uri)
    options = {
        **OPTIONS,
        "hoodie.client.heartbeat.interval_in_ms": str(INTERVAL_MS),
        "hoodie.client.heartbeat.tolerable.misses": "2",
    }
    components = Components(storage or table.storage, clock, ids, locks)
    context = TableContext.through(components, table.config, options)
    return Services(replace(context, engine_for=lambda _: engine or InlineEngine()))


def take_over(execute: Callable[[Services], Any], services: Services, clock: ManualClock) -> Any:
    """Execute what a dead process left; if it may be alive, wait for its heartbeat to run out."""
    try:
        return execute(services)
    except ConflictError as refused:
        if refused.kind is not ErrorKind.ALREADY_RUNNING:
            raise
    clock.advance_ms(EXPIRY_MS)
    return execute(services)


def data_files(table: Table) -> set[str]:
    return {
        info.path
        for info in table.storage.list_tree("")
        if parse_data_file(info.path) is not None and not info.path.startswith(".hoodie/")
    }


def listed_files(table: Table) -> set[str]:
    commits = load_view(table.storage, table.config).commits
    return {file.path for commit in commits for file in commit.files}


def check_rewritten(table: Table, service: str) -> None:
    timeline = load_active(table.storage, ".hoodie/timeline")
    assert timeline.pending == ()
    assert data_files(table) == listed_files(table)
    logs = {len(one.logs) for one in load_view(table.storage, table.config).slices()}
    assert logs == ({1} if service == "log compaction" else {0})


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.some(3)
def test_another_process_finishes_what_a_dead_one_began(
    table: Table,
    dying: Dying,
    killed: type[BaseException],
    copies: Copies,
    service: str,
    every: int,
) -> None:
    times = [row["completion_time"] for row in table.inspect.timeline().to_pylist()]
    before = answers_of(table, times)
    execute = SERVICES[service]
    for writes, copy in zip(count(step=every), copies(table), strict=False):
        clock = ManualClock()
        try:
            execute(services_of("X", copy, clock, dying(copy.storage, writes)))
            has_died = False
        except killed:
            has_died = True
            clock = _without_timers_of_the_dead(clock)
            heir = services_of("Y", copy, clock)
            for pending in load_active(copy.storage, ".hoodie/timeline").pending:
                done = take_over(_given(service, pending.requested_time), heir, clock)
                assert done.is_executed_here
            execute(heir)
        check_rewritten(copy, service)
        assert answers_of(copy, times) == before
        if not has_died:
            assert writes > WRITES_MIN
            return


def _without_timers_of_the_dead(clock: ManualClock) -> ManualClock:
    """Return a clock at the same time; what a dead process wanted to do at a later one is off."""
    return ManualClock(clock.now_ms())


def _given(service: str, time: str) -> Callable[[Services], Any]:
    verbs = {"compaction": "compact", "log compaction": "log_compact", "clustering": "cluster"}
    return lambda services: getattr(services, verbs[service])(time)


class Killed(BaseException):
    """The process is dead; no code of it runs on."""


class DyingEngine:
    """Runs some tasks, one of them twice, and dies."""

    is_in_process = False

    def run(self, function: Any, tasks: Any, *, poll: Poll = never_stops) -> Any:
        for task_attempt in (0, 1):
            here = TaskContext(task=0, task_attempt=task_attempt, task_count=len(tasks))
            function(here, tasks[0])
        raise Killed


@pytest.mark.parametrize("service", SERVICES)
def test_inv_27_the_files_of_dead_tasks_are_deleted_and_no_others(
    table: Table, service: str
) -> None:
    before = data_files(table)
    clock = ManualClock()
    with pytest.raises(Killed):
        SERVICES[service](services_of("X", table, clock, engine=DyingEngine()))
    clock = _without_timers_of_the_dead(clock)
    orphans = data_files(table) - before
    assert len(orphans) == 2
    (pending,) = load_active(table.storage, ".hoodie/timeline").pending
    heir = services_of("Y", table, clock)
    take_over(_given(service, pending.requested_time), heir, clock)
    assert not orphans & data_files(table)
    assert before < data_files(table)
    check_rewritten(table, service)


class DoublingEngine:
    """Runs every task twice, as speculation does, and takes the results of the second runs."""

    is_in_process = False

    def run(self, function: Any, tasks: Any, *, poll: Poll = never_stops) -> Any:
        found = []
        for number, task in enumerate(tasks):
            for task_attempt in (0, 1):
                here = TaskContext(task=number, task_attempt=task_attempt, task_count=len(tasks))
                result = function(here, task)
            found.append(result)
        return found


@pytest.mark.parametrize("service", SERVICES)
def test_files_of_tasks_that_ran_twice_are_not_there_twice(table: Table, service: str) -> None:
    SERVICES[service](services_of("X", table, ManualClock(), engine=DoublingEngine()))
    check_rewritten(table, service)


class OvertakingEngine:
    """Lets another process take the plan over while its tasks run, as a stall does."""

    is_in_process = False

    def __init__(self, overtake: Callable[[], None]) -> None:
        self._overtake = overtake

    def run(self, function: Any, tasks: Any, *, poll: Poll = never_stops) -> Any:
        found = InlineEngine().run(function, tasks, poll=poll)
        self._overtake()
        return found


@pytest.mark.parametrize("service", SERVICES)
def test_h_19_a_stalled_process_neither_commits_nor_deletes_what_its_successor_wrote(
    table: Table, service: str
) -> None:
    clock, later = ManualClock(), ManualClock()
    heir = services_of("Y", table, later)
    after: set[str] = set()

    def overtake() -> None:
        (pending,) = load_active(table.storage, ".hoodie/timeline").pending
        done = take_over(_given(service, pending.requested_time), heir, later)
        assert done.is_executed_here
        after.update(data_files(table))

    stalled = services_of("X", table, clock, engine=OvertakingEngine(overtake))
    with pytest.raises(FencedError) as fenced:
        SERVICES[service](stalled)
    assert fenced.value.kind is ErrorKind.ATTEMPT_SUPERSEDED
    assert data_files(table) == after
    check_rewritten(table, service)
    attempts = {
        attempt_of(file.write_token)
        for one in load_view(table.storage, table.config).slices()
        for file in one.files()
        if service != "log compaction" or file in one.logs
    }
    # A plan for anybody is the first attempt of its own.
    assert attempts == {3 if service == "clustering" else 2}


class FailingEngine:
    """Fails, and says so."""

    is_in_process = False

    def run(self, function: Any, tasks: Any, *, poll: Poll = never_stops) -> Any:
        raise StorageError("the store is away", path="x")


def test_n_131_a_clustering_that_fails_is_in_nobodys_way(table: Table) -> None:
    clock = ManualClock()
    with pytest.raises(StorageError):
        services_of("X", table, clock, engine=FailingEngine()).cluster()
    assert load_active(table.storage, ".hoodie/timeline").pending == ()
    services_of("X", table, clock).cluster()
    check_rewritten(table, "clustering")


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("is_cleaned", [True, False], ids=["clean", "cluster"])
@pytest.mark.some(3)
def test_n_131_wherever_a_clustering_dies_the_next_service_takes_its_plan_away(
    table: Table,
    dying: Dying,
    killed: type[BaseException],
    copies: Copies,
    is_cleaned: bool,
    every: int,
) -> None:
    times = [row["completion_time"] for row in table.inspect.timeline().to_pylist()]
    before = answers_of(table, times)
    for writes, copy in zip(count(step=every), copies(table), strict=False):
        clock = ManualClock()
        try:
            services_of("X", copy, clock, dying(copy.storage, writes)).cluster()
            has_died = False
        except killed:
            has_died = True
            clock = _without_timers_of_the_dead(clock)
            heir = services_of("Y", copy, clock)
            heir.clean()  # It sees the heartbeat for the first time.
            clock.advance_ms(EXPIRY_MS)
            if is_cleaned:
                heir.clean()
                assert load_active(copy.storage, ".hoodie/timeline").pending == ()
            heir.cluster()
        check_rewritten(copy, "clustering")
        assert answers_of(copy, times) == before
        if not has_died:
            assert writes > WRITES_MIN
            return


def test_a_removable_plan_that_failed_is_rolled_back_by_the_next_execution(table: Table) -> None:
    clock = ManualClock()
    failing = services_of("X", table, clock, engine=FailingEngine())
    plan = failing.schedule_clustering(removable=True)
    assert plan is not None
    with pytest.raises(StorageError):
        failing.cluster(plan)
    heir = services_of("Y", table, clock)
    done = heir.cluster()
    assert done is not None
    assert done.instant != plan
    check_rewritten(table, "clustering")
