"""The engine seam: where tasks run and how rows reach them.

An engine runs independent, picklable tasks and returns their results in task order. A task may run
more than once, also at the same time on two machines (retries, speculation), so whatever it writes
carries its own write token, and only what its returned result lists counts.

`Rows` are the rows of one write, wherever they are. `run` brings them to tasks such that all rows
with the same route come to the same task, and lets each task consume its rows as Arrow batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Protocol, TypeVar

import pyarrow as pa

from headwater.model.column_names import OWN_PREFIX

GROUP_NUMBER = f"{OWN_PREFIX}group"
"""The column, of 32-bit integers, that `Route.tag` adds to the rows."""

A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TaskContext:
    """Which task this is, of how many, and which try of it."""

    task: int
    task_attempt: int
    task_count: int


@unique
class RouteKind(StrEnum):
    ANYWHERE = "anywhere"  # Rows may go to any task.
    BY_FILE_GROUP = "by_file_group"  # Rows of one file group come to one task.


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How rows find their tasks.

    Equal numbers come to the same task: with n tasks, number i to the task i modulo n.
    `group_numbers` gives every row of a batch its number. Where finding the number is costly, `tag`
    does it instead: it gives the rows of a task's batches again, with the column `GROUP_NUMBER`,
    which the tasks that consume the rows then see. It may leave rows out, or give them twice, and
    add columns that spare the tasks work; an engine that moves rows between machines drops those.
    `simple_key` and `simple_partition` name the columns when the number is no more than Hudi's
    bucket of one key column plus a hash of the partition path, made of the values of columns as
    they are, which an engine may compute natively. `is_hive_style` says that paths name columns.
    """

    kind: RouteKind
    group_numbers: Callable[[pa.RecordBatch], pa.Array] | None = None
    tag: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None
    bucket_count: int | None = None
    simple_key: str | None = None
    simple_partition: tuple[str, ...] = ()
    is_hive_style: bool = False


RowsTask = Callable[[TaskContext, Iterator[pa.RecordBatch]], list[R]]


class Rows(Protocol):
    """The rows of one write."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def driver_host(self) -> str | None:
        """Where tasks reach this process over the network; None if they cannot."""
        ...

    def held(self) -> Sequence[pa.RecordBatch] | None:
        """Return the rows if this process has them in memory; None if they are elsewhere."""
        ...

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        """Bring the rows to tasks and return all their results, in task order."""
        ...


Poll = Callable[[], None]
"""Called now and then while tasks run. What it raises stops them."""


def never_stops() -> None:
    """Let tasks run to their end."""


class Engine(Protocol):
    @property
    def is_in_process(self) -> bool:
        """Whether tasks run one after the other in this process, and may use what it has open."""
        ...

    def run(
        self,
        function: Callable[[TaskContext, A], R],
        tasks: Sequence[A],
        *,
        poll: Poll = never_stops,
    ) -> list[R]:
        """Run a function on each of some independent tasks; return the results in task order.

        Tasks that `poll` stopped may go on for a while on other machines: what they write then is
        in no result.

        Raises:
            HeadwaterError: what a task raised, or what `poll` did. Others may have run to their
                end.
        """
        ...
