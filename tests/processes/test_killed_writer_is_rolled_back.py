"""A real writer, killed in the middle of a write, and another process that rolls it back."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.config.table_options import TableType
from headwater.kernel.timeline.active import load_active

hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")

SCRIPT = Path(__file__).with_name("killed_writer.py")


def read_by_hudi_rs(uri: str) -> dict[str, int]:
    batches = hudi.HudiTableBuilder.from_base_uri(uri).build().read()
    rows = (row for batch in batches for row in pa.record_batch(batch).to_pylist())
    return {row["id"]: row["value"] for row in rows}


@pytest.mark.parametrize("table_type", list(TableType))
def test_a_writer_killed_in_the_middle_is_rolled_back(
    tmp_path: Path, table_type: TableType
) -> None:
    table = hw.create_table(
        tmp_path / "trips",
        schema="id string, city string, value long",
        record_key="id",
        partition_by="city",
        buckets=1,
        table_type=table_type,
    )
    table.upsert(pa.table({"id": ["a", "b"], "city": ["sf", "ny"], "value": [1, 2]}))
    before = {info.path for info in table.storage.list_tree("")}
    writer = subprocess.Popen(
        [sys.executable, str(SCRIPT), table.uri], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        # It is alive, so it is left alone.
        assert table.services.rollback_failed_writes() == []
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    (pending,) = load_active(table.storage, ".hoodie/timeline").pending

    # The system says that the process has ended, so nobody has to wait for its heartbeat.
    (done,) = table.services.rollback_failed_writes()

    assert done.instant == pending.requested_time
    assert len(done.deleted_paths) == 2
    after = {info.path for info in table.storage.list_tree("")}
    assert [path for path in after if done.instant in path] == []
    assert before <= after
    ours = {row["id"]: row["value"] for row in table.read_arrow().to_pylist()}
    assert ours == {"a": 1, "b": 2}
    assert read_by_hudi_rs(table.uri) == ours
    table.upsert(pa.table({"id": ["c"], "city": ["la"], "value": [7]}))
    assert read_by_hudi_rs(table.uri) == {"a": 1, "b": 2, "c": 7}
