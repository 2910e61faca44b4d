"""Results come in order, an error in its place, and items are not made ahead without bound."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
import pytest

from headwater.seams.parallel_stream import parallel_stream


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_results_come_in_the_order_of_items(
    monkeypatch: pytest.MonkeyPatch, cores: int, count: int
) -> None:
    monkeypatch.setattr(pa, "cpu_count", lambda: cores)
    assert list(parallel_stream(lambda n: n * n, range(count))) == [n * n for n in range(count)]


@pytest.mark.parametrize("cores", [1, 3])
def test_an_error_comes_in_its_place_and_ends_all(
    monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr(pa, "cpu_count", lambda: cores)
    made = []

    def items() -> Iterator[int]:
        for n in range(1000):
            made.append(n)
            yield n

    results = parallel_stream(lambda n: 10 // (n - 3), items())
    assert list(islice(results, 3)) == [10 // (n - 3) for n in range(3)]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert len(made) <= 4 + cores + 1


def test_several_are_under_way_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "cpu_count", lambda: 2)
    both = threading.Barrier(2, timeout=60)
    # Alone, a call would wait for the other in vain.
    assert list(parallel_stream(lambda n: (both.wait(), n)[1], range(4))) == [0, 1, 2, 3]
