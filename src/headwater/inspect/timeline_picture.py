"""A timeline as a picture: one bar per instant, from when it was requested to when it completed.

Instants are rows, oldest on top, so that labels never meet however many there are; the picture
grows with them. What was going on at the same time lies one below the other. matplotlib draws it,
through figures of its own and never through pyplot, whose figures belong to the whole process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from headwater.errors import InvalidInputError, StorageError, UnsupportedError
from headwater.model.instant import INSTANT_TIME_FORMAT, Action, InstantTime, State

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")
DOTS_PER_INCH = 150

_WIDTH_INCHES = 11.0
_ROW_INCHES = 0.24
_AROUND_INCHES = 1.9
"""Title, time axis and legend."""
_ROWS_MIN = 5
_LEGEND_COLUMNS = 6

_BAR_MIN = 0.006
"""The least length of a bar, as a share of the axis: a short instant must still be seen."""
_ABORTED_LENGTH = 0.02
"""The length of an aborted instant, which has an end that nobody noted."""
_MARGIN = 0.03
"""How far the axis goes on at both ends. On the right, pending instants run through it."""
_MILLISECONDS_UP_TO = timedelta(seconds=4)
_SECONDS_UP_TO = timedelta(minutes=20)
"""How long a timeline may be for ticks to show milliseconds, and seconds."""
_SPAN_MIN = timedelta(milliseconds=100)
"""What the axis shows at least; a single instant may have taken a millisecond."""

_INK = "#333333"
_GRID = "#d9d9d9"
_BAND = "#f6f6f6"
_OTHER = "#8c8c8c"
# Colours that people with any colour vision can tell apart come first, for what is most frequent.
_COLORS: Mapping[str, str] = {
    "upsert": "#0072b2",
    "bulk insert": "#009e73",
    "delete": "#d55e00",
    "insert": "#56b4e9",
    "insert overwrite": "#cc79a7",
    "insert overwrite table": "#aa3377",
    "delete partition": "#7a2b00",
    "commit": "#4477aa",
    "deltacommit": "#4477aa",
    "replacecommit": "#cc79a7",
    "compaction": "#e69f00",
    "logcompaction": "#f0c75e",
    "clustering": "#6a51a3",
    "clean": "#8c8c8c",
    "rollback": "#661100",
    "restore": "#b2182b",
    "savepoint": "#c2b280",
    "indexing": "#2a4858",
}
_HATCHES: Mapping[str, str | None] = {
    State.COMPLETED: None,
    State.INFLIGHT: "////",
    State.REQUESTED: "....",
    State.ABORTED: "xxxx",
}


class _Bar(NamedTuple):
    """One instant. Without `end` it is pending or aborted."""

    start: datetime
    end: datetime | None
    label: str
    action: str
    state: str

    @property
    def outcome(self) -> str:
        """How long it took, or how far it has come."""
        return self.state if self.end is None else _duration(self.end - self.start)


def draw_timeline(
    instants: pa.Table, paths: Sequence[str | os.PathLike[str]], *, title: str
) -> None:
    """Draw the rows of `inspect.timeline()` and write the picture to files, by their suffixes.

    Where the rows have the column `operation`, commits are told apart by it. Instants whose times
    are no dates, such as the first ones of a metadata table, are counted and not drawn.

    Raises:
        InvalidInputError: there is no path, or one with another suffix than `.svg` and `.png`.
        UnsupportedError: matplotlib is not installed.
        StorageError: a picture cannot be written.
    """
    targets = [Path(path) for path in paths]
    wrong = [str(path) for path in targets if path.suffix.lower() not in SUFFIXES]
    if wrong or not targets:
        raise InvalidInputError(
            f"A picture is written to files that end in {' or '.join(SUFFIXES)}, got "
            + (", ".join(wrong) or "no path")
        )
    figure = timeline_figure(instants, title)
    for path in targets:
        try:
            figure.savefig(path, dpi=DOTS_PER_INCH)
        except OSError as error:
            raise StorageError(
                f"The picture {path} cannot be written: {error}. Does its folder exist?",
                path=str(path),
            ) from error


def timeline_figure(instants: pa.Table, title: str) -> Figure:
    """Return the picture, not yet written anywhere.

    Raises:
        UnsupportedError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise UnsupportedError(
            "Pictures need matplotlib, which is not installed. Run "
            '`pip install "headwater[pictures]"`'
        ) from error
    bars = _bars(instants)
    rows = max(len(bars), _ROWS_MIN)
    height = _AROUND_INCHES + _ROW_INCHES * rows
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure(figsize=(_WIDTH_INCHES, height), layout=layout, facecolor="white")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=13, fontweight="bold", color=_INK, loc="left", pad=24)
    axes.annotate(
        _summary(instants, bars),
        xy=(0, 1),
        xycoords="axes fraction",
        xytext=(0, 8),
        textcoords="offset points",
        fontsize=9,
        color=_INK,
    )
    axes.set_ylim(rows - 0.5, -0.5)
    axes.tick_params(length=0, labelsize=8.5, labelcolor=_INK)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_GRID)
    if bars:
        _draw_bars(axes, bars)
        _draw_legend(figure, bars)
    else:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no instants", transform=axes.transAxes, ha="center", color=_INK)
    return figure


def _draw_bars(axes: Axes, bars: Sequence[_Bar]) -> None:
    from matplotlib.dates import date2num

    first, last = _bounds(bars)
    margin = (last - first) * _MARGIN
    left, right = (float(date2num(moment)) for moment in (first - margin, last + margin))
    axes.set_xlim(left, right)
    has_days = first.date() != last.date()
    axes.set_yticks(range(len(bars)), [_row_label(bar, has_days=has_days) for bar in bars])
    beside = axes.get_yaxis_transform()  # Across in shares of the axis, down in rows.
    for row, bar in enumerate(bars):
        if row % 2 == 0:
            axes.axhspan(row - 0.5, row + 0.5, color=_BAND, zorder=0)
        color, hatch = _color(bar.label), _HATCHES[bar.state]
        start = float(date2num(bar.start))
        if bar.state == State.ABORTED:
            length = (right - left) * _ABORTED_LENGTH
        else:
            # A pending instant runs out of the picture, so that its right side stays open.
            length = float(date2num(bar.end or last + 2 * margin)) - start
        axes.barh(
            row,
            max(length, (right - left) * _BAR_MIN),
            left=start,
            height=0.66,
            facecolor=color if hatch is None else "white",
            edgecolor=color,
            hatch=hatch,
            linewidth=0.8,
            zorder=3,
        )
        axes.text(
            1.01,
            row,
            bar.outcome,
            transform=beside,
            va="center_baseline",
            fontsize=8.5,
            fontweight="normal" if hatch is None else "bold",
            color=_INK,
        )
    _draw_time_axis(axes, first, last)


def _draw_time_axis(axes: Axes, first: datetime, last: datetime) -> None:
    from matplotlib.dates import SECONDLY, AutoDateLocator, num2date
    from matplotlib.ticker import FuncFormatter

    def clock(value: float, _position: int) -> str:
        moment = num2date(value)
        if first.date() != last.date():
            return f"{moment:%m-%d %H:%M}"
        if last - first > _SECONDS_UP_TO:
            return f"{moment:%H:%M}"
        if last - first > _MILLISECONDS_UP_TO:
            return f"{moment:%H:%M:%S}"
        return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"

    locator = AutoDateLocator(minticks=4, maxticks=8)
    locator.intervald[SECONDLY] = [1, 2, 5, 10, 15, 30]  # Without 2 there may be too few ticks.
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(FuncFormatter(clock))
    axes.grid(axis="x", color=_GRID, linewidth=0.8, zorder=1)


def _draw_legend(figure: Figure, bars: Sequence[_Bar]) -> None:
    from matplotlib.patches import Patch

    labels = dict.fromkeys(bar.label for bar in bars)
    patches = [Patch(color=_color(label), label=label) for label in labels]
    present = {bar.state for bar in bars}
    patches += [
        Patch(facecolor="white", edgecolor=_INK, hatch=hatch, label=state)
        for state, hatch in _HATCHES.items()
        if hatch is not None and state in present
    ]
    figure.legend(
        handles=patches,
        loc="outside lower left",
        ncols=_LEGEND_COLUMNS,
        fontsize=8.5,
        labelcolor=_INK,
        frameon=False,
    )


def _bars(instants: pa.Table) -> list[_Bar]:
    bars = []
    for row in instants.to_pylist():
        start = _moment(row["requested_time"])
        if start is None:
            continue
        completion = row["completion_time"]
        is_ingestion = Action(row["action"]).is_ingestion
        operation = row.get("operation") if is_ingestion else None
        bars.append(
            _Bar(
                start=start,
                end=None if completion is None else _moment(completion),
                label=(operation or row["action"]).lower().replace("_", " "),
                action=row["action"],
                state=row["state"],
            )
        )
    return bars


def _bounds(bars: Sequence[_Bar]) -> tuple[datetime, datetime]:
    first = min(bar.start for bar in bars)
    last = max(moment for bar in bars for moment in (bar.start, bar.end) if moment is not None)
    return first, max(last, first + _SPAN_MIN)


def _summary(instants: pa.Table, bars: Sequence[_Bar]) -> str:
    pending = sum(State(bar.state).is_pending for bar in bars)
    parts = [f"{instants.num_rows} instants", f"{pending} pending"]
    if len(bars) < instants.num_rows:
        parts.append(f"{instants.num_rows - len(bars)} without a date, not drawn")
    if bars:
        first, last = _bounds(bars)
        parts.append(f"{_duration(last - first)} from {first:%Y-%m-%d %H:%M:%S} on")
    return ", ".join(parts)


def _row_label(bar: _Bar, *, has_days: bool) -> str:
    clock = f"{bar.start:%H:%M:%S}.{bar.start.microsecond // 1000:03d}"
    name = bar.label if bar.label == bar.action else f"{bar.label} ({bar.action})"
    return f"{name}   {bar.start:%Y-%m-%d} {clock}" if has_days else f"{name}   {clock}"


def _color(label: str) -> str:
    return _COLORS.get(label, _OTHER)


def _duration(length: timedelta) -> str:
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def _moment(time: InstantTime | str) -> datetime | None:
    """Return when that was, without a zone; None for digits that are no date."""
    try:
        seconds = datetime.strptime(time[:14], INSTANT_TIME_FORMAT)
    except ValueError:
        return None
    return seconds + timedelta(milliseconds=int(time[14:17] or "0"))
