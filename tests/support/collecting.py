"""Counting what a test does, and reading the numbers again.

`collecting` keeps them in this process, as the text for Prometheus. `Ledger` is for a process that
will be killed: each number is in a file before the process goes on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.seams.meters import Counter, Gauge, Histogram, Labels, Metric, listen, stop_listening
from headwater.telemetry.collected import Collected

_LINE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@contextmanager
def collecting() -> Iterator[Collected]:
    """Count for as long as the block runs."""
    collected = Collected()
    listen(collected)
    try:
        yield collected
    finally:
        stop_listening(collected)


def total(text: str, name: str, **labels: str) -> float:
    """Return the sum of the series of a name whose labels have these values."""
    found = 0.0
    for line, given, value in _LINE.findall(text):
        if line == name and labels.items() <= dict(_LABEL.findall(given)).items():
            found += float(value)
    return found


class Ledger:
    """A listener that appends every count to a file; processes may share it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, metric: Counter, amount: float, labels: Labels) -> None:
        os.write(self._file, "\t".join((metric.name, str(amount), *labels, "\n")).encode())

    def record(self, metric: Histogram, value: float, labels: Labels) -> None: ...

    def set(self, metric: Gauge, value: float, labels: Labels) -> None: ...


def in_ledger(path: Path, metric: Metric, **labels: str) -> float:
    """Return the sum of a metric that ledgers have written."""
    lines = (line.split("\t") for line in path.read_text().splitlines())
    return sum(
        float(amount)
        for name, amount, *values in lines
        if name == metric.name
        and labels.items() <= dict(zip(metric.labels, values, strict=False)).items()
    )
