"""Calls that mostly wait, for a disk or a network, several of them at a time."""

from __future__ import annotations

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
    threads_wanted = min(len(items), width)
    if threads_wanted < 2:
        return [call(item) for item in items]
    with ThreadPoolExecutor(threads_wanted, thread_name_prefix="headwater") as threads:
        # Each call with what its caller logs about, and traces.
        contexts = [copy_context() for _ in items]
        return list(threads.map(lambda context, item: context.run(call, item), contexts, items))
