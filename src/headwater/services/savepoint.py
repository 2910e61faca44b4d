"""Savepoints: commits that the table can be read as of, and restored to, for as long as one likes.

A savepoint T has the time of the commit it protects, and lists the files of the view as of it.
Cleaning spares them, and archival ends before T and whatever completed after it.

Made in one transaction, which refuses it if T is being archived, if a clean that may have begun
needs T's files no more, or if a rollback or restore is about to take T back; so whoever comes later
finds T protected (`kernel.txn.savepoint_steps`, also for what a crash leaves behind).
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.context import TableContext
from headwater.errors import ErrorKind, NotFoundError
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.timeline.active import Timeline, instant_path
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.txn.savepoint_steps import (
    CreateSavepoint,
    DeleteSavepoint,
    why_not_protectable,
)
from headwater.kernel.view.retention import completed_commits
from headwater.metadata.view import load_view
from headwater.model.files import FileSlice
from headwater.model.instant import Instant, InstantTime
from headwater.model.service_metadata import SavepointMetadata, SavepointPartitionMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Savepoint:
    """A commit that is protected, by whom, when and why."""

    instant: InstantTime
    completion_time: InstantTime
    """When the savepoint was made."""
    created_by: str
    comment: str


def create_savepoint(
    table: TableContext, time: InstantTime | None, *, comment: str = "", user: str | None = None
) -> Savepoint:
    """Protect a commit, by default the last one to complete.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND, the active timeline has no such instant, or it is
            being archived; kind OUTSIDE_RETENTION, cleaning deleted files that it needs.
        InvalidInputError: kind INVALID_STATE, it is pending or no commit.
        AlreadyExistsError: the commit has a savepoint.
        ConflictError: a rollback or restore is about to take it back, or the lock was not to be
            had in time.
        CorruptTableError: a file of the view is missing.
    """
    chosen = _chosen(table.load_timeline(), time, table.config.name)
    assert chosen.completion_time is not None
    view = load_view(table.storage, table.config, as_of=chosen.completion_time)
    slices = view.slices()
    view.check_complete(slices)
    by = user or str(table.components.ids.owner)
    record = savepoint_metadata(
        slices, by=by, comment=comment, now_ms=table.components.clock.now_ms()
    )
    step = CreateSavepoint(chosen.requested_time, encode_record(record))
    done = table.txn.run(step).result
    return Savepoint(
        instant=chosen.requested_time, completion_time=done, created_by=by, comment=comment
    )


def delete_savepoint(table: TableContext, time: InstantTime) -> None:
    """Protect a commit no longer; an unfinished savepoint is deleted too.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND, there is no such savepoint.
        ConflictError: kind ALREADY_RUNNING, a restore to it is pending; or the lock was not to be
            had in time. Nothing was changed.
    """
    table.txn.run(DeleteSavepoint(time))


def list_savepoints(table: TableContext) -> list[Savepoint]:
    """Return the savepoints of a table, oldest commit first.

    Raises:
        CorruptTableError: one of them is damaged.
    """
    points = [point for point in table.load_timeline().savepoints if point.is_completed]
    folder = table.layout.timeline
    found = []
    for point, data in zip(points, load_contents(table.storage, folder, points), strict=True):
        record = decode_record(SavepointMetadata, data, path=instant_path(folder, point))
        assert point.completion_time is not None
        found.append(
            Savepoint(
                instant=point.requested_time,
                completion_time=point.completion_time,
                created_by=record.savepointed_by,
                comment=record.comments,
            )
        )
    return found


def savepoint_metadata(
    slices: list[FileSlice], *, by: str, comment: str, now_ms: int
) -> SavepointMetadata:
    """Return the record of a savepoint whose view consists of these slices."""
    names: dict[str, list[str]] = {}
    for file_slice in slices:
        for file in file_slice.files():
            names.setdefault(file.partition, []).append(file.name)
    return SavepointMetadata(
        savepointed_by=by,
        savepointed_at=now_ms,
        comments=comment,
        partition_metadata={
            partition: SavepointPartitionMetadata(
                partition_path=partition, savepoint_data_file=tuple(files)
            )
            for partition, files in names.items()
        },
    )


def _chosen(timeline: Timeline, time: InstantTime | None, table: str) -> Instant:
    """Return the commit that gets the savepoint."""
    commits = completed_commits(timeline)
    if time is None and not commits:
        raise NotFoundError(
            f"Table {table} has no completed commit to make a savepoint of",
            kind=ErrorKind.INSTANT_NOT_FOUND,
            table=table,
        )
    chosen = commits[-1] if time is None else timeline.get(time)
    error = why_not_protectable(timeline, chosen)
    if error is not None:
        raise error
    return chosen
