"""Metrics kept in this process, and their text for Prometheus.

Names follow the rules by which OpenTelemetry's own exporters name metrics for Prometheus, so that
one dashboard serves both ways: `headwater.lock.wait` in seconds is `headwater_lock_wait_seconds`.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from headwater.seams.meters import BYTES, SECONDS, Counter, Gauge, Histogram, Labels, Metric
from headwater.seams.metrics import METRICS
from headwater.seams.mutex import new_mutex
from headwater.seams.system_errors import system_error

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SERIES_MAX = 2_000
"""Values of labels that one metric may have; more than that is a mistake, not a fleet."""
_OTHERS = "others"

_UNITS = {SECONDS: "_seconds", BYTES: "_bytes"}
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

M = TypeVar("M", bound=Metric)
V = TypeVar("V")


class Spread:
    """The values of a histogram: how many are at most each bound, how many there are, their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Collected:
    """A listener that keeps sums, last values and spreads, by the values of labels."""

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._values: dict[Metric, dict[Labels, float]] = {}
        self._spreads: dict[Histogram, dict[Labels, Spread]] = {}

    def add(self, metric: Counter, amount: float, labels: Labels) -> None:
        with self._mutex:
            series, labels = _place(self._values, metric, labels)
            series[labels] = series.get(labels, 0) + amount

    def set(self, metric: Gauge, value: float, labels: Labels) -> None:
        with self._mutex:
            series, labels = _place(self._values, metric, labels)
            series[labels] = value

    def record(self, metric: Histogram, value: float, labels: Labels) -> None:
        with self._mutex:
            series, labels = _place(self._spreads, metric, labels)
            series.setdefault(labels, Spread(metric.bounds)).add(value)

    def text(self) -> str:
        """Return all of it in the text format of Prometheus."""
        with self._mutex:
            return "".join(f"{line}\n" for metric in METRICS for line in self._lines_of(metric))

    def _lines_of(self, metric: Metric) -> Iterator[str]:
        name = prometheus_name(metric)
        yield f"# HELP {name} {_escaped_help(metric.help)}"
        yield f"# TYPE {name} {type(metric).__name__.lower()}"
        for labels, value in self._values.get(metric, {}).items():
            yield f"{name}{_labels(metric, labels)} {_number(value)}"
        if isinstance(metric, Histogram):
            for labels, spread in self._spreads.get(metric, {}).items():
                yield from _lines_of_spread(metric, name, labels, spread)


def prometheus_name(metric: Metric) -> str:
    """Return what a metric is called in Prometheus; a histogram's series add to it."""
    name = metric.name.replace(".", "_") + _UNITS.get(metric.unit, "")
    return f"{name}_total" if isinstance(metric, Counter) else name


def series_names(metric: Metric) -> tuple[str, ...]:
    """Return the names of the series that Prometheus has of a metric."""
    name = prometheus_name(metric)
    if isinstance(metric, Histogram):
        return (f"{name}_bucket", f"{name}_count", f"{name}_sum")
    return (name,)


def write_text(collected: Collected, path: str) -> None:
    """Write the text to a file, whole or not at all, for a collector that reads files.

    Raises:
        StorageError: the file cannot be written.
    """
    target = Path(path)
    staged = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        staged.write_text(collected.text())
        staged.replace(target)
    except OSError as error:
        raise system_error(f"Cannot write metrics to {path}", error) from error


def _place(
    by_metric: dict[M, dict[Labels, V]], metric: M, labels: Labels
) -> tuple[dict[Labels, V], Labels]:
    series = by_metric.setdefault(metric, {})
    if labels not in series and len(series) >= _SERIES_MAX:
        return series, (_OTHERS,) * len(labels)
    return series, labels


def _lines_of_spread(metric: Histogram, name: str, labels: Labels, spread: Spread) -> Iterator[str]:
    below = 0
    for bound, count in zip((*spread.bounds, float("inf")), spread.counts, strict=True):
        below += count
        shown = "+Inf" if bound == float("inf") else f"{bound:g}"
        yield f"{name}_bucket{_labels(metric, labels, le=shown)} {below}"
    yield f"{name}_sum{_labels(metric, labels)} {_number(spread.sum)}"
    yield f"{name}_count{_labels(metric, labels)} {below}"


def _labels(metric: Metric, values: Labels, **more: str) -> str:
    pairs = [*zip(metric.labels, values, strict=True), *more.items()]
    shown = [f'{key}="{value.translate(_ESCAPES)}"' for key, value in pairs]
    return f"{{{','.join(shown)}}}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
