"""Apache Hudi as one more process of the demo, where its bundle was fetched (`make hudi`)."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
from demo_rows import SCHEMA, Batch
from demo_screen import Lane, Screen

WRITER = 5
OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "4",
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
    "hoodie.write.lock.wait_time_ms": "600000",
}


class HudiWriter:
    """A session of Spark with Hudi's own bundle."""

    def __init__(self, table: Path, key_count: int) -> None:
        sys.path.append(str(Path(__file__).parents[1]))
        from tests.support.hudi_peer import HudiPeer, NoHudiError, find_bundle

        try:
            bundle = find_bundle()
        except NoHudiError as error:
            raise SystemExit(str(error)) from error
        self._table, self._key_count = str(table), key_count
        self._name = bundle.name
        self._peer = HudiPeer(bundle)

    def write(self, screen: Screen) -> Batch:
        """Write a batch while the others go on."""
        batch = Batch(WRITER, 1, self._key_count)
        lane = screen.lanes["hudi"] = Lane()
        lane.set("work", "upserts batch 1")
        self._peer.write(batch.rows(), self._table, OPTIONS)
        lane.set("idle", "batch 1 is committed")
        screen.event("hudi", f"{self._name} committed its batch 1")
        return batch

    def read(self) -> pa.Table:
        rows = self._peer.read(self._table, columns=SCHEMA.names)
        return rows.select(SCHEMA.names).sort_by("id").combine_chunks()

    def stop(self) -> None:
        self._peer.stop()
