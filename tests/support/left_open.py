"""What a process has open, and what a call that failed left of it.

The error is kept while descriptors, threads and children are counted, and nothing is collected
meanwhile: whoever keeps an error, as a notebook does, must not keep open files with it. What is
noticed only when the error goes, such as a file that is finished by its destructor, counts too.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_OWN = "/proc/self"

# A server that was told to stop ends by itself, in a fifth of a second; with others on the machine
# it takes longer.
_WAIT_S_MAX = 10.0
_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True)
class OpenThings:
    """What this process has open at one moment. Threads of Arrow's own pools are not Python's."""

    descriptors: frozenset[tuple[int, str]]
    """With what each leads to."""
    threads: frozenset[threading.Thread]
    children: frozenset[str]

    @classmethod
    def now(cls) -> OpenThings:
        # First, since a thread may end meanwhile: what one has open that is no more is closed.
        threads = frozenset(threading.enumerate())
        return cls(frozenset(descriptors()), threads, frozenset(_children()))

    def beyond(self, before: OpenThings) -> list[str]:
        """Say what is open now and was not before."""
        return [
            *(f"{path} as {number}" for number, path in self.descriptors - before.descriptors),
            *(f"thread {thread.name}" for thread in self.threads - before.threads),
            *(f"process {child}" for child in self.children - before.children),
        ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: what was raised, as text, and what it left open."""

    error: str | None
    left: list[str]


def outcome_of(call: Callable[[], object]) -> Outcome:
    """Make a call that may fail, of whatever, and look what is left of it."""
    with _nothing_collected(), _unraisable() as unraised:
        before = OpenThings.now()
        kept: BaseException | None = None
        try:
            call()
        except BaseException as error:  # noqa: BLE001  # Interrupts too.
            kept = error
        left = _left_since(before)
        text = None if kept is None else repr(kept)
        kept = None
        gc.collect()
    return Outcome(text, [*left, *unraised])


def _left_since(before: OpenThings) -> list[str]:
    deadline_s = time.monotonic() + _WAIT_S_MAX
    while True:
        now = OpenThings.now()
        left = now.beyond(before)
        # A thread ends by itself, with what it has open; one that was there before, such as the
        # heartbeat of another test, has a file open for a moment.
        if not left or time.monotonic() > deadline_s:
            return left
        time.sleep(_PAUSE_S)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    gc.disable()
    gc.freeze()  # What was there before is not looked at: that takes longer than most calls.
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


@contextmanager
def _unraisable() -> Iterator[list[str]]:
    """Give what destructors raised within the block, which Python only reports."""
    found: list[str] = []

    def note(about: Any) -> None:
        found.append(f"{about.exc_value!r} in {about.object!r}")

    before, sys.unraisablehook = sys.unraisablehook, note
    try:
        yield found
    finally:
        sys.unraisablehook = before


def descriptors() -> Iterator[tuple[int, str]]:
    """Give the number of each, and what it leads to."""
    for number in os.listdir(f"{_OWN}/fd"):
        try:
            yield int(number), os.readlink(f"{_OWN}/fd/{number}")
        except FileNotFoundError:
            continue  # The listing itself had it open.


def _children() -> Iterator[str]:
    for task in os.listdir(f"{_OWN}/task"):
        try:
            with open(f"{_OWN}/task/{task}/children") as file:
                yield from file.read().split()
        except FileNotFoundError:
            continue  # The thread has ended.
