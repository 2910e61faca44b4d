"""Files of the timelines that cannot be read, and writes that nobody is at work on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from headwater.context import TableContext
from headwater.errors import HeadwaterError, NotFoundError
from headwater.format.timeline.records import decode_record
from headwater.inspect.damage.journal import ended_in_files
from headwater.inspect.damage.problem import ONLY_FROM_COPY, Problem, Repair, each
from headwater.kernel.layout import METADATA_TIMELINE
from headwater.kernel.timeline.active import Timeline, instant_path, load_active
from headwater.kernel.timeline.history.archived_files import HistoryFile, load_newest_manifest
from headwater.kernel.timeline.history.rows import CONTENT_COLUMNS, INSTANT_COLUMNS, decode_table
from headwater.kernel.txn.attempts import decode_attempt, list_attempts
from headwater.kernel.txn.foreign import is_dead_elsewhere
from headwater.kernel.txn.leftovers import load_unfinished_savepoints
from headwater.kernel.txn.rollback_plan import pending_rollbacks
from headwater.kernel.txn.steps import pending_ingestion
from headwater.model.instant import Action, Instant
from headwater.model.service_metadata import SavepointMetadata
from headwater.seams.storage import ObjectInfo

_WRITES = frozenset(
    {Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT, Action.ROLLBACK, Action.RESTORE}
)


def of_timeline(table: TableContext) -> Iterator[Problem]:
    timeline = table.load_timeline()
    reader = table.commit_reader()
    commits = [
        instant
        for instant in timeline.completed
        if instant.action.completed_name in _WRITES - {Action.ROLLBACK, Action.RESTORE}
    ]
    with suppress(HeadwaterError):
        reader.load(commits)  # Together; the reader keeps them, and one by one each is judged.
    for instant in commits:
        try:
            reader.load([instant])[0].files  # noqa: B018  The names in it are parsed, too.
        except HeadwaterError as error:
            yield Problem(
                check="timeline",
                subject=str(error.context.get("path", instant.requested_time)),
                problem=str(error),
                instant=instant.requested_time,
                at_stake="all rows: without this commit nobody knows which files count",
                advice=ONLY_FROM_COPY,
            )
    folder, expiry_ms = table.layout.timeline, table.foreign_expiry_ms
    for point in load_unfinished_savepoints(table.storage, folder, timeline, expiry_ms):
        yield Problem(
            check="timeline",
            subject=instant_path(folder, point),
            problem="the savepoint was begun and never made, and nobody is at work on it",
            instant=point.requested_time,
            at_stake="no rows; cleaning and archival spare what nobody can go back to",
            advice="delete it, as the next clean does by itself, or make it again",
        )
    for point in timeline.savepoints:
        if not point.is_completed:
            continue
        path = instant_path(folder, point)
        try:
            (data,) = reader.load_contents([point])
            decode_record(SavepointMetadata, data, path=path)
        except HeadwaterError as error:
            yield Problem(
                check="timeline",
                subject=path,
                problem=str(error),
                instant=point.requested_time,
                at_stake="no rows; the savepoints cannot be listed until it is readable",
                advice="restore the file from a copy",
            )
    told = _told_to_indexes(table)
    # What the indexes were told was as good as completed, whoever wrote it.
    alive = _alive(table) | (_alive_elsewhere(table, timeline) - told)
    # Nor was a write left behind whose end the journal does not know: `of_others` tells.
    alive |= ended_in_files(table)
    for instant in timeline.pending:
        if instant.action in _WRITES and instant.requested_time not in alive:
            yield _left_behind(instant, is_told=instant.requested_time in told)


def _left_behind(instant: Instant, *, is_told: bool) -> Problem:
    what = f"it is {instant.state.value.lower()}, and nobody is at work on it"
    if is_told:
        what += (
            "; the metadata table has it as completed, so its writer died right before its end, or "
            "its completed file is lost"
        )
    return Problem(
        check="timeline",
        subject=f"{instant.action.value} {instant.requested_time}",
        problem=what,
        instant=instant.requested_time,
        at_stake="the rows of this write, which readers do not see",
        advice="restore its completed file from a copy if there was one; otherwise roll it back"
        if is_told
        else "roll it back, as the next write does by itself",
        # Rolling back a commit that was whole would delete its files.
        repair=None if is_told else Repair.ROLL_BACK,
    )


def _alive(table: TableContext) -> set[str]:
    """Return the instants that somebody may be at work on; one that cannot be read counts."""
    now_ms = table.clock.now_ms()

    def alive(info: ObjectInfo) -> str | None:
        try:
            attempt = decode_attempt(table.storage.read(info.path), path=info.path)
        except NotFoundError:
            return None
        except HeadwaterError:
            return info.path.split("/")[-2]
        is_live = not attempt.is_released and now_ms - info.modified_ms <= attempt.expiry_ms
        return attempt.instant if is_live else None

    return {one for one in table.storage.at_once(alive, list_attempts(table.storage)) if one}


def _alive_elsewhere(table: TableContext, timeline: Timeline) -> set[str]:
    """Return what other engines write or roll back and may be alive, or is left to them anyway."""
    rule, folder = table.foreign_rule, table.layout.timeline
    return {
        str(one.requested_time)
        for one in (*pending_ingestion(timeline), *pending_rollbacks(timeline))
        if not table.is_ours(one) and not is_dead_elsewhere(rule, table.storage, folder, one)
    }


def _told_to_indexes(table: TableContext) -> set[str]:
    if not table.storage.list_names(METADATA_TIMELINE):
        return set()
    timeline = load_active(table.storage, METADATA_TIMELINE)
    return {instant.requested_time for instant in timeline.completed}


def of_archive(table: TableContext) -> Iterator[Problem]:
    folder = table.layout.history
    files = load_newest_manifest(table.storage, folder).files

    def problem_of(file: HistoryFile) -> str | None:
        path = f"{folder}/{file.name}"
        try:
            data = table.storage.read(path)
            if len(data) != file.size_bytes:
                return f"it has {len(data)} bytes, and its manifest says {file.size_bytes}"
            decode_table(data, path, [*INSTANT_COLUMNS, *CONTENT_COLUMNS[1:]])
        except NotFoundError:
            return "a manifest lists it, and it is not in storage"
        except HeadwaterError as error:
            return str(error)
        return None

    sizes = [file.size_bytes for file in files]
    for file, problem in each(table.storage, problem_of, files, sizes):
        if problem is not None:
            yield Problem(
                check="archive",
                subject=f"{folder}/{file.name}",
                problem=problem,
                instant=file.min_time,
                at_stake=f"what was written from {file.min_time} to {file.max_time} and not since",
                advice="restore the file from a copy; without it these commits are unknown, and "
                "files of theirs may be taken for leftovers: run no clean or rollback before",
            )
