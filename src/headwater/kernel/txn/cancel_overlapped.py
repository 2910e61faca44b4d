"""What a write does about cancellable plans once it has announced all its file groups (H-09).

It costs nothing while no clustering is pending. Of a plan in the way it takes three calls of
storage: the plan is read, and the transaction that cancels it lists the timeline and creates the
entry. The commit knows what was cancelled and makes no further call for it; a plan that appears
later is read and cancelled by the commit alone.

It may fail without harm: the commit decides again, on the timeline as it is then.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from headwater.errors import CommitUnknownError, NotFoundError, StorageError
from headwater.kernel.layout import TableLayout
from headwater.kernel.txn.changes import load_changes
from headwater.kernel.txn.conflicts import ConflictCheck
from headwater.kernel.txn.writes import InflightWrite
from headwater.model.instant import Instant
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)


def cancel_overlapped(
    write: InflightWrite,
    storage: Storage,
    layout: TableLayout,
    check: ConflictCheck,
    plans: Sequence[Instant],
) -> ConflictCheck:
    """Cancel those of the pending plans that overlap with a write and give way to it.

    Returns the check of the write, which knows now what the plans do and which are cancelled.

    Raises:
        ConflictError: the lock was not to be had in time.
        FencedError: the writer was taken over.
        CorruptTableError: a plan is damaged.
    """
    if not plans:
        return check
    try:
        read = load_changes(storage, layout, plans)
    except NotFoundError:
        return check  # One of them has ended just now.
    check = replace(check, known={**check.known, **read})
    overlapped = tuple(check.plans_to_cancel(read.values()))
    if not overlapped:
        return check
    try:
        cancelled = write.cancel(overlapped)
    except (CommitUnknownError, StorageError) as error:
        log.warning("plans not cancelled yet write=%s error=%s", write.instant_time, error)
        return check
    log.info("plans cancelled write=%s plans=%s", write.instant_time, sorted(cancelled))
    return replace(check, cancelled=cancelled)
