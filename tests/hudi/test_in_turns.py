"""Apache Hudi and we write to one table in turns; after each of twenty commits both read the same.

What must be there is known from a plain dict. Neither writer may touch a file of an earlier commit,
whoever wrote it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from tests.support.hudi_peer import HudiPeer
from tests.support.tables import columns
from tests.support.two_readers import META, NO_METADATA_TABLE, Row, TwoReaders, without

import headwater as hw
from headwater.config.table_options import TableType
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, fare double, writer string")
CITIES = ("sf", "ny", "são paulo")
COMMITS = 20
SMALL = {
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
}


class Shape(NamedTuple):
    table_type: TableType
    index_type: str
    hudi_index: Mapping[str, str]
    """Hudi keeps the index out of its table config, so its writers have to say it."""


BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
SHAPES = {
    "cow-bucket": Shape(TableType.COPY_ON_WRITE, "bucket", BUCKETS),
    "mor-bucket": Shape(TableType.MERGE_ON_READ, "bucket", BUCKETS),
    "cow-simple": Shape(TableType.COPY_ON_WRITE, "simple", {"hoodie.index.type": "SIMPLE"}),
    "mor-simple": Shape(TableType.MERGE_ON_READ, "simple", {"hoodie.index.type": "SIMPLE"}),
}


class Turns:
    """Chooses what each turn writes, and keeps what the table must hold then."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._live: dict[str, Row] = {}
        self._made = 0

    @property
    def rows(self) -> list[Row]:
        return without(self._live.values(), ())

    def upserts(self, writer: str) -> pa.Table:
        """Return some new records, and updates of old ones: newer, equally new and late ones."""
        old = self._random.sample(sorted(self._live), min(4, len(self._live)))
        self._made += 3
        new = [f"{number:04d}" for number in range(self._made - 3, self._made)]
        rows = [self._record(key, writer) for key in (*old, *new)]
        for row in rows:
            held = self._live.get(row["id"])
            if held is None or row["ts"] >= held["ts"]:
                self._live[row["id"]] = row
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def deletes(self) -> pa.Table:
        """Return some records to delete; now and then one of them comes back later."""
        gone = self._random.sample(sorted(self._live), 2)
        rows = [self._live.pop(key) for key in gone]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def _record(self, key: str, writer: str) -> Row:
        ts = self._live[key]["ts"] + self._random.choice([-1, 0, 1]) if key in self._live else 10
        return {
            "id": key,
            "city": CITIES[int(key) % len(CITIES)],
            "ts": ts,
            "fare": self._random.random(),
            "writer": writer,
        }


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_twenty_commits_in_turns(hudi: HudiPeer, tmp_path: Path, shape: Shape) -> None:
    path = tmp_path / "trips"
    table = hw.create_table(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=shape.table_type,
        index=shape.index_type,
        buckets=2 if shape.index_type == "bucket" else None,
        # Hudi writes without one here, and would take ours away; test_one_metadata_table has both.
        options={"headwater.storage.fsync": "false", "hoodie.metadata.enable": "false"},
    )
    both = TwoReaders(hudi, table)
    turns = Turns(seed=7)
    files: dict[str, str] = {}
    for number in range(COMMITS):
        is_hudi = number % 2 == 1
        is_delete = number % 5 in (3, 4)
        writer = "hudi" if is_hudi else "headwater"
        rows = turns.deletes() if is_delete else turns.upserts(writer)
        if is_hudi:
            write_by_hudi(hudi, table, rows, shape, operation="delete" if is_delete else "upsert")
        elif is_delete:
            table.delete(rows)
        else:
            table.upsert(rows)
        turn = f"in turn {number}, {'a delete' if is_delete else 'an upsert'} by {writer}"
        found = both.check_snapshot(f"after the write {turn}")
        assert without(found, META) == turns.rows, f"rows were lost or won {turn}"
        check_untouched(path, files, turn)
    check_timeline(table)
    assert table.reload().config == table.config


def write_by_hudi(
    hudi: HudiPeer, table: Table, rows: pa.Table, shape: Shape, *, operation: str
) -> None:
    options: dict[str, Any] = {
        **SMALL,
        **NO_METADATA_TABLE,
        **shape.hudi_index,
        "hoodie.table.name": table.name,
        "hoodie.datasource.write.operation": operation,
    }
    hudi.write(rows, table.uri, options)


def check_untouched(path: Path, files: dict[str, str], turn: str) -> None:
    """Check that all files of earlier commits are there, as they were; note the new ones."""
    found = {
        str(file.relative_to(path)): sha256(file.read_bytes()).hexdigest()
        for file in path.rglob("*")
        if file.is_file() and is_of_a_commit(file)
    }
    changed = {name for name, digest in files.items() if found.get(name) != digest}
    assert not changed, f"files of earlier commits were changed or deleted {turn}"
    files.update(found)


def is_of_a_commit(file: Path) -> bool:
    """Whether a file is a data file or an instant; Hadoop's checksums lie beside some."""
    if file.suffix == ".crc":
        return False
    return ".hoodie" not in file.parts or file.parent.name == "timeline"


def check_timeline(table: Table) -> None:
    """Check that every write is there, and nothing else but what Hudi compacts by itself."""
    timeline = table.inspect.timeline()
    assert set(timeline["state"].to_pylist()) == {"completed"}
    actions = Counter(timeline["action"].to_pylist())
    if table.config.table_type is TableType.COPY_ON_WRITE:
        assert actions == {"commit": COMMITS}
    else:
        assert actions.keys() == {"deltacommit", "compaction"}
        assert actions["deltacommit"] == COMMITS
