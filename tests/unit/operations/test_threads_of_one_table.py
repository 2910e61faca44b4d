"""Threads that share one open table, as servers and notebooks do: each is a writer of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.tables import FENCED, LOCKED

import headwater as hw
from headwater.cli.commands.fsck import find_problems
from headwater.kernel.timeline.active import load_active
from headwater.seams.local import LocalStorage

WRITERS, COMMITS = 4, 4
IN_PROCESS = {"hoodie.write.lock.provider": "in_process"}


@pytest.mark.parametrize("timeline", [FENCED, LOCKED | IN_PROCESS], ids=["journal", "lock"])
@pytest.mark.parametrize(
    "mode", ["non_blocking_concurrency_control", "optimistic_concurrency_control"]
)
def test_threads_of_one_table_lose_nothing(
    tmp_path: Path, timeline: dict[str, str], mode: str
) -> None:
    table = hw.create_table(
        tmp_path / "t",
        schema="id string, value long, ts long",
        record_key="id",
        ordering="ts",
        table_type="MERGE_ON_READ",
        buckets=2,
        options={"hoodie.write.concurrency.mode": mode, **timeline},
    )

    def write(writer: int) -> list[str]:
        ids = [f"{writer}-{n}" for n in range(3)]
        return [
            table.upsert(pa.table({"id": ids, "value": [n] * 3, "ts": [n] * 3})).instant
            for n in range(COMMITS)
        ]

    with ThreadPoolExecutor(WRITERS) as threads:
        instants = [instant for done in threads.map(write, range(WRITERS)) for instant in done]
    rows = table.read_arrow(["id", "value"])
    assert rows.num_rows == WRITERS * 3
    assert set(rows["value"].to_pylist()) == {COMMITS - 1}
    # What other engines see, which know of no journal.
    files = load_active(LocalStorage(tmp_path / "t"), ".hoodie/timeline")
    assert {i.requested_time for i in files.completed if i.action.is_ingestion} == {*instants}
    assert not files.pending
    assert list(find_problems(table)) == []
