"""Writes of ours whose process died, rolled back by Apache Hudi's next writer.

A single writer of Hudi rolls back whatever is pending before it begins, by the markers it finds. It
must take away what our writer left, and no more; afterwards both read the same, and we write on.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.beside_hudi import YES, shows
from tests.support.hudi_peer import HudiPeer
from tests.support.tables import COW, MOR, a_table, columns, rows_of
from tests.support.two_readers import META, NO_METADATA_TABLE, TwoReaders, without

from headwater.model.files import parse_data_file
from headwater.model.instant import State
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, fare long")
rows = rows_of(SCHEMA)
OURS = {"hoodie.metadata.enable": "false"}
THEIRS = {
    **NO_METADATA_TABLE,
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
}
DIES = """
import json, os, signal, sys
import pyarrow as pa
import headwater as hw
from headwater.operations.write import RunningWrite

path, options, rows = json.loads(sys.argv[1])
table = hw.open_table(path, options)

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

RunningWrite.commit = die  # All of its files are written, and announced by markers.
table.upsert(pa.Table.from_pylist(rows, schema=table.schema))
"""


def die_in_an_upsert(table: Table, options: Mapping[str, str], some: pa.Table) -> None:
    given = json.dumps([table.uri, {**OURS, **options}, some.to_pylist()])
    ended = subprocess.run([sys.executable, "-c", DIES, given], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


def data_files(table: Table) -> set[str]:
    paths = (info.path for info in table.storage.list_tree(""))
    return {path for path in paths if not path.startswith(".hoodie/") and parse_data_file(path)}


@pytest.mark.parametrize("markers", ["direct", "timeline_server_based"])
@pytest.mark.parametrize("table_type", [COW, MOR])
@shows("dead writes, rolled back by the other", they_read=YES)
def test_a_dead_write(
    hudi: HudiPeer, tmp_path: Path, table_type: str, markers: str, decided: dict[str, str]
) -> None:
    options = {"hoodie.write.markers.type": markers}
    table = a_table(
        tmp_path,
        SCHEMA,
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        buckets=2,
    )
    ours = table.with_options({**OURS, **options, **decided}).create()
    ours.insert(rows(("a", "sf", 1, 1), ("b", "ny", 1, 2)))
    both = TwoReaders(hudi, ours)
    before = data_files(ours)
    die_in_an_upsert(ours, options, rows(("a", "sf", 9, 9), ("c", "la", 9, 9)))
    left = data_files(ours) - before
    assert left, "the dead write had written nothing"

    options = {**THEIRS, "hoodie.table.name": ours.name}
    options["hoodie.datasource.write.operation"] = "upsert"
    hudi.write(rows(("b", "ny", 2, 3)), ours.uri, options)

    assert not left & data_files(ours), "Hudi left files of the dead write"
    states = {row["state"] for row in ours.reload().inspect.timeline().to_pylist()}
    assert states == {State.COMPLETED}
    found = without(both.check_snapshot("Hudi's write past a dead one"), META)
    assert {row["id"]: row["fare"] for row in found} == {"a": 1, "b": 3}
    ours.reload().upsert(rows(("a", "sf", 3, 4)))
    found = without(both.check_snapshot("our write after that"), META)
    assert {row["id"]: row["fare"] for row in found} == {"a": 4, "b": 3}
