"""Row 5.6: a write against a cancellable plan on the same file group, and against other plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.dying import Killed
from tests.support.plan_site import (
    CANCELLABLE,
    GROUP,
    OTHER_GROUP,
    PLAN,
    PlanSite,
)

from headwater.errors import CommitUnknownError, ConflictError, ErrorKind, StorageError
from headwater.kernel.layout import cancel_path
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.cancel import AbortedPlan
from headwater.kernel.txn.cancel_records import decode_entry
from headwater.kernel.txn.guard import Executed
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.transaction import LockTransaction
from headwater.kernel.txn.writes import InflightWrite
from headwater.model.instant import Action, InstantTime, State
from headwater.model.plan_flags import PlanFlags
from headwater.testing.table import TIMELINE

SECOND = InstantTime("20251231235959500")


@pytest.fixture
def site() -> PlanSite:
    """A table with P REQUESTED, cancellable, on the file group that writes change."""
    site = PlanSite(storage=CountingStorage(PlanSite().storage, keep_trace=True))
    site.request()
    return site


def is_cancelled(site: PlanSite, time: InstantTime = PLAN) -> bool:
    return cancel_path(time) in site.objects()


def test_5_6_completed_before_step_2_the_write_conflicts_and_the_plan_stays(
    site: PlanSite,
) -> None:
    write = site.process("W").begin_write()
    assert isinstance(site.process("E").execute(), Executed)
    with pytest.raises(ConflictError) as caught:
        write.announce().publish().commit()
    assert caught.value.kind is ErrorKind.WRITE_CONFLICT
    assert caught.value.context["other"] == PLAN
    assert site.state() is State.COMPLETED
    assert not is_cancelled(site)


def test_5_6_pending_throughout_the_write_commits_and_the_plan_is_aborted(site: PlanSite) -> None:
    write = site.process("W").begin_write().announce().publish()
    assert is_cancelled(site), "right after the groups are announced"
    done = write.commit()
    assert done.instant.state is State.COMPLETED
    assert isinstance(site.process("E").execute(), AbortedPlan)
    assert site.state() is State.ABORTED


def test_5_6_the_entry_says_which_write_it_was(site: PlanSite) -> None:
    write = site.process("W").begin_write().announce().publish()
    entry = decode_entry(site.objects()[cancel_path(PLAN)])
    assert entry is not None
    assert entry.owner == "W/1/W"
    assert write.time in entry.reason


@pytest.mark.parametrize("is_aborted", [False, True])
def test_5_6_cancelled_or_aborted_already_the_write_commits(
    site: PlanSite, is_aborted: bool
) -> None:
    write = site.process("W").begin_write().announce().publish()
    if is_aborted:
        site.process("C").cancellations.abort(PLAN)
    before = {path for path in site.objects() if PLAN in path}
    assert write.commit().instant.state is State.COMPLETED
    assert {path for path in site.objects() if PLAN in path} == before, "no entry comes back"


def test_5_6_cancelled_by_somebody_else_the_write_commits(site: PlanSite) -> None:
    site.process("Q").cancellations.request(PLAN, "why")
    before = site.objects()[cancel_path(PLAN)]
    site.process("W").begin_write().announce().publish().commit()
    assert site.objects()[cancel_path(PLAN)] == before


def test_5_6_after_step_2_the_plan_cannot_complete(site: PlanSite) -> None:
    process = site.process("W")

    def publish(attempt: Attempt, heartbeat: Heartbeat) -> None:
        process.begin_write().announce().publish()

    assert isinstance(site.process("E").execute(publish), AbortedPlan)
    assert site.state() is State.ABORTED


def test_5_6_a_plan_that_meets_an_announced_write_cancels_itself(site: PlanSite) -> None:
    write = site.process("W").begin_write().announce()
    done = site.process("E").execute()
    assert isinstance(done, AbortedPlan), "the write has announced its groups and goes first"
    assert site.state() is State.ABORTED
    write.publish().commit()


def test_5_6_a_plan_pays_no_heed_to_writes_of_other_groups(site: PlanSite) -> None:
    write = site.process("W").begin_write(OTHER_GROUP).announce().publish()
    assert not is_cancelled(site)
    assert isinstance(site.process("E").execute(), Executed)
    write.commit()


def test_5_6_a_plan_pays_no_heed_to_a_dead_write(site: PlanSite) -> None:
    executor = site.process("E")
    site.process("W").begin_write().announce().inflight.abandon()
    assert isinstance(executor.execute(), Executed)


def test_5_6_a_plan_gives_way_to_a_write_that_replaces_whatever_it_replaces(
    site: PlanSite,
) -> None:
    site.process("W").begin_write(OTHER_GROUP, Action.REPLACE_COMMIT)
    assert isinstance(site.process("E").execute(), AbortedPlan)


def test_5_6_scheduled_after_step_2_the_commit_cancels_it() -> None:
    site = PlanSite(storage=CountingStorage(PlanSite().storage, keep_trace=True))
    write = site.process("W").begin_write().announce().publish()
    site.request()
    assert isinstance(site.storage, CountingStorage)
    site.storage.reset()
    write.commit()
    assert is_cancelled(site)
    puts = [path for method, path in site.storage.trace if method == "put_if_absent"]
    assert puts[0] == cancel_path(PLAN)
    assert puts[1].startswith(f"{TIMELINE}/{write.time}_"), "the entry comes before the commit"
    assert isinstance(site.process("E").execute(), AbortedPlan)


def test_5_6_a_write_that_dies_between_entry_and_commit_leaves_the_plan_cancelled() -> None:
    site = PlanSite()
    process = site.process("W")
    write = process.begin_write().announce().publish()
    site.request()
    dying = site.process("W", writes_left=1)
    step = InflightWrite(dying.txn, write.inflight._heartbeat, 0)
    with pytest.raises(Killed):
        step.commit(write.content, write.check)
    assert is_cancelled(site)
    assert site.state(write.time) is State.INFLIGHT
    assert isinstance(site.process("E").execute(), AbortedPlan)


def test_h_10_a_write_that_loses_elsewhere_has_cancelled_the_plan_for_good(site: PlanSite) -> None:
    write = site.process("W").begin_write().announce().publish()
    rival = site.process("V").begin_write().announce().publish()
    rival.commit()
    with pytest.raises(ConflictError) as caught:
        write.commit()
    assert caught.value.context["other"] == rival.time
    assert is_cancelled(site)


def test_inv_64_a_plan_that_is_not_cancellable_is_a_conflict_and_stays() -> None:
    site = PlanSite()
    site.request(PlanFlags())
    write = site.process("W").begin_write().announce().publish()
    assert not is_cancelled(site)
    with pytest.raises(ConflictError) as caught:
        write.commit()
    assert caught.value.kind is ErrorKind.WRITE_CONFLICT
    assert not is_cancelled(site)
    assert isinstance(site.process("E").execute(), Executed)


def test_another_plan_does_not_cancel_a_cancellable_one(site: PlanSite) -> None:
    check = site.process("W").begin_write().check
    service = replace(
        check,
        mine=replace(check.mine, instant=check.mine.instant._replace(action=Action.COMPACTION)),
    )
    from_plan = replace(check.mine, instant=check.mine.instant._replace(requested_time=PLAN))
    plan = replace(from_plan, is_cancellable=True)
    assert service.plans_to_cancel([plan]) == []
    assert service.find([plan]) is not None
    assert check.plans_to_cancel([plan]) == [plan]
    assert check.find([plan]) is None


# What it costs.


def calls_of_a_write(site: PlanSite) -> int:
    assert isinstance(site.storage, CountingStorage)
    write = site.process("W").begin_write().announce()
    site.storage.reset()
    write.publish().commit()
    return site.storage.count()


def counted(*plans: InstantTime, flags: PlanFlags = CANCELLABLE) -> PlanSite:
    site = PlanSite(storage=CountingStorage(PlanSite().storage))
    for time in plans:
        site.request(flags, time=time, group=GROUP)
    return site


def test_a_plan_in_the_way_costs_a_write_three_calls_and_none_costs_none() -> None:
    alone = calls_of_a_write(counted())
    assert calls_of_a_write(counted(PLAN)) == alone + 3
    assert calls_of_a_write(counted(PLAN, SECOND)) <= alone + 3 * 2


def test_a_plan_that_appears_after_step_2_costs_two_calls() -> None:
    costs = []
    for has_plan in (False, True):
        site = PlanSite(storage=CountingStorage(PlanSite().storage))
        write = site.process("W").begin_write().announce().publish()
        if has_plan:
            site.request()
        assert isinstance(site.storage, CountingStorage)
        site.storage.reset()
        write.commit()
        costs.append(site.storage.count())
    assert costs[1] == costs[0] + 2


def test_a_plan_that_is_cancelled_already_costs_three_calls_at_most() -> None:
    site = counted(PLAN)
    site.process("Q").cancellations.request(PLAN, "why")
    assert calls_of_a_write(site) <= calls_of_a_write(counted()) + 3


# What may go wrong on the way.


@pytest.mark.parametrize("error", [StorageError("no answer"), CommitUnknownError("who knows")])
def test_a_write_whose_early_cancellation_fails_cancels_again_when_it_commits(
    site: PlanSite, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = site.process("W").begin_write().announce()

    def fail(*arguments: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(LockTransaction, "run", fail)
        published = write.publish()
    assert not is_cancelled(site)
    published.commit()
    assert is_cancelled(site)


def test_a_plan_that_ends_between_listing_and_reading_is_no_obstacle(site: PlanSite) -> None:
    write = site.process("W").begin_write().announce()
    request = f"{TIMELINE}/{PLAN}.clustering.requested"
    assert isinstance(site.storage, CountingStorage)
    inner = site.storage._inner
    content = inner.read(request)
    original = site.storage.list_names

    def vanish(folder: str, after: str = "") -> list[str]:
        names = original(folder, after)
        inner.delete(request)
        return names

    site.storage.list_names = vanish  # type: ignore[method-assign]
    published = write.publish()
    site.storage.list_names = original  # type: ignore[method-assign]
    assert published.check == write.check
    inner.put(request, content)
    published.commit()
    assert is_cancelled(site)
