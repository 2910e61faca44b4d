"""How far long work is, said to whoever watches it in a terminal.

Where nobody does, nothing is loaded that could draw it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from headwater.engine.engine import Engine, Poll, TaskContext
    from headwater.metadata.indexing import Report as IndexReport
    from headwater.table import Table

A = TypeVar("A")
R = TypeVar("R")

Report = Callable[[int, int], None]
"""Takes how many tasks are done, and of how many."""


@contextmanager
def shown_while(what: str) -> Iterator[Report]:
    """Show what is done for as long as the block runs, and how far it is if it says so."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from headwater.cli.terminal_progress import shown_work

    with shown_work(what) as report:
        yield report


@contextmanager
def shown_indexing() -> Iterator[IndexReport]:
    """Show how far builds of indexes are while the block runs."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    from headwater.cli.terminal_progress import shown_builds

    with shown_builds() as report:
        yield report


def with_progress(table: Table, report: Report) -> Table:
    """Return the table such that the work of its services says how far it is."""
    engine_for = table.context.engine_for
    context = replace(
        table.context, engine_for=lambda size: _ReportingEngine(engine_for(size), report)
    )
    return type(table)(context)


class _ReportingEngine:
    """An engine that counts the tasks it begins; in this process each is polled for once."""

    def __init__(self, engine: Engine, report: Report) -> None:
        self._engine = engine
        self._report = report

    @property
    def is_in_process(self) -> bool:
        return self._engine.is_in_process

    def run(
        self,
        function: Callable[[TaskContext, A], R],
        tasks: Sequence[A],
        *,
        poll: Poll = lambda: None,
    ) -> list[R]:
        begun = 0

        def counted() -> None:
            nonlocal begun
            self._report(min(begun, len(tasks)), len(tasks))
            begun += 1
            poll()

        return self._engine.run(function, tasks, poll=counted)
