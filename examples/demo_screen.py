"""What the demo shows: a lane per process while it runs; plain lines where no terminal is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as TextTable
from rich.text import Text

PLAIN_WIDTH = 110
"""Columns of text where no terminal says how many there are."""
CELLS = 44
CELL_S = 0.5
INSTANTS = 8
SYMBOLS = {"idle": "·", "work": "━", "held": "‖", "dead": "✕", "commit": "●"}
STYLES = {"idle": "dim", "work": "cyan", "held": "yellow", "dead": "red", "commit": "bold green"}

Row = dict[str, Any]


@dataclass
class Lane:
    """One process: what it was at, and when it committed."""

    states: list[tuple[float, str]] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)
    note: str = "starting"

    def set(self, state: str, note: str) -> None:
        self.states.append((time.monotonic(), state))
        self.note = note

    def strip(self, now: float) -> Text:
        text = Text()
        for cell in range(CELLS, 0, -1):
            begins, ends = now - cell * CELL_S, now - (cell - 1) * CELL_S
            if any(begins <= at < ends for at in self.commits):
                symbol = "commit"
            else:
                symbol = next((s for at, s in reversed(self.states) if at < ends), "idle")
            text.append(SYMBOLS[symbol], STYLES[symbol])
        return text


class Screen:
    """Where the demo speaks: a terminal, or a plain file without control characters."""

    def __init__(self, instants: Callable[[], Sequence[Row]] = list) -> None:
        self.is_terminal = sys.stdout.isatty()
        self.console = Console(
            force_terminal=self.is_terminal,
            no_color=not self.is_terminal,
            width=None if self.is_terminal else PLAIN_WIDTH,
            highlight=False,
        )
        self.started = time.monotonic()
        self.lanes: dict[str, Lane] = {}
        self._instants = instants
        self._newest: Sequence[Row] = ()
        self._live = Live(
            console=self.console,
            get_renderable=self._picture,
            refresh_per_second=4,
            transient=True,
            # Children write their errors to files; what is printed here comes from here.
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        if self.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_terminal:
            self._live.stop()

    @property
    def passed_s(self) -> float:
        return time.monotonic() - self.started

    def say(self, text: str = "", style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False, soft_wrap=True)

    def act(self, title: str, look_at: str) -> None:
        self.say()
        self.say(title, "bold")
        self.say(f"  look at: {look_at}", "italic")

    def event(self, lane: str, text: str) -> None:
        self.say(f"{self.passed_s:6.1f} s  {lane:9} {text}")

    def fact(self, text: str) -> None:
        """Say something that was checked."""
        self.event("checked", text)

    def looked(self) -> None:
        """Look at the timeline again, for the instants under the lanes."""
        if self.is_terminal:
            self._newest = self._instants()

    def table(self, rows: Sequence[Row]) -> None:
        self.console.print(_text_table(rows))

    def _picture(self) -> RenderableType:
        now = time.monotonic()
        lanes = TextTable(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("process", f"the last {CELLS * CELL_S:.0f} seconds", "commits", "now"):
            lanes.add_column(title, no_wrap=True, header_style="dim")
        for name, lane in self.lanes.items():
            lanes.add_row(name, lane.strip(now), str(len(lane.commits)), lane.note)
        parts: list[RenderableType] = [Text(), lanes]
        if self._newest:
            parts += [Text(), _text_table(self._newest[-INSTANTS:])]
        return Group(*parts)


def _text_table(rows: Sequence[Row]) -> TextTable:
    text = TextTable(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in rows[0] if rows else ():
        is_number = isinstance(rows[0][name], (int, float))
        text.add_column(
            name,
            justify="right" if is_number else "left",
            overflow="fold",
            header_style="dim",
        )
    for row in rows:
        text.add_row(*("-" if value is None else _shown(value) for value in row.values()))
    return text


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
