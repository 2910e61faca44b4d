"""Counting what a test does, and reading the numbers again from the text for Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.seams.meters import listen, stop_listening
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
