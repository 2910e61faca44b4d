"""What compaction, log compaction and clustering would bring, and what they would cost.

What each takes is up to the function that plans it, so that advice and plan are about the same file
groups. A file group is left out that does not pay for itself, and one that is to be avoided.

Where not all of them can be taken at once, those go first whose logs have waited longest; what is
compacted joins the end of the line, so that no file group is passed over for ever. Clustering takes
those first that were not written for longest: nobody is likely to come in between, and they are
done for good.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headwater.config.clustering import ClusteringConfig
from headwater.config.compaction import CompactionConfig
from headwater.model.files import FileGroupId, FileSlice
from headwater.model.instant import Action, InstantTime
from headwater.model.plan_flags import PlanFlags
from headwater.model.plans import CompactionPlan
from headwater.services.advice.advice import Advice, Need
from headwater.services.advice.statistics import Overlap, TableStatistics, WaitingPlan
from headwater.services.advice.worth import FILE_BYTES, HELD_UP_BYTES
from headwater.services.clustering.plan import plan_clustering
from headwater.services.compaction import plan_compaction
from headwater.services.log_compaction import plan_log_compaction

QUIET_WRITES = 4
"""A file group is cold if none of the last so many writes wrote to it."""

_OVERLAP_MIN = 1.5
"""From how many files a value lies in on average sorting is thought of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What advice may be about."""

    bytes_max: int | None = None
    """How many bytes one rewrite may cost; one file group is always taken."""
    avoided: Mapping[Need, Collection[FileGroupId]] = field(default_factory=dict)
    """File groups that are left alone for now."""
    is_cold_first: bool = False
    """Whether clustering leaves hot file groups alone as long as there are cold ones to gain by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteSettings:
    """How services are configured, and how soon their work has to pay."""

    compaction: CompactionConfig
    clustering: ClusteringConfig
    reads_max: int


def compaction_advice(
    known: TableStatistics, settings: RewriteSettings, scope: Scope
) -> Advice | None:
    """Return whether logs should go into base files."""
    worth = [
        one
        for one in _open(known, scope, Need.LOGS)
        if one.appended_logs
        and _compaction_cost([one]) <= settings.reads_max * _compaction_gain([one])
    ]
    worth.sort(key=_oldest_log)
    taken = _within(worth, scope.bytes_max, _compaction_cost)
    plan = plan_compaction(taken, closed=(), config=settings.compaction)
    if plan is None:
        return None
    chosen = _planned(plan, taken)
    logs, log_bytes = _log_count(chosen), _log_bytes(chosen)
    base_bytes = sum(one.base.size_bytes for one in chosen if one.base is not None)
    return Advice(
        need=Need.LOGS,
        call="t.services.compact()",
        why=f"{len(chosen)} file groups have {logs} log files: {log_bytes} bytes on "
        f"{base_bytes} of base files; a read costs {amplification(chosen):.1f} times "
        "what it would after a compaction",
        gain_bytes=_compaction_gain(chosen),
        cost_bytes=_compaction_cost(chosen),
        file_groups=_groups(chosen),
    )


def log_compaction_advice(
    known: TableStatistics, settings: RewriteSettings, scope: Scope
) -> Advice | None:
    """Return whether the logs of file groups should become one each."""
    config = settings.compaction
    many = [
        one
        for one in _open(known, scope, Need.MANY_LOGS)
        if len(one.appended_logs) >= config.log_compaction_files_min
    ]
    many.sort(key=_oldest_log)
    taken = _within(many, scope.bytes_max, _log_cost)
    plan = plan_log_compaction(taken, closed=(), config=config, flags=PlanFlags())
    if plan is None:
        return None
    chosen = _planned(plan, taken)
    logs = _log_count(chosen)
    return Advice(
        need=Need.MANY_LOGS,
        call="t.services.log_compact()",
        why=f"{len(chosen)} file groups have {logs} log files of {_log_bytes(chosen)} bytes "
        f"together; {logs - len(chosen)} fewer would do, and base files stay as they are",
        gain_bytes=(logs - len(chosen)) * FILE_BYTES,
        cost_bytes=_log_cost(chosen),
        file_groups=_groups(chosen),
    )


def clustering_advice(
    known: TableStatistics, settings: RewriteSettings, scope: Scope
) -> Advice | None:
    """Return whether files should be put together, sorted if that is configured."""
    if known.is_bucketed is None:
        return None
    slices = _open(known, scope, Need.SMALL_FILES)
    coldest = sorted(slices, key=lambda one: (known.written.get(one.group, ""), one.group))
    if scope.is_cold_first:
        found = _clustering_of(known, settings, _within(_cold(known, coldest), scope.bytes_max))
        if found is not None:
            return found
    return _clustering_of(known, settings, _within(coldest, scope.bytes_max))


def waiting_advice(known: TableStatistics, plan: WaitingPlan) -> Advice:
    """Return that a plan waits for somebody to execute it, or to end it."""
    if plan.is_cancelled:
        return Advice(
            need=Need.CANCELLED_PLAN,
            call=f't.services.execute_abort("{plan.instant}")',
            why=f"{plan.instant} was cancelled, and nobody has ended it: its "
            f"{len(plan.file_groups)} file groups are closed to other plans",
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
        why=f"The {plan.action} {plan.instant} waits and nobody works on it: its {len(groups)} "
        "file groups are closed to other plans",
        gain_bytes=HELD_UP_BYTES + _compaction_gain(inputs),
        cost_bytes=_compaction_cost(inputs),
        instant=plan.instant,
        action=plan.action,
        file_groups=plan.file_groups,
    )


def amplification(slices: Iterable[FileSlice]) -> float:
    """Return how much more reading slices costs than if they were compacted.

    A file that is opened counts as `FILE_BYTES`; a compacted slice is as large as its base file, or
    as its logs where there is none.
    """
    now = compacted = 0
    for one in slices:
        base_bytes = 0 if one.base is None else one.base.size_bytes
        now += one.size_bytes + sum(1 for _ in one.files()) * FILE_BYTES
        compacted += (base_bytes or one.size_bytes) + FILE_BYTES
    return now / compacted if compacted else 1.0


_METHODS = {
    Action.COMPACTION: "compact",
    Action.LOG_COMPACTION: "log_compact",
    Action.CLUSTERING: "cluster",
}


def _clustering_of(
    known: TableStatistics, settings: RewriteSettings, slices: Sequence[FileSlice]
) -> Advice | None:
    config = settings.clustering
    request = plan_clustering(
        slices,
        closed=(),
        config=config,
        sorted_by=known.sorted_by,
        is_bucketed=bool(known.is_bucketed),
        base_uri=known.base_uri,
        flags=PlanFlags(),
    )
    if request is None or request.clustering_plan is None:
        return None
    inputs = request.clustering_plan.input_groups or ()
    planned = {
        FileGroupId(info.partition_path or "", info.file_id or "")
        for group in inputs
        for info in group.slices or ()
    }
    chosen = [one for one in slices if one.group in planned]
    after = sum(group.num_output_file_groups or 1 for group in inputs)
    fewer = max(0, len(chosen) - after)
    # That logs would be merged, too, is no reason: a compaction does it and nobody is in its way.
    of_files = fewer * FILE_BYTES
    overlap = _worst(known, chosen)
    of_order = 0 if overlap is None else overlap.spared_bytes + _files(overlap.spared_files)
    reasons = []
    if fewer:
        reasons.append(f"{len(chosen)} files would fit into {after}")
    if overlap is not None:
        reasons.append(
            f"a value of {overlap.column} may be in {overlap.depth:.1f} files of its partition, "
            f"of {overlap.file_count} in all, and would be in one if rows were sorted"
        )
    times = known.cancelled_clusterings
    if times:
        reasons.append(
            f"writers cancelled it {times} times since one got through, so it comes after what is "
            "more likely to last: cluster partitions that are not written, or without cancellable"
        )
    if not of_files + of_order:
        return None
    columns = f"sort_by={list(config.sort_columns)!r}" if config.sort_columns else ""
    return Advice(
        need=Need.UNSORTED if of_order > of_files else Need.SMALL_FILES,
        call=f"t.services.cluster(t.services.schedule_clustering({columns}))",
        why="; ".join(reasons),
        gain_bytes=of_files + of_order,
        cost_bytes=_rewrite_cost(chosen),
        times_cancelled=times,
        file_groups=_groups(chosen),
    )


def _worst(known: TableStatistics, chosen: Sequence[FileSlice]) -> Overlap | None:
    """Return the column whose values lie in the most files; buckets are not sorted against others.

    What is rewritten may be a part of the table, and spares its part of what all of it would.
    """
    if known.is_bucketed or not known.slices:
        return None
    deep = [one for one in known.overlaps if one.depth >= _OVERLAP_MIN]
    worst = max(deep, key=lambda one: one.spared_bytes, default=None)
    if worst is None:
        return None
    share = len(chosen) / len(known.slices)
    return Overlap(
        column=worst.column,
        file_count=worst.file_count,
        depth=worst.depth,
        spared_files=worst.spared_files * share,
        spared_bytes=int(worst.spared_bytes * share),
    )


def _open(known: TableStatistics, scope: Scope, need: Need) -> list[FileSlice]:
    avoided = scope.avoided.get(need, ())
    return [
        one for one in known.slices if one.group not in known.closed and one.group not in avoided
    ]


def _oldest_log(one: FileSlice) -> tuple[InstantTime, FileGroupId]:
    return min(log.instant_time for log in one.appended_logs), one.group


def _cold(known: TableStatistics, slices: Iterable[FileSlice]) -> list[FileSlice]:
    """Return the slices of groups that the last writes did not write to."""
    since = known.writes[-QUIET_WRITES:][:1]
    if not since:
        return list(slices)
    return [one for one in slices if known.written.get(one.group, InstantTime("")) < since[0]]


def _within(
    slices: Sequence[FileSlice],
    bytes_max: int | None,
    cost_of: Callable[[Sequence[FileSlice]], int] | None = None,
) -> list[FileSlice]:
    """Return the first slices that cost no more than allowed together, and at least one."""
    if bytes_max is None:
        return list(slices)
    taken: list[FileSlice] = []
    spent = 0
    for one in slices:
        spent += (cost_of or _rewrite_cost)([one])
        if taken and spent > bytes_max:
            break
        taken.append(one)
    return taken


def _compaction_gain(slices: Iterable[FileSlice]) -> int:
    slices = list(slices)
    return _log_bytes(slices) + _log_count(slices) * FILE_BYTES


def _compaction_cost(slices: Iterable[FileSlice]) -> int:
    """Return what is read and written: all of it, and about as much as the base files hold."""
    cost = 0
    for one in slices:
        base_bytes = 0 if one.base is None else one.base.size_bytes
        cost += one.size_bytes + (base_bytes or one.size_bytes)
    return max(1, cost)


def _rewrite_cost(slices: Iterable[FileSlice]) -> int:
    return 2 * sum(one.size_bytes for one in slices)


def _log_cost(slices: Iterable[FileSlice]) -> int:
    return 2 * _log_bytes(slices)


def _log_count(slices: Iterable[FileSlice]) -> int:
    return sum(len(one.appended_logs) for one in slices)


def _log_bytes(slices: Iterable[FileSlice]) -> int:
    return sum(log.size_bytes for one in slices for log in one.appended_logs)


def _planned(plan: CompactionPlan, slices: Sequence[FileSlice]) -> list[FileSlice]:
    operations = plan.operations or ()
    groups = {FileGroupId(one.partition_path or "", one.file_id or "") for one in operations}
    return [one for one in slices if one.group in groups]


def _groups(slices: Iterable[FileSlice]) -> tuple[FileGroupId, ...]:
    return tuple(one.group for one in slices)


def _files(count: float) -> int:
    return int(count * FILE_BYTES)
