"""Savepoints: commits that the table can be read as of, and restored to, for as long as one likes.

A savepoint T has the time of the commit it protects, and lists the files of the view as of it.
Cleaning spares them, and archival ends before T and whatever completed after it.

Made in one transaction, which refuses it if T is being archived, if a clean that may have begun
needs T's files no more, or if a rollback or restore is about to take T back; so whoever comes later
finds T protected (`kernel.txn.savepoint_steps`, also for what a crash leaves behind).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from headwater.context import TableContext
from headwater.errors import CorruptTableError, ErrorKind, NotFoundError
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.timeline.active import Timeline, instant_path
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.txn.leftovers import load_unfinished_savepoints
from headwater.kernel.txn.savepoint_steps import (
    CreateSavepoint,
    DeleteSavepoint,
    DropUnfinished,
    why_not_protectable,
)
from headwater.kernel.view.retention import check_readable, completed_commits
from headwater.metadata.view import load_view
from headwater.model.files import FileSlice
from headwater.model.instant import Instant, InstantTime
from headwater.model.service_metadata import SavepointMetadata, SavepointPartitionMetadata

log = logging.getLogger(__name__)

_TRIES_MAX = 20
"""How often the last commit may go before it is protected: each time others cleaned past it."""


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

    On a busy table the last one may be taken back, cleaned or archived before it is protected; then
    it is the one that is last by now (N-126).

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND, the active timeline has no such instant, or it is
            being archived; kind OUTSIDE_RETENTION, cleaning deleted files that it needs.
        InvalidInputError: kind INVALID_STATE, it is pending or no commit.
        AlreadyExistsError: the commit has a savepoint.
        ConflictError: a rollback or restore is about to take it back, or the lock was not to be
            had in time.
        CorruptTableError: a file of the view is missing.
    """
    by = user or str(table.components.ids.owner)
    if time is not None:
        timeline = table.load_timeline()
        return _protect(table, timeline, timeline.get(time), by, comment)
    for tries_left in reversed(range(_TRIES_MAX)):
        timeline = table.load_timeline()
        newest = _newest(timeline, table.config.name)
        try:
            return _protect(table, timeline, newest, by, comment)
        except NotFoundError as error:
            if not tries_left:
                raise
            log.info("the last commit went before it was protected error=%s", error)
    raise AssertionError("The last try either succeeds or raises")


def _newest(timeline: Timeline, table: str) -> Instant:
    commits = completed_commits(timeline)
    if not commits:
        raise NotFoundError(
            f"Table {table} has no completed commit to make a savepoint of",
            kind=ErrorKind.INSTANT_NOT_FOUND,
            table=table,
        )
    return commits[-1]


def _protect(
    table: TableContext, timeline: Timeline, chosen: Instant, by: str, comment: str
) -> Savepoint:
    error = why_not_protectable(timeline, chosen)
    if error is not None:
        raise error
    slices = _whole_slices(table, chosen)
    record = savepoint_metadata(
        slices, by=by, comment=comment, now_ms=table.components.clock.now_ms()
    )
    step = CreateSavepoint(chosen.requested_time, encode_record(record))
    done = table.txn.run(step).result
    return Savepoint(
        instant=chosen.requested_time, completion_time=done, created_by=by, comment=comment
    )


def _whole_slices(table: TableContext, chosen: Instant) -> list[FileSlice]:
    """Return what readers get as of a commit; every file of it was there a moment ago."""
    view = load_view(table.storage, table.config, as_of=chosen.completion_time)
    slices = view.slices()
    try:
        view.check_complete(slices)
    except CorruptTableError:
        # Nothing is damaged if the commit was taken back or cleaned since the view was loaded.
        timeline = table.load_timeline()
        again = timeline.get(chosen.requested_time)
        assert again.completion_time is not None
        commits = table.commit_reader()
        check_readable(timeline, commits, again.completion_time, table=table.config.name)
        raise
    return slices


def delete_savepoint(table: TableContext, time: InstantTime) -> None:
    """Protect a commit no longer; an unfinished savepoint is deleted too.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND, there is no such savepoint.
        ConflictError: kind ALREADY_RUNNING, a restore to it is pending; or the lock was not to be
            had in time. Nothing was changed.
    """
    table.txn.run(DeleteSavepoint(time))


def drop_unfinished_savepoints(table: TableContext, timeline: Timeline) -> None:
    """End what processes that died, or that lost the lock, have begun and not made.

    Raises:
        ConflictError: the lock was not to be had in time.
    """
    folder, expiry_ms = table.layout.timeline, table.foreign_expiry_ms
    for point in load_unfinished_savepoints(table.storage, folder, timeline, expiry_ms):
        if table.txn.run(DropUnfinished(point.requested_time)).result:
            log.info("savepoint was never made and is deleted instant=%s", point.requested_time)


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
