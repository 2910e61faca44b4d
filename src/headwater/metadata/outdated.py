"""Views that are gone: what somebody planned on was taken back, cleaned or archived meanwhile.

A restore deletes files of commits that others have in their views, and a clean with a short
retention those of slices that were current when long work began. To such work a file of the table
is missing, or one of the timeline. Nothing is damaged: a write has lost, like one that another
writer was ahead of, and is planned again; so is a read (N-129, N-181).
"""

from __future__ import annotations

from headwater.context import TableContext
from headwater.errors import CorruptTableError, ErrorKind, NotFoundError, Retry
from headwater.kernel.txn.rollback_plan import pending_undoing, target_of
from headwater.metadata.view import view_of
from headwater.model.files import parse_data_file
from headwater.model.instant import Action, Instant, InstantTime


def is_outdated(table: TableContext, error: NotFoundError | CorruptTableError) -> bool:
    """Whether an error of work on the newest view only says that this view is gone.

    A missing data file does if the table as it is now does not need it, or if the instant that it
    is of is just being taken back: other engines delete its files before its commit.
    """
    if isinstance(error, NotFoundError):
        return error.retry is Retry.FRESH_VIEW
    file = parse_data_file(str(error.context.get("path", "")))
    if error.kind is not ErrorKind.MISSING_DATA_FILE or file is None:
        return False
    try:
        view = view_of(table)
        undoing = pending_undoing(view.timeline)
        if any(_takes_back(table, instant, file.instant_time) for instant in undoing):
            return True
        slices = view.slices([file.partition])
    except NotFoundError as again:
        return again.retry is Retry.FRESH_VIEW
    return all(file.path != each.path for one in slices for each in one.files())


def _takes_back(table: TableContext, undoing: Instant, time: InstantTime) -> bool:
    if undoing.action is Action.RESTORE:
        return True  # Of all that completed since a savepoint, perhaps this too.
    try:
        return target_of(table.rollbacks.load_plan(undoing)) == time
    except NotFoundError:
        return True  # It has ended since.
