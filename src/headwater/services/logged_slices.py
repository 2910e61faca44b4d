"""Which file groups have logs to compact, without a look at those that cannot have any.

A plan of a compaction of ours says when the first of the logs completed that it leaves, in whatever
group: one that another plan names, that has too few logs, or that is too much for one plan. Once
the plan has completed, a log in any group is one that completed later: one that was left, or one
that came since. So the next plan looks at the partitions that commits since then wrote to, and says
the same of all groups in its turn.

- A plan that has not completed says nothing: it may be cancelled or rolled back, and its groups
  have their logs then. Those who plan meanwhile leave these groups, and say so.
- Rolling back a commit takes logs away, and brings none back: a compaction goes only if it was the
  last to complete, and what it said goes with it.
- A plan of another engine in between says nothing, and takes logs away.
- A plan of some chosen groups has looked at no others, and repeats what was said before it.

The whole table is looked at where no plan tells: the first time, after an upgrade or a restore, and
on tables of before version 8, whose logs have several commits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headwater.config.table_options import TableType
from headwater.kernel.timeline.names import is_instant_time
from headwater.kernel.view.table_view import TableView
from headwater.model.files import FileGroupId, FileSlice
from headwater.model.instant import Action, Instant, InstantTime, instant_time_after
from headwater.model.plans import CompactionPlan

LOGS_AFTER_KEY = "headwater.compaction.logs.after"

_PLANS_READ_MAX = 4
"""How many plans are read in search of one of ours, newest first. They may be as large as what they
compact, and more than a few of others in a row are a table that we do not compact."""


@dataclass(frozen=True, slots=True)
class LoggedSlices:
    """The file slices of a view that have logs on top of what a compaction made."""

    slices: tuple[FileSlice, ...]
    logs_after: InstantTime | None
    """After which completion time all logs are that are not in these slices; None: who knows."""

    def extra_metadata(self, view: TableView, plan: CompactionPlan) -> dict[str, str]:
        """Return what a plan made of these slices says about the logs that it leaves."""
        if self.logs_after is None:
            return {}
        taken = {
            FileGroupId(one.partition_path or "", one.file_id or "")
            for one in plan.operations or ()
        }
        left = (
            # Which is later than the time that stands for what comes before it.
            instant_time_after(view.completion_time_of(log), -1)
            for one in self.slices
            if one.group not in taken
            for log in one.appended_logs
        )
        return {LOGS_AFTER_KEY: min([self.logs_after, *left])}


def load_logged_slices(
    view: TableView, only: Collection[FileGroupId] | None = None
) -> LoggedSlices:
    """Return the slices with logs of the newest view, by default those of all file groups.

    Raises:
        CorruptTableError: the plan of a compaction is damaged.
    """
    after = _load_logs_after(view)
    if only is not None:
        return LoggedSlices(_with_logs(view.slices_of(only)), after)
    changed = None if after is None else view.partitions_logged_after(after)
    has_one_commit_each = view.config.has_layout_two
    return LoggedSlices(
        _with_logs(view.slices(changed)), view.instant if has_one_commit_each else None
    )


def _with_logs(slices: Iterable[FileSlice]) -> tuple[FileSlice, ...]:
    return tuple(one for one in slices if one.appended_logs)


def _load_logs_after(view: TableView) -> InstantTime | None:
    """Return after which completion time all logs of a table are; None: nobody says so."""
    if not view.config.has_layout_two:
        return None
    completed = view.completed_of_both_timelines()
    restored = max((i.requested_time for i in completed if i.action is Action.RESTORE), default="")
    compactions = [one for one in completed if _is_compaction(view, one)]
    for compaction in reversed(compactions[-_PLANS_READ_MAX:]):
        if compaction.requested_time < restored:
            return None
        said = (view.load_plan(compaction).extra_metadata or {}).get(LOGS_AFTER_KEY, "")
        if is_instant_time(said):
            return InstantTime(said)
    return None


def _is_compaction(view: TableView, instant: Instant) -> bool:
    if view.timeline.find(instant.requested_time) is not None:
        return instant.action is Action.COMPACTION
    # Nothing else completes as a commit there.
    is_merge_on_read = view.config.table_type is TableType.MERGE_ON_READ
    return is_merge_on_read and instant.action is Action.COMMIT
