"""What is wrong with a table: every file that a reader or a later operation would stumble over.

    timeline    every file of the active timeline can be read, and nobody's write was left behind
    archive     every file of the archived timeline is there, in its size, and can be read
    files       every committed file that no clean has deleted is there, in the size that its commit
                noted, and begins and ends as it should; with `is_deep` all of it is read. Those
                that no snapshot reads count: reads of the past and savepoints need them
    keys        with `is_deep`: no partition has a record key twice
    leftovers   files that announce work, of attempts and markers, can be read
    indexes     once all of that is whole: the metadata table says what the files say

A check that cannot go on says so and is no reason for the others to stop: nothing is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum, unique
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.context import TableContext
from headwater.errors import HeadwaterError, NotFoundError
from headwater.files.ahead import AHEAD_BYTES_MAX, windows
from headwater.files.base_files import open_base_file
from headwater.files.log_files import read_log_parts
from headwater.format.timeline.records import decode_record
from headwater.inspect.cleaned import load_cleaned
from headwater.inspect.doubled_keys import find_doubled_keys
from headwater.inspect.validate_metadata import STALE, validate_metadata
from headwater.kernel.journal.state import folder_of
from headwater.kernel.journal.storage import find_journal
from headwater.kernel.layout import ATTEMPTS, MARKERS, METADATA, METADATA_TIMELINE
from headwater.kernel.timeline.active import Timeline, instant_path, load_active
from headwater.kernel.timeline.history.archived_files import HistoryFile, load_newest_manifest
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.history.rows import CONTENT_COLUMNS, INSTANT_COLUMNS, decode_table
from headwater.kernel.timeline.names import TIME_LENGTH, parse_file_name
from headwater.kernel.txn.attempts import decode_attempt, list_attempts
from headwater.kernel.txn.foreign import is_dead_elsewhere
from headwater.kernel.txn.other_engines import OtherEngines
from headwater.kernel.txn.rollback_plan import pending_rollbacks
from headwater.kernel.txn.steps import pending_ingestion
from headwater.kernel.view.table_view import TableView, load_listed_view
from headwater.markers.batches import is_batch_file, parse_markers
from headwater.model.files import BaseFile, DataFile, LogFile
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.service_metadata import SavepointMetadata
from headwater.seams.storage import ObjectInfo, Storage, both_at_once

T = TypeVar("T")

_AT_ONCE = 256
"""How many files are looked at before the problems of any of them are told."""
_ENDS_BYTES = 64 * 1024
"""What the first and last bytes of a file count for."""
_TOLD_MAX = 3
"""How many keys are named of those that are there twice."""

SCHEMA = pa.schema(
    [
        pa.field("check", pa.string(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("problem", pa.string(), nullable=False),
        pa.field("instant", pa.string()),  # Since when, if that is known.
        pa.field("at_stake", pa.string()),  # Which rows.
        pa.field("advice", pa.string(), nullable=False),
        pa.field("repair", pa.string()),  # What `headwater fsck --repair` would do about it.
    ]
)

_FROM_COPY = "restore the file from a copy, or the table to a savepoint from before"
_ONLY_FROM_COPY = "restore the file from a copy; going back to a savepoint needs it as well"
_WRITES = frozenset(
    {Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT, Action.ROLLBACK, Action.RESTORE}
)


@unique
class Repair(StrEnum):
    """What is safe to do: nothing that a commit lists is touched."""

    ROLL_BACK = "roll back what dead writers left"
    BUILD_INDEXES = "drop the indexes and build them again"
    WRITE_TIMELINE = "write what the journal has into the files of the timeline again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with what, and what to do."""

    check: str
    subject: str
    problem: str
    advice: str
    instant: InstantTime | None = None
    at_stake: str | None = None
    repair: Repair | None = None


def find_problems(table: TableContext, *, is_deep: bool = False) -> Iterator[Problem]:
    """Give all that is wrong with a table; nothing is changed and nothing raised.

    The table may be in use: what others do meanwhile is no problem.
    """
    timeline_problems = _confirmed("timeline", table, lambda _: _of_timeline(table))
    yield from timeline_problems
    yield from _confirmed("timeline", table, lambda _: _of_journal(table))
    yield from _confirmed("timeline", table, lambda _: _of_others(table))
    archive_problems = _confirmed("archive", table, lambda _: _of_archive(table))
    yield from archive_problems
    yield from _confirmed("leftovers", table, lambda _: _of_leftovers(table))
    file_problems = _confirmed("files", table, lambda only: _of_files(table, only, is_deep=is_deep))
    if any(problem.check == "timeline" for problem in file_problems):
        # Without commits nobody knows which files the table has; what keeps them from being read
        # is named above, unless it is something else.
        if not timeline_problems and not archive_problems:
            yield from file_problems
        return
    yield from file_problems
    if is_deep and not file_problems:
        yield from _confirmed("keys", table, lambda _: _of_keys(table))
    if archive_problems or file_problems:
        return  # The metadata table would be blamed for what is lost elsewhere.
    yield from _confirmed("indexes", table, lambda _: _of_indexes(table))


def _confirmed(
    check: str,
    table: TableContext,
    find: Callable[[Set[str] | None], Iterable[Problem]],
) -> list[Problem]:
    """Return the problems that a second look finds as well.

    Each look lists a timeline first and what it is about later; a write that completes or a clean
    that deletes in between leaves what looks like damage. The second look has another timeline. It
    is told the subjects of the first, and need not look at others.
    """
    found = [*_guarded(check, table, lambda: find(None))]
    if not found:
        return []
    subjects = {problem.subject for problem in found}
    again = {(one.subject, one.problem) for one in _guarded(check, table, lambda: find(subjects))}
    return [one for one in found if (one.subject, one.problem) in again]


def _guarded(
    check: str, table: TableContext, find: Callable[[], Iterable[Problem]]
) -> Iterator[Problem]:
    try:
        yield from find()
    except HeadwaterError as error:
        yield _unreadable(check, table, error)


def _each(
    storage: Storage,
    problem_of: Callable[[T], str | None],
    items: Sequence[T],
    sizes: Sequence[int],
) -> Iterator[tuple[T, str | None]]:
    """Give each item with what is wrong with it; several are looked at at a time."""
    for window in windows(items, sizes, AHEAD_BYTES_MAX, items_max=_AT_ONCE):
        yield from zip(window, storage.at_once(problem_of, window), strict=True)


def _unreadable(check: str, table: TableContext, error: HeadwaterError) -> Problem:
    is_index = check == "indexes"
    from_copy = _ONLY_FROM_COPY if check == "timeline" else _FROM_COPY
    return Problem(
        check=check,
        subject=str(error.context.get("path", table.storage.uri)),
        problem=str(error),
        advice=_BUILD_AGAIN if is_index else from_copy,
        repair=Repair.BUILD_INDEXES if is_index else None,
    )


_BUILD_AGAIN = "drop the index and build it again; reads and writes do without it meanwhile"


# The timelines -----------------------------------------------------------------------------------


def _of_timeline(table: TableContext) -> Iterator[Problem]:
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
                advice=_ONLY_FROM_COPY,
            )
    for point in timeline.savepoints:
        path = instant_path(table.layout.timeline, point)
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
    # Nor was a write left behind whose end the journal does not know: `_of_others` tells.
    alive |= _ended_in_files(table)
    for instant in timeline.pending:
        if instant.action in _WRITES and instant.requested_time not in alive:
            yield _left_behind(instant, is_told=instant.requested_time in told)


def _of_journal(table: TableContext) -> Iterator[Problem]:
    """Look for files that other engines read, and that are not what the journal says."""
    journaled, _ = find_journal(table.storage)
    if journaled is None:
        return
    state = journaled.journal.look().state
    own = state.areas.timeline
    held = {
        f"{folder}/{name}": known
        for folder in state.areas.timelines
        for name, known in state.paths.below(folder).items()
        if known.data is not None
    }
    stored = dict(zip(held, journaled.stored.read_many(held), strict=True))
    # Files that say how instants ended follow in the order of the slots, and in a slot the table's
    # own comes last, so what comes before the last that shows was there. Others may be written
    # later, by who decided them.
    place = {path: (known.slot, folder_of(path) == own) for path, known in held.items()}
    ends = [path for path in stored if _says_end(path)]
    shown = max((place[path] for path in ends if stored[path] is not None), default=(0, False))
    lost = {path for path in ends if stored[path] is None and place[path] < shown}
    lost -= _archived(table, lost)
    for path, data in stored.items():
        is_lost = path in lost
        if is_lost or data not in (None, held[path].data):
            yield Problem(
                check="timeline",
                subject=path,
                problem=f"the file {'is lost' if is_lost else 'was changed'}: the journal says "
                f"what is in it since slot {held[path].slot}",
                at_stake="what other engines read; Headwater itself reads the journal",
                advice="let `headwater fsck --repair` write it again, from the journal",
                instant=_time_of(path),
                repair=Repair.WRITE_TIMELINE,
            )


def _ended_in_files(table: TableContext) -> set[InstantTime]:
    """Return what completed by the files of the timeline, whatever a journal says; {} without."""
    journaled, _ = find_journal(table.storage)
    if journaled is None:
        return set()
    names = journaled.stored.list_names(table.layout.timeline)
    return {_time_of(name) for name in names if _says_end(name)}


def _of_others(table: TableContext) -> Iterator[Problem]:
    """Look for instants that the journal does not have and cannot take in: all is refused then."""
    journaled, _ = find_journal(table.storage)
    if journaled is None:
        return
    journal, folder = journaled.journal, table.layout.timeline
    look, names = both_at_once(
        journaled.stored, journal.look, lambda: journaled.stored.list_names(folder)
    )
    refusal = OtherEngines(journal, table.layout).refusal(look, frozenset(names))
    if refusal is not None:
        yield Problem(
            check="timeline",
            subject=folder,
            problem=str(refusal),
            at_stake="what those instants did, which reads leave out; every write is refused",
            advice="if a slot of the journal was lost, restore it from a copy. Otherwise let the "
            "other engine roll back what it wrote, or run `headwater table upgrade --no-fenced`, "
            "from when on the files of the timeline count",
        )


def _archived(table: TableContext, paths: Collection[str]) -> set[str]:
    """Return those of some files of the timelines that another engine has archived."""
    found: set[str] = set()
    for timeline, history in (
        (table.layout.timeline, table.layout.history),
        (METADATA_TIMELINE, f"{METADATA_TIMELINE}/history"),
    ):
        times = {path: _time_of(path) for path in paths if folder_of(path) == timeline}
        if times:
            archived = HistoryTimeline(table.storage, history).find_all({*times.values()})
            found.update(path for path, time in times.items() if time in archived)
    return found


def _time_of(path: str) -> InstantTime:
    return InstantTime(path.rpartition("/")[2][:TIME_LENGTH])


def _says_end(path: str) -> bool:
    file = parse_file_name(path.rpartition("/")[2])
    return file is not None and file.state is State.COMPLETED


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


def _of_archive(table: TableContext) -> Iterator[Problem]:
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
    for file, problem in _each(table.storage, problem_of, files, sizes):
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


# Files -------------------------------------------------------------------------------------------


def _of_files(table: TableContext, only: Set[str] | None, *, is_deep: bool) -> Iterator[Problem]:
    try:
        view = load_listed_view(table.storage, table.config)
        committed = [file for group in view.histories() for file in group.files]
        newest = view.slices()
    except HeadwaterError as error:
        yield _unreadable("timeline", table, error)
        return
    in_use = {file.path for one in newest for file in one.files()}
    noted = {
        file.path: file.size_bytes
        for commit in view.commits
        for file in commit.files
        # Before version 8 later commits may have appended to a log.
        if view.config.has_layout_two or isinstance(file, BaseFile)
    }
    rows = _noted_rows(view)
    links = set()
    lost = [file for file in committed if not view.is_stored(file)]
    since = min((file.instant_time for file in lost), default=None)
    # What a clean says it deleted is in its place: nowhere, though commits still list it.
    cleaned = frozenset() if since is None else load_cleaned(table, view.timeline, since)
    checked = [
        file
        for file in committed
        if (file.path not in cleaned or file.path in in_use)
        and (only is None or not only.isdisjoint((file.path, file.partition)))
    ]

    def problem_of(file: DataFile) -> str | None:
        return _problem_of_file(table, file, noted.get(file.path, 0), is_deep=is_deep)

    sizes = [file.size_bytes if is_deep else _ENDS_BYTES for file in checked]
    for file, problem in _each(table.storage, problem_of, checked, sizes):
        if problem is not None:
            count = f"{rows[file.path]} rows" if file.path in rows else "the rows"
            of = "newest rows" if file.path in in_use else "past, which no snapshot reads"
            yield Problem(
                check="files",
                subject=file.path,
                problem=problem,
                instant=file.instant_time,
                at_stake=f"{count} of this file, of the {of}",
                advice=_FROM_COPY,
            )
        elif not view.is_stored(file):
            links.add(file.partition)
    yield from map(_behind_link, sorted(links))


def _problem_of_file(
    table: TableContext, file: DataFile, noted_bytes: int, *, is_deep: bool
) -> str | None:
    try:
        stored = table.storage.info(file.path).size_bytes
    except NotFoundError:
        return "a completed commit lists it, and it is not in storage"
    except HeadwaterError as error:
        return str(error)
    if stored == 0:
        return "it is empty"
    if noted_bytes and stored != noted_bytes:
        return f"it has {stored} bytes, and its commit says {noted_bytes}"
    try:
        _open(table, file, is_deep=is_deep)
    except HeadwaterError as error:
        return str(error)
    return None


def _open(table: TableContext, file: DataFile, *, is_deep: bool) -> None:
    match file:
        case BaseFile() if file.extension == "parquet":
            with open_base_file(table.storage, file) as reader:
                if is_deep:
                    for _ in reader.iter_batches():
                        pass
        case LogFile() if is_deep and not file.is_cdc:  # Nobody here reads the latter.
            read_log_parts(table.storage, [file])
        case _:
            pass


def _noted_rows(view: TableView) -> dict[str, int]:
    found = {}
    for commit in view.commits:
        for stats in (commit.metadata.partition_to_write_stats or {}).values():
            for stat in stats:
                if stat.path and stat.num_writes:
                    found[stat.path] = stat.num_writes
    return found


def _behind_link(folder: str) -> Problem:
    return Problem(
        check="files",
        subject=folder,
        problem="its files are there, and no listing shows them: the folder is a link",
        at_stake="all rows of the partition, in reads that list storage",
        advice="put the folder itself in the place of the link",
    )


def _of_keys(table: TableContext) -> Iterator[Problem]:
    """Give partitions with keys that are there twice.

    Inserts of tables with a simple or bloom index look nothing up, so there they may be meant.
    """
    found = find_doubled_keys(table)
    for partition in pc.unique(found["partition"]).to_pylist():
        keys = pc.unique(found.filter(pc.equal(found["partition"], partition))["key"])
        some = ", ".join(keys[:_TOLD_MAX].to_pylist())
        yield Problem(
            check="keys",
            subject=partition or ".",
            problem=f"{len(keys)} record keys are there twice, such as {some}",
            at_stake="the rows of these keys: updates and deletes reach one of several",
            advice="read the wanted row of each, delete the keys until none is found and write the "
            "rows again, unless the table was filled by inserts that look for no keys",
        )


# What is beside the rows -------------------------------------------------------------------------


def _of_leftovers(table: TableContext) -> Iterator[Problem]:
    attempts = [info.path for info in table.storage.list_tree(ATTEMPTS)]
    markers = [
        info.path
        for info in table.storage.list_tree(MARKERS)
        if is_batch_file(info.path.rpartition("/")[2])
    ]
    for paths, parse, at_stake in (
        (attempts, _parse_attempt, "whether its owner is alive cannot be told"),
        (markers, parse_markers, "files of the write are found by their names"),
    ):
        problem_of = partial(_problem_of, table, parse)
        for path, problem in _each(table.storage, problem_of, paths, [0] * len(paths)):
            if problem is not None:
                yield _leftover(path, problem, at_stake)


def _parse_attempt(data: bytes, path: str) -> object:
    return decode_attempt(data, path=path)


def _problem_of(
    table: TableContext, parse: Callable[[bytes, str], object], path: str
) -> str | None:
    try:
        parse(table.storage.read(path), path)
    except NotFoundError:
        return None  # Its owner has finished meanwhile.
    except HeadwaterError as error:
        return str(error)
    return None


def _leftover(path: str, problem: str, at_stake: str) -> Problem:
    return Problem(
        check="leftovers",
        subject=path,
        problem=problem,
        at_stake=f"no rows; {at_stake}",
        advice="once no job works on this instant, delete the file and roll back failed writes",
    )


def _of_indexes(table: TableContext) -> Iterator[Problem]:
    config = table.load_config()
    if config.metadata_partitions and not table.storage.list_tree(METADATA):
        yield Problem(
            check="indexes",
            subject=METADATA,
            problem="table config names indexes, and there is no metadata table",
            at_stake="no rows: reads list storage",
            advice=_BUILD_AGAIN,
            repair=Repair.BUILD_INDEXES,
        )
        return
    found = validate_metadata(table.reload())
    # An index may name more than there is; readers look at the rows.
    for row in found.filter(pc.not_equal(found["problem"], STALE)).to_pylist():
        detail = f"{row['problem']}: {row['key']}"
        told = {name: row[name] for name in ("held", "expected") if row.get(name)}
        detail += "".join(f", {name} {value}" for name, value in told.items())
        yield Problem(
            check="indexes",
            subject=row["partition"],
            problem=detail,
            at_stake="rows that reads find by this index",
            advice=_BUILD_AGAIN,
            repair=Repair.BUILD_INDEXES,
        )
