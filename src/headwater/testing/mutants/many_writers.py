"""Planted bugs in conflict checks, file slices and archival."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.changes import Change, Touch, concerns_groups
from headwater.kernel.txn.conflicts import ConflictCheck, Snapshot
from headwater.kernel.view.slicing import build_slices
from headwater.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from headwater.model.instant import Action, Instant, InstantTime
from headwater.operations.plan import RedoPart, WritePlan
from headwater.operations.redo import part_to_redo
from headwater.seams.storage import Storage
from headwater.testing.faults import Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.mutants.time import early_transaction
from headwater.testing.scenarios.nbcc import nbcc_columns, nbcc_replace, nbcc_slice
from headwater.testing.scenarios.occ import occ_3
from headwater.testing.scenarios.occ_redo import occ_append, occ_keys, occ_rebase, occ_redo
from headwater.testing.table import LAYOUT

CompletionTimeOf = Callable[[InstantTime], InstantTime | None]


def _requested_since(snapshot: Snapshot, timeline: Timeline, mine: InstantTime) -> list[Instant]:
    """Take for candidates what was requested after the last instant that had completed."""
    newest = max(snapshot.completed, default=InstantTime(""))
    return [
        instant
        for instant in timeline.instants
        if instant.requested_time > newest
        and instant.requested_time != mine
        and concerns_groups(instant)
    ]


def _lost_to_the_first(
    plan: WritePlan, check: ConflictCheck, others: list[Change], keys: object
) -> RedoPart | None:
    return part_to_redo(plan, check, others[:1], ())


def _whoever_won(
    plan: WritePlan, check: ConflictCheck, others: list[Change], keys: object
) -> RedoPart | None:
    """Keep the instant also after a loss to one that was requested later."""
    latest = replace(plan, instant_time=InstantTime("9" * 17))
    return part_to_redo(latest, check, others, ())


def _appends_fit(check: ConflictCheck, mine: Touch, other: Change, theirs: Touch) -> bool:
    return mine is Touch.APPEND and theirs is Touch.APPEND


def _never(*arguments: object) -> bool:
    return False


def _nothing(snapshot: object, *arguments: object) -> list[Any]:
    return []


def _at_commit(storage: Storage, planned_on: Timeline) -> Snapshot:
    """Look at the timeline when the data files are written, not when they were planned."""
    return Snapshot.of(load_active(storage, LAYOUT.timeline))


def _concerns_no(action: Action) -> Callable[[Instant], bool]:
    def concerns(instant: Instant) -> bool:
        return instant.action is not action and concerns_groups(instant)

    return concerns


def _all_but_pending(timeline: Timeline) -> list[Instant]:
    """Choose for archival the newest to complete, too."""
    first = min((instant.requested_time for instant in timeline.pending), default=None)
    return [i for i in timeline.completed if first is None or i.requested_time < first]


def _generation_zero(plan: object, partition: str, bucket: int) -> None:
    """Name the group of a bucket as if nobody had ever replaced one."""


def _group_of_its_own(plan: WritePlan, partition: str, number: int) -> FileGroupId:
    return FileGroupId(partition, f"{number:08d}-{plan.instant_time}-0")


def _by_requested_time(
    bases: Iterable[BaseFile],
    logs: Iterable[LogFile],
    completion_time_of: CompletionTimeOf,
    **options: Any,
) -> tuple[FileSlice, ...]:
    """Merge the logs of a slice in the order of their requested times."""
    slices = build_slices(bases, logs, completion_time_of, **options)
    return tuple(
        FileSlice(one.group, one.base_instant, one.base, tuple(sorted(one.logs, key=_requested)))
        for one in slices
    )


def _requested(log: LogFile) -> InstantTime:
    return log.instant_time


def _slice_then_filter(
    bases: Iterable[BaseFile],
    logs: Iterable[LogFile],
    completion_time_of: CompletionTimeOf,
    *,
    as_of: InstantTime | None = None,
    **options: Any,
) -> tuple[FileSlice, ...]:
    """Cut at all base files there are, and leave late logs out afterwards."""

    def is_visible(log: LogFile) -> bool:
        done = completion_time_of(log.instant_time)
        return as_of is None or (done is not None and done <= as_of)

    slices = build_slices(bases, logs, completion_time_of, **options)
    return tuple(
        FileSlice(one.group, one.base_instant, one.base, tuple(filter(is_visible, one.logs)))
        for one in slices
    )


def _exclusive(
    bases: Iterable[BaseFile],
    logs: Iterable[LogFile],
    completion_time_of: CompletionTimeOf,
    *,
    as_of: InstantTime | None = None,
    **options: Any,
) -> tuple[FileSlice, ...]:
    """Leave out what completed at the very time that is asked for."""

    def completed_before(time: InstantTime) -> InstantTime | None:
        done = completion_time_of(time)
        return None if as_of is not None and done == as_of else done

    return build_slices(bases, logs, completed_before, as_of=as_of, **options)


_CONFLICTS = "headwater.kernel.txn.conflicts"
_SLICES = "headwater.kernel.view.committed_files.build_slices"

MUTANTS = (
    Mutant(
        name="new keys are not compared",
        scenario=lambda: occ_keys(Faults()),
        patches=(("headwater.kernel.txn.key_conflicts.KeyCheck.meetings", _nothing),),
        must_violate=("INV-82",),
        preemptions_max=1,
    ),
    Mutant(
        name="a redo looks only at the first that it lost to",
        scenario=lambda: occ_redo(Faults()),
        patches=(("headwater.testing.scenarios.occ_redo.part_to_redo", _lost_to_the_first),),
        must_violate=("INV-81",),
        preemptions_max=2,
    ),
    Mutant(
        name="logs are written again under the instant that lost to a later one",
        scenario=lambda: occ_append(Faults()),
        patches=(
            ("headwater.testing.scenarios.occ_redo.part_to_redo", _whoever_won),
            (f"{_CONFLICTS}.ConflictCheck._keeps_order", property(_never)),
        ),
        must_violate=("INV-133",),
        preemptions_max=2,
    ),
    Mutant(
        name="logs stay above those of a later request",
        scenario=lambda: occ_rebase(Faults()),
        patches=((f"{_CONFLICTS}.ConflictCheck._fits", _appends_fit),),
        must_violate=("INV-133",),
        preemptions_max=2,
    ),
    Mutant(
        name="an append is checked against nobody that it has seen",
        scenario=lambda: occ_rebase(Faults()),
        patches=((f"{_CONFLICTS}.ConflictCheck._keeps_order", property(_never)),),
        must_violate=("INV-133",),
        preemptions_max=2,
    ),
    Mutant(
        name="OCC by requested time",
        scenario=lambda: occ_3(Faults()),
        patches=((f"{_CONFLICTS}.Snapshot.candidates", _requested_since),),
        must_violate=("INV-61",),
        preemptions_max=2,
    ),
    Mutant(
        name="snapshot taken at commit",
        scenario=lambda: occ_3(Faults(), snapshot=_at_commit),
        must_violate=("INV-61",),
        preemptions_max=2,
    ),
    Mutant(
        name="archived candidates are not looked for",
        scenario=lambda: occ_3(Faults(), order="CAB"),
        patches=((f"{_CONFLICTS}.Snapshot.vanished", _nothing),),
        must_violate=("INV-62",),
        preemptions_max=2,
    ),
    Mutant(
        name="base file below one that its writer has seen",
        scenario=lambda: occ_3(Faults()),
        patches=((f"{_CONFLICTS}.Snapshot.overtakers", _nothing),),
        must_violate=("INV-81",),
        preemptions_max=2,
    ),
    Mutant(
        name="archival takes the newest to complete",
        scenario=lambda: occ_3(Faults(), choose=_all_but_pending),
        must_violate=("INV-35",),
        preemptions_max=2,
    ),
    Mutant(
        name="columns that another brought are not compared",
        scenario=lambda: nbcc_columns(Faults()),
        patches=((f"{_CONFLICTS}.ConflictCheck._hides_columns_of", _never),),
        must_violate=("INV-100",),
        preemptions_max=1,
    ),
    Mutant(
        name="columns are those of the newest request",
        scenario=lambda: nbcc_columns(Faults()),
        patches=((f"{_CONFLICTS}._last_completed", max),),
        must_violate=("INV-100",),
        preemptions_max=2,
    ),
    Mutant(
        name="replace actions not in the candidate set",
        scenario=lambda: nbcc_replace(Faults(), by="overwrite"),
        patches=((f"{_CONFLICTS}.concerns_groups", _concerns_no(Action.REPLACE_COMMIT)),),
        must_violate=("INV-63",),
    ),
    Mutant(
        name="pending clustering not in the candidate set",
        scenario=lambda: nbcc_replace(Faults(), by="clustering"),
        patches=((f"{_CONFLICTS}.concerns_groups", _concerns_no(Action.CLUSTERING)),),
        must_violate=("INV-64",),
    ),
    Mutant(
        name="bucket generation not bumped",
        scenario=lambda: nbcc_replace(Faults(), by="deletion"),
        patches=(("headwater.operations.plan.WritePlan._generation", _generation_zero),),
        must_violate=("INV-63",),
    ),
    Mutant(
        name="every writer names its own bucket group",
        scenario=lambda: nbcc_slice(Faults()),
        patches=(("headwater.operations.plan.WritePlan.new_group", _group_of_its_own),),
        must_violate=("INV-65",),
        preemptions_max=2,
    ),
    Mutant(
        name="completion time of a delta commit issued before its lock scope",
        scenario=lambda: nbcc_slice(Faults(), transaction=early_transaction),
        must_violate=("INV-45",),
        preemptions_max=2,
    ),
    Mutant(
        name="merge by requested time",
        scenario=lambda: nbcc_slice(Faults()),
        patches=((_SLICES, _by_requested_time),),
        must_violate=("INV-48",),
        preemptions_max=2,
    ),
    Mutant(
        name="slice first, filter later",
        scenario=lambda: nbcc_slice(Faults()),
        patches=((_SLICES, _slice_then_filter),),
        must_violate=("INV-48", "INV-52"),
    ),
    Mutant(
        name="as-of exclusive",
        scenario=lambda: nbcc_slice(Faults()),
        patches=((_SLICES, _exclusive),),
        must_violate=("INV-53",),
    ),
)
