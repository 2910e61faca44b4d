"""The change feed: what each write of a window of time did to each record, with both images.

A change is found by comparing a file group as it was just before a write completed with how it was
just after (format rule 10). Nothing that a table service does is a change.

    the write made the group        every row is an insert
    the write replaced the group    every row is a delete
    the write appended logs         the records that the logs name are compared
    the write made a base file      rows that carry its instant are inserts or updates, and rows
                                    that are gone are deletes
    there are CDC logs              they say what changed, wherever they have both images

Changes come write by write in the order of completion. Of one write, deletes come first, since a
record that moves to another file group is deleted in the old one and inserted in the new one. So
folding the feed over view(after) gives view(until): i and u set a record, d removes it. Where tasks
run beside each other, sorting by `ts` and `op` gives this order. A record that a write leaves as
it was, because the older one wins, is no change; one that is written again with the same values is
an update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.config.table import TableConfig
from headwater.config.table_options import TableType
from headwater.context import TableContext
from headwater.errors import ErrorKind, NotFoundError, UnsupportedError
from headwater.kernel.view.commits import CompletedCommit
from headwater.kernel.view.retention import check_all_retained, check_readable
from headwater.kernel.view.table_view import TableView, load_view_start
from headwater.metadata.view import view_of
from headwater.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from headwater.model.instant import InstantTime, instant_time_after
from headwater.queries.incremental import Window, check_rows_have_instants
from headwater.queries.slice_query import SliceQuery
from headwater.seams.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTask:
    """One write to one file group. A value that pickles, so that any engine can run it."""

    group: FileGroupId
    instant_time: InstantTime
    completion_time: InstantTime
    before: FileSlice | None
    after: FileSlice | None
    is_rewritten: bool
    """Whether the write made a base file."""
    logs: tuple[LogFile, ...]
    """The logs that the write appended."""
    cdc_logs: tuple[LogFile, ...]


@dataclass(frozen=True, slots=True)
class ChangeFeedPlan:
    """The writes of a window, group by group, to be read with `change_images.read_changes`."""

    query: SliceQuery
    tasks: tuple[ChangeTask, ...]

    @property
    def result_schema(self) -> pa.Schema:
        return change_schema(self.query.schema)


def change_schema(columns: pa.Schema) -> pa.Schema:
    """Return the columns of a change feed.

    `op` is i, u or d; `ts` the completion time of the write; `before` and `after` are the data
    columns of the record, null where there is no record.
    """
    image = pa.struct([field.with_nullable(True) for field in columns])
    return pa.schema(
        [("op", pa.string()), ("ts", pa.string()), ("before", image), ("after", image)]
    )


def plan_change_feed(table: TableContext, window: Window) -> ChangeFeedPlan:
    """Plan to read the changes of a window of time.

    Raises:
        NotFoundError: cleaning has not left what lay there before and after each write of the
            window, or the table cannot be read as of its end.
        UnsupportedError: the table's rows do not carry their instants, or its logs do not tell
            which write they are of.
        CorruptTableError: a file that is needed is missing.
    """
    check_rows_have_instants(table.config)
    _check_logs_have_instants(table.config)
    view = view_of(table, as_of=window.until)
    writes = view.instants_within_open_closed(window.after, window.until)
    schema = view.schema()
    query = SliceQuery.on(table, schema)
    if writes:
        _check_retained(table.storage, table.config, writes)
    tasks = tuple(task for write in writes for task in _tasks_of(view, write))
    for task in tasks:
        view.check_complete(side for side in (task.before, task.after) if side is not None)
    return ChangeFeedPlan(query, tasks)


def _check_logs_have_instants(config: TableConfig) -> None:
    if not config.has_layout_two and config.table_type is TableType.MERGE_ON_READ:
        raise UnsupportedError(
            f"Table {config.name} is a merge-on-read table of version {config.version}, whose log "
            "files do not tell which write they are of, so there is no change feed of it. Upgrade "
            "it with `headwater table upgrade`, or read changes without cdc",
            kind=ErrorKind.UNSUPPORTED_TABLE_VERSION,
        )


def _check_retained(
    storage: Storage, config: TableConfig, writes: Sequence[CompletedCommit]
) -> None:
    """Check that cleaning has left what lay there before and after each write of the window.

    Where the window begins matters not. Between there and the first write are table services alone,
    which change no row: of files that they have replaced nothing is needed. Savepoints preserve
    single moments, so what lay there at one of them tells nothing of the next write.
    """
    start = load_view_start(storage, config)
    before_all = instant_time_after(writes[0].completion_time, -1)
    try:
        check_readable(start.timeline, start.reader, before_all, table=config.name)
    except NotFoundError as error:
        if error.kind is not ErrorKind.BEFORE_FIRST_INSTANT:
            raise
    moments = (
        moment
        for number, write in enumerate(writes)
        for moment in (instant_time_after(write.completion_time, -1), write.completion_time)
        if number or moment > before_all
    )
    check_all_retained(start.timeline, start.reader, moments, table=config.name)


def _tasks_of(view: TableView, write: CompletedCommit) -> Iterator[ChangeTask]:
    written: dict[FileGroupId, list[BaseFile | LogFile]] = {}
    for file in write.files:
        written.setdefault(file.group, []).append(file)
    replaced = [group for group in write.replaced_groups() if group not in written]
    groups = [*sorted(replaced), *sorted(written)]
    partitions = {group.partition for group in groups}
    done = write.completion_time
    before = {each.group: each for each in view.slices_before(done, partitions)}
    after = {each.group: each for each in view.slices_up_to(done, partitions)}
    for group in groups:
        files = written.get(group, [])
        logs = [file for file in files if isinstance(file, LogFile)]
        yield ChangeTask(
            group=group,
            instant_time=write.requested_time,
            completion_time=done,
            before=before.get(group),
            after=after.get(group),
            is_rewritten=len(logs) < len(files),
            logs=tuple(log for log in logs if not log.is_cdc),
            cdc_logs=tuple(log for log in logs if log.is_cdc),
        )
