"""Thousands of markers at once, from processes that are not the driver's."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from headwater.config.markers import MarkerConfig
from headwater.kernel.txn.markers import Marker, MarkerKind
from headwater.markers.batches import load_every_marker
from headwater.markers.running import start_marker_service
from headwater.model.instant import InstantTime
from headwater.seams.ids import SystemIds
from headwater.seams.local import LocalStorage

T = InstantTime("20260101000000000")
PROCESSES, THREADS = 2, 32

# Every thread is a task: a connection of its own, and one marker in each request.
EXECUTOR = """
import sys
from concurrent.futures import ThreadPoolExecutor
from headwater.kernel.txn.markers import Marker, MarkerKind
from headwater.markers.client import MarkerClient, MarkerServiceAddress
from headwater.seams.clock import SystemClock
from headwater.seams.ids import SystemIds
port, time, first, threads, each = sys.argv[1:]
address = MarkerServiceAddress("127.0.0.1", int(port), time, sys.stdin.read())
def task(number):
    with MarkerClient(address, SystemClock(), SystemIds()) as markers:
        for n in range(number * int(each), (number + 1) * int(each)):
            markers.create(Marker(f"city=sf/{n:08x}_0-1-0_{time}.parquet", MarkerKind.CREATE))
with ThreadPoolExecutor(int(threads)) as pool:
    list(pool.map(task, range(int(first), int(first) + int(threads))))
"""


@pytest.mark.parametrize("each", [32, pytest.param(157, marks=pytest.mark.long)])
def test_markers_of_64_tasks_are_each_stored_once(tmp_path: Path, each: int) -> None:
    storage = LocalStorage(tmp_path, fsync=False)
    with ExitStack() as stack:
        running = stack.enter_context(start_marker_service(storage, SystemIds(), T, MarkerConfig()))
        executors = []
        for process in range(PROCESSES):
            numbers = [running.address.port, T, process * THREADS, THREADS, each]
            command = [sys.executable, "-c", EXECUTOR, *map(str, numbers)]
            executor = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE))
            stack.callback(executor.kill)  # Before it is waited for, in case it took too long.
            assert executor.stdin is not None
            executor.stdin.write(running.address.token.encode())
            executor.stdin.close()
            executors.append(executor)
        assert [executor.wait() for executor in executors] == [0, 0]
        running.seal()
    total = PROCESSES * THREADS * each
    expected = [
        Marker(f"city=sf/{n:08x}_0-1-0_{T}.parquet", MarkerKind.CREATE) for n in range(total)
    ]
    assert load_every_marker(storage, T) == expected
    names = storage.list_names(f".hoodie/.temp/{T}")
    assert sorted(names) == sorted(["MARKERS.type", *(f"MARKERS{n}" for n in range(20))])
    lines = [storage.read(f".hoodie/.temp/{T}/MARKERS{n}").count(b"\n") for n in range(20)]
    assert sum(lines) == total  # None is there twice.
