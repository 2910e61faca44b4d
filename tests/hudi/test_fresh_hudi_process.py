"""A process of Apache Hudi's that starts after commits of ours, and writes at once.

Hudi 1.2 fails in a process whose first act on a metadata table is its compaction, and goes on
failing; our upkeep sees to it that it need not begin with one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.hudi_peer import HudiPeer, NoHudiError, find_bundle
from tests.support.tables import MOR, a_table, columns, rows_of
from tests.support.two_readers import META, TwoReaders, without

SCHEMA = columns("id string not null, city string, ts long, fare long")
rows = rows_of(SCHEMA)
THEIRS = {
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.global.record.level.index.enable": "false",
}


@pytest.mark.parametrize(
    "commits", [9, *(pytest.param(n, marks=pytest.mark.long) for n in (7, 8, 17, 30))]
)
def test_it_writes_at_once(tmp_path: Path, commits: int) -> None:
    ours = a_table(
        tmp_path, SCHEMA, partition_by="city", ordering="ts", table_type=MOR, buckets=2
    ).create()
    for number in range(commits):
        ours.upsert(rows(("a", "sf", number, number)))
    try:
        bundle = find_bundle()
    except NoHudiError as missing:
        pytest.skip(str(missing))
    with HudiPeer(bundle) as hudi:
        for number in range(2):
            some = rows(("b", "ny", number, number))
            hudi.write(some, ours.uri, {**THEIRS, "hoodie.table.name": ours.name})
        found = without(TwoReaders(hudi, ours.reload()).check_snapshot("afterwards"), META)
    assert {row["id"]: row["fare"] for row in found} == {"a": commits - 1, "b": 1}
