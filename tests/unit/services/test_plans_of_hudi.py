"""Plans that Apache Hudi requested: left to it while it may be about to execute them (N-153)."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.tables import COW, MOR, a_table, trips

import headwater as hw
from headwater.errors import ConflictError, ErrorKind, UnsupportedError
from headwater.kernel.layout import TableLayout, attempt_folder, heartbeat_path
from headwater.kernel.timeline.names import file_name
from headwater.model.instant import Action, InstantTime, State
from headwater.services.advice.advice import Need
from headwater.services.rewrite import Rewritten

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

TIMELINE = TableLayout().timeline
HEARTBEAT = {
    "hoodie.client.heartbeat.interval_in_ms": "60000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
}
EXPIRY_MS = 180_000
SERVICES = {
    Action.COMPACTION: MOR,
    Action.LOG_COMPACTION: MOR,
    Action.CLUSTERING: COW,
}


class TheirPlan:
    """A plan as Hudi requests one: nothing of ours stands behind it."""

    def __init__(self, folder: Path, action: Action, **options: str) -> None:
        is_mor = SERVICES[action] == MOR
        shape = a_table(
            folder,
            partition_by="city",
            ordering="value",
            table_type=SERVICES[action],
            index="bucket" if is_mor else "simple",
            buckets=1 if is_mor else None,
        )
        enough = {"hoodie.log.compaction.blocks.threshold": "2"}
        shape = shape.with_options({**HEARTBEAT, **enough, **options})
        self.table = shape.create()
        self.action = action
        write = self.table.upsert if is_mor else self.table.bulk_insert
        for value in range(3):
            write(trips(("a" if is_mor else f"a{value}", "sf", value)))
        services = self.table.services
        make: dict[Action, Callable[[], str | None]] = {
            Action.COMPACTION: services.schedule_compaction,
            Action.LOG_COMPACTION: services.schedule_log_compaction,
            Action.CLUSTERING: services.schedule_clustering,
        }
        time = make[action]()
        assert time is not None
        self.time = InstantTime(time)
        for info in list(self.table.storage.list_tree(attempt_folder(self.time))):
            self.table.storage.delete(info.path)
        self.table.storage.delete(heartbeat_path(self.time))
        self.seen = self.values()

    def path(self, state: State) -> str:
        return f"{TIMELINE}/{file_name(self.time, self.action, state)}"

    def age_by(self, milliseconds: int) -> None:
        """Make it older, as far as the store tells."""
        file = Path(self.table.uri) / self.path(State.REQUESTED)
        then_ns = file.stat().st_mtime_ns - milliseconds * 1_000_000
        os.utime(file, ns=(then_ns, then_ns))

    def run(self, instant: str | None = None) -> Rewritten | None:
        services = self.table.services
        call = {
            Action.COMPACTION: services.compact,
            Action.LOG_COMPACTION: services.log_compact,
            Action.CLUSTERING: services.cluster,
        }[self.action]
        return call(instant)

    def is_pending(self) -> bool:
        found = self.table.context.load_timeline().find(self.time)
        return found is not None and found.is_pending

    def values(self) -> list[str]:
        return sorted(map(str, self.table.read_arrow().to_pylist()))


each_service = pytest.mark.parametrize("action", SERVICES, ids=str)


@each_service
def test_n_153_a_young_plan_is_left_to_its_engine_and_the_log_says_until_when(
    tmp_path: Path, action: Action, caplog: pytest.LogCaptureFixture
) -> None:
    plan = TheirPlan(tmp_path, action)
    plan.age_by(EXPIRY_MS - 60_000)
    before = datetime.now(UTC)
    with caplog.at_level(logging.INFO, "headwater.services"):
        assert plan.run() is None
    assert plan.is_pending()
    (line,) = [one for one in caplog.messages if "left to it until" in one]
    assert plan.time in line
    until = re.search(r"until (\S+),", line)
    assert until is not None
    # A minute is left of the three, and a second for stores that tell whole ones.
    left = datetime.fromisoformat(until[1]) - before
    assert timedelta(0) < left <= timedelta(milliseconds=EXPIRY_MS)


@each_service
def test_n_153_a_plan_that_nothing_was_heard_of_for_long_is_anybodys(
    tmp_path: Path, action: Action
) -> None:
    plan = TheirPlan(tmp_path, action)
    plan.age_by(EXPIRY_MS + 5_000)
    done = plan.run()
    assert done is not None
    assert done.instant == plan.time
    assert not plan.is_pending()
    assert plan.values() == plan.seen


@each_service
def test_n_153_a_young_plan_that_is_named_is_executed(tmp_path: Path, action: Action) -> None:
    plan = TheirPlan(tmp_path, action)
    done = plan.run(plan.time)
    assert done is not None
    assert done.instant == plan.time
    assert plan.values() == plan.seen


@each_service
def test_n_153_an_old_plan_that_its_engine_beats_for_is_left_to_it(
    tmp_path: Path, action: Action
) -> None:
    """Hudi beats before the plan is inflight."""
    plan = TheirPlan(tmp_path, action)
    plan.age_by(EXPIRY_MS + 5_000)
    plan.table.storage.put(heartbeat_path(plan.time), b"")
    assert plan.run() is None
    assert plan.is_pending()
    plan.table.storage.delete(heartbeat_path(plan.time))
    assert plan.run() is not None


@each_service
def test_n_153_a_plan_that_its_engine_beats_for_is_not_executed_even_if_it_is_named(
    tmp_path: Path, action: Action
) -> None:
    """Hudi would not notice, and complete it a second time."""
    plan = TheirPlan(tmp_path, action)
    plan.table.storage.put(heartbeat_path(plan.time), b"")
    before = {info.path for info in plan.table.storage.list_tree("")}
    with pytest.raises(ConflictError, match="executed by another engine") as caught:
        plan.run(plan.time)
    assert caught.value.kind is ErrorKind.ALREADY_RUNNING
    assert {info.path for info in plan.table.storage.list_tree("")} == before
    file = Path(plan.table.uri) / heartbeat_path(plan.time)
    os.utime(file, (1, 1))
    assert plan.run(plan.time) is not None
    assert plan.values() == plan.seen


def test_n_153_the_policy_never_says_nothing_about_plans(tmp_path: Path) -> None:
    never = {"hoodie.clean.failed.writes.policy": "NEVER"}
    plan = TheirPlan(tmp_path, Action.COMPACTION, **never)
    assert plan.run() is None
    plan.age_by(EXPIRY_MS + 5_000)
    done = plan.run()
    assert done is not None
    assert done.instant == plan.time


def test_n_153_a_young_plan_keeps_nobody_from_compacting_other_file_groups(tmp_path: Path) -> None:
    plan = TheirPlan(tmp_path, Action.COMPACTION)
    plan.table.upsert(trips(("b", "ny", 1)))
    plan.table.upsert(trips(("b", "ny", 2)))
    done = plan.run()
    assert done is not None
    assert done.instant != plan.time
    assert [group.partition for group in done.file_groups] == ["city=ny"]
    assert plan.is_pending()


def test_n_153_nobody_is_advised_to_execute_a_young_plan(tmp_path: Path) -> None:
    """Nor does it what runs by itself: that follows the advice, and names the plan."""
    plan = TheirPlan(tmp_path, Action.COMPACTION)
    assert Need.WAITING_PLAN not in {one.need for one in plan.table.services.advise()}
    plan.age_by(EXPIRY_MS + 5_000)
    waiting = [one for one in plan.table.services.advise() if one.need is Need.WAITING_PLAN]
    assert [one.instant for one in waiting] == [plan.time]


@each_service
def test_a_plan_that_its_engine_has_begun_is_left_to_it(
    tmp_path: Path, action: Action, caplog: pytest.LogCaptureFixture
) -> None:
    plan = TheirPlan(tmp_path, action)
    plan.age_by(EXPIRY_MS + 5_000)
    plan.table.storage.put(plan.path(State.INFLIGHT), b"")
    assert plan.run() is None
    assert plan.time in caplog.text
    assert "left to it" in caplog.text
    with pytest.raises(UnsupportedError, match="begun by another engine"):
        plan.run(plan.time)
    plan.table.storage.delete(plan.path(State.INFLIGHT))
    done = plan.run()
    assert done is not None
    assert done.instant == plan.time
    assert plan.values() == plan.seen


def test_a_plan_of_ours_is_executed_at_once(tmp_path: Path) -> None:
    table = a_table(tmp_path, ordering="value", table_type=MOR, buckets=1).create()
    for value in range(2):
        table.upsert(trips(("a", "sf", value)))
    plan = table.services.schedule_compaction()
    done = hw.open_table(table.uri).services.compact()
    assert done is not None
    assert done.instant == plan
