"""Savepoints: commits that the table can be read as of, and restored to, for as long as one likes.

A savepoint T has the time of the commit it protects, and lists the files of the view as of it.
Cleaning spares them, and archival ends before T and whatever completed after it.

Made in one transaction: the inflight file, then the completed one. It is refused under the same
lock if T is being archived, if a clean that may have begun needs T's files no more, or if a
rollback or restore is about to take T back; so whoever comes later finds T protected.

What a crash leaves behind: after the inflight file, a savepoint that cleaning respects already and
that the same call finishes; after the completed file of a deletion is gone, nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.context import TableContext
from headwater.errors import AlreadyExistsError, ErrorKind, InvalidInputError, NotFoundError
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.timeline.active import Timeline, instant_path
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.txn.events import Completed, Event, SavepointDeleted, WentInflight
from headwater.kernel.txn.transaction import Decision, Needs, Prefix
from headwater.kernel.view.commits import COMMIT_ACTIONS
from headwater.kernel.view.retention import check_readable, completed_commits
from headwater.metadata.view import load_view
from headwater.model.files import FileSlice
from headwater.model.instant import Action, Instant, InstantTime
from headwater.model.service_metadata import SavepointMetadata, SavepointPartitionMetadata
from headwater.services.undo import check_not_undone, find_savepoint


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
    with table.txn.hold():
        timeline = table.load_timeline()
        _chosen(timeline, chosen.requested_time, table.config.name)
        commits = table.commit_reader()
        check_readable(timeline, commits, chosen.completion_time, table=table.config.name)
        check_not_undone(table, timeline, chosen)
        if commits.history.find(chosen.requested_time) is not None:
            raise NotFoundError(
                f"{chosen} is being archived, so it can have no savepoint any more. Choose a later "
                "commit",
                kind=ErrorKind.INSTANT_NOT_FOUND,
                instant=chosen.requested_time,
            )
        done = table.txn.run(_Create(chosen.requested_time, encode_record(record))).result
    return Savepoint(
        instant=chosen.requested_time, completion_time=done, created_by=by, comment=comment
    )


def delete_savepoint(table: TableContext, time: InstantTime) -> None:
    """Protect a commit no longer; an unfinished savepoint is deleted too.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND, there is no such savepoint.
        ConflictError: the lock was not to be had in time.
    """
    with table.txn.hold():
        table.txn.run(_Delete(find_savepoint(table.load_timeline(), time)))


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
    if not chosen.is_completed or chosen.action.completed_name not in COMMIT_ACTIONS:
        raise InvalidInputError(
            f"{chosen} is no completed commit, so there is nothing to protect",
            kind=ErrorKind.INVALID_STATE,
            instant=chosen.requested_time,
        )
    for point in timeline.savepoints:
        if point.requested_time == chosen.requested_time and point.is_completed:
            raise AlreadyExistsError(
                f"Commit {chosen.requested_time} has a savepoint already",
                instant=chosen.requested_time,
            )
    return chosen


@dataclass(frozen=True, slots=True)
class _Create:
    time: InstantTime
    content: bytes

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[InstantTime]:
        events: list[Event] = [
            WentInflight(self.time, Action.SAVEPOINT),
            Completed(self.time, Action.SAVEPOINT, prefix.next_time, self.content),
        ]
        return Decision(tuple(events), prefix.next_time)


@dataclass(frozen=True, slots=True)
class _Delete:
    savepoint: Instant

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[None]:
        return Decision((SavepointDeleted(self.savepoint),), None)
