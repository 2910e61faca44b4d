"""One process of the demo: it opens the table, does what it is told, and says what came of it.

    python demo_job.py NAME TABLE KEYS [--spark LOG]

Orders come as lines of JSON, and so do answers go: `{"event": ..., ...}`. Two orders are heeded in
the middle of work: `enough` ends an ingestion, `go` lets go of what waits for it.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import pyarrow as pa
from demo_rows import Batch

import headwater as hw
from headwater.engine.engine import Engine, Poll, Route, RowsTask, TaskContext, never_stops
from headwater.engine.inline import InlineEngine, InlineRows
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import run_write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A = TypeVar("A")
R = TypeVar("R")

SHARED_LOCK = {
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
    "hoodie.write.lock.wait_time_ms": "600000",
}
"""Where Apache Hudi writes at the same time. Among ourselves nobody needs a lock."""

OPTIONS = {
    "hoodie.clean.commits.retained": "100",
    "headwater.cancel.poll.interval.ms": "100",
}
NON_BLOCKING = {**OPTIONS, "hoodie.write.concurrency.mode": "non_blocking_concurrency_control"}
OPTIMISTIC = {
    **OPTIONS,
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.num.retries.on.conflict.failures": "0",  # To see the conflict; usually 3.
}
PAUSE_GROWTH = 1.4
ORDERS_WITHIN = ("enough", "go")


class HeldRows(InlineRows):
    """Rows whose job does not return when its files are written, but when it is let go."""

    def __init__(self, rows: pa.Table, hold: Callable[[], None]) -> None:
        super().__init__(rows)
        self._hold = hold

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        done = super().run(route, task)
        self._hold()
        return done


class HeldEngine:
    """An engine that holds still in the middle of its tasks, once, until it is let go."""

    is_in_process = True

    def __init__(self, hold: Callable[[], None]) -> None:
        self._hold = hold

    def run(
        self,
        function: Callable[[TaskContext, A], R],
        tasks: Sequence[A],
        *,
        poll: Poll = never_stops,
    ) -> list[R]:
        begun = 0

        def poll_held() -> None:
            nonlocal begun
            begun += 1
            if begun == 2:
                self._hold()
            poll()

        return InlineEngine().run(function, tasks, poll=poll_held)


class Job:
    """What a process can be told; every method is an order, and what it returns the answer."""

    def __init__(self, path: str, key_count: int, spark: SparkSession | None) -> None:
        self._path, self._key_count, self._spark = path, key_count, spark
        self._is_enough, self._may_go = threading.Event(), threading.Event()
        self._table = self._open(NON_BLOCKING)

    def heed(self, order: str) -> None:
        (self._is_enough if order == "enough" else self._may_go).set()

    def ingest(self, writer: int, first: int, last: int | None, pause_s: float) -> dict[str, Any]:
        """Upsert batches, until the last one or until it is enough.

        Pauses grow, so that a slow machine does not make a long story of it.
        """
        number = first
        while not self._is_enough.is_set() and (last is None or number <= last):
            say("writing", batch=number)
            rows = Batch(writer, number, self._key_count).rows()
            began = time.monotonic()
            # A DataFrame is written by Spark's tasks, an Arrow table right here.
            commit = self._table.upsert(
                rows if self._spark is None else self._spark.createDataFrame(rows)
            )
            say(
                "acknowledged",
                writer=writer,
                batch=number,
                instant=commit.instant,
                row_count=rows.num_rows,
                took_ms=round((time.monotonic() - began) * 1000),
            )
            number += 1
            self._is_enough.wait(pause_s)
            pause_s *= PAUSE_GROWTH
        self._is_enough.clear()
        return {"next": number}

    def write_held(
        self, writer: int, number: int, is_partial: bool, is_optimistic: bool
    ) -> dict[str, Any]:
        """Write the files of a batch, and commit only when let go."""
        table = self._open(OPTIMISTIC) if is_optimistic else self._table
        rows = Batch(writer, number, self._key_count).rows()
        rows = rows.drop_columns(["city"]) if is_partial else rows
        request = WriteRequest(
            operation=Operation.UPSERT, columns=rows.schema, is_partial=is_partial
        )
        held = HeldRows(rows, lambda: self._wait("files written, no commit yet"))
        commit = run_write(table.context, request, held)
        return {"writer": writer, "batch": number, "instant": commit.instant}

    def write_optimistic(self, writer: int, number: int) -> dict[str, Any]:
        """Upsert fares of a batch under optimistic control; a conflict is an answer."""
        rows = Batch(writer, number, self._key_count).rows().drop_columns(["city"])
        began = time.monotonic()
        try:
            commit = self._open(OPTIMISTIC).upsert(rows, partial=True)
        except hw.ConflictError as error:
            took_ms = round((time.monotonic() - began) * 1000)
            return {"kind": error.kind.value, "took_ms": took_ms, "error": str(error)}
        return {"writer": writer, "batch": number, "instant": commit.instant}

    def compact(self) -> dict[str, Any]:
        done = self._table.services.compact()
        return {} if done is None else {"instant": done.instant, "row_count": done.row_count}

    def cluster(self) -> dict[str, Any]:
        """Execute a cancellable clustering, and hold still in its middle."""
        planned = self._table.services.schedule_clustering(sort_by="fare", cancellable=True)
        assert planned is not None

        def engine_for(_size: int) -> Engine:
            return HeldEngine(lambda: self._wait("half way", instant=planned))

        held = hw.Table(replace(self._table.context, engine_for=engine_for))
        done = held.services.cluster(planned)
        assert done is not None
        return {"instant": planned, "is_cancelled": done.is_cancelled}

    def index(self, names: list[str]) -> dict[str, Any]:
        self._table.indexes.create(names)
        return {"indexes": names}

    def clean(self) -> dict[str, Any]:
        self._table.services.clean()
        return {}

    def savepoint(self) -> dict[str, Any]:
        return {"instant": self._table.services.savepoint(comment="before the bad batch").instant}

    def restore(self, instant: str) -> dict[str, Any]:
        return {"undone": list(self._table.services.restore(instant).undone)}

    def _open(self, options: dict[str, str]) -> hw.Table:
        if self._spark is not None:
            # Batches this small are otherwise written by the driver; here Spark's tasks write.
            options = {**options, "headwater.write.inline.bytes": "0"}
        if not hw.open_table(self._path).config.is_fenced:
            options = {**options, **SHARED_LOCK}
        return hw.open_table(self._path, options)

    def _wait(self, where: str, **fields: Any) -> None:
        say("held", where=where, **fields)
        self._may_go.wait()
        self._may_go.clear()


@cache
def _answers() -> TextIO:
    """Return where answers go: a way of their own, as Spark and its JVM print to the other."""
    way = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return way


def say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), file=_answers(), flush=True)


def start_spark(log: Path) -> SparkSession:
    """Start a local session. What Spark and its JVM have to say goes to a file."""
    from pyspark.sql import SparkSession

    with log.open("wb") as out:
        os.dup2(out.fileno(), 2)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return (
        SparkSession.builder.master("local[2]")
        .appName("headwater-demo")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(log.parent / "spark-warehouse"))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )


def listen(job: Job, orders: queue.Queue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] in ORDERS_WITHIN:
            job.heed(order["do"])
        else:
            orders.put(order)
    orders.put(None)  # The director is gone or has no more orders.


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("table")
    parser.add_argument("keys", type=int)
    parser.add_argument("--spark", type=Path)
    given = parser.parse_args()
    _answers()
    spark = None if given.spark is None else start_spark(given.spark)
    job = Job(given.table, given.keys, spark)
    orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=listen, args=(job, orders), daemon=True).start()
    say("ready")
    while (order := orders.get()) is not None:
        name = order.pop("do")
        say("begun", order=name)
        answer = getattr(job, name)(**order)
        say("done", order=name, **answer)
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
