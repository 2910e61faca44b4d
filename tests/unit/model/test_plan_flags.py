"""What a plan says about its own end, and how that travels in its `extraMetadata`."""

from __future__ import annotations

import pytest

from headwater.errors import CorruptTableError, InvalidInputError
from headwater.format.timeline.records import encode_record
from headwater.kernel.txn.plan_flags import decode_flags
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plan_flags import (
    CancellationPolicy,
    PlanFlags,
    parse_cancellation_policy,
)
from headwater.model.plans import ClusteringPlan, CompactionPlan, RequestedReplace

REQUESTED = InstantTime("20260101000000000")
FLAGS = (
    PlanFlags(),
    PlanFlags(is_removable=True),
    PlanFlags(is_cancellable=True),
    PlanFlags(is_cancellable=True, policy=CancellationPolicy(hours=24)),
    PlanFlags(is_cancellable=True, policy=CancellationPolicy(instants=3)),
)


@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_flags_survive_the_plan(flags: PlanFlags) -> None:
    plan = ClusteringPlan(extra_metadata={"other": "entry", **flags.to_extra_metadata()})
    request = encode_record(RequestedReplace(clustering_plan=plan))
    instant = Instant(REQUESTED, Action.CLUSTERING, State.REQUESTED)
    assert decode_flags(instant, request, path="") == flags


def test_a_plan_without_flags_has_no_entries() -> None:
    assert PlanFlags().to_extra_metadata() == {}
    assert PlanFlags.from_extra_metadata(None) == PlanFlags()


def test_h_13_no_plan_is_cancellable_and_removable() -> None:
    with pytest.raises(InvalidInputError, match="not both"):
        PlanFlags(is_cancellable=True, is_removable=True)
    both = {"cancellable": "true", "removable": "true"}
    assert PlanFlags.from_extra_metadata(both) == PlanFlags(is_cancellable=True)


def test_a_policy_needs_a_cancellable_plan() -> None:
    with pytest.raises(InvalidInputError, match="not cancellable"):
        PlanFlags(policy=CancellationPolicy(hours=1))


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("24 hours", CancellationPolicy(hours=24)),
        ("1 hour", CancellationPolicy(hours=1)),
        (" 10instants ", CancellationPolicy(instants=10)),
        ("1 instant", CancellationPolicy(instants=1)),
    ],
)
def test_a_policy_is_a_text_that_people_write(text: str, policy: CancellationPolicy) -> None:
    assert parse_cancellation_policy(text) == policy
    assert parse_cancellation_policy(str(policy)) == policy


@pytest.mark.parametrize("text", ["", "hours", "0 hours", "-1 hours", "1.5 hours", "3 days", "3"])
def test_anything_else_is_no_policy(text: str) -> None:
    with pytest.raises(InvalidInputError, match="24 hours"):
        parse_cancellation_policy(text)


@pytest.mark.parametrize(
    ("hours", "instants"), [(None, None), (1, 1), (0, None), (None, 0)], ids=str
)
def test_a_policy_is_hours_or_instants(hours: int | None, instants: int | None) -> None:
    with pytest.raises(InvalidInputError):
        CancellationPolicy(hours=hours, instants=instants)


@pytest.mark.parametrize(
    ("now", "is_met"), [("20260101020000000", True), ("20260101015959999", False)]
)
def test_h_17_hours_count_from_the_request(now: str, is_met: bool) -> None:
    policy = CancellationPolicy(hours=2)
    assert policy.is_met(REQUESTED, InstantTime(now), instants_since=99) is is_met


@pytest.mark.parametrize(("since", "is_met"), [(2, False), (3, True), (4, True)])
def test_instants_count_from_the_request(since: int, is_met: bool) -> None:
    policy = CancellationPolicy(instants=3)
    assert policy.is_met(REQUESTED, REQUESTED, instants_since=since) is is_met


def test_a_malformed_policy_names_the_plan() -> None:
    plan = ClusteringPlan(extra_metadata={"cancellable": "true", "cancellation-policy": "soon"})
    request = encode_record(RequestedReplace(clustering_plan=plan))
    instant = Instant(REQUESTED, Action.CLUSTERING, State.REQUESTED)
    with pytest.raises(CorruptTableError, match="soon"):
        decode_flags(instant, request, path="the plan")


def test_a_log_compaction_may_be_removable_but_not_cancellable() -> None:
    instant = Instant(REQUESTED, Action.LOG_COMPACTION, State.REQUESTED)
    for flags, is_removable in ((FLAGS[1], True), (FLAGS[2], False)):
        request = encode_record(CompactionPlan(extra_metadata=flags.to_extra_metadata()))
        assert decode_flags(instant, request, path="") == PlanFlags(is_removable=is_removable)


def test_a_compaction_has_no_flags_whatever_its_plan_says() -> None:
    instant = Instant(REQUESTED, Action.COMPACTION, State.REQUESTED)
    assert decode_flags(instant, b"not even looked at", path="") == PlanFlags()
