"""Calls that mostly wait, for a disk or a network, several of them at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from contextvars import copy_context
from functools import cache
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_WAITING_MAX = 256


@cache
def waiting_threads() -> ThreadPoolExecutor:
    """Return the threads of this process that wait for stores, and are kept for the next call.

    The client of a store sets up each thread that calls it, which takes longer than a small
    request. There are as many as ever were at work at once.
    """
    return ThreadPoolExecutor(_WAITING_MAX, thread_name_prefix="headwater-waiting")


os.register_at_fork(after_in_child=waiting_threads.cache_clear)  # Threads stay with the parent.


def parallel_map(
    call: Callable[[T], R],
    items: Sequence[T],
    *,
    width: int,
    helpers: ThreadPoolExecutor | None = None,
) -> list[R]:
    """Return what a call gives for each item, in their order; up to `width` are under way.

    None is under way any more when this returns. If a call raises, or the caller is interrupted,
    those that have not begun are not made, and the error of the first item that has one is raised.

    Args:
        helpers: threads that are there already, and may have other work: with these calls must not
            wait for each other. By default they are made for this map, and end with it.
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

    with (
        ThreadPoolExecutor(helpers_wanted, thread_name_prefix="headwater")
        if helpers is None
        else nullcontext(helpers)
    ) as threads:
        asked: list[Future[None]] = []
        try:
            asked.extend(threads.submit(work) for _ in range(helpers_wanted))
            work()  # A thread costs as much as a small call, so this one takes its part.
            _wait_for(asked)
        except BaseException as interrupt:
            failed[-1] = interrupt  # None begins any more; those under way are waited for.
            _wait_for(asked)
            raise
    if failed:
        raise failed[min(failed)]
    return [found[number] for number in range(len(items))]


def _wait_for(asked: Iterable[Future[None]]) -> None:
    wait([each for each in asked if not each.cancel()])
