"""Showing how far long work is, on a terminal: what it does, files done of how many, time left.

Work that ends within two seconds shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from headwater.engine.engine import Engine, Poll, TaskContext
    from headwater.table import Table

A = TypeVar("A")
R = TypeVar("R")

Report = Callable[[int, int], None]
"""Takes how many tasks are done, and of how many."""

_SHOWN_AFTER_S = 2.0


class LateProgress(Progress):
    """Progress that is not shown before some seconds have passed, whether or not it is reported."""

    def __init__(self, *columns: ProgressColumn, console: Console, shown_after_s: float) -> None:
        self._shown_after_s = shown_after_s  # Before the rest, which asks for a picture at once.
        super().__init__(*columns, console=console, disable=not console.is_terminal, transient=True)

    def get_renderables(self) -> Iterable[RenderableType]:
        if any((task.elapsed or 0.0) >= self._shown_after_s for task in self.tasks):
            yield from super().get_renderables()


@contextmanager
def shown_while(what: str) -> Iterator[Report]:
    """Show what is done for as long as the block runs, and how far it is if it says so."""
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with LateProgress(*columns, console=console, shown_after_s=_SHOWN_AFTER_S) as shown:
        line = shown.add_task(what, total=None)

        def report(done: int, total: int) -> None:
            shown.update(line, completed=done, total=total)

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
