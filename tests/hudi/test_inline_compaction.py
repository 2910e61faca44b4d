"""Hudi compacts inline, after its own commits, while somebody else compacts the same table.

What Hudi 1.2 does after a commit with `hoodie.compact.inline=true`: it executes every plan that it
finds pending, whoever made it, then plans and executes what it planned. It fails the write, which
has landed, if one of these plans has ended meanwhile or if somebody beats for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.hudi.soak_batches import OWN, SCHEMA, batch
from tests.hudi.test_both_at_once import FILE_LOCK, NON_BLOCKING, OPTIMISTIC, THEIRS
from tests.support.hudi_peer import Bundle, HudiError, HudiPeer, NoHudiError, find_bundle
from tests.support.tables import MOR, a_table

from headwater.errors import ConflictError, FencedError
from headwater.model.instant import Action, Instant, State
from headwater.table import Table

WRITES = 8
DEADLINE_S = 600
LOCK = {"hoodie.write.lock.filesystem.expire": "1"}
OURS = {
    **LOCK,
    "hoodie.write.lock.provider": FILE_LOCK,
    "hoodie.write.lock.wait_time_ms": "600000",
    "headwater.storage.fsync": "false",
}
INLINE = {
    **THEIRS,
    **LOCK,
    "hoodie.write.lock.provider": FILE_LOCK,
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "1",
}
NEVER_DUE = {"hoodie.compact.inline.max.delta.commits": "1000"}


def new_table(folder: Path, control: str, **options: str) -> Table:
    shape = a_table(
        folder,
        SCHEMA,
        partition_by="city",
        ordering="ts",
        table_type=MOR,
        index="bucket",
        buckets=2,
    )
    mode = {"hoodie.write.concurrency.mode": control}
    table = shape.with_options({**OURS, **mode, **options}).create()
    table.upsert(batch("ours", -1))
    return table


def theirs(table: Table, control: str) -> dict[str, str]:
    return {
        **INLINE,
        "hoodie.write.concurrency.mode": control.upper(),
        "hoodie.table.name": table.name,
    }


class Compacting:
    """Calls of `compact` one after the other, in a thread, as long as the block lasts."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._is_over = threading.Event()
        self.seen: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                done = self._table.services.compact(only_if_due=True)
                self.seen["nothing to do" if done is None else "executed"] += 1
            except (ConflictError, FencedError):
                self.seen["left to another"] += 1
            except Exception as error:  # noqa: BLE001 - the test shows whatever it was
                self.seen[repr(error)] += 1
            self._is_over.wait(0.02)

    def __enter__(self) -> Compacting:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("control", [OPTIMISTIC, NON_BLOCKING])
def test_no_write_fails_for_a_plan_of_hudis_own(
    hudi: HudiPeer, tmp_path: Path, control: str
) -> None:
    """We make no plan here, so that each that there is, is Hudi's."""
    table = new_table(tmp_path, control, **NEVER_DUE)
    options = theirs(table, control)
    with Compacting(table) as compacting:
        for number in range(WRITES):
            hudi.write(batch("theirs", number), table.uri, options)
    table = table.reload()
    compactions = [
        one for one in table.context.load_timeline().completed if one.action is Action.COMPACTION
    ]
    assert len(compactions) >= WRITES // 2, "Hudi compacted too little to show anything"
    assert compacting.seen.keys() <= {"nothing to do", "left to another"}, compacting.seen
    assert batches(table) == dict.fromkeys(range(WRITES), OWN)
    assert table.inspect.problems(deep=True).to_pylist() == []


def batches(table: Table) -> dict[int, int]:
    """Return how many rows there are of each of Hudi's batches, without those of shared keys."""
    found = table.read_arrow().to_pylist()
    own = [row for row in found if row["writer"] == "theirs" and not row["id"].startswith("both-")]
    return dict(Counter(row["number"] for row in own))


# What two processes of Hudi's do to each other --------------------------------------------------


def test_hudi_fails_a_write_that_has_landed_while_another_hudi_compacts(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    """So what is left between Hudi and a plan of ours is no more than between Hudi and Hudi."""
    table = new_table(tmp_path, OPTIMISTIC)
    options = theirs(table, OPTIMISTIC)
    with stopped_in_a_compaction(table, options):
        with pytest.raises(HudiError, match="due to heartbeat by concurrent writer"):
            hudi.write(batch("theirs", 1000), table.uri, options)
        assert batches(table.reload())[1000] == OWN, "it did not land"


@contextmanager
def stopped_in_a_compaction(table: Table, options: dict[str, str]) -> Iterator[Instant]:
    """Stop a process of Hudi's while it compacts inline; it goes on afterwards."""
    with HudiPeer(bundle()) as other:
        for number in range(20):
            writing = threading.Thread(target=write_quietly, args=(other, table, options, number))
            writing.start()
            stopped = stop_when_inflight(table, other, writing)
            if stopped is not None:
                try:
                    yield stopped
                finally:
                    send(other, signal.SIGCONT)
                    writing.join(DEADLINE_S)
                return
            writing.join(DEADLINE_S)
    raise AssertionError("Hudi was done with every compaction before it could be stopped")


def write_quietly(peer: HudiPeer, table: Table, options: dict[str, str], number: int) -> None:
    try:
        peer.write(batch("theirs", number), table.uri, options)
    except HudiError as error:  # It was stopped for long; only the other one is judged.
        print(str(error)[-300:])


def stop_when_inflight(table: Table, peer: HudiPeer, writing: threading.Thread) -> Instant | None:
    while writing.is_alive():
        if inflight_compaction(table) is not None:
            send(peer, signal.SIGSTOP)
            found = inflight_compaction(table)
            if found is not None:
                return found
            send(peer, signal.SIGCONT)
        time.sleep(0.005)
    return None


def inflight_compaction(table: Table) -> Instant | None:
    pending = table.context.load_timeline().pending
    found = [
        one for one in pending if one.action is Action.COMPACTION and one.state is State.INFLIGHT
    ]
    return found[0] if found else None


def send(peer: HudiPeer, number: signal.Signals) -> None:
    """Send a signal to the virtual machine behind a peer."""
    children = subprocess.run(
        ["pgrep", "-P", str(peer.pid)], capture_output=True, text=True, check=True
    )
    for process in children.stdout.split():
        os.kill(int(process), number)


def bundle() -> Bundle:
    try:
        return find_bundle()
    except NoHudiError as missing:
        pytest.skip(str(missing))
