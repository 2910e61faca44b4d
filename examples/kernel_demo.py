"""Several processes on one table: who gets which instant, and what the table shows meanwhile.

Each process requests and commits a few instants without rows, all at once, through the real lock
on local disk. One more is killed half-way, to show what it leaves behind and who can tell.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from pathlib import Path

import pyarrow as pa

import headwater as hw
from headwater.kernel.table_config import table_layout
from headwater.kernel.txn.steps import Claim
from headwater.kernel.txn.transaction import LockTransaction
from headwater.kernel.txn.writes import start_write
from headwater.model.instant import Action

PROCESS_COUNT = 4
COMMITS_EACH = 5


def commit_some(path: str, count: int, *, dies: bool = False) -> None:
    table = hw.open_table(path)
    txn = LockTransaction(table.components, table_layout(table.config))
    for _ in range(count):
        claim = Claim(
            owner=table.ids.owner,
            token=table.ids.new_uuid(),
            interval_ms=table.write_config.heartbeat_interval_ms,
            tolerable_misses=table.write_config.heartbeat_tolerable_misses,
        )
        inflight = start_write(table.components, txn, Action.COMMIT, claim).enter_inflight()
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        inflight.commit(b"")


def main() -> None:
    path = str(Path(tempfile.mkdtemp(prefix="headwater-demo-")) / "trips")
    schema = pa.schema([("id", pa.string()), ("city", pa.string())])
    table = hw.create_table(path, schema=schema, record_key="id", partition_by="city")
    print(f"table {table.name} at {table.uri}\n")

    print(f"{PROCESS_COUNT} processes commit {COMMITS_EACH} instants each, one more is killed ...")
    spawn = multiprocessing.get_context("spawn")
    jobs = [
        spawn.Process(target=commit_some, args=(path, COMMITS_EACH)) for _ in range(PROCESS_COUNT)
    ]
    jobs.append(spawn.Process(target=commit_some, args=(path, 1), kwargs={"dies": True}))
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()

    print("\nThe timeline: every time is unique, and order is the order of completion.")
    rows = table.inspect.timeline().to_pylist()
    for row in rows:
        completion = row["completion_time"] or "-"
        print(f"  {row['requested_time']}  {row['action']:8} {row['state']:10} {completion}")

    print("\nThe killed process left an inflight instant and a heartbeat that no longer changes:")
    for row in table.inspect.heartbeats().to_pylist():
        print(
            f"  {row['instant']}  attempt {row['attempt']} by {row['host']}/{row['pid']}, "
            f"last heard of {row['age_ms']} ms ago"
        )

    completed = [row for row in rows if row["state"] == "completed"]
    times = [time for row in completed for time in (row["requested_time"], row["completion_time"])]
    if len(completed) != PROCESS_COUNT * COMMITS_EACH or len(set(times)) != len(times):
        raise SystemExit("the table does not hold what was committed")
    print(f"\n{len(completed)} commits, none lost, no two times alike.")


if __name__ == "__main__":
    main()
