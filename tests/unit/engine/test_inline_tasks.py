"""Tasks on the inline engine: in order, with their numbers, and stopped between two of them."""

from __future__ import annotations

import pytest

from headwater.engine.engine import TaskContext
from headwater.engine.inline import InlineEngine
from headwater.errors import ConflictError


def test_results_come_in_the_order_of_tasks_and_tasks_know_their_numbers() -> None:
    found = InlineEngine().run(lambda here, task: (here, task), ["a", "b"])
    assert found == [
        (TaskContext(task=0, task_attempt=0, task_count=2), "a"),
        (TaskContext(task=1, task_attempt=0, task_count=2), "b"),
    ]
    assert InlineEngine().run(lambda here, task: task, []) == []


def test_what_a_poll_raises_stops_before_the_next_task() -> None:
    done: list[int] = []

    def poll() -> None:
        if len(done) == 2:
            raise ConflictError("the plan was cancelled")

    with pytest.raises(ConflictError, match="cancelled"):
        InlineEngine().run(lambda here, task: done.append(task), [1, 2, 3], poll=poll)
    assert done == [1, 2]
