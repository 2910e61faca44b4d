"""Properties that are computed once, and whom they keep waiting."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable

import pytest

from headwater.seams.cached import cached_property

WAITED_S_MAX = 300.0


class Reading:
    """Something that reads when it is asked."""

    def __init__(self, read: Callable[[], int]) -> None:
        self.read = read
        self.count = 0

    @cached_property
    def value(self) -> int:
        self.count += 1
        return self.read()


def seven() -> int:
    return 7


def test_it_is_computed_once_and_pickles_with_its_value() -> None:
    reading = Reading(seven)
    assert (reading.value, reading.value, reading.count) == (7, 7, 1)
    assert set(vars(reading)) == {"read", "count", "value"}
    assert pickle.loads(pickle.dumps(reading)).value == 7


def test_after_an_error_it_is_computed_again() -> None:
    answers = iter([None, 7])

    def read() -> int:
        answer = next(answers)
        if answer is None:
            raise TimeoutError
        return answer

    reading = Reading(read)
    with pytest.raises(TimeoutError):
        _ = reading.value
    assert set(vars(reading)) == {"read", "count"}
    assert reading.value == 7


def test_n_81_who_reads_one_table_does_not_keep_another_one_waiting() -> None:
    """One reads until the other has read: with one lock for both neither would ever end."""
    has_begun, is_read = threading.Event(), threading.Event()

    def slow() -> int:
        has_begun.set()
        return 1 if is_read.wait(WAITED_S_MAX) else 0

    one, other = Reading(slow), Reading(seven)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(one.value))
    thread.start()
    assert has_begun.wait(WAITED_S_MAX)
    asking = threading.Thread(target=lambda: found.append(other.value), daemon=True)
    asking.start()
    asking.join(WAITED_S_MAX)
    is_read.set()
    thread.join(WAITED_S_MAX)
    assert found == [7, 1]


def test_threads_that_ask_one_instance_wait_for_one_answer() -> None:
    may_go = threading.Event()

    def slow() -> int:
        may_go.wait(WAITED_S_MAX)
        return 7

    reading = Reading(slow)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(reading.value)) for _ in range(4)]
    for thread in threads:
        thread.start()
    may_go.set()
    for thread in threads:
        thread.join(WAITED_S_MAX)
    assert (found, reading.count) == ([7] * 4, 1)
