"""The commits of a table from the newest one on, for who looks for what one of them says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from headwater.config.table import TableConfig
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.view.commits import COMMIT_ACTIONS, CommitReader, CompletedCommit
from headwater.model.instant import Instant, InstantTime
from headwater.seams.storage import Storage

_READ_AT_ONCE = 20
"""Commits read at once; who writes often finds its own among the first."""


def load_newest_commits(
    storage: Storage, config: TableConfig, completed_after: InstantTime | None = None
) -> Iterator[list[CompletedCommit]]:
    """Give the commits of a table, some at a time and the newest first, archived ones too.

    Those of one list are in no order.

    Args:
        completed_after: where to end; all unless given.

    Raises:
        CorruptTableError: the timeline breaks the format.
        StorageError: storage failed.
    """
    layout = table_layout(config)
    is_wanted = partial(_is_commit_after, completed_after or "")
    active = [i for i in load_active(storage, layout.timeline).completed if is_wanted(i)]
    reader = CommitReader(storage, layout)
    for some in _newest_first(active):
        yield reader.load(some)
    archived = [i for i in reader.history.instants() if is_wanted(i)]
    for some in _newest_first(archived):
        yield reader.load_archived(i.requested_time for i in some)


def _newest_first(instants: list[Instant]) -> Iterable[list[Instant]]:
    ordered = sorted(instants, key=lambda i: i.completion_time or "", reverse=True)
    return (ordered[n : n + _READ_AT_ONCE] for n in range(0, len(ordered), _READ_AT_ONCE))


def _is_commit_after(completion_time: str, instant: Instant) -> bool:
    is_commit = instant.action.completed_name in COMMIT_ACTIONS
    return is_commit and (instant.completion_time or "") > completion_time
