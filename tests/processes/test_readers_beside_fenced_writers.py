"""hudi-rs in a loop beside writers of a fenced table: it sees a prefix of their decisions, always.

Every commit of a writer brings the same number to two partitions. So a reader that sees one half of
a commit sees two numbers, and one that sees commits out of their order sees a number fall. What was
acknowledged before it began to read it must find.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.stopped_process import StoppedProcess
from tests.support.tables import COW, FENCED, a_table, trips

import headwater as hw
from headwater import opening
from headwater.kernel.journal.journal import Journal
from headwater.table import Table

hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")

WRITERS = 2
COMMITS = int(os.environ.get("HEADWATER_TEST_COMMITS", "12"))
OPTIONS = {
    **FENCED,
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.num.retries.on.conflict.failures": "100",
}
HALVES = ("left", "right")


def write(path: Path, writer: int, table: Table) -> None:
    """Commit numbers one after the other, and note each that is acknowledged."""
    with (path / f"acknowledged-{writer}").open("w") as notes:
        for number in range(1, COMMITS + 1):
            halves = [(f"{writer}-{half}", half, number) for half in HALVES]
            table.upsert(trips(*halves))
            notes.write(f"{number}\n")
            notes.flush()


def acknowledged(path: Path, writer: int) -> int:
    notes = path / f"acknowledged-{writer}"
    return notes.read_text().count("\n") if notes.exists() else 0


def read_by_hudi_rs(uri: str) -> dict[str, int]:
    batches = hudi.HudiTableBuilder.from_base_uri(uri).build().read()
    found = [row for batch in batches for row in pa.record_batch(batch).to_pylist()]
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["value"] for row in found}


def test_hudi_rs_sees_whole_commits_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "Journal", partial(Journal, every=4))
    table = a_table(tmp_path, partition_by="city", table_type=COW, buckets=1)
    table = table.with_options(OPTIONS)
    uri = table.with_upserts(trips(("first", "left", 0))).create().uri
    opened = partial(hw.open_table, uri, table.options)
    with (
        StoppedProcess(opened, partial(write, tmp_path, 0)) as one,
        StoppedProcess(opened, partial(write, tmp_path, 1)) as other,
    ):
        seen = [0] * WRITERS
        are_writing = True
        while are_writing:
            are_writing = one.is_running or other.is_running
            at_least = [acknowledged(tmp_path, writer) for writer in range(WRITERS)]
            found = read_by_hudi_rs(uri)
            assert found["first"] == 0
            for writer in range(WRITERS):
                left, right = (found.get(f"{writer}-{half}", 0) for half in HALVES)
                assert left == right, "half of a commit"
                assert left >= max(seen[writer], at_least[writer]), "not in their order"
                seen[writer] = left
        assert (one.wait().error, other.wait().error) == (None, None)
    assert seen == [COMMITS] * WRITERS
