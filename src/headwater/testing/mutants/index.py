"""Planted bugs in how indexes are planned, built beside writers, published and given up."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from headwater.config.table import TableConfig
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn import steps
from headwater.kernel.txn.events import Completed, Event, MetadataCommitted
from headwater.kernel.txn.index_plan import (
    PlannedIndex,
    base_instant,
    pending_before,
)
from headwater.kernel.txn.indexing_steps import (
    AbortIndexing,
    CompleteIndexing,
    RequestIndexing,
    _indexes_changed,
)
from headwater.kernel.txn.metadata_commit import MetadataCommit
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.transaction import Decision, Refusal
from headwater.metadata.coverage import load_covered
from headwater.metadata.indexing import IndexedPlan, Indexing
from headwater.metadata.partition_kinds import FILES
from headwater.metadata.table import MetadataTable, load_metadata_table
from headwater.model.instant import Instant, InstantTime
from headwater.seams.storage import Storage
from headwater.testing.faults import Fate, Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.index import (
    index_again,
    index_compacted,
    index_hole,
    index_outrun,
    index_skipped,
    index_toctou,
    index_used,
    slow_builder,
)
from headwater.testing.toy_index import INDEX

_INDEXING = "headwater.metadata.indexing"
_STEPS = "headwater.kernel.txn.indexing_steps"
_decide_abort = AbortIndexing.decide


def _crash(restarts: int = 0) -> Faults:
    return Faults(crashes=1, fates=(Fate.DROP,), restarts=restarts)


def _covered_by_existence(
    storage: Storage, times: Collection[InstantTime]
) -> dict[InstantTime, frozenset[str]]:
    """Take an instant that has a delta commit on the metadata table for one that told all."""
    found = load_covered(storage, times)
    return {time: frozenset({*names, INDEX}) for time, names in found.items()}


def _completion_by_earlier_look(
    instant: Instant, content: bytes, metadata: MetadataCommit | None, prefix: Any
) -> Any:
    """Complete with entries for the indexes that there were when they were prepared."""
    completed = Completed(instant.requested_time, instant.action, prefix.next_time, content)
    if metadata is None or not metadata.partitions:
        return (completed,)
    told = MetadataCommitted(instant.requested_time, prefix.next_time, metadata.content)
    return (told, completed)


@dataclass(frozen=True, slots=True)
class SayUsable:
    """Say that indexes can be used, whether a plan has completed or not."""

    names: frozenset[str]

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(config=True, definitions=True)

    def decide(self, prefix: Prefix) -> Decision[None]:
        return Decision(_indexes_changed(prefix, usable=self.names), None)


def _complete_after_config(self: Indexing, build: Any) -> IndexedPlan:
    """Say in table config that an index can be used, and complete the plan after that."""
    names = frozenset(build.stats)
    stats = [stat for each in build.finished for stat in build.stats[each.partition]]
    with self.txn.hold():
        self.txn.run(SayUsable(names))
        step = CompleteIndexing(
            attempt=build.attempt,
            finished=build.finished,
            content=self.content.encode_commit(stats, names),
            covered=frozenset(build.covered),
        )
        return IndexedPlan(instant=self.txn.run(step).result, finished=names)


def _before_any_pending(timeline: Timeline, plan: InstantTime) -> tuple[Instant, ...]:
    """Take in what completed before the first pending instant, and nothing after it."""
    pending = [i.requested_time for i in timeline.pending if i.requested_time < plan]
    end = min(pending, default=plan)
    done = timeline.completed_within_open_closed(None, plan)
    return tuple(instant for instant in done if instant.requested_time < end)


def _schedule_without_groups(self: Indexing, wanted: Any) -> Instant | None:
    """Request the plan first, and make its file groups when the lock is given back."""
    planned: tuple[PlannedIndex, ...] = tuple(wanted)
    with self.txn.hold():
        time = self._claim_time()
        done = self.txn.run(
            RequestIndexing(time, planned, base_instant(self._load_timeline()))
        ).result
    for each in planned:
        self.content.initialise(each, time)
    return done


def _nothing_to_finish(self: Indexing) -> frozenset[str]:
    return frozenset()


def _nobody_is_waited_for(self: Indexing, instant: Instant, plan: InstantTime) -> bool:
    return False


def _before_the_plan_only(
    timeline: Timeline, plan: InstantTime, *, also: Collection[InstantTime] = ()
) -> tuple[Instant, ...]:
    """Wait for what began before the plan, and not for what began before it was announced."""
    return pending_before(timeline, plan)


def _config_without_others(prefix: Prefix, **names: Any) -> tuple[Event, ...]:
    """Take away all indexes with the one that is given up."""
    if "gone" in names:
        names["gone"] = {*names["gone"], FILES}
    return _indexes_changed(prefix, **names)


def _abort_with_config_last(step: AbortIndexing, prefix: Prefix) -> Any:
    """Take a plan off the timeline, and its indexes out of table config after that."""
    decided = _decide_abort(step, prefix)
    if isinstance(decided, Refusal):
        return decided
    config, *others = decided.events
    return Decision((*others, config), decided.result)


def _nothing_withdrawn(time: InstantTime, prefix: Any) -> tuple[Any, ...]:
    return ()


class _TableWithPlanned(MetadataTable):
    """Take an index that is being built for one that is in use."""

    @property
    def usable(self) -> frozenset[str]:
        return frozenset(self._config.metadata_partitions) | self.planned


def _load_table_with_planned(
    storage: Storage, config: TableConfig, timeline: Timeline
) -> MetadataTable:
    own = load_metadata_table(storage, config, timeline).timeline
    return _TableWithPlanned(storage, config, timeline, own)


def _never_stale(self: MetadataCommit, timeline: Timeline) -> bool:
    return False


class _TableOfAll(MetadataTable):
    """Take what an instant said for its word, whether it is completed or not."""

    def _is_completed(self, time: InstantTime) -> bool:
        return True


def _load_table_of_all(storage: Storage, config: TableConfig, timeline: Timeline) -> MetadataTable:
    own = load_metadata_table(storage, config, timeline).timeline
    return _TableOfAll(storage, config, timeline, own)


def _nothing_is_held_back(*arguments: object) -> tuple[InstantTime, ...]:
    return ()


def _every_time_counts(self: Any, time: InstantTime) -> bool:
    return True


def _catch_up_before_announcing(self: Indexing, build: Any) -> None:
    """Announce nothing until nearly all that completed is in the index, however long it takes."""
    while self._cover(build, self._load_timeline()) > 1:
        build.heartbeat.check()


MUTANTS = (
    Mutant(
        name="index not announced until its builder has caught up",
        scenario=index_outrun,
        patches=((f"{_INDEXING}.Indexing._catch_up", _catch_up_before_announcing),),
        must_violate=("LIV-16",),
        strategy=lambda _: slow_builder(10),  # One that is less slow catches up some day, by luck.
    ),
    Mutant(
        name="catch-up by delta-commit existence",
        scenario=lambda: index_toctou(Faults(), is_early=True),
        patches=((f"{_INDEXING}.load_covered", _covered_by_existence),),
        must_violate=("INV-71", "INV-74"),
        preemptions_max=2,
    ),
    Mutant(
        name="index not told what completed before it was announced",
        scenario=lambda: index_toctou(Faults()),
        patches=((f"{_INDEXING}.load_covered", _covered_by_existence),),
        must_violate=("INV-71", "INV-74"),
        preemptions_max=1,
    ),
    Mutant(
        name="index set evaluated before the lock",
        scenario=lambda: index_toctou(Faults()),
        patches=((f"{steps.__name__}.completion_of", _completion_by_earlier_look),),
        must_violate=("INV-74",),
        preemptions_max=2,
    ),
    Mutant(
        name="table config before the completion event",
        scenario=lambda: index_toctou(Faults()),
        patches=((f"{_INDEXING}.Indexing._complete", _complete_after_config),),
        must_violate=("INV-73",),
        preemptions_max=1,
    ),
    Mutant(
        name="index built up to the first pending instant",
        scenario=lambda: index_hole(Faults()),
        patches=(("headwater.testing.toy_index.taken_in", _before_any_pending),),
        must_violate=("INV-71",),
        preemptions_max=1,
    ),
    Mutant(
        name="index planned before its file groups are there",
        scenario=lambda: index_toctou(Faults(), group_count=2),
        patches=((f"{_INDEXING}.Indexing.schedule", _schedule_without_groups),),
        must_violate=("INV-75",),
        preemptions_max=1,
    ),
    Mutant(
        name="published index not rolled forward",
        scenario=lambda: index_toctou(_crash(restarts=1)),
        patches=((f"{_INDEXING}.Indexing.finish", _nothing_to_finish),),
        must_violate=("INV-77",),
        preemptions_max=0,
    ),
    Mutant(
        name="nobody waited for by an index build",
        scenario=lambda: index_toctou(Faults(), is_early=True),
        patches=((f"{_INDEXING}.Indexing._is_waited_for", _nobody_is_waited_for),),
        must_violate=("INV-71", "INV-74"),
        preemptions_max=2,
    ),
    Mutant(
        name="nobody waited for who began before an index was announced",
        scenario=lambda: index_toctou(Faults(), is_early=True),
        patches=((f"{_INDEXING}.pending_before", _before_the_plan_only),),
        must_violate=("INV-71", "INV-74"),
        preemptions_max=2,
    ),
    Mutant(
        name="aborted index takes the others away",
        scenario=lambda: index_again(Faults()),
        patches=((f"{_STEPS}._indexes_changed", _config_without_others),),
        must_violate=("INV-79",),
        preemptions_max=1,
    ),
    Mutant(
        name="entries for an index that was planned anew",
        scenario=lambda: index_again(Faults(), is_first=True),
        patches=(("headwater.kernel.txn.metadata_commit.MetadataCommit.is_stale", _never_stale),),
        must_violate=("INV-71",),
        preemptions_max=2,
    ),
    Mutant(
        name="entries of uncompleted instants visible",
        scenario=lambda: index_used(_crash()),
        patches=(
            (
                "headwater.metadata.table.MetadataTable._is_completed",
                _every_time_counts,
            ),
        ),
        must_violate=("INV-72",),
        preemptions_max=1,
    ),
    Mutant(
        name="compaction of the metadata table folds a pending instant",
        scenario=lambda: index_compacted(_crash()),
        patches=(
            ("headwater.metadata.services.load_metadata_table", _load_table_of_all),
            ("headwater.metadata.services.load_held_back", _nothing_is_held_back),
        ),
        must_violate=("INV-71", "INV-72"),
        preemptions_max=0,
    ),
    Mutant(
        name="aborted index in table config after its plan is gone",
        scenario=lambda: index_again(Faults()),
        patches=((f"{_STEPS}.AbortIndexing.decide", _abort_with_config_last),),
        must_violate=("INV-76",),
        preemptions_max=0,
    ),
    Mutant(
        name="rolled back write stays on the metadata timeline",
        scenario=lambda: index_toctou(_crash()),
        patches=(("headwater.kernel.txn.rollback_steps.metadata_withdrawn", _nothing_withdrawn),),
        must_violate=("INV-78",),
        preemptions_max=0,
    ),
    Mutant(
        name="compaction of the metadata table takes in an index that is being built",
        scenario=lambda: index_skipped(Faults()),
        patches=(("headwater.metadata.services.load_metadata_table", _load_table_with_planned),),
        must_violate=("INV-80",),
        preemptions_max=1,
    ),
)
