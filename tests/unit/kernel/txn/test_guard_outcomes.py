"""Rows 5.1 and 5.2: who may execute a plan and who may take it away, one interleaving each."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from tests.support.dying import Killed
from tests.support.plan_site import (
    PLAN,
    REMOVABLE,
    FileWork,
    PlanSite,
    SiteProcess,
)

from headwater.errors import (
    ConflictError,
    CorruptTableError,
    ErrorKind,
    FencedError,
    NotFoundError,
    UnsupportedError,
)
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.guard import Executed, Returned
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.rollback import RolledBackWrite
from headwater.model.instant import Action, State
from headwater.model.plan_flags import PlanFlags
from headwater.services.removable import removable_plans, rollback_removable_plans
from headwater.testing.rows import files_of
from headwater.testing.table import TIMELINE

REQUEST = f"{TIMELINE}/{PLAN}.clustering.requested"
HOUR_MS = 3_600_000


@pytest.fixture
def site() -> PlanSite:
    """A table with P REQUESTED, neither removable nor cancellable."""
    site = PlanSite()
    site.request(PlanFlags())
    return site


@pytest.fixture
def removable() -> PlanSite:
    """A table with P REQUESTED and removable."""
    site = PlanSite()
    site.request(REMOVABLE)
    return site


def data_files(site: PlanSite) -> list[str]:
    return [path for path in site.objects() if path.startswith("city=")]


def committed_files(site: PlanSite) -> list[str]:
    paths = [path for path in site.objects() if path.endswith(".replacecommit")]
    assert len(paths) == 1
    return files_of(site.storage.read(paths[0]))


def refusal(process: SiteProcess) -> ErrorKind:
    with pytest.raises(ConflictError) as caught:
        process.execute()
    return caught.value.kind


def begin_and_die(site: PlanSite, name: str = "X") -> None:
    """Leave P INFLIGHT, with a file and a heartbeat of a dead process."""

    def die(attempt: Attempt, heartbeat: Heartbeat) -> None:
        raise Killed

    with pytest.raises(Killed):
        site.process(name).execute(die)
    assert site.state() is State.INFLIGHT


def begin_and_give_up(site: PlanSite) -> None:
    """Leave P INFLIGHT, with a file and a released attempt."""

    def give_up(attempt: Attempt, heartbeat: Heartbeat) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        site.process("X").execute(give_up)


def clean(process: SiteProcess) -> list[RolledBackWrite]:
    return rollback_removable_plans(process.rollbacks)


# 5.1: not removable.


def test_5_1_a_one_commits_and_the_others_are_refused_or_get_its_result(site: PlanSite) -> None:
    def meanwhile(attempt: Attempt, heartbeat: Heartbeat) -> None:
        assert refusal(site.process("Y")) is ErrorKind.ALREADY_RUNNING

    assert isinstance(site.process("X").execute(meanwhile), Executed)
    done = site.process("Z").execute()
    assert isinstance(done, Returned)
    assert done.instant.state is State.COMPLETED
    assert data_files(site) == committed_files(site)


def test_5_1_a_prime_wherever_x_crashes_the_plan_is_kept_or_completed() -> None:
    for writes_left in count():
        site = PlanSite()
        site.request(PlanFlags())
        try:
            site.process("X", writes_left=writes_left).execute()
        except Killed:
            pass
        else:
            break
        assert REQUEST in site.objects()
        successor = site.process("Y")
        try_execute(successor)
        site.lapse()
        done = successor.execute()
        assert isinstance(done, Executed | Returned)
        assert data_files(site) == committed_files(site), f"after {writes_left} writes"


def try_execute(process: SiteProcess) -> None:
    """See the heartbeat of the dead, if there is one."""
    try:
        process.execute()
    except ConflictError as refused:
        if refused.kind is not ErrorKind.ALREADY_RUNNING:
            raise


def test_5_1_b1_while_x_is_alive_y_is_refused_and_changes_nothing(site: PlanSite) -> None:
    def meanwhile(attempt: Attempt, heartbeat: Heartbeat) -> None:
        before = site.objects()
        with pytest.raises(ConflictError, match="already running") as caught:
            site.process("Y").execute()
        assert caught.value.context["owner"] == "X/1/X"
        assert caught.value.context["attempt"] == attempt.attempt
        assert site.objects() == before

    assert isinstance(site.process("X").execute(meanwhile), Executed)


def test_5_1_b2_y_takes_over_a_lapsed_x_which_is_fenced(site: PlanSite) -> None:
    successor = site.process("Y")

    def stall(attempt: Attempt, heartbeat: Heartbeat) -> None:
        assert refusal(successor) is ErrorKind.ALREADY_RUNNING
        site.lapse()
        assert isinstance(successor.execute(), Executed)

    with pytest.raises(FencedError):
        site.process("X").execute(stall)
    assert data_files(site) == committed_files(site)
    assert site.state() is State.COMPLETED


def test_5_1_c_whoever_commits_has_undone_the_dead_attempt_first(site: PlanSite) -> None:
    begin_and_give_up(site)
    old = data_files(site)
    assert isinstance(site.process("Y").execute(), Executed)
    assert data_files(site) == committed_files(site)
    assert data_files(site) != old
    assert isinstance(site.process("Z").execute(), Returned)


def test_5_1_c_after_x_has_rolled_back_and_crashed_y_needs_no_rollback() -> None:
    for writes_left in count():
        site = PlanSite()
        site.request(PlanFlags())
        begin_and_give_up(site)
        with pytest.raises(Killed):
            site.process("Y", writes_left=writes_left).execute()
        if site.state() is State.REQUESTED:
            break
    assert not data_files(site)
    assert REQUEST in site.objects()
    successor = site.process("Z")
    assert refusal(successor) is ErrorKind.ALREADY_RUNNING
    site.lapse()
    assert isinstance(successor.execute(), Executed)


def test_an_executor_that_misses_its_files_is_told_that_it_was_taken_over(site: PlanSite) -> None:
    """Who takes a plan over, or back, deletes what attempts before its own wrote."""
    newcomer = replace(site.process("Y").cancellations, is_guarded=False)
    lost = CorruptTableError("A base file does not exist", kind=ErrorKind.MISSING_DATA_FILE)

    def miss(attempt: Attempt, heartbeat: Heartbeat) -> None:
        raise lost

    def miss_what_another_deleted(attempt: Attempt, heartbeat: Heartbeat) -> None:
        assert isinstance(newcomer.execute(PLAN, FileWork(site.storage)), Executed)
        raise lost

    with pytest.raises(CorruptTableError):
        site.process("X").execute(miss)
    with pytest.raises(FencedError) as caught:
        site.process("X").execute(miss_what_another_deleted)
    assert caught.value.__cause__ is lost


def test_without_the_guard_a_newcomer_takes_over_at_once_and_the_other_is_fenced(
    site: PlanSite,
) -> None:
    newcomer = replace(site.process("Y").cancellations, is_guarded=False)

    def meanwhile(attempt: Attempt, heartbeat: Heartbeat) -> None:
        assert isinstance(newcomer.execute(PLAN, FileWork(site.storage)), Executed)

    with pytest.raises(FencedError):
        site.process("X").execute(meanwhile)
    assert data_files(site) == committed_files(site)


# 5.2: removable.


def test_5_2_a_one_commits(removable: PlanSite) -> None:
    assert isinstance(removable.process("X").execute(), Executed)
    assert isinstance(removable.process("Y").execute(), Returned)


def test_5_2_a_after_a_crash_past_inflight_nobody_retries(removable: PlanSite) -> None:
    begin_and_die(removable)
    other = removable.process("Y")
    before = removable.objects()
    assert refusal(other) is ErrorKind.ALREADY_RUNNING
    removable.lapse()
    assert refusal(other) is ErrorKind.PLAN_NOT_EXECUTABLE
    assert removable.objects() == before


def test_5_2_b_while_x_executes_y_is_refused(removable: PlanSite) -> None:
    def meanwhile(attempt: Attempt, heartbeat: Heartbeat) -> None:
        before = removable.objects()
        assert refusal(removable.process("Y")) is ErrorKind.ALREADY_RUNNING
        assert removable.objects() == before

    assert isinstance(removable.process("X").execute(meanwhile), Executed)
    assert isinstance(removable.process("Y").execute(), Returned)


def test_5_2_c_inflight_without_an_executor_everybody_is_refused(removable: PlanSite) -> None:
    begin_and_give_up(removable)
    before = removable.objects()
    for name in "YZ":
        assert refusal(removable.process(name)) is ErrorKind.PLAN_NOT_EXECUTABLE
    assert removable.objects() == before


def test_5_2_d1_clean_leaves_a_plan_alone_that_somebody_executes(removable: PlanSite) -> None:
    def meanwhile(attempt: Attempt, heartbeat: Heartbeat) -> None:
        before = removable.objects()
        assert clean(removable.process("C")) == []
        assert removable.objects() == before

    assert isinstance(removable.process("X").execute(meanwhile), Executed)


def test_5_2_d2_and_e1_clean_leaves_a_young_plan_alone(removable: PlanSite) -> None:
    cleaner = removable.process("C", delay_ms=HOUR_MS)
    before = removable.objects()
    assert clean(cleaner) == []
    assert removable.objects() == before
    with pytest.raises(ConflictError) as caught:
        cleaner.rollbacks.roll_back(PLAN)
    assert caught.value.kind is ErrorKind.PLAN_TOO_YOUNG
    assert removable.objects() == before
    assert isinstance(removable.process("X").execute(), Executed)


def test_5_2_d3_and_e2_clean_takes_an_old_plan_away(removable: PlanSite) -> None:
    removable.lapse(HOUR_MS)
    (done,) = clean(removable.process("C", delay_ms=HOUR_MS))
    assert done.instant == PLAN
    assert removable.state() is None
    rollback = load_active(removable.storage, TIMELINE).find(done.rollback)
    assert rollback is not None
    assert (rollback.action, rollback.state) == (Action.ROLLBACK, State.COMPLETED)
    with pytest.raises(NotFoundError):
        removable.process("X").execute()


def test_5_2_d3_from_the_moment_its_rollback_is_scheduled_a_plan_is_not_executed(
    removable: PlanSite,
) -> None:
    with pytest.raises(Killed):
        # The fence, the claim of the rollback with its heartbeat, its request.
        removable.process("C", writes_left=4).rollbacks.roll_back(PLAN)
    assert removable.state() is State.REQUESTED
    before = removable.objects()
    assert refusal(removable.process("X")) is ErrorKind.PLAN_NOT_EXECUTABLE
    assert removable.objects() == before
    cleaner = removable.process("D")
    assert clean(cleaner) == []  # The other cleaner may be alive.
    removable.lapse()
    assert [done.instant for done in clean(cleaner)] == [PLAN]


def test_5_2_d4_a_stalled_executor_is_fenced_after_its_plan_was_rolled_back(
    removable: PlanSite,
) -> None:
    cleaner = removable.process("C")

    def stall(attempt: Attempt, heartbeat: Heartbeat) -> None:
        assert clean(cleaner) == []
        removable.lapse()
        assert [done.instant for done in clean(cleaner)] == [PLAN]

    with pytest.raises(FencedError):
        removable.process("X").execute(stall)
    assert removable.state() is None
    assert not data_files(removable)


def test_5_2_d4_inflight_without_a_heartbeat_goes_however_young_it_is(removable: PlanSite) -> None:
    begin_and_give_up(removable)
    (done,) = clean(removable.process("C", delay_ms=HOUR_MS))
    assert removable.state() is None
    assert not data_files(removable)
    assert len(done.deleted_paths) == 1


def test_5_2_e2_a_cleaner_that_crashed_before_scheduling_stops_nobody(removable: PlanSite) -> None:
    with pytest.raises(Killed):
        removable.process("C", writes_left=2).rollbacks.roll_back(PLAN)
    assert isinstance(removable.process("X").execute(), Executed)
    assert clean(removable.process("D")) == []
    assert removable.state() is State.COMPLETED


def test_5_2_wherever_a_rollback_dies_the_next_one_ends_in_the_same_state() -> None:
    for writes_left in count():
        site = PlanSite()
        site.request(REMOVABLE)
        begin_and_give_up(site)
        try:
            clean(site.process("C", writes_left=writes_left))
        except Killed:
            pass
        else:
            break
        is_gone = site.state() is None
        assert is_gone or REQUEST in site.objects(), "who finds a plan pending can read it (N-18)"
        other = site.process("D")
        resume(other)
        site.lapse()
        resume(other)
        other.rollbacks.tidy_leftovers()
        assert site.state() is None, f"after {writes_left} writes"
        assert not data_files(site)
    assert writes_left > 8


def resume(process: SiteProcess) -> None:
    """Do what clean does: finish the rollbacks that are there, then roll back what is left."""
    timeline = load_active(process.components.storage, TIMELINE)
    for instant in timeline.pending:
        if instant.action is Action.ROLLBACK:
            try:
                process.rollbacks.resume(instant)
            except ConflictError as refused:
                if refused.kind is not ErrorKind.ALREADY_RUNNING:
                    raise
    clean(process)


def test_inv_28_a_plan_that_is_not_removable_is_never_rolled_back(site: PlanSite) -> None:
    begin_and_give_up(site)
    before = site.objects()
    process = site.process("C")
    assert removable_plans(process.rollbacks) == []
    assert clean(process) == []
    with pytest.raises(UnsupportedError):
        process.rollbacks.roll_back(PLAN)
    assert site.objects() == before


def test_inv_28_a_completed_removable_plan_stays(removable: PlanSite) -> None:
    removable.process("X").execute()
    before = removable.objects()
    assert clean(removable.process("C")) == []
    assert removable.objects() == before


def test_a_removable_log_compaction_is_treated_alike() -> None:
    site = PlanSite()
    site.request(REMOVABLE, action=Action.LOG_COMPACTION)
    begin_and_give_up(site)
    assert refusal(site.process("Y")) is ErrorKind.PLAN_NOT_EXECUTABLE
    assert len(clean(site.process("C"))) == 1
    assert site.state() is None
