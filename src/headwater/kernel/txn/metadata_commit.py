"""The metadata table's part of a commit.

Every instant that changes files of the table also tells the indexes, in a delta commit of the
metadata table under the same time. Its log files are written before the table lock is taken; the
files on the metadata table's timeline are written in the transaction that completes the instant,
right before it. So whatever is completed on the table's timeline is in its indexes, and entries of
an instant that did not complete are never looked at (INV-72).

Which indexes there are is a question that only the transaction can answer (M9): one may have been
announced while the entries were prepared, or dropped and planned anew under its old name. The
decision compares and refuses; the caller prepares again, for the indexes that the refusal names,
and retries. No writer fails because of an index.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeVar

from headwater.config.table import TableConfig
from headwater.errors import ConflictError, ErrorKind, Retry
from headwater.kernel.layout import METADATA, METADATA_TIMELINE, TableLayout
from headwater.kernel.table_config import load_table_config
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.index_plan import load_pending_plans
from headwater.model.files import is_file_of
from headwater.model.instant import Action, InstantTime
from headwater.seams.clock import Clock
from headwater.seams.storage import Storage

R = TypeVar("R")

Hold = Callable[[], AbstractContextManager[object]]
"""Keep the table lock for a block."""

COVERED_KEY = "headwater.index.partitions"
"""Commit metadata of the metadata table names the partitions that an instant has covered, those
included that it had nothing to say to (H-48)."""

_PREPARED_BEFORE_LOCK = 3
"""How often a commit prepares its entries before it keeps the lock while it does so again: what it
must take into account may change with every commit of others, faster than it can be read."""
_PREPARED_MAX = 10
"""How often a commit prepares its entries in all. Nothing changes under the lock, so by then there
is a fault."""


@dataclass(frozen=True, slots=True)
class MetadataCommit:
    """Records that lie ready in log files, for exactly these partitions of the metadata table."""

    partitions: frozenset[str]
    content: bytes = b""
    """The commit metadata of the metadata table's delta commit, if there are any partitions."""
    indexing: InstantTime | None = None
    """The newest index plan on the timeline from which the entries were prepared. A partition that
    was dropped and planned again has its old name, and none of the log files (N-36)."""
    seen_until: InstantTime | None = None
    """The newest completion time that the entries take into account, if what others completed since
    would change them: those of a compaction or clustering, which go on while others write."""

    def is_stale(self, timeline: Timeline) -> bool:
        """Whether the timeline has something that must be taken into account and was not."""
        if not self.partitions:
            return False  # What is said to nobody depends on nothing (N-127).
        planned = newest_indexing(timeline)
        if planned is not None and (self.indexing or "") < planned:
            return True
        if self.seen_until is None:
            return False
        later = timeline.completed_within_open_closed(self.seen_until, None)
        return any(instant.action.completed_name.is_ingestion for instant in later)


class IndexUpdate(Protocol):
    """Writes what an instant says to indexes, before its transaction."""

    @property
    def seen(self) -> frozenset[str]:
        """The partitions of the metadata table that there were when the update was made."""
        ...

    def prepare(self, partitions: frozenset[str]) -> MetadataCommit:
        """Write log files for these partitions of the metadata table, and none for others.

        Called again with other partitions when indexes came or went meanwhile.
        """
        ...


def load_index_partitions(
    storage: Storage, clock: Clock, layout: TableLayout, timeline: Timeline
) -> frozenset[str]:
    """Return the partitions of the metadata table that a commit on this timeline must write to.

    These are the ones that table config says are in use or being built. Table config alone decides,
    never a writer's options (H-58). A plan that its builder has not announced there yet costs a
    commit nothing: the builder tells it what was completed meanwhile (N-54). Only if there is no
    other index the commit tells what is planned, or it would say nothing to the metadata table at
    all, and there would be no delta commit for the builder to add to.

    Raises:
        CorruptTableError: table config or a plan is damaged.
    """
    config = load_table_config(storage, clock)
    return load_index_partitions_of(storage, config, layout, timeline)


def load_index_partitions_of(
    storage: Storage, config: TableConfig, layout: TableLayout, timeline: Timeline
) -> frozenset[str]:
    """Do as `load_index_partitions`, with table config as it was loaded already."""
    return index_partitions_of(config) or load_planned(storage, layout, timeline)


def index_partitions_of(config: TableConfig) -> frozenset[str]:
    """Return the partitions of the metadata table that are in use or being built."""
    return frozenset({*config.metadata_partitions, *config.metadata_partitions_inflight})


def load_planned(storage: Storage, layout: TableLayout, timeline: Timeline) -> frozenset[str]:
    """Return the partitions of the metadata table that pending plans build.

    Raises:
        CorruptTableError: a plan is damaged.
    """
    plans = load_pending_plans(storage, layout.timeline, timeline)
    return frozenset(each.partition for planned in plans.values() for each in planned)


def newest_indexing(timeline: Timeline) -> InstantTime | None:
    """Return the requested time of the newest index plan, whatever became of it."""
    plans = (i.requested_time for i in timeline.instants if i.action is Action.INDEXING)
    return max(plans, default=None)


def indexes_changed(prepared: frozenset[str], wanted: frozenset[str]) -> ConflictError:
    """Return the refusal of a commit whose entries are not for the indexes that there are."""
    return ConflictError(
        "The indexes of the table changed while the commit was prepared: it has entries for "
        f"{', '.join(sorted(prepared)) or 'none'} and must have them for "
        f"{', '.join(sorted(wanted)) or 'none'}. Nothing was committed; prepare again",
        kind=ErrorKind.INDEXES_CHANGED,
        retry=Retry.FRESH_VIEW,
        partitions=tuple(sorted(wanted)),
    )


def commit_with_indexes(
    commit: Callable[[MetadataCommit | None], R],
    update: IndexUpdate | None,
    hold: Hold = nullcontext,
) -> R:
    """Commit with entries for the indexes that the table turns out to have.

    Without `update` nothing is said to indexes, and nothing is asked about them either. `hold`
    keeps the table lock, for entries that were too old several times in a row (LIV-07).

    Raises:
        ConflictError: kind INDEXES_CHANGED; they kept changing.
        Others: whatever `commit` raises.
    """
    if update is None:
        return commit(None)
    wanted, prepared_times = update.seen, 0
    while True:
        prepared_times += 1
        with hold() if prepared_times > _PREPARED_BEFORE_LOCK else nullcontext():
            prepared = update.prepare(wanted)
            try:
                return commit(prepared)
            except ConflictError as conflict:
                is_it = conflict.kind is ErrorKind.INDEXES_CHANGED
                if not is_it or prepared_times == _PREPARED_MAX:
                    raise
                wanted = frozenset(conflict.context["partitions"])


def load_metadata_names(storage: Storage, time: InstantTime) -> tuple[str, ...]:
    """Return the names of an instant's files on the metadata table's timeline."""
    names = storage.list_names(METADATA_TIMELINE)
    return tuple(sorted(name for name in names if name.startswith(time)))


def delete_metadata_logs(
    storage: Storage,
    time: InstantTime,
    *,
    before_attempt: int | None = None,
    attempt: int | None = None,
) -> None:
    """Delete the log files that a dead instant, or such attempts of it, wrote for indexes.

    Names tell instant and attempt, so it is safe to run late and twice. Nobody looks at these
    files: their delta commit is not completed, or the instant is not (INV-72).
    """
    listed = (info.path for info in storage.list_tree(METADATA))
    storage.delete_many(
        path
        for path in listed
        if is_file_of(path, time, before_attempt=before_attempt, attempt=attempt)
    )
