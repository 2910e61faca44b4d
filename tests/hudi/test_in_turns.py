"""Apache Hudi and we write to one table in turns, and run the services of both in between.

After every step Hudi, we and hudi-rs read the same rows, through one metadata table with statistics
of columns and a record index that both keep. What must be there is known from a plain dict. Nobody
changes a file of an earlier commit, whoever wrote it, and only cleaning and archival delete any.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from tests.readers.readers import HudiRsReader, Snapshot
from tests.support.beside_hudi import YES, shows
from tests.support.hudi_peer import HudiPeer
from tests.support.hudi_procedures import call, register
from tests.support.tables import COW, MOR, columns
from tests.support.two_readers import META, Row, TwoReaders, in_order, without

import headwater as hw
from headwater.config.table_options import FENCED

SCHEMA = columns("id string not null, city string, ts long, fare double, writer string")
CITIES = ("sf", "ny", "são paulo")
INDEXES = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}
KEPT = {
    **INDEXES,
    "hoodie.metadata.compact.max.delta.commits": "4",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
}
OURS = {
    **KEPT,
    "headwater.storage.fsync": "false",
    "hoodie.write.lock.provider": "in_process",
    "hoodie.clustering.plan.strategy.sort.columns": "fare",
}
THEIRS = {
    **KEPT,
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    # Writes to merge-on-read tables compact by themselves; here compaction has turns of its own.
    "hoodie.compact.inline.max.delta.commits": "1000",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
}
READ_BY_INDEX = {**INDEXES, "hoodie.enable.data.skipping": "true"}


class Shape(NamedTuple):
    table_type: str
    index_type: str
    hudi_index: Mapping[str, str]
    """Hudi keeps the index out of its table config, so its writers have to say it."""
    is_fenced: bool = False
    """Whether our decisions are made by a journal, of which Hudi knows nothing."""


HUDI_INDEX = {
    "bucket": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
    "simple": {"hoodie.index.type": "SIMPLE"},
    "bloom": {"hoodie.index.type": "BLOOM"},
    "record_index": {"hoodie.index.type": "RECORD_INDEX"},
}
SHAPES = {
    f"{'cow' if table_type == COW else 'mor'}-{index}": Shape(table_type, index, options)
    for table_type in (COW, MOR)
    for index, options in HUDI_INDEX.items()
}
SHAPES |= {
    f"{name}-journal": SHAPES[name]._replace(is_fenced=True)
    for name in ("cow-simple", "cow-record_index", "mor-bucket", "mor-bloom")
}

Service = tuple[str, str]
"""Whose, and which."""
DELETED_BY = {"clean": "data", "archive": "timeline"}


# Each side is the first with some of them, so that both find work of every kind.
SERVICES: tuple[Service, ...] = (
    ("ours", "compact"),
    ("hudi", "cluster"),
    ("hudi", "clean"),
    ("ours", "archive"),
    ("hudi", "compact"),
    ("ours", "cluster"),
    ("ours", "clean"),
    ("hudi", "archive"),
)


def services_of(shape: Shape) -> tuple[Service, ...]:
    """Return the services that there are for a table, in turns."""
    none: set[Service] = set()
    if shape.table_type == COW:
        none |= {("ours", "compact"), ("hudi", "compact")}
    if shape.index_type == "bucket":
        # Hudi knows no clustering of plain buckets: its files would lie outside of them.
        none |= {("hudi", "cluster")}
    return tuple(service for service in SERVICES if service not in none)


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


class OneTable:
    """A table of ours that both sides write to and serve, with all who read it."""

    def __init__(self, hudi: HudiPeer, path: Path, shape: Shape) -> None:
        self.hudi = hudi
        self.path = path
        self.table = hw.create_table(
            path,
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            ordering="ts",
            table_type=shape.table_type,
            index=shape.index_type,
            buckets=2 if shape.index_type == "bucket" else None,
            options={**OURS, FENCED.key: str(shape.is_fenced).lower()},
        )
        self.done: Counter[Service] = Counter()
        """How often each service had something to do."""
        self._hudi_options = {**THEIRS, **shape.hudi_index}
        by = "journal" if shape.is_fenced else "lock"
        self._name = f"in_turns_{shape.table_type}_{shape.index_type}_{by}".lower()
        register(hudi, self._name, self.table.uri)
        # What Hudi appends to buckets it leaves out of the record index (N-134).
        self._may_lack_records = (shape.table_type, shape.index_type) == (MOR, "bucket")
        self._both = TwoReaders(hudi, self.table, READ_BY_INDEX)
        self._files: dict[str, str] = {}

    def write(self, rows: pa.Table, *, is_delete: bool, is_hudi: bool) -> None:
        if is_hudi:
            operation = {"hoodie.datasource.write.operation": "delete" if is_delete else "upsert"}
            name = {"hoodie.table.name": self.table.name}
            self.hudi.write(rows, self.table.uri, {**self._hudi_options, **name, **operation})
        elif is_delete:
            self.table.delete(rows)
        else:
            self.table.upsert(rows)

    def serve(self, side: str, name: str) -> None:
        before = self._instants()
        if side == "ours":
            getattr(self.table.services, name)()
        else:
            procedure, arguments = PROCEDURES[name]
            called = f"table => '{self._name}'{arguments}"
            call(self.hudi, procedure, called, self._hudi_options)
        self.done[side, name] += before != self._instants()

    def _instants(self) -> list[str]:
        return [str(time) for time in self.table.inspect.timeline()["requested_time"].to_pylist()]

    def check(self, expected: list[Row], step: str, deleted: str = "") -> None:
        """Check what all three read, and which files are there.

        `deleted` is the kind of files that may be gone.
        """
        ours = self._both.check_snapshot(step)
        assert without(ours, META) == expected, f"rows were lost or won {step}"
        by_hudi_rs = in_order(HudiRsReader().ask(self.table, Snapshot()))
        assert by_hudi_rs == ours, f"hudi-rs reads other rows {step}"
        self._check_untouched(step, deleted)

    def _check_untouched(self, step: str, deleted: str) -> None:
        """Check that the files of earlier commits are there, as they were; note the new ones."""
        found = {
            str(file.relative_to(self.path)): sha256(file.read_bytes()).hexdigest()
            for file in self.path.rglob("*")
            if file.is_file() and file.suffix != ".crc" and kind_of(file.relative_to(self.path))
        }
        changed = {name for name in self._files.keys() & found if self._files[name] != found[name]}
        assert not changed, f"files of earlier commits were changed {step}"
        gone = {name for name in self._files.keys() - found if kind_of(Path(name)) != deleted}
        assert not gone, f"files of earlier commits were deleted {step}"
        self._files = found

    def check_at_the_end(self) -> None:
        table = self.table.reload()
        assert set(table.inspect.timeline()["state"].to_pylist()) == {"completed"}
        assert {"column_stats", "record_index"} <= set(table.config.metadata_partitions)
        if self._may_lack_records:
            table.indexes.drop("record_index")
            table.reload().indexes.create("record_index")
        assert table.inspect.problems(deep=True).to_pylist() == []
        problems = table.inspect.validate_metadata().to_pylist()
        assert [one for one in problems if one["problem"] != "stale"] == []


def kind_of(file: Path) -> str:
    """Return whether a file is one of data or of the timeline; nothing if it is neither."""
    if file.parts[0] != ".hoodie":
        return "data"
    return "timeline" if file.parts[1] == "timeline" and len(file.parts) == 3 else ""


PROCEDURES = {
    "compact": (
        "run_compaction",
        ", op => 'scheduleAndExecute', options => 'hoodie.compact.inline.max.delta.commits=1'",
    ),
    "cluster": ("run_clustering", ", order => 'fare'"),
    "clean": ("run_clean", ", retain_commits => 1"),
    "archive": (
        "archive_commits",
        ", min_commits => 4, max_commits => 5, retain_commits => 1, enable_metadata => true",
    ),
}
SERVED_FROM = 3


@shows("tables that decide by a journal (fenced)", we_read=YES, we_write=YES, they_read=YES)
@pytest.mark.parametrize("commits", [12, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_commits_and_services_in_turns(
    hudi: HudiPeer, tmp_path: Path, shape: Shape, commits: int
) -> None:
    one = OneTable(hudi, tmp_path / "trips", shape)
    turns, services = Turns(seed=7), cycle(services_of(shape))
    for number in range(commits):
        is_hudi = number % 2 == 1
        is_delete = number % 5 in (3, 4)
        writer = "hudi" if is_hudi else "ours"
        rows = turns.deletes() if is_delete else turns.upserts(writer)
        one.write(rows, is_delete=is_delete, is_hudi=is_hudi)
        turn = f"in turn {number}, {'a delete' if is_delete else 'an upsert'} by {writer}"
        one.check(turns.rows, f"after the write {turn}")
        if number >= SERVED_FROM:
            side, name = next(services)
            one.serve(side, name)
            step = f"after {name} by {side} {turn}"
            one.check(turns.rows, step, DELETED_BY.get(name, ""))
    one.check_at_the_end()
    assert {service for service, count in one.done.items() if count} == set(services_of(shape))
