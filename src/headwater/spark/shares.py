"""Dividing work among tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from typing import TypeVar

T = TypeVar("T")


def balanced_shares(items: Sequence[T], count: int, size: Callable[[T], int]) -> list[list[T]]:
    """Divide items into at most `count` shares: the largest first, each to the smallest share."""
    count = min(count, len(items))
    shares: list[list[T]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    heapify(loads)
    for item in sorted(items, key=size, reverse=True):
        load, number = loads[0]
        shares[number].append(item)
        # What is empty still costs the opening, so nothing counts as nothing.
        heapreplace(loads, (load + max(1, size(item)), number))
    return shares
