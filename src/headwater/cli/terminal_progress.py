"""Bars in a terminal: what is being done, files done of how many, time left.

Work that ends within two seconds shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from headwater.cli.progress import Report
    from headwater.metadata.indexing import IndexProgress
    from headwater.metadata.indexing import Report as IndexReport

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
def shown_work(what: str) -> Iterator[Report]:
    """Show what is done for as long as the block runs, and how far it is if it says so."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with LateProgress(*columns, console=console, shown_after_s=_SHOWN_AFTER_S) as shown:
        line = shown.add_task(what, total=None)

        def report(done: int, total: int) -> None:
            shown.update(line, completed=done, total=total)

        yield report


@contextmanager
def shown_builds() -> Iterator[IndexReport]:
    """Show how far builds are while the block runs, one line per index."""
    lines: dict[str, TaskID] = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} files, {task.fields[rows]:,} rows"),
        TextColumn("{task.fields[stage]}"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as shown:

        def report(progress: IndexProgress) -> None:
            name = progress.partition or "all"
            if name not in lines:
                lines[name] = shown.add_task(name, total=0, rows=0, stage="")
            fields: dict[str, Any] = {"stage": _stage(progress)}
            if progress.files_total:
                fields |= {"total": progress.files_total, "completed": progress.files}
            if progress.rows:
                fields["rows"] = progress.rows
            shown.update(lines[name], **fields)

        yield report


def _stage(progress: IndexProgress) -> str:
    return f"{progress.stage}, {progress.lag} behind" if progress.lag else str(progress.stage)
