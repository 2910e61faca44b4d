"""Writes and services as metrics, traces and logs see them.

Each place of the product says with one line what it is about to do; what is counted, traced and
logged of it is decided here. Spans are named `write` with the children `plan`, `tasks` and
`commit`, and `service`; an execution of a plan or a rollback is an `attempt`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from headwater.errors import ConflictError, ErrorKind
from headwater.seams import log_context, spans
from headwater.seams.log_context import Subject, about
from headwater.seams.meters import is_listening, outcome_of, timed
from headwater.seams.metrics import (
    COMMITS,
    CONFLICTS,
    INDEX_LAG,
    REDONE_FILES,
    REDONE_ROWS,
    ROWS,
    SERVICE_DURATION,
    WRITE_DURATION,
    WRITTEN,
)
from headwater.seams.spans import span

if TYPE_CHECKING:
    from headwater.context import TableContext
    from headwater.kernel.txn.attempts import Attempt
    from headwater.model.commit_metadata import WriteStat
    from headwater.model.operation import Operation

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

_LOST = (ErrorKind.WRITE_CONFLICT, ErrorKind.EARLY_CONFLICT, ErrorKind.LOCK_TIMEOUT)


@contextmanager
def observed_write(table: TableContext, operation: Operation) -> Iterator[None]:
    """Observe one write, from its request to its commit."""
    uri = table.storage.uri
    known = {"table": uri, "operation": operation, "mode": table.write_config.concurrency_mode}
    with about(table=uri), timed(WRITE_DURATION, uri, operation), span("write", known):
        yield


def note_attempt(attempt: Attempt) -> None:
    """Say, once it is known, which instant and attempt a write has."""
    log_context.note(instant=attempt.instant, attempt=attempt.attempt)
    spans.note({"instant": attempt.instant, "attempt": attempt.attempt})


@contextmanager
def observed_stage(
    table: TableContext, stage: str, attempt: Attempt | None = None
) -> Iterator[None]:
    """Observe a part of a write, and count it if that is where the write lost."""
    uri = table.storage.uri
    instant, number = ("", 0) if attempt is None else (attempt.instant, attempt.attempt)
    known = Subject(uri, instant, number).fields()
    with about(table=uri, instant=instant, attempt=number), span(stage, known):
        try:
            yield
        except ConflictError as conflict:
            if conflict.kind in _LOST:
                mode = table.write_config.concurrency_mode
                CONFLICTS.add(1, uri, mode, _strategy_of(table, conflict))
            raise


@contextmanager
def observed_commit(
    table: TableContext, operation: Operation, attempt: Attempt, stats: list[WriteStat]
) -> Iterator[None]:
    """Observe the commit of a write: what became of it, and what it brought."""
    uri, mode = table.storage.uri, table.write_config.concurrency_mode
    try:
        with observed_stage(table, "commit", attempt):
            yield
    except BaseException as error:
        COMMITS.add(1, uri, operation, mode, outcome_of(error))
        raise
    COMMITS.add(1, uri, operation, mode, outcome_of(None))
    rows, size_bytes = sum(map(_rows_of, stats)), sum(s.total_write_bytes or 0 for s in stats)
    meter_written(table, operation, rows, size_bytes)
    with about(table=uri, instant=attempt.instant, attempt=attempt.attempt):
        log.info("write committed operation=%s rows=%d bytes=%d", operation, rows, size_bytes)


def meter_written(table: TableContext, operation: str, rows: int, size_bytes: int) -> None:
    """Count the rows and bytes of what was committed."""
    ROWS.add(rows, table.storage.uri, operation)
    WRITTEN.add(size_bytes, table.storage.uri, operation)


def meter_redone(table: TableContext, discarded: Iterable[WriteStat]) -> None:
    """Count what a write had written before it lost."""
    if not is_listening():
        return
    for stat in discarded:
        REDONE_FILES.add(1, table.storage.uri)
        REDONE_ROWS.add(_rows_of(stat), table.storage.uri)


class OnTable(Protocol):
    """What works on one table."""

    _table: TableContext


S = TypeVar("S", bound=OnTable)


def observed_service(
    name: str,
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """Observe every call of a method that is a service."""

    def observing(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        @wraps(method)
        def observed(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            uri = self._table.storage.uri
            known = {"table": uri, "service": name}
            with about(table=uri), timed(SERVICE_DURATION, uri, name), span("service", known):
                return method(self, *args, **kwargs)

        return observed

    return observing


@contextmanager
def observed_build(table: TableContext) -> Iterator[Callable[[int], None]]:
    """Give what is told how far behind an index build is; once it has ended it is not."""
    uri = table.storage.uri
    try:
        yield lambda lag: INDEX_LAG.set(lag, uri)
    finally:
        INDEX_LAG.set(0, uri)


def _strategy_of(table: TableContext, conflict: ConflictError) -> str:
    match conflict.kind:
        case ErrorKind.EARLY_CONFLICT:
            return str(table.detection_config.strategy)
        case ErrorKind.LOCK_TIMEOUT:
            return "lock"
        case _:
            return "commit"


def _rows_of(stat: WriteStat) -> int:
    counts = (stat.num_inserts, stat.num_update_writes, stat.num_deletes)
    return sum(count or 0 for count in counts)
