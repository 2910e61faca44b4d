"""What an index plan says, and from where on an index is built (RFC-45).

A plan P names the partitions of the metadata table that it will build, over how many file groups
each of them is spread, and what it will contain. Two times matter:

- P's own requested time. The plan is requested under the table lock, so every instant completes
  either before it or after it. The build takes in exactly what completed before P; what completes
  later tells the new partitions itself once they are announced (M9), and is told by the builder
  until then (INV-74).
- The base instant that the plan's record has a field for: the last completed write before the
  first pending write (H-53). It is what stock Hudi would build from, and up to where clean and
  archival keep what the build reads; it is never later than what the build takes in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.metadata.index_definitions import IndexDefinition, parse_index_definitions
from headwater.format.own_json import FORMAT_VERSION, check_version_number
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.timeline.active import Timeline, instant_path
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import IndexPartitionInfo, IndexPlan
from headwater.model.service_metadata import IndexCommitMetadata
from headwater.seams.storage import Storage

GROUPS_KEY = "headwater.file.groups"
DEFINITION_KEY = "headwater.index.definition"
VERSION_KEY = "headwater.format.version"
OPERATION = "INDEX"

_BEGINNING = InstantTime("0" * 17)

_TELLING = frozenset(
    {
        Action.COMMIT,
        Action.DELTA_COMMIT,
        Action.REPLACE_COMMIT,
        Action.COMPACTION,
        Action.LOG_COMPACTION,
        Action.CLUSTERING,
        Action.CLEAN,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedIndex:
    """One partition of the metadata table that a plan builds."""

    partition: str
    group_count: int
    definition: str = ""
    """The index's entry in the definitions file, as text; empty for `files`, which has none."""
    up_to: InstantTime | None = None
    """The instant that the plan's record names: what clean and archival keep the table for."""


def encode_index_plan(planned: Iterable[PlannedIndex], base: InstantTime) -> bytes:
    """Encode the request of an index plan."""
    return encode_record(IndexPlan(index_partition_infos=_infos(planned, base)))


def decode_index_plan(data: bytes, *, path: str) -> tuple[PlannedIndex, ...]:
    """Return what a plan builds, in its order.

    A plan of another engine says nothing of file groups; their number is 0 then.

    Raises:
        CorruptTableError: the bytes are no index plan.
        UnsupportedError: kind UNSUPPORTED_FILE_VERSION; a newer release wrote it.
    """
    infos = decode_record(IndexPlan, data, path=path).index_partition_infos or ()
    return tuple(_planned(info, path) for info in infos if info.metadata_partition_path)


def encode_index_result(finished: Iterable[PlannedIndex], caught_up_to: InstantTime) -> bytes:
    """Encode the completed record of an index plan: the partitions that can be used."""
    infos = _infos(finished, caught_up_to)
    return encode_record(IndexCommitMetadata(operation_type=OPERATION, index_partition_infos=infos))


def decode_index_result(data: bytes, *, path: str) -> frozenset[str]:
    """Return the partitions that a completed plan has built.

    Raises:
        CorruptTableError: the bytes are no record of an index build.
    """
    infos = decode_record(IndexCommitMetadata, data, path=path).index_partition_infos or ()
    return frozenset(info.metadata_partition_path or "" for info in infos) - {""}


def definition_of(planned: PlannedIndex) -> IndexDefinition | None:
    """Return the definition that a plan carries; None if its kind has none.

    Raises:
        CorruptTableError: it is damaged.
    """
    if not planned.definition:
        return None
    path = f"the plan of {planned.partition}"
    found = parse_index_definitions(planned.definition.encode(), table_version=9, path=path)
    return found[planned.partition]


def all_indexings(timeline: Timeline) -> tuple[Instant, ...]:
    return tuple(i for i in timeline.instants if i.action is Action.INDEXING)


def pending_indexings(timeline: Timeline) -> tuple[Instant, ...]:
    return tuple(i for i in timeline.pending if i.action is Action.INDEXING)


def load_pending_plans(
    storage: Storage, folder: str, timeline: Timeline
) -> dict[InstantTime, tuple[PlannedIndex, ...]]:
    """Return what the pending plans of a timeline build; `folder` is the timeline's.

    A plan that was cancelled since the timeline was listed is passed over: no writer or reader
    fails because of an index, and a commit asks again under the lock (N-37).

    Raises:
        CorruptTableError: a plan is damaged.
    """
    pending = pending_indexings(timeline)
    paths = [instant_path(folder, instant, State.REQUESTED) for instant in pending]
    contents = storage.read_many(paths) if paths else ()
    return {
        instant.requested_time: decode_index_plan(data, path=path)
        for instant, path, data in zip(pending, paths, contents, strict=True)
        if data is not None
    }


def base_instant(timeline: Timeline) -> InstantTime:
    """Return the last completed write before the first pending write (H-53).

    A write is whatever completes as a commit: a compaction that is only planned is one, a clean is
    none. Zeros stand for the beginning of time.
    """
    pending = [i.requested_time for i in timeline.pending if _is_write(i)]
    end = min(pending, default=None)
    done = (i.requested_time for i in timeline.completed if _is_write(i))
    return max((time for time in done if end is None or time < end), default=_BEGINNING)


def changes_data_files(instant: Instant) -> bool:
    """Whether an instant changes files, so that indexes must hear of it."""
    return instant.action in _TELLING


def taken_in(timeline: Timeline, plan: InstantTime) -> tuple[Instant, ...]:
    """Return the completed instants that a build of this plan takes in, by completion time."""
    return timeline.completed_within_open_closed(None, plan)


def completed_since(timeline: Timeline, plan: InstantTime) -> tuple[Instant, ...]:
    """Return the instants that a build of this plan does not take in, and that are completed.

    Each of these must have told the planned partitions, or have been told for.
    """
    later = timeline.completed_within_open_closed(plan, None)
    return tuple(instant for instant in later if changes_data_files(instant))


def catch_up_runs(
    instants: Iterable[Instant], missing: Callable[[Instant], frozenset[str]]
) -> Iterator[tuple[frozenset[str], list[Instant]]]:
    """Give the runs of instants that one log can stand for, with the partitions that lack them.

    Logs of an index are merged in the order in which their instants completed. A log under the time
    of one instant may hold what those right before it brought, as long as none of them has written
    to the same partition itself.

    Args:
        instants: all that completed since the plan, by completion time.
        missing: the partitions that an instant has not written to.
    """
    for partitions, run in groupby(instants, missing):
        if partitions:
            yield partitions, list(run)


def run_time(run: Sequence[Instant]) -> InstantTime:
    """Return the instant time under which the log of a run is written.

    That of its last commit. Commits are taken back the newest first (`services.undo`), so a log
    whose run holds a commit that is gone is gone with it, whoever writes it and whenever it lands
    (N-58). A clean is never taken back; where it stands between two commits does not matter.
    """
    commits = [instant for instant in run if instant.action is not Action.CLEAN]
    return (commits or run)[-1].requested_time


def pending_before(
    timeline: Timeline, plan: InstantTime, *, also: Collection[InstantTime] = ()
) -> tuple[Instant, ...]:
    """Return the instants that have not ended and were requested before the plan, or are named."""
    return tuple(
        instant
        for instant in timeline.pending
        if changes_data_files(instant)
        and (instant.requested_time < plan or instant.requested_time in also)
    )


def pending_restores(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the restores that have not ended; other engines' are waited for (N-192)."""
    return tuple(instant for instant in timeline.pending if instant.action is Action.RESTORE)


def _is_write(instant: Instant) -> bool:
    return instant.action.completed_name.is_ingestion


def _infos(planned: Iterable[PlannedIndex], up_to: InstantTime) -> tuple[IndexPartitionInfo, ...]:
    return tuple(
        IndexPartitionInfo(
            metadata_partition_path=each.partition,
            index_upto_instant=up_to,
            extra_metadata={
                VERSION_KEY: str(FORMAT_VERSION),
                GROUPS_KEY: str(each.group_count),
                **({DEFINITION_KEY: each.definition} if each.definition else {}),
            },
        )
        for each in planned
    )


def _planned(info: IndexPartitionInfo, path: str) -> PlannedIndex:
    extra = info.extra_metadata or {}
    written = extra.get(VERSION_KEY, "0")
    check_version_number(int(written) if written.isdecimal() else written, None, path=path)
    count = extra.get(GROUPS_KEY, "0")
    if not count.isdecimal():
        raise CorruptTableError(
            f"The index plan {path} gives {count!r} for the number of file groups of "
            f"{info.metadata_partition_path}. Cancel it and schedule the index again",
            kind=ErrorKind.CORRUPT_TIMELINE,
            path=path,
        )
    return PlannedIndex(
        partition=info.metadata_partition_path or "",
        group_count=int(count),
        definition=extra.get(DEFINITION_KEY, ""),
        up_to=InstantTime(info.index_upto_instant) if info.index_upto_instant else None,
    )
