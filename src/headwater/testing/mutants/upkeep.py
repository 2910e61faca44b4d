"""Planted bugs in restore, savepoints, rollback of a commit, clean with sweep, and archival."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.events import Archived, AttemptsForgotten, SavepointDeleted
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.savepoint_steps import CreateSavepoint, find_savepoint
from headwater.kernel.txn.schedule import RequestClean, requested_plan
from headwater.kernel.txn.transaction import Decision, Refusal
from headwater.kernel.txn.withdrawal import TakeBackCommit
from headwater.model.instant import Action
from headwater.testing.faults import Fate, Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.upkeep import (
    BASES,
    archive_writes,
    beside,
    restore_unprotected,
    savepoint_clean,
    savepoint_undo,
    sweep_claim,
    undo_clean,
    undo_sweep,
)

_NONE = Faults()
_CRASH = Faults(crashes=1, fates=(Fate.DROP,))

_WITHDRAWAL = "headwater.kernel.txn.withdrawal"
_SAVEPOINTS = "headwater.kernel.txn.savepoint_steps"

_commit_needs = TakeBackCommit.needs
_withdraw = TakeBackCommit._withdraw
_savepoint_needs = CreateSavepoint.needs
_savepoint_decide = CreateSavepoint.decide


def _archives_what_was_chosen(step: Any, prefix: Prefix) -> Decision[Any]:
    chosen = tuple(sorted(step.allowed))
    return Decision((Archived(tuple(i for i in chosen if i.is_completed)),), chosen)


def _requests_anyway(step: RequestClean, prefix: Prefix) -> Decision[Any]:
    return requested_plan(Action.CLEAN, step.content, step.claim, prefix)


def _deletes_savepoint_anyway(step: Any, prefix: Prefix) -> Decision[None] | Refusal:
    point = find_savepoint(prefix.timeline, step.time)
    return Decision(() if point is None else (SavepointDeleted(point),), None)


def _protects_unread(step: CreateSavepoint, timeline: Timeline) -> Needs:
    return replace(_savepoint_needs(step, timeline), readable=())


def _protects_archived(step: CreateSavepoint, prefix: Prefix) -> Decision[Any] | Refusal:
    return _savepoint_decide(step, replace(prefix, in_history={}))


def _undoes_with(step: TakeBackCommit, timeline: Timeline, **without: Any) -> Needs:
    return replace(_commit_needs(step, timeline), **without)


def _undoes_unread(step: TakeBackCommit, timeline: Timeline) -> Needs:
    return _undoes_with(step, timeline, readable=())


def _undoes_what_is_planned(step: TakeBackCommit, timeline: Timeline) -> Needs:
    return _undoes_with(step, timeline, rewrites=False)


def _withdraws_unfenced(step: Any, target: Any, prefix: Prefix) -> Decision[Any]:
    decided = _withdraw(step, target, prefix)
    return Decision(decided.events[1:], decided.result)


def _withdraws_first(step: Any, target: Any, prefix: Prefix) -> Decision[Any]:
    decided = _withdraw(step, target, prefix)
    return Decision((decided.events[-1], *decided.events[:-1]), decided.result)


def _forgets_at_once(step: Any, prefix: Prefix) -> Decision[Any]:
    return Decision(tuple(map(AttemptsForgotten, step.paths.values())), tuple(step.paths))


MUTANTS = (
    Mutant(
        name="archival does not choose again under the lock",
        scenario=lambda: beside("savepoint", "archive", _NONE),
        patches=(("headwater.services.archive.ArchiveOldest.decide", _archives_what_was_chosen),),
        must_violate=("INV-37",),
        preemptions_max=1,
    ),
    Mutant(
        name="archival leaves no commit before what is pending",
        scenario=lambda: archive_writes(_NONE),
        patches=(
            ("headwater.services.archive._last_before_pending", lambda commits, timeline: None),
        ),
        must_violate=("INV-139",),
        preemptions_max=1,
    ),
    Mutant(
        name="sweep ignores live claims",
        scenario=lambda: sweep_claim(_CRASH),
        patches=(
            ("headwater.services.sweep._is_claimed", lambda table, timeline, time: False),
            ("headwater.kernel.txn.sweep_steps._is_claimed", lambda prefix, time: False),
        ),
        must_violate=("INV-21",),
        preemptions_max=0,
    ),
    Mutant(
        name="attempts are swept without a look at what is taken back",
        scenario=lambda: undo_sweep(_CRASH),
        patches=(("headwater.kernel.txn.sweep_steps.ForgetAttempts.decide", _forgets_at_once),),
        must_violate=("LIV-14",),
        preemptions_max=2,
    ),
    Mutant(
        name="plan made while a restore is pending",
        scenario=lambda: beside("restore", "compaction", _NONE),
        patches=(("headwater.kernel.txn.schedule._undoing", lambda prefix: None),),
        must_violate=("INV-81",),
        preemptions_max=1,
    ),
    Mutant(
        name="restore leaves pending plans alone",
        scenario=lambda: beside("restore", "log compaction", _NONE),
        patches=(("headwater.kernel.txn.restore_steps._PLANS", ()),),
        must_violate=("INV-81",),
        preemptions_max=1,
    ),
    Mutant(
        name="savepoint deleted while a restore to it is pending",
        scenario=lambda: restore_unprotected(_NONE),
        patches=((f"{_SAVEPOINTS}.DeleteSavepoint.decide", _deletes_savepoint_anyway),),
        must_violate=("INV-86",),
        preemptions_max=2,
    ),
    Mutant(
        name="savepoint made of what is being taken back",
        scenario=lambda: savepoint_undo(_CRASH),
        patches=((f"{_SAVEPOINTS}.why_being_undone", lambda commit, prefix: None),),
        must_violate=("INV-33",),
        preemptions_max=1,
    ),
    Mutant(
        name="savepoint made of what a clean needs no more",
        scenario=lambda: savepoint_clean(_NONE),
        patches=((f"{_SAVEPOINTS}.CreateSavepoint.needs", _protects_unread),),
        must_violate=("INV-33",),
        preemptions_max=2,
    ),
    Mutant(
        name="savepoint made of what is archived",
        scenario=lambda: beside("savepoint", "archive", _NONE),
        patches=((f"{_SAVEPOINTS}.CreateSavepoint.decide", _protects_archived),),
        must_violate=("INV-37",),
        preemptions_max=1,
    ),
    Mutant(
        name="clean requested although a savepoint came in between",
        scenario=lambda: savepoint_clean(_NONE),
        patches=(("headwater.kernel.txn.schedule.RequestClean.decide", _requests_anyway),),
        must_violate=("INV-33",),
        preemptions_max=2,
    ),
    Mutant(
        name="clean planned while a commit is being taken back",
        scenario=lambda: undo_clean(_CRASH),
        patches=(("headwater.services.clean.pending_undoing", lambda timeline: ()),),
        must_violate=("INV-81", "LIV-14"),
        preemptions_max=1,
    ),
    Mutant(
        name="commit rolled back although another one completed after it",
        scenario=lambda: beside("rollback of a commit", "write", _NONE, BASES),
        patches=(
            (
                f"{_WITHDRAWAL}.completed_commits",
                lambda timeline: [i for i in timeline.completed if i.action is Action.COMMIT][:3],
            ),
        ),
        must_violate=("INV-81",),
        preemptions_max=1,
    ),
    Mutant(
        name="commit rolled back that a pending plan has taken in",
        scenario=lambda: beside("rollback of a commit", "compaction", _NONE),
        patches=((f"{_WITHDRAWAL}.TakeBackCommit.needs", _undoes_what_is_planned),),
        must_violate=("INV-81",),
        preemptions_max=1,
    ),
    Mutant(
        name="commit rolled back although what was before it is cleaned",
        scenario=lambda: undo_clean(_NONE),
        patches=((f"{_WITHDRAWAL}.TakeBackCommit.needs", _undoes_unread),),
        must_violate=("INV-81",),
        preemptions_max=1,
    ),
    Mutant(
        name="commit withdrawn without a fence",
        scenario=lambda: beside("rollback of a commit", "write", _CRASH),
        patches=((f"{_WITHDRAWAL}._Target._withdraw", _withdraws_unfenced),),
        must_violate=("LIV-14",),
        preemptions_max=0,
    ),
    Mutant(
        name="commit withdrawn before its rollback is requested",
        scenario=lambda: beside("rollback of a commit", "write", _CRASH),
        patches=((f"{_WITHDRAWAL}._Target._withdraw", _withdraws_first),),
        must_violate=("INV-03",),
        preemptions_max=0,
    ),
    Mutant(
        name="withdrawal that died is not finished",
        scenario=lambda: beside("rollback of a commit", "write", _CRASH),
        patches=(("headwater.kernel.txn.rollback.finish_withdrawal", lambda *arguments: None),),
        must_violate=("LIV-14",),
        preemptions_max=0,
    ),
    Mutant(
        name="fence with the number of an attempt that was swept",
        scenario=lambda: beside("restore", "clustering", _NONE),
        patches=((f"{_WITHDRAWAL}._EXECUTIONS_MAX", 0),),
        must_violate=("INV-19",),
        preemptions_max=0,
    ),
    Mutant(
        name="write planned on what is being taken back commits",
        scenario=lambda: beside("rollback of a commit", "write", _NONE, BASES),
        patches=(
            ("headwater.kernel.txn.changes._undone", lambda instant, content, path: frozenset()),
        ),
        must_violate=("INV-81",),
        preemptions_max=1,
    ),
    Mutant(
        name="rollback of a commit deletes nothing",
        scenario=lambda: beside("rollback of a commit", "write", _NONE),
        patches=(("headwater.kernel.txn.rollback.listed_paths", lambda plan: []),),
        must_violate=("LIV-14",),
        preemptions_max=0,
    ),
)
