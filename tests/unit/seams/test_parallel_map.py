"""Several calls at a time."""

import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.seams.parallel_map import parallel_map, waiting_threads

SOON_S = 300  # How long to wait for what comes at once; reached only by a failure.


@pytest.mark.parametrize("helpers", [None, waiting_threads()], ids=["own", "waiting"])
def test_answers_come_in_the_order_of_the_items(helpers: ThreadPoolExecutor | None) -> None:
    together = threading.Barrier(3)

    def call(item: int) -> int:
        together.wait(SOON_S)  # Returns only if three calls are under way.
        return item * 10

    assert parallel_map(call, [3, 1, 2], width=3, helpers=helpers) == [30, 10, 20]


@pytest.mark.parametrize(("count", "width"), [(0, 4), (1, 4), (3, 1)])
def test_what_does_not_overlap_needs_no_thread(count: int, width: int) -> None:
    seen = parallel_map(lambda _: threading.current_thread(), [None] * count, width=width)
    assert seen == [threading.current_thread()] * count


@pytest.mark.parametrize("helpers", [None, waiting_threads()], ids=["own", "waiting"])
def test_no_call_is_left_under_way_behind_an_error(helpers: ThreadPoolExecutor | None) -> None:
    together = threading.Barrier(2)
    ended: list[int] = []

    def call(item: int) -> None:
        together.wait(SOON_S)
        if item == 0:
            raise ValueError("the first")
        threading.Event().wait(0.02)
        ended.append(item)

    with pytest.raises(ValueError, match="the first"):
        parallel_map(call, [0, 1], width=2, helpers=helpers)
    assert ended == [1]


@pytest.mark.parametrize("helpers", [None, waiting_threads()], ids=["own", "waiting"])
def test_n_194_no_call_is_left_under_way_behind_an_interrupt(
    helpers: ThreadPoolExecutor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while the others are waited for, as Ctrl-C mostly does."""
    together, interrupted = threading.Barrier(2), threading.Event()
    begun: list[int] = []
    ended: list[int] = []

    def call(item: int) -> None:
        begun.append(item)
        if len(begun) < 3:
            together.wait(SOON_S)
        if threading.current_thread() is not caller:
            interrupted.wait(SOON_S)
            ended.append(item)

    def interrupt(_: object) -> None:
        monkeypatch.undo()
        interrupted.set()
        raise KeyboardInterrupt

    caller = threading.current_thread()
    monkeypatch.setattr("headwater.seams.parallel_map.wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        parallel_map(call, [0, 1], width=2, helpers=helpers)
    assert len(begun) == 2
    assert len(ended) == 1


def test_maps_within_maps_need_no_helper_that_is_free() -> None:
    with ThreadPoolExecutor(1) as busy:

        def call(depth: int) -> int:
            return depth and sum(parallel_map(call, [depth - 1] * 3, width=3, helpers=busy)) + 1

        assert parallel_map(call, [3, 3], width=2, helpers=busy) == [13, 13]


def test_a_child_has_helpers_of_its_own() -> None:
    def call(_: int) -> int:
        together.wait(SOON_S)
        return os.getpid()

    together = threading.Barrier(2)
    parallel_map(call, [0, 1], width=2, helpers=waiting_threads())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # That others' locks may be held.
        child = os.fork()
    if child == 0:
        code = 1
        try:
            found = parallel_map(call, [0, 1], width=2, helpers=waiting_threads())
            code = 0 if found == [os.getpid()] * 2 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
