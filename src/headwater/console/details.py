"""All there is to know of one instant: its plan, its files, who worked on it and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headwater.console.state import plain_rows
from headwater.errors import ErrorKind, NotFoundError, UnsupportedError
from headwater.inspect.history import commit_row
from headwater.kernel.view.commits import COMMIT_ACTIONS, CompletedCommit
from headwater.model.instant import Instant, parse_instant_time

if TYPE_CHECKING:
    from headwater.table import Table

FILES_MAX = 1_000
"""How many files are listed; the others are counted."""


def load_details(table: Table, time: str) -> dict[str, Any]:
    """Return what is known of an instant of the active timeline.

    Raises:
        InvalidInputError: kind INVALID_INSTANT_TIME.
        NotFoundError: kind INSTANT_NOT_FOUND.
        CorruptTableError: something of the instant is unreadable; the error names it.
    """
    instant = table.context.load_timeline().get(parse_instant_time(time))
    attempts = [
        row for row in plain_rows(table.inspect.heartbeats()) if row["instant"] == str(time)
    ]
    return {
        "instant": str(instant.requested_time),
        "action": instant.action.value,
        "state": instant.state.value,
        "completion_time": instant.completion_time,
        "attempts": attempts,
        "plan": _plan(table, instant),
        **_written(table, instant),
    }


def _plan(table: Table, instant: Instant) -> list[dict[str, Any]]:
    try:
        return plain_rows(table.inspect.plan(str(instant.requested_time)))[:FILES_MAX]
    except NotFoundError as error:
        if error.kind is not ErrorKind.INSTANT_NOT_FOUND:
            raise
        return []  # It is no plan, or has just been archived.
    except UnsupportedError:
        return []


def _written(table: Table, instant: Instant) -> dict[str, Any]:
    """Return what a completed commit says of itself."""
    if not instant.is_completed or instant.action.completed_name not in COMMIT_ACTIONS:
        return {}
    (commit,) = table.context.commit_reader().load([instant])
    return {
        **commit_row(commit),
        "action": instant.action.value,  # As planned: a compaction completes as a commit.
        "files": list(_files(commit))[:FILES_MAX],
        "file_count": len(commit.files),
        "replaced": sum(1 for _ in commit.replaced_groups()),
    }


def _files(commit: CompletedCommit) -> Iterator[dict[str, Any]]:
    for file in commit.files:
        yield {
            "partition": file.partition,
            "file_id": file.file_id,
            "path": file.path,
            "size_bytes": file.size_bytes,
        }
