"""Apache Hudi as one more process of the demo, where its bundle was fetched (`make hudi`)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from demo_job import SHARED_LOCK
from demo_rows import SCHEMA, Batch
from demo_screen import Screen
from demo_site import Site

if TYPE_CHECKING:
    from tests.support.hudi_peer import HudiPeer

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
    **SHARED_LOCK,
    # Hudi drops the indexes of a table that its own options do not ask for.
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}


@contextmanager
def opened_hudi(screen: Screen, table: Path, key_count: int) -> Iterator[HudiWriter | None]:
    """Give Apache Hudi for as long as the block runs; where it is not to be had, say so."""
    # Tests start Hudi the same way; what they share lies beside the examples, in the checkout.
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.support.hudi_peer import HudiError, HudiPeer, NoHudiError, find_bundle

    try:
        bundle = find_bundle()
        peer = HudiPeer(bundle)
    except (NoHudiError, HudiError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        screen.say(f"The demo goes on without Apache Hudi. {reason}")
        yield None
        return
    with peer:
        yield HudiWriter(peer, bundle.name, table, key_count)


class HudiWriter:
    """A session of Spark with Hudi's own bundle."""

    def __init__(self, peer: HudiPeer, name: str, table: Path, key_count: int) -> None:
        self._peer, self._name = peer, name
        self._table, self._key_count = str(table), key_count

    @property
    def pid(self) -> int:
        return self._peer.pid

    def begin_write(self, site: Site) -> None:
        """Write a batch while the others go on; the site hears when it is committed."""
        threading.Thread(target=self._write, args=(site,), daemon=True).start()

    def _write(self, site: Site) -> None:
        number = 1
        site.hear("hudi", "writing", batch=number)
        try:
            rows = Batch(WRITER, number, self._key_count).rows()
            self._peer.write(rows, self._table, OPTIONS)
        except Exception as error:  # noqa: BLE001 - whatever it is, the director is to end the demo
            site.hear("hudi", "failed", why=str(error))
            return
        done = {"writer": WRITER, "batch": number, "instant": f"by {self._name}"}
        site.hear("hudi", "done", order="write", **done)

    def read(self) -> pa.Table:
        rows = self._peer.read(self._table, columns=SCHEMA.names)
        return rows.select(SCHEMA.names).sort_by("id").combine_chunks()
