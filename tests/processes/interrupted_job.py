"""A job whose every other operation is interrupted somewhere, and that goes on.

Arguments: a folder for its table, whether that has a journal, a seed, how many operations, and
whether schedulers interrupt too, whose exceptions are ordinary ones. An interrupted operation is
done or not, and nothing of it stays at work: no thread, no lock. Run by `test_interrupted_jobs.py`.
"""

from __future__ import annotations

import gc
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import pyarrow as pa

import headwater as hw

OPTIONS = {
    "hoodie.write.lock.provider": "filesystem",
    "hoodie.write.lock.wait_time_ms": "2000",
    "hoodie.compact.inline.max.delta.commits": "2",
    "hoodie.keep.max.commits": "12",
    "hoodie.keep.min.commits": "10",
    "hoodie.clean.commits.retained": "5",
}
SETTLED_S_MAX = 300.0
Rows = dict[str, int]


class TimedOut(Exception):
    """What a scheduler raises in a task that takes too long."""


INTERRUPTS = (KeyboardInterrupt, TimedOut)


class Job:
    def __init__(
        self, folder: str, *, fenced: bool, seed: int, interrupts: Sequence[type[BaseException]]
    ) -> None:
        self.interrupts = interrupts
        self.chance = random.Random(seed)
        self.rows: Rows = {}
        self.number = 0
        self.interrupted = 0
        self.took_s: dict[str, float] = {}
        self.table = hw.create_table(
            f"{folder}/trips",
            schema="id string not null, city string, value long",
            record_key="id",
            partition_by="city",
            ordering="value",
            table_type="MERGE_ON_READ",
            buckets=2,
            options={**OPTIONS, "headwater.timeline.fenced": str(fenced).lower()},
        )

    def step(self) -> None:
        """Do something, interrupt it or not, and see that it was done or was not."""
        name, do, after = self.choose()
        began = time.perf_counter()
        limit_s = self.took_s.get(name, 0.2)
        is_interrupted = False
        try:
            by = self.chance.choice(self.interrupts)
            with interrupted_after(self.chance.random() * 2 * limit_s, by):
                do()
        except BaseException as error:
            if not is_interrupt(error):
                raise
            is_interrupted = True
        if is_interrupted:
            self.interrupted += 1
            wait_until_settled()
        else:
            self.took_s[name] = time.perf_counter() - began
        found = self.read()
        expected = [self.rows, after] if is_interrupted else [after]
        assert found in expected, (name, is_interrupted, found, expected)
        self.rows = found

    def choose(self) -> tuple[str, Callable[[], object], Rows]:
        services = self.table.services
        chosen = self.chance.choice(
            ["upsert", "upsert", "upsert", "delete", "compact", "cluster", "clean", "archive"]
        )
        if chosen == "upsert":
            rows = self.batch()
            values = dict(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))
            return chosen, lambda: self.table.upsert(rows), {**self.rows, **values}
        if chosen == "delete":
            rows = self.batch().slice(0, 1)
            left = {key: row for key, row in self.rows.items() if key != rows["id"][0].as_py()}
            return chosen, lambda: self.table.delete(rows), left
        return chosen, getattr(services, chosen), self.rows

    def batch(self) -> pa.Table:
        self.number += 1
        keys = sorted(self.chance.sample(range(30), 4))
        return pa.table(
            {
                "id": [f"k{key}" for key in keys],
                "city": ["sf" if key % 2 else "la" for key in keys],
                "value": [self.number] * len(keys),
            }
        )

    def read(self) -> Rows:
        found = self.table.read_arrow(["id", "value"])
        return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is one that was raised in the midst, or came of it.

    Python's own `Thread.start` fails with a KeyError if it is interrupted by an `Exception`.
    """
    while error is not None and not isinstance(error, INTERRUPTS):
        error = error.__context__
    return error is not None


@contextmanager
def interrupted_after(delay_s: float, by: type[BaseException]) -> Iterator[None]:
    """Raise something in the block, once, unless it ends before."""
    is_armed = True

    def interrupt(_: int, __: FrameType | None) -> None:
        if is_armed:
            raise by

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, max(delay_s, 0.001))
    try:
        yield
    finally:
        is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)


def wait_until_settled() -> None:
    """Wait until nothing of what was interrupted goes on."""
    deadline_s = time.monotonic() + SETTLED_S_MAX
    gc.collect()
    while names := [t.name for t in threading.enumerate() if is_at_work(t)]:
        assert time.monotonic() < deadline_s, f"still at work: {names}"
        time.sleep(0.005)


def is_at_work(thread: threading.Thread) -> bool:
    return thread.name.startswith(("heartbeat-", "headwater-lock-"))


def main(folder: str, fenced: str, seed: str, steps: str, all_kinds: str) -> None:
    kinds = INTERRUPTS if all_kinds == "True" else INTERRUPTS[:1]
    job = Job(folder, fenced=fenced == "True", seed=int(seed), interrupts=kinds)
    job.table.upsert(job.batch())
    job.rows = job.read()
    for _ in range(int(steps)):
        job.step()
    # Whoever comes next finds the lock free, and nothing that cannot be ended.
    last = hw.open_table(job.table.uri, OPTIONS)
    rows = job.batch()
    last.upsert(rows)
    assert last.context.components.locks.inspect() is None
    print(f"{job.interrupted} interrupted", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
