"""Apache Hudi writes to a fenced table between our commits, cleans and archives it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.readers.readers import HudiRsReader, Snapshot
from tests.support.beside_hudi import refused, shows
from tests.support.hudi_peer import HudiPeer
from tests.support.tables import COW, MOR, a_table, columns, rows_of

import headwater as hw
from headwater.config.table_options import FENCED
from headwater.errors import ConflictError, ErrorKind

SCHEMA = columns("id string not null, city string, ts long, fare long")
rows = rows_of(SCHEMA)
THEIRS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.embed.timeline.server": "false",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
    # Both come with nearly every commit.
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
}
STATS = "hoodie.metadata.index.column.stats.enable"
RECORDS = "hoodie.metadata.global.record.level.index.enable"
INDEXED = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}


def fares(found: pa.Table) -> dict[str, int]:
    return {row["id"]: row["fare"] for row in found.select(["id", "fare"]).to_pylist()}


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_what_hudi_wrote_in_its_turn_is_adopted(
    hudi: HudiPeer, tmp_path: Path, table_type: str
) -> None:
    shape = a_table(tmp_path, SCHEMA, table_type=table_type, ordering="ts", buckets=2)
    table = shape.with_options({FENCED.key: "true"}).create()
    expected: dict[str, int] = {}

    def check() -> None:
        assert fares(table.read_arrow()) == expected
        assert fares(hudi.read(table.uri, {})) == expected
        assert fares(HudiRsReader().ask(table, Snapshot())) == expected

    for turn in range(8):
        batch = rows(("a", "sf", turn, turn), (f"ours {turn}", "sf", turn, turn))
        table.upsert(batch)
        expected |= fares(batch)
        check()
        batch = rows(("a", "sf", turn, turn + 100), (f"theirs {turn}", "sf", turn, turn))
        hudi.write(batch, table.uri, THEIRS)
        expected |= fares(batch)
        check()
    table.upsert(rows(("last", "sf", 9, 9)))
    expected["last"] = 9
    check()
    for fenced in (False, True):
        hw.upgrade_table(table.uri, fenced=fenced)
        table = hw.open_table(table.uri)
        batch = rows((f"fenced {fenced}", "sf", 9, 9))
        table.upsert(batch)
        expected |= fares(batch)
        check()


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_indexes_that_hudi_builds_and_drops_are_those_of_the_journal_too(
    hudi: HudiPeer, tmp_path: Path, table_type: str
) -> None:
    """Table config tells of them. An index that one side does not know is wrong after its commit.

    Hudi drops an index whose option it finds off.
    """
    shape = a_table(tmp_path, SCHEMA, table_type=table_type, ordering="ts", buckets=2)
    table = shape.with_options({FENCED.key: "true"}).create()
    expected: dict[str, int] = {}

    def write(turn: str, indexes: dict[str, str]) -> None:
        nonlocal table
        theirs, ours = rows((f"theirs {turn}", "sf", 1, 1)), rows((f"ours {turn}", "sf", 1, 2))
        hudi.write(theirs, table.uri, THEIRS | indexes)
        table.upsert(ours)
        table = hw.open_table(table.uri)
        expected.update(fares(theirs) | fares(ours))
        assert fares(table.read_arrow()) == expected
        assert fares(table.read_arrow(where="fare = 2")) == fares_of_two(expected)
        assert fares(hudi.read(table.uri, INDEXED)) == expected
        problems = table.inspect.validate_metadata().to_pylist()
        if table_type == MOR:  # Hudi adds no keys to it that come to a log of a bucket.
            problems = [one for one in problems if one["partition"] != "record_index"]
        assert problems == []

    table.upsert(rows(("first", "sf", 1, 2)))
    expected["first"] = 2
    write("with", {STATS: "true", RECORDS: "true"})
    assert {"column_stats", "record_index"} <= set(table.config.metadata_partitions)
    write("again", {STATS: "true", RECORDS: "true"})
    write("without", {STATS: "false", RECORDS: "true"})
    assert "column_stats" not in table.config.metadata_partitions
    assert "record_index" in table.config.metadata_partitions


def fares_of_two(expected: dict[str, int]) -> dict[str, int]:
    return {key: fare for key, fare in expected.items() if fare == 2}


@shows(
    "tables that decide by a journal (fenced)",
    both=refused("Hudi knows no journal; a lock that both know, by `--no-fenced`"),
)
def test_what_hudi_has_begun_is_refused(hudi: HudiPeer, tmp_path: Path) -> None:
    """A write of Hudi's that is inflight, made of one that it has completed."""
    shape = a_table(tmp_path, SCHEMA, ordering="ts", buckets=2)
    table = shape.with_options({FENCED.key: "true"}).create()
    table.upsert(rows(("a", "sf", 1, 1)))
    timeline = tmp_path / "trips" / ".hoodie" / "timeline"
    ours = set(timeline.iterdir())
    hudi.write(rows(("b", "sf", 1, 2)), table.uri, THEIRS)
    (done,) = (path for path in timeline.glob("*_*.commit") if path not in ours)
    hidden = done.rename(tmp_path / done.name)
    with pytest.raises(ConflictError) as raised:
        table.upsert(rows(("c", "sf", 1, 3)))
    assert raised.value.kind is ErrorKind.FOREIGN_WRITER
    assert fares(table.read_arrow()) == {"a": 1}
    hidden.rename(done)
    table.upsert(rows(("c", "sf", 1, 3)))
    assert fares(table.read_arrow()) == {"a": 1, "b": 2, "c": 3}
