"""The steps of restore, savepoints, sweep and table config as pure functions of a prefix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headwater.config.table import TableConfig, table_checksum
from headwater.config.table_options import INDEXES_TO_REBUILD
from headwater.errors import ConflictError, ErrorKind, FencedError
from headwater.format.timeline.records import encode_record
from headwater.kernel.timeline.active import parse_timeline
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.changes import Change
from headwater.kernel.txn.config_steps import IndexesRebuilt
from headwater.kernel.txn.events import (
    AttemptsForgotten,
    AttemptStarted,
    ConfigChanged,
    MetadataWithdrawn,
    RevertedToRequested,
    SavepointDeleted,
)
from headwater.kernel.txn.prefix import Prefix, SeenAttempt
from headwater.kernel.txn.rollback_plan import rollback_plan
from headwater.kernel.txn.rollback_steps import AlreadyScheduled
from headwater.kernel.txn.savepoint_steps import DeleteSavepoint
from headwater.kernel.txn.steps import Claim, RevertToRequested
from headwater.kernel.txn.sweep_steps import FindGone, ForgetAttempts
from headwater.kernel.txn.transaction import Decision, Refusal
from headwater.kernel.txn.withdrawal import TakeBackForRestore, Withdrawal
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import InstantInfo, RestorePlan
from headwater.seams.ids import Owner

T = InstantTime("20260101000000000")
U = InstantTime("20260101000000002")
S = InstantTime("20260101000000010")
R = InstantTime("20260101000000020")
NEXT = InstantTime("20260101000000100")
CLAIM = Claim(owner=Owner("host", 1, "w"), token="mine", interval_ms=10, tolerable_misses=2)

DONE_T = (f"{T}.deltacommit.requested", f"{T}.deltacommit.inflight", f"{T}_{T[:-1]}1.deltacommit")
DONE_U = (f"{U}.deltacommit.requested", f"{U}.deltacommit.inflight", f"{U}_{U[:-1]}3.deltacommit")
SAVED = (f"{T}.savepoint.inflight", f"{T}_{U[:-1]}5.savepoint")
RESTORE = (f"{S}.restore.requested", f"{S}.restore.inflight")
ROLLBACK = (f"{R}.rollback.requested",)


def prefix(*names: str, **seen: Any) -> Prefix:
    return Prefix(timeline=parse_timeline(names), next_time=NEXT, now_ms=0, monotonic_ms=0, **seen)


def undoing(
    time: InstantTime, action: Action, *undone: InstantTime
) -> Mapping[InstantTime, Change]:
    instant = Instant(time, action, State.REQUESTED)
    return {time: Change(instant=instant, touches={}, undone=frozenset(undone))}


def attempt(time: InstantTime, number: int, purpose: Purpose = Purpose.EXECUTE) -> Attempt:
    return CLAIM.attempt(time, number, purpose, 0)


# Sweep.


def test_a_sweep_leaves_what_came_onto_the_timeline_since_it_looked() -> None:
    assert FindGone((T,)).decide(prefix(*DONE_U)).result == (T,)
    assert FindGone((T,)).decide(prefix(f"{T}.deltacommit.requested", *DONE_U)).result == ()


@pytest.mark.parametrize(
    "seen",
    [
        {"newest_attempts": {T: SeenAttempt(attempt=attempt(T, 1), is_active=True)}},
        {"in_history": {T: Instant(T, Action.COMMIT, State.COMPLETED, U)}},
    ],
    ids=["a live claim", "archived"],
)
def test_a_sweep_leaves_what_is_not_gone(seen: dict[str, Any]) -> None:
    assert FindGone((T,)).decide(prefix(*DONE_U, **seen)).result == ()


def test_a_sweep_leaves_what_is_taken_back_and_the_largest_time() -> None:
    changes = undoing(R, Action.ROLLBACK, T)
    assert FindGone((T,)).decide(prefix(*DONE_U, *ROLLBACK, changes=changes)).result == ()
    assert FindGone((NEXT,)).decide(prefix(*DONE_U)).result == ()


def test_n_66_the_fence_on_what_is_taken_back_is_not_swept() -> None:
    step = ForgetAttempts({T: ("t/90001.json",), U: ("u/00001.json",)})
    changes = undoing(R, Action.ROLLBACK, T)
    decided = step.decide(prefix(*DONE_T, *DONE_U, *ROLLBACK, changes=changes))
    assert decided == Decision((AttemptsForgotten(("u/00001.json",)),), (U,))


# Savepoints.


def restore_to(time: InstantTime) -> bytes:
    undone = (InstantInfo(commit_time=U, action=Action.DELTA_COMMIT),)
    plan = RestorePlan(instants_to_rollback=undone, savepoint_to_restore_timestamp=time)
    return encode_record(plan)


def test_n_65_a_savepoint_stays_while_a_restore_to_it_is_pending() -> None:
    step = DeleteSavepoint(T)
    names = (*DONE_T, *DONE_U, *SAVED, *RESTORE)
    at = prefix(*names, requests={S: restore_to(T)})
    assert [i.requested_time for i in step.needs(at.timeline).requests] == [S]
    refused = step.decide(at)
    assert isinstance(refused, Refusal)
    assert isinstance(refused.error, ConflictError)
    assert refused.error.kind is ErrorKind.ALREADY_RUNNING
    assert S in str(refused.error)
    elsewhere = step.decide(prefix(*names, requests={S: restore_to(U)}))
    assert isinstance(elsewhere, Decision)
    assert isinstance(elsewhere.events[0], SavepointDeleted)


# Restore.


def take_back(target: InstantTime, restore: Attempt) -> TakeBackForRestore:
    return TakeBackForRestore(
        target=target,
        restore=restore,
        claim=CLAIM,
        base_uri="s3://bucket/trips",
        load_indexes_holding=lambda *table: frozenset(),
    )


def test_a_restore_that_was_taken_over_takes_nothing_back() -> None:
    step = take_back(U, attempt(S, 1))
    at = prefix(*DONE_U, *RESTORE, newest_attempt_numbers={S: 2, U: 0}, markers={U: ()})
    refused = step.decide(at)
    assert isinstance(refused, Refusal)
    assert isinstance(refused.error, FencedError)


def test_a_restore_takes_up_the_rollback_that_is_pending() -> None:
    plan = encode_record(rollback_plan(Instant(U, Action.DELTA_COMMIT, State.COMPLETED), ()))
    at = prefix(
        *DONE_U, *RESTORE, *ROLLBACK, newest_attempt_numbers={S: 1, U: 1}, requests={R: plan}
    )
    decided = take_back(U, attempt(S, 1)).decide(at)
    assert decided == Decision((), AlreadyScheduled(Instant(R, Action.ROLLBACK, State.REQUESTED)))


def test_a_restore_leaves_a_plan_alone_that_was_aborted_meanwhile() -> None:
    aborted = (f"{U}.clustering.requested", f"{U}.clustering.aborted")
    at = prefix(*aborted, *RESTORE, newest_attempt_numbers={S: 1, U: 1}, markers={U: ()})
    assert take_back(U, attempt(S, 1)).decide(at) == Decision((), None)


def test_n_66_a_fence_is_above_all_executions() -> None:
    plan = (f"{U}.compaction.requested", f"{U}.compaction.inflight")
    at = prefix(*plan, *RESTORE, newest_attempt_numbers={S: 1, U: 0}, markers={U: ()})
    decided = take_back(U, attempt(S, 1)).decide(at)
    assert isinstance(decided, Decision)
    assert isinstance(decided.result, Withdrawal)
    fence = decided.events[0]
    assert isinstance(fence, AttemptStarted)
    assert fence.attempt.purpose is Purpose.WITHDRAW
    assert fence.attempt.attempt > 90_000


# Table config and indexes.


def config(in_use: str, to_rebuild: str) -> TableConfig:
    properties = {
        "hoodie.table.name": "trips",
        "hoodie.table.version": "9",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.checksum": str(table_checksum(None, "trips")),
        "hoodie.table.metadata.partitions": in_use,
        INDEXES_TO_REBUILD.key: to_rebuild,
    }
    return TableConfig.from_properties(properties, path="")


@pytest.mark.parametrize(
    ("in_use", "left"), [("files,column_stats", None), ("files", "column_stats")]
)
def test_n_67_an_index_that_was_dropped_again_is_still_to_be_rebuilt(
    in_use: str, left: str | None
) -> None:
    decided = IndexesRebuilt().decide(prefix(config=config(in_use, "files,column_stats")))
    assert decided.events == (ConfigChanged({INDEXES_TO_REBUILD.key: left}),)
    assert decided.result == (() if left is None else (left,))


def test_a_dead_attempt_of_a_plan_is_taken_off_the_metadata_table_first() -> None:
    mine = attempt(U, 2)
    step = RevertToRequested(mine)
    names = (f"{U}.deltacommit.requested", f"{U}_{R}.deltacommit")
    at = prefix(
        f"{U}.compaction.requested",
        f"{U}.compaction.inflight",
        newest_attempt_numbers={U: 2},
        metadata_names={U: names},
    )
    assert step.needs(at.timeline).metadata_names == (U,)
    decided = step.decide(at)
    assert isinstance(decided, Decision)
    assert decided.events == (MetadataWithdrawn(names), RevertedToRequested(U, Action.COMPACTION))
