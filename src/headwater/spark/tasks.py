"""Tasks on Spark: a list of values, a function, and the results in order.

    tasks      one row of spark.range for each, in as many partitions
    run        mapInArrow: the function gets its task, which travels with it
    results    come back as a number and a pickled value for each task

The job is tagged, so that it can be stopped while this process waits for it: a timer asks `poll`
now and then, and what that raises interrupts the job and is raised here instead. Classic sessions
and those of Spark Connect tag jobs in different ways: the tags of a classic session do not reach a
job whose results are collected as Arrow, those of its context do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext as SparkTaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.config.files import FileConfig
from headwater.config.spark import SparkConfig
from headwater.engine.engine import Engine, Poll, TaskContext, never_stops
from headwater.engine.inline import AtOnce, InlineEngine, one_by_one
from headwater.errors import HeadwaterError
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids
from headwater.spark.session import gateway_of, with_our_interpreter
from headwater.spark.task_results import decode_outcomes, encode_outcome, error_in_text
from headwater.spark.worker import warm

A = TypeVar("A")
R = TypeVar("R")

POLL_EVERY_MS = 1_000
"""How often `poll` is asked. It decides by itself when it looks at storage again."""

_INTERRUPTS = "spark.job.interruptOnCancel"
"""Whether tasks of a cancelled job are interrupted, or run to their end for nobody."""

_TASK = "task"
_OUTCOME = "outcome"


def engine_for(
    size_bytes: int,
    *,
    files: FileConfig,
    spark_config: SparkConfig,
    clock: Clock,
    ids: Ids,
    at_once: AtOnce = one_by_one,
) -> Engine:
    """Return the engine for work on so many bytes of files.

    `at_once` is how tasks in this process wait for the store of the table.

    Spark, if there is an active session and the work is more than this process does as fast: the
    same bound as for writes.
    """
    session = SparkSession.getActiveSession()
    is_small = 0 < files.inline_bytes >= size_bytes
    if session is None or is_small:
        return InlineEngine(at_once)
    return SparkEngine(session, clock, ids, spark_config)


class SparkEngine:
    """Runs tasks as one job of a session, classic or of Spark Connect."""

    is_in_process = False

    def __init__(
        self, spark: SparkSession, clock: Clock, ids: Ids, spark_config: SparkConfig | None = None
    ) -> None:
        self._spark = with_our_interpreter(spark)
        self._clock = clock
        self._ids = ids
        self._warms = (spark_config or SparkConfig()).warms_workers

    def run(
        self,
        function: Callable[[TaskContext, A], R],
        tasks: Sequence[A],
        *,
        poll: Poll = never_stops,
    ) -> list[R]:
        """Run the tasks; see `Engine.run`.

        Raises:
            HeadwaterError: what a task raised, or what `poll` did.
            PySparkException: Spark failed.
        """
        poll()
        if not tasks:
            return []
        count = len(tasks)
        run_task = partial(_run_task, function, tuple(tasks), self._warms)
        numbers = self._spark.range(0, count, 1, count)
        job = numbers.mapInArrow(run_task, f"{_TASK} long, {_OUTCOME} binary")
        tag = f"headwater-{self._ids.new_uuid()}"
        stop = _Stop(poll, partial(_interrupt, self._spark, tag))
        with _tagged(self._spark, tag):
            timer = self._clock.every_ms(POLL_EVERY_MS, stop.ask, tag)
            try:
                collected = job.toArrow()
            except (PySparkException, Py4JJavaError) as failure:
                ours = stop.reason or error_in_text(failure)
                if ours is None:
                    raise
                raise ours from failure
            finally:
                timer.cancel()
        if stop.reason is not None:
            raise stop.reason
        in_order = collected.sort_by(_TASK).column(_OUTCOME)
        return decode_outcomes(in_order.to_pylist())


class _Stop:
    """Asks whether a job should go on, from a timer, and interrupts it if not."""

    def __init__(self, poll: Poll, interrupt: Callable[[], None]) -> None:
        self.reason: HeadwaterError | None = None
        self._poll = poll
        self._interrupt = interrupt

    def ask(self) -> bool:
        """Return whether to ask again."""
        if self.reason is None:
            try:
                self._poll()
            except HeadwaterError as error:
                self.reason = error
        if self.reason is not None:
            # Again each time: the job may not have begun when it was interrupted first.
            self._interrupt()
        return True


@contextmanager
def _tagged(spark: SparkSession, tag: str) -> Iterator[None]:
    """Tag the jobs that this thread starts within."""
    if gateway_of(spark) is None:
        spark.addTag(tag)
        try:
            yield
        finally:
            spark.removeTag(tag)
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_INTERRUPTS)
    context.addJobTag(tag)
    context.setLocalProperty(_INTERRUPTS, "true")
    try:
        yield
    finally:
        context.setLocalProperty(_INTERRUPTS, before)  # type: ignore[arg-type]  # None: as unset.
        context.removeJobTag(tag)


def _interrupt(spark: SparkSession, tag: str) -> None:
    if gateway_of(spark) is None:
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


def _run_task(
    function: Callable[[TaskContext, A], R],
    tasks: Sequence[A],
    warms: bool,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    if warms:
        warm()
    context = SparkTaskContext.get()
    assert context is not None
    for batch in batches:
        for number in batch.column(0).to_pylist():
            # Not the number of the attempt but its id: unique over stages, retries, speculation.
            here = TaskContext(
                task=number, task_attempt=context.taskAttemptId(), task_count=len(tasks)
            )
            outcome = encode_outcome(partial(_call, function, here, tasks[number]))
            yield pa.RecordBatch.from_pydict(
                {_TASK: pa.array([number], pa.int64()), _OUTCOME: pa.array([outcome], pa.binary())}
            )


def _call(function: Callable[[TaskContext, A], R], context: TaskContext, task: A) -> list[R]:
    return [function(context, task)]
