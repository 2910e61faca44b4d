"""Data files that are not as their commits say, or that no commit says anything of."""

from __future__ import annotations

from collections.abc import Iterator, Set

from headwater.context import TableContext
from headwater.errors import HeadwaterError, NotFoundError
from headwater.files.base_files import open_base_file
from headwater.files.log_files import read_log_parts
from headwater.inspect.cleaned import load_cleaned
from headwater.inspect.damage.hidden import hidden_writes
from headwater.inspect.damage.problem import FROM_COPY, Problem, Repair, each, unreadable
from headwater.kernel.layout import HOODIE
from headwater.kernel.view.table_view import TableView, load_listed_view
from headwater.model.files import BaseFile, DataFile, LogFile, parse_data_file
from headwater.model.instant import InstantTime

_ENDS_BYTES = 64 * 1024
"""What the first and last bytes of a file count for."""


def of_files(table: TableContext, only: Set[str] | None, *, is_deep: bool) -> Iterator[Problem]:
    try:
        view = load_listed_view(table.storage, table.config)
        groups = [*view.histories()]
        committed = [file for group in groups for file in group.files]
        newest = view.slices()
    except HeadwaterError as error:
        yield unreadable("timeline", table, error)
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
    damaged = set()
    for file, problem in each(table.storage, problem_of, checked, sizes):
        if problem is not None:
            damaged.add(file.instant_time)
            count = f"{rows[file.path]} rows" if file.path in rows else "the rows"
            of = "newest rows" if file.path in in_use else "past, which no snapshot reads"
            yield Problem(
                check="files",
                subject=file.path,
                problem=problem,
                instant=file.instant_time,
                at_stake=f"{count} of this file, of the {of}",
                advice=FROM_COPY,
            )
        elif not view.is_stored(file):
            links.add(file.partition)
    yield from map(_behind_link, sorted(links))
    yield from hidden_writes(view, groups)
    if is_deep:
        yield from _late_files(table, view, {file.path for file in committed}, damaged)


def _late_files(
    table: TableContext, view: TableView, committed: Set[str], damaged: Set[InstantTime]
) -> Iterator[Problem]:
    """Give the files that look committed by their times, and that no commit lists (N-187).

    To readers that go by names whatever is older than the active timeline is committed. Of that
    nobody here can tell a file that came late from one whose commit the archive has lost, nor,
    where a file that a commit lists is missed, from that one under another name: only a person
    deletes them.
    """
    if not view.config.has_layout_two:
        return  # Later commits appended to the logs of older ones.
    times = {commit.requested_time for commit in view.commits}
    begins = min((one.requested_time for one in view.timeline.instants), default=InstantTime(""))
    listed = {file.path for commit in view.commits for file in commit.files} | committed
    for info in table.storage.list_tree(""):
        if info.path in listed or info.path.startswith(f"{HOODIE}/"):
            continue
        file = parse_data_file(info.path)
        if file is not None and file.instant_time in damaged:
            yield Problem(
                check="files",
                subject=info.path,
                problem="its time is that of a commit that does not list it, and lists a file that "
                "is damaged or lost",
                instant=file.instant_time,
                at_stake="perhaps the rows of that file, if this is it under another name",
                advice="look into it first, and delete it once what the commit lists is whole",
            )
        elif file is not None and file.instant_time in times:
            yield Problem(
                check="files",
                subject=info.path,
                problem="its time is that of a commit that does not list it: its writer was late",
                instant=file.instant_time,
                at_stake="no rows, but readers of other engines that go by names may show its rows",
                advice="delete the file",
                repair=Repair.DELETE_LATE,
            )
        elif file is not None and file.instant_time < begins:
            yield Problem(
                check="files",
                subject=info.path,
                problem="it is older than the active timeline, and no archived commit lists it",
                instant=file.instant_time,
                at_stake="its rows: they are lost if the archive is, else its writer was late, and "
                "readers of other engines that go by names may show them",
                advice="look whether the archive is whole; if it is, delete the file, otherwise "
                "restore the archive from a copy",
            )


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
