"""Writes whose view is gone: what they were planned on was taken back, cleaned or archived.

A restore deletes files of commits that writers have in their views, and a clean with a short
retention those of slices that were current when a long write began. To such a write a file of the
table is missing, or one of the timeline. Nothing is damaged: it lost, like one that another writer
was ahead of, and is planned again (N-129).
"""

from __future__ import annotations

from headwater.context import TableContext
from headwater.errors import (
    ConflictError,
    CorruptTableError,
    ErrorKind,
    HeadwaterError,
    NotFoundError,
    Retry,
)
from headwater.metadata.view import view_of
from headwater.model.files import parse_data_file
from headwater.model.instant import Action


def loss_of(table: TableContext, error: NotFoundError | CorruptTableError) -> ConflictError | None:
    """Return the loss that an error of a write stands for; None if it is what it says.

    A missing data file is one if the table as it is now does not need it, or if something is just
    being taken back: its files go before its commit does.
    """
    if not _is_outdated(table, error):
        return None
    return ConflictError(
        "What this write was planned on is gone: a restore or rollback took it back, or a clean "
        f"deleted it, or it was archived. Nothing was committed; write the batch again ({error})",
        kind=ErrorKind.WRITE_CONFLICT,
    )


def _is_outdated(table: TableContext, error: HeadwaterError) -> bool:
    if isinstance(error, NotFoundError):
        return error.retry is Retry.FRESH_VIEW
    file = parse_data_file(str(error.context.get("path", "")))
    if error.kind is not ErrorKind.MISSING_DATA_FILE or file is None:
        return False
    try:
        view = view_of(table)
        if any(i.action in (Action.RESTORE, Action.ROLLBACK) for i in view.timeline.pending):
            return True
        slices = view.slices([file.partition])
    except NotFoundError as again:
        return again.retry is Retry.FRESH_VIEW
    return all(file.path != each.path for one in slices for each in one.files())
