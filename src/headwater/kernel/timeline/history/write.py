"""Archiving: moving terminal instants from the active timeline to the archived one.

Archive first, delete after (INV-35):

1. write a level-0 data file with the instants the archived timeline does not hold yet;
2. commit the next manifest, which lists it; a process that lost this race starts over;
3. look again: only what the newest manifest really shows counts as archived;
4. move the pointer that other engines read;
5. delete from the active timeline: first what says that they were pending, all at once, then the
   terminal files, the oldest instant first (INV-36), so that no instant looks pending again and
   none is missing between two others: readers that go by names would take its files for those of a
   failed write. On a store each of these takes its time, and all who write to a table with a
   journal wait for it; so instants without files go all at once.

An aborted instant has nothing to archive and goes through step 5 only. Readers go the other way:
active timeline first, archived one after (`completion`).

What a crash leaves behind, by the last write that landed:

    after           state                                           who repairs
    data file       listed by nobody, read by nobody                the next archival adopts it, or
                                                                    cleaning removes it
    manifest        archived and active; other engines still see    the next archival moves the
                    the manifest before, and lose nothing           pointer before it deletes
    pointer         archived and active                             the next archival deletes
    some deletions  the oldest are gone, others have lost their     the next archival deletes the
                    pending files and are terminal all the same     rest

Nobody archives an instant twice, because step 1 asks the manifest that step 2 follows.

No lock is needed between processes of this engine; stock Hudi overwrites manifests and relies on
the table lock. A data file's name has room for the times of its ends only, so two processes may
want one name for different instants: whoever finds the name taken lists the file that is there, and
writes what is not in it under another name.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptTableError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    Retry,
)
from headwater.kernel.journal.storage import erase_files
from headwater.kernel.layout import CANCELS, TableLayout
from headwater.kernel.timeline.active import (
    Timeline,
    instant_path,
    load_active,
    parse_timeline,
)
from headwater.kernel.timeline.history.archived_files import (
    HistoryFile,
    Manifest,
    advance_pointer,
    commit_manifest,
)
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.history.rows import (
    ROW_GROUP_ROWS_MAX,
    HistoryRow,
    decode_table,
    encode_rows,
)
from headwater.kernel.timeline.names import TimelineFile, parse_file_name
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

_TRIES_MAX = 10
"""How often archival starts over. Others archive every few commits, so ten in a row is a fault."""


def archive_instants(
    storage: Storage,
    layout: TableLayout,
    instants: Iterable[Instant],
    *,
    have_files: bool = True,
) -> None:
    """Archive terminal instants and delete them from the active timeline.

    Running it again with the same instants finishes what a dead process began.

    Args:
        have_files: whether there are files left that one of them wrote. If not, nobody misses one
            that is gone before an older one is, and they are deleted all at once.

    Raises:
        InvalidInputError: an instant is pending, is a savepoint, or must stay (`check_archivable`).
        NotFoundError: an instant is neither on the active nor on the archived timeline.
        ConflictError: other processes kept changing the archived timeline.
    """
    chosen = sorted(set(instants))
    if not chosen:
        return
    check_archivable(
        load_active(storage, layout.timeline), chosen, load_cancelled_among(storage, chosen)
    )
    completed = [instant for instant in chosen if instant.is_completed]
    history = write_history(storage, layout, completed)
    delete_archived(storage, layout, chosen, history, have_files=have_files)


def load_cancelled_among(storage: Storage, instants: Iterable[Instant]) -> frozenset[InstantTime]:
    """Return those of some terminal instants that still have an entry in `.cancel`.

    Only aborted ones can: nothing that is cancelled ever completes (INV-07).
    """
    aborted = {i.requested_time for i in instants if i.state is State.ABORTED}
    return frozenset(aborted.intersection(storage.list_names(CANCELS)) if aborted else ())


def check_archivable(
    timeline: Timeline,
    instants: Sequence[Instant],
    cancelled: Collection[InstantTime] = (),
) -> None:
    """Check that archival may take these instants off the timeline.

    Which of them it should is the policy of `services.archive`; this holds for any policy.

    Raises:
        InvalidInputError: kind INVALID_STATE.
    """
    times = {instant.requested_time for instant in instants}
    for instant in instants:
        now = timeline.find(instant.requested_time) or instant
        if instant.action is Action.SAVEPOINT:
            raise _not_archivable(instant, "is a savepoint; delete the savepoint instead")
        if instant.is_pending or now.is_pending:
            raise _not_archivable(now, "is pending; only completed and aborted ones are archived")
        if instant.requested_time in cancelled:
            # An entry of an instant that nobody knows any more could be taken for one of a plan
            # that is still to be aborted (H-06).
            raise _not_archivable(now, "has an entry in .cancel; finish its abort first")
    # New times are issued above the largest one known (INV-40), so that one has to stay.
    largest = timeline.largest_time
    rest = Timeline(
        (instant for instant in timeline.instants if instant.requested_time not in times),
        timeline.savepoints,
    )
    if rest.largest_time != largest:
        newest = next(
            instant
            for instant in reversed(timeline.instants)
            if largest in (instant.requested_time, instant.completion_time)
        )
        raise _not_archivable(newest, "is the newest, whose time bounds the times issued after it")


def write_history(
    storage: Storage, layout: TableLayout, instants: Sequence[Instant]
) -> HistoryTimeline:
    """Archive completed instants (steps 1 to 4) and return the history that shows all of them.

    Raises:
        InvalidInputError: an instant is not completed.
        NotFoundError: an instant is neither on the active nor on the archived timeline.
        ConflictError: other processes kept changing the archived timeline.
    """
    if not instants:
        return HistoryTimeline(storage, layout.history)
    times = sorted({instant.requested_time for instant in instants})
    for tries_left in reversed(range(_TRIES_MAX)):
        # The active timeline comes first: what leaves it later is in the history by then.
        names = storage.list_names(layout.timeline)
        history = HistoryTimeline(storage, layout.history)
        try:
            archived = history.find_all(times)
            missing = [time for time in times if time not in archived]
            if not missing:
                advance_pointer(storage, layout.history, history.manifest.version)
                return history
            rows = _load_rows(storage, layout.timeline, names, missing)
            written = _write_data_files(storage, layout.history, rows)
            commit_manifest(storage, layout.history, history.manifest, add=written)
        except (ConflictError, NotFoundError) as error:
            if error.retry is not Retry.FRESH_VIEW or not tries_left:
                raise
            log.info("archival starts over folder=%s error=%s", layout.history, error)
    raise ConflictError(
        f"Other processes changed the archived timeline during each of {_TRIES_MAX} attempts; "
        "try again",
        path=layout.history,
    )


def delete_archived(
    storage: Storage,
    layout: TableLayout,
    instants: Sequence[Instant],
    history: HistoryTimeline,
    *,
    have_files: bool = True,
) -> None:
    """Delete the files of terminal instants from the active timeline (step 5).

    Raises:
        InvalidInputError: an instant is not completed in `history`, nor aborted. Nothing was
            deleted.
    """
    archived = history.find_all(i.requested_time for i in instants if i.is_completed)
    times = {instant.requested_time for instant in instants}
    files = {
        f"{layout.timeline}/{name}": file
        for name in storage.list_names(layout.timeline)
        if (file := parse_file_name(name, folder=layout.timeline)) is not None
        and file.action is not Action.SAVEPOINT
        and file.requested_time in times
    }
    aborted = {f.requested_time for f in files.values() if f.state is State.ABORTED}
    unended = {f.requested_time for f in files.values()} - aborted - set(archived)
    for instant in instants:
        if instant.requested_time in unended:
            raise _not_archivable(instant, "is not archived, so its files must stay")
    erase_files(storage, deletion_waves(files, have_files=have_files))


def deletion_waves(
    files: Mapping[str, TimelineFile], *, have_files: bool = True
) -> list[list[str]]:
    """Return in which order files of terminal instants are deleted; see step 5."""
    pending = [path for path, file in files.items() if file.state.is_pending]
    terminal = sorted(files.keys() - pending, key=lambda path: files[path].requested_time)
    return [pending, *([path] for path in terminal)] if have_files else [pending, terminal]


def _load_rows(
    storage: Storage, folder: str, names: Iterable[str], times: Sequence[InstantTime]
) -> list[HistoryRow]:
    """Read what the files of completed instants say; `names` are those on the active timeline.

    A row is a fact or it is not written at all. Another archiver may delete a requested file under
    our eyes, and only the listing tells that from one that never existed.
    """
    active = parse_timeline(names, folder=folder)
    instants = [active.get(time) for time in times]
    for instant in instants:
        if not instant.is_completed:
            raise _not_archivable(instant, f"is {instant.state}; only completed ones have a row")
    listed = {f"{folder}/{name}" for name in names}
    requested = [instant_path(folder, instant, State.REQUESTED) for instant in instants]
    plan_paths = [path for path in requested if path in listed]
    completed_paths = [instant_path(folder, instant) for instant in instants]
    paths = plan_paths + completed_paths
    contents = dict(zip(paths, storage.read_many(paths), strict=True))
    for path, content in contents.items():
        if content is None:
            raise ConflictError(
                "A timeline file was deleted while it was read: another process archives too",
                path=path,
            )
    return [
        HistoryRow(instant, contents[completed] or b"", contents.get(plan) or b"")
        for instant, plan, completed in zip(instants, requested, completed_paths, strict=True)
    ]


def write_first_history(storage: Storage, layout: TableLayout, rows: Sequence[HistoryRow]) -> None:
    """Write the archived timeline of a table that has none, of rows ordered by requested time.

    Running it again after it died needs an empty folder first.
    """
    if not rows:
        return
    files = []
    for start in range(0, len(rows), ROW_GROUP_ROWS_MAX):
        files += _write_data_files(
            storage, layout.history, rows[start : start + ROW_GROUP_ROWS_MAX]
        )
    commit_manifest(storage, layout.history, Manifest(0, (), 1), add=files)
    advance_pointer(storage, layout.history, 1)


def _write_data_files(
    storage: Storage, folder: str, rows: Sequence[HistoryRow]
) -> list[HistoryFile]:
    """Write level-0 files with `rows`, or find them written by a process that got no further."""
    files: list[HistoryFile] = []
    while rows:
        data = encode_rows(rows)
        file = HistoryFile(
            rows[0].instant.requested_time, rows[-1].instant.requested_time, 0, len(data)
        )
        path = f"{folder}/{file.name}"
        try:
            storage.put_if_absent(path, data)
            return [*files, file]
        except AlreadyExistsError:
            leftover = _read_leftover(storage, path)
        try:
            times = set(decode_table(leftover, path, ["instantTime"]).column(0).to_pylist())
        except CorruptTableError as error:
            # No manifest lists it, or reading the history would have failed: an engine without
            # atomic writes died over it.
            log.warning("torn data file of the archived timeline replaced error=%s", error)
            storage.put(path, data)
            return [*files, file]
        rest = [row for row in rows if row.instant.requested_time not in times]
        if len(rest) == len(rows):
            raise CorruptTableError(
                f"{path} holds none of the instants in its name. Move it away",
                kind=ErrorKind.CORRUPT_TIMELINE,
                path=path,
            )
        files.append(replace(file, size_bytes=len(leftover)))
        rows = rest
    return files


def _read_leftover(storage: Storage, path: str) -> bytes:
    try:
        return storage.read(path)
    except NotFoundError as error:
        raise ConflictError(
            "Another process wrote this data file and removed it; start over", path=path
        ) from error


def _not_archivable(instant: Instant, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"Instant {instant} cannot be archived: it {reason}",
        kind=ErrorKind.INVALID_STATE,
        instant=instant.requested_time,
    )
