"""What compaction and log compaction would bring, and what they would cost.

What each takes is up to the function that plans it, so that advice and plan are about the same file
groups. A file group is left out that does not pay for itself, and one that is to be avoided.

Where not all of them can be taken at once, those go first whose logs have waited longest; what is
compacted joins the end of the line, so that no file group is passed over for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headwater.model.files import FileGroupId, FileSlice
from headwater.model.instant import Action, InstantTime
from headwater.model.plan_flags import PlanFlags
from headwater.model.plans import CompactionPlan
from headwater.services.advice.advice import Advice, Need
from headwater.services.advice.costs import (
    amplification,
    base_bytes,
    compaction_cost,
    compaction_gain,
    log_bytes,
    log_compaction_cost,
    log_compaction_gain,
    log_count,
)
from headwater.services.advice.settings import RewriteSettings, Scope
from headwater.services.advice.statistics import TableStatistics, WaitingPlan
from headwater.services.advice.worth import HELD_UP_BYTES
from headwater.services.compaction import plan_compaction
from headwater.services.log_compaction import plan_log_compaction

_METHODS = {
    Action.COMPACTION: "compact",
    Action.LOG_COMPACTION: "log_compact",
    Action.CLUSTERING: "cluster",
}


def compaction_advice(
    known: TableStatistics, settings: RewriteSettings, scope: Scope
) -> Advice | None:
    """Return whether logs should go into base files."""
    worth = [
        one
        for one in open_slices(known, scope, Need.LOGS)
        if one.appended_logs and compaction_cost(one) <= settings.reads_max * compaction_gain(one)
    ]
    taken = _within(sorted(worth, key=_oldest_log), scope.bytes_max, compaction_cost)
    plan = plan_compaction(taken, closed=(), config=settings.compaction)
    if plan is None:
        return None
    chosen = _planned(plan, taken)
    return Advice(
        need=Need.LOGS,
        call="t.services.compact()",
        why=f"{len(chosen)} file groups have {log_count(chosen)} log files: {log_bytes(chosen)} "
        f"bytes on {base_bytes(chosen)} of base files; a read costs {amplification(chosen):.1f} "
        "times what it would after a compaction",
        gain_bytes=compaction_gain(*chosen),
        cost_bytes=compaction_cost(*chosen),
        file_groups=groups_of(chosen),
    )


def log_compaction_advice(
    known: TableStatistics, settings: RewriteSettings, scope: Scope
) -> Advice | None:
    """Return whether the logs of file groups should become one each."""
    config = settings.compaction
    worth = [
        one
        for one in open_slices(known, scope, Need.MANY_LOGS)
        if len(one.appended_logs) >= config.log_compaction_files_min
        and log_compaction_cost(one) <= settings.reads_max * log_compaction_gain(one)
    ]
    taken = _within(sorted(worth, key=_oldest_log), scope.bytes_max, log_compaction_cost)
    plan = plan_log_compaction(taken, closed=(), config=config, flags=PlanFlags())
    if plan is None:
        return None
    chosen = _planned(plan, taken)
    logs = log_count(chosen)
    return Advice(
        need=Need.MANY_LOGS,
        call="t.services.log_compact()",
        why=f"{len(chosen)} file groups have {logs} log files of {log_bytes(chosen)} bytes "
        f"together; {logs - len(chosen)} fewer would do, and base files stay as they are",
        gain_bytes=log_compaction_gain(*chosen),
        cost_bytes=log_compaction_cost(*chosen),
        file_groups=groups_of(chosen),
    )


def waiting_advice(known: TableStatistics, plan: WaitingPlan) -> Advice:
    """Return that a plan waits for somebody to execute it, or to end it."""
    closed = f"its {len(plan.file_groups)} file groups are closed to other plans"
    if plan.is_cancelled:
        return Advice(
            need=Need.CANCELLED_PLAN,
            call=f't.services.execute_abort("{plan.instant}")',
            why=f"{plan.instant} was cancelled, and nobody has ended it: {closed}",
            gain_bytes=HELD_UP_BYTES,
            cost_bytes=0,
            instant=plan.instant,
            action=plan.action,
            file_groups=plan.file_groups,
        )
    groups = set(plan.file_groups)
    inputs = [one for one in known.slices if one.group in groups]
    return Advice(
        need=Need.WAITING_PLAN,
        call=f't.services.{_METHODS[plan.action]}("{plan.instant}")',
        why=f"The {plan.action} {plan.instant} waits and nobody works on it: {closed}",
        gain_bytes=HELD_UP_BYTES + compaction_gain(*inputs),
        cost_bytes=compaction_cost(*inputs),
        instant=plan.instant,
        action=plan.action,
        file_groups=plan.file_groups,
    )


def open_slices(known: TableStatistics, scope: Scope, need: Need) -> list[FileSlice]:
    """Return the slices of file groups that are neither closed nor to be avoided."""
    avoided = scope.avoided.get(need, ())
    return [
        one for one in known.slices if one.group not in known.closed and one.group not in avoided
    ]


def groups_of(slices: Iterable[FileSlice]) -> tuple[FileGroupId, ...]:
    return tuple(one.group for one in slices)


def _oldest_log(one: FileSlice) -> tuple[InstantTime, FileGroupId]:
    return min(log.instant_time for log in one.appended_logs), one.group


def _within(
    slices: Sequence[FileSlice], bytes_max: int | None, cost_of: Callable[[FileSlice], int]
) -> list[FileSlice]:
    """Return the first slices that cost no more than allowed together, and at least one."""
    if bytes_max is None:
        return list(slices)
    taken: list[FileSlice] = []
    spent = 0
    for one in slices:
        spent += cost_of(one)
        if taken and spent > bytes_max:
            break
        taken.append(one)
    return taken


def _planned(plan: CompactionPlan, slices: Sequence[FileSlice]) -> list[FileSlice]:
    operations = plan.operations or ()
    groups = {FileGroupId(one.partition_path or "", one.file_id or "") for one in operations}
    return [one for one in slices if one.group in groups]
