"""Computing on several cores, with results in order and a bounded number of them waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")

THREADS_MAX = 8
"""Each holds what it computes on; and one thread has to bring it all."""


def parallel_stream(call: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Give what a call gives for each item, in their order.

    It pays where the call lets go of the interpreter's lock, as compression and kernels do. Items
    are made in the thread that asks for results, while others compute, so they may be made by
    calling the other seams; the call must not: the simulator knows one thread only. If a call
    raises, no further items are made, and its error is raised in its place.
    """
    coming = iter(items)
    first = list(islice(coming, 2))
    width = min(pa.cpu_count(), THREADS_MAX)
    if len(first) < 2 or width < 2:
        yield from map(call, first)
        yield from map(call, coming)
        return
    with ThreadPoolExecutor(width, thread_name_prefix="headwater") as threads:
        under_way: deque[Future[R]] = deque(threads.submit(call, item) for item in first)
        try:
            for item in coming:
                under_way.append(threads.submit(call, item))
                if len(under_way) > width:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for one in under_way:
                one.cancel()
