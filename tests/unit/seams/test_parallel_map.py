"""Several calls at a time."""

import threading

import pytest

from headwater.seams.parallel_map import parallel_map

SOON_S = 300  # How long to wait for what comes at once; reached only by a failure.


def test_answers_come_in_the_order_of_the_items() -> None:
    together = threading.Barrier(3)

    def call(item: int) -> int:
        together.wait(SOON_S)  # Returns only if three calls are under way.
        return item * 10

    assert parallel_map(call, [3, 1, 2], width=3) == [30, 10, 20]


@pytest.mark.parametrize(("count", "width"), [(0, 4), (1, 4), (3, 1)])
def test_what_does_not_overlap_needs_no_thread(count: int, width: int) -> None:
    seen = parallel_map(lambda _: threading.current_thread(), [None] * count, width=width)
    assert seen == [threading.current_thread()] * count


def test_no_call_is_left_under_way_behind_an_error() -> None:
    together = threading.Barrier(2)
    ended: list[int] = []

    def call(item: int) -> None:
        together.wait(SOON_S)
        if item == 0:
            raise ValueError("the first")
        threading.Event().wait(0.02)
        ended.append(item)

    with pytest.raises(ValueError, match="the first"):
        parallel_map(call, [0, 1], width=2)
    assert ended == [1]
