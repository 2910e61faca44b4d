"""Calls that mostly wait, for a disk or a network, several of them at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def parallel_map(call: Callable[[T], R], items: Sequence[T], *, width: int) -> list[R]:
    """Return what a call gives for each item, in their order; up to `width` are under way.

    None is under way any more when this returns. If a call raises, those that have not begun are
    not made, and the error of the first item that has one is raised.
    """
    helpers_wanted = min(len(items), width) - 1
    if helpers_wanted < 1:
        return [call(item) for item in items]
    numbers, taking = iter(range(len(items))), threading.Lock()
    found: dict[int, R] = {}
    failed: dict[int, BaseException] = {}
    # Each call with what its caller logs about, and traces.
    contexts = [copy_context() for _ in items]

    def work() -> None:
        while not failed:
            with taking:
                number = next(numbers, None)
            if number is None:
                return
            try:
                found[number] = contexts[number].run(call, items[number])
            except BaseException as error:  # noqa: BLE001 (raised below)
                failed[number] = error

    with ThreadPoolExecutor(helpers_wanted, thread_name_prefix="headwater") as helpers:
        for _ in range(helpers_wanted):
            helpers.submit(work)
        work()  # A thread costs as much as a small call, so this one takes its part.
    if failed:
        raise failed[min(failed)]
    return [found[number] for number in range(len(items))]
