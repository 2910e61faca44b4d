"""What a rollback will delete and what it has deleted, as the records Hudi keeps of it.

A plan names every file by its full path, one request for each, so that any engine can execute it.
We go by partition and file name alone: a base location may be spelled in several ways, and tables
are moved. Plan and metadata say nothing about who executed the plan or how often, except for the
time it took, so executing it twice says the same twice (INV-30).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.timeline.records import decode_record
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.changes import UNDOING
from headwater.kernel.txn.markers import Marker
from headwater.model.files import parse_data_file
from headwater.model.instant import Action, Instant, InstantTime
from headwater.model.plans import InstantInfo, RollbackPlan, RollbackRequest
from headwater.model.service_metadata import RollbackMetadata, RollbackPartitionMetadata


def plan_deletions(
    time: InstantTime, markers: Iterable[Marker], base_uri: str
) -> tuple[RollbackRequest, ...]:
    """Return a request for every file that instant `time` announced, ordered by path.

    Raises:
        CorruptTableError: kind CORRUPT_MARKERS; a marker announces a file of another instant.
    """
    paths = {marker.data_path for marker in markers}
    for path in paths:
        _check_file_of(time, path, ErrorKind.CORRUPT_MARKERS)
    return requests_for(paths, base_uri)


def requests_for(paths: Collection[str], base_uri: str) -> tuple[RollbackRequest, ...]:
    """Return a request for every file, ordered by path."""
    return tuple(
        RollbackRequest(
            partition_path=path.rpartition("/")[0],
            files_to_be_deleted=(f"{base_uri}/{path}",),
        )
        for path in sorted(paths)
    )


def rollback_plan(target: Instant, requests: tuple[RollbackRequest, ...]) -> RollbackPlan:
    info = InstantInfo(commit_time=target.requested_time, action=target.action)
    return RollbackPlan(instant_to_rollback=info, rollback_requests=requests)


def decode_rollback_plan(data: bytes, *, path: str) -> RollbackPlan:
    """Raises:
    CorruptTableError: the bytes are no plan, or one without a target.
    """
    plan = decode_record(RollbackPlan, data, path=path)
    if plan.instant_to_rollback is None:
        raise CorruptTableError(
            f"The rollback plan {path} does not say what to roll back; delete it if no other "
            "engine is at work on it",
            kind=ErrorKind.CORRUPT_TIMELINE,
            path=path,
        )
    return plan


def target_of(plan: RollbackPlan) -> InstantTime:
    """Return the instant that a decoded plan rolls back."""
    assert plan.instant_to_rollback is not None
    return InstantTime(plan.instant_to_rollback.commit_time)


def pending_rollbacks(timeline: Timeline) -> tuple[Instant, ...]:
    return tuple(instant for instant in timeline.pending if instant.action is Action.ROLLBACK)


def pending_undoing(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the pending rollbacks and restores; what they take back others must leave alone."""
    return tuple(instant for instant in timeline.pending if instant.action in UNDOING)


def listed_paths(plan: RollbackPlan) -> list[str]:
    """Return the files to delete, relative to the table's base.

    Raises:
        CorruptTableError: kind CORRUPT_TIMELINE; a file is not one of the target's.
    """
    paths = []
    for request in plan.rollback_requests or ():
        for full_path in request.files_to_be_deleted:
            name = full_path.rpartition("/")[2]
            path = f"{request.partition_path}/{name}" if request.partition_path else name
            _check_file_of(target_of(plan), path, ErrorKind.CORRUPT_TIMELINE)
            paths.append(path)
    return paths


def rollback_metadata(
    plan: RollbackPlan, rollback: InstantTime, time_taken_ms: int
) -> RollbackMetadata:
    """Return the record of an executed plan; a file that was gone before counts as deleted."""
    deleted: dict[str, list[str]] = {}
    for request in plan.rollback_requests or ():
        deleted.setdefault(request.partition_path, []).extend(request.files_to_be_deleted)
    assert plan.instant_to_rollback is not None
    return RollbackMetadata(
        start_rollback_time=rollback,
        time_taken_in_millis=time_taken_ms,
        total_files_deleted=sum(len(paths) for paths in deleted.values()),
        commits_rollback=(plan.instant_to_rollback.commit_time,),
        partition_metadata={
            partition: RollbackPartitionMetadata(
                partition_path=partition,
                success_delete_files=tuple(paths),
                failed_delete_files=(),
            )
            for partition, paths in deleted.items()
        },
        instants_rollback=(plan.instant_to_rollback,),
    )


def _check_file_of(time: InstantTime, path: str, kind: ErrorKind) -> None:
    """Refuse to delete what is not certainly a data file of the instant that is rolled back."""
    file = parse_data_file(path)
    if file is None or file.instant_time != time:
        raise CorruptTableError(
            f"{path!r} is to be deleted with instant {time}, but is no data file of it. Find out "
            "who wrote that before anything is deleted",
            kind=kind,
            instant=time,
            path=path,
        )
