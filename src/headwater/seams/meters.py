"""The metrics seam: the product counts, and whoever listens is told.

A metric is declared once (`seams.metrics`) and called by its places. Nobody listens unless asked
to: then a call is a look at an empty tuple, no clock is read and nothing is kept. Listeners are of
this process; those there are live in `headwater.telemetry`.

Values of labels are given in the order in which the metric declares its labels.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, TypeVar

log = logging.getLogger(__name__)

M = TypeVar("M", bound="Metric")

Labels = tuple[str, ...]
"""The values of a metric's labels, in their order."""

SECONDS = "s"
BYTES = "By"

_SECONDS_MAX = (0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 1800.0)
"""From a request to a disk to a clustering of half an hour."""


class Listener(Protocol):
    """Who is told. It is called by any thread, and must not call storage, locks or clocks."""

    def add(self, metric: Counter, amount: float, labels: Labels) -> None: ...

    def record(self, metric: Histogram, value: float, labels: Labels) -> None: ...

    def set(self, metric: Gauge, value: float, labels: Labels) -> None: ...


_listeners: tuple[Listener, ...] = ()


def listen(listener: Listener) -> None:
    """Tell a listener of all that is counted from now on."""
    global _listeners
    _listeners = (*_listeners, listener)


def stop_listening(listener: Listener) -> None:
    global _listeners
    _listeners = tuple(each for each in _listeners if each is not listener)


def is_listening() -> bool:
    """Whether anybody is told; what costs more than a call is done only then."""
    return bool(_listeners)


@dataclass(frozen=True, slots=True)
class Metric:
    """What is counted: its name in OpenTelemetry, its unit by UCUM, and what its labels are."""

    name: str
    unit: str
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counter(Metric):
    """A sum that only grows."""

    def add(self, amount: float, *labels: str) -> None:
        for listener in _listeners:
            _tell(listener.add, self, amount, labels)


@dataclass(frozen=True, slots=True)
class Histogram(Metric):
    """How values are spread."""

    bounds: tuple[float, ...] = _SECONDS_MAX

    def record(self, value: float, *labels: str) -> None:
        for listener in _listeners:
            _tell(listener.record, self, value, labels)


@dataclass(frozen=True, slots=True)
class Gauge(Metric):
    """A value as of the last look."""

    def set(self, value: float, *labels: str) -> None:
        for listener in _listeners:
            _tell(listener.set, self, value, labels)


def _tell(
    call: Callable[[M, float, Labels], None], metric: M, value: float, labels: Labels
) -> None:
    try:
        call(metric, value, labels)
    except Exception as error:  # noqa: BLE001 - a commit that stands must not fail by its count.
        log.warning("metric is lost metric=%s error=%r", metric.name, error)


OK = "ok"
NOTHING: AbstractContextManager[None] = nullcontext()
"""What to enter while nobody listens."""


def seconds() -> float:
    """Return a time to measure from; only for what is told to listeners, so never simulated."""
    return time.perf_counter()


class Measured:
    """Tells how long its block took, and by which error it ended if by one."""

    def __init__(self, tell: Callable[[float, BaseException | None], None]) -> None:
        self._tell = tell
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = seconds()

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        self._tell(seconds() - self._began, error)


def timed(metric: Histogram, *labels: str) -> AbstractContextManager[None]:
    """Measure a block; the last label of the metric is its outcome."""
    if not _listeners:
        return NOTHING
    return Measured(lambda taken, error: metric.record(taken, *labels, outcome_of(error)))


def outcome_of(error: BaseException | None) -> str:
    """Return what became of a call: the family of its error's kind, such as `conflict`."""
    if error is None:
        return OK
    kind = getattr(error, "kind", None)
    return "error" if kind is None else str(kind).partition(".")[0]
