"""Apache Hudi changes file groups for which a clustering of ours is planned (N-184).

By default it refuses to; under another update strategy it writes, and what it wrote must not get
lost when the clustering is executed.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from tests.support.hudi_peer import HudiError, HudiPeer
from tests.support.tables import COW, MOR, a_table, columns, rows_of

import headwater as hw
from headwater.config.table_options import FENCED

SCHEMA = columns("id string not null, city string, ts long, fare long")
rows = rows_of(SCHEMA)
THEIRS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.embed.timeline.server": "false",
    "hoodie.index.type": "SIMPLE",
    "hoodie.upsert.shuffle.parallelism": "2",
}
STRATEGIES = "org.apache.hudi.client.clustering.update.strategy"
ALLOWED = {"hoodie.clustering.updates.strategy": f"{STRATEGIES}.SparkAllowUpdateStrategy"}


class Case(NamedTuple):
    table_type: str
    is_fenced: bool
    is_cancellable: bool = False
    is_removable: bool = False


def planned(folder: Path, case: Case) -> hw.Table:
    """Return a table with two rows in one file, and a clustering planned for it."""
    shape = a_table(folder, SCHEMA, table_type=case.table_type, ordering="ts", index="simple")
    table = shape.with_options({FENCED.key: str(case.is_fenced).lower()}).create()
    table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)))
    plan = table.services.schedule_clustering(
        sort_by="ts", cancellable=case.is_cancellable, removable=case.is_removable
    )
    assert plan is not None
    return table


def fares(found: pa.Table) -> dict[str, int]:
    return {row["id"]: row["fare"] for row in found.select(["id", "fare"]).to_pylist()}


@pytest.mark.parametrize(
    "case",
    [
        Case(COW, is_fenced=True),
        Case(MOR, is_fenced=True),
        Case(COW, is_fenced=False),
        Case(MOR, is_fenced=False),
        Case(COW, is_fenced=True, is_cancellable=True),
        Case(MOR, is_fenced=False, is_cancellable=True),
        Case(COW, is_fenced=False, is_removable=True),
        Case(MOR, is_fenced=True, is_removable=True),
    ],
    ids=str,
)
def test_n_184_what_hudi_wrote_after_a_clustering_was_planned_stays(
    hudi: HudiPeer, tmp_path: Path, case: Case
) -> None:
    table = planned(tmp_path, case)
    hudi.write(rows(("a", "sf", 2, 100)), table.uri, THEIRS | ALLOWED)
    table = hw.open_table(table.uri)
    table.services.cluster()
    expected = {"a": 100, "b": 1}
    assert fares(table.read_arrow()) == expected
    assert fares(hudi.read(table.uri, {})) == expected
    # Nothing is in the way of what comes next.
    table.services.clean()
    assert table.services.schedule_clustering(sort_by="fare") is not None
    assert (done := table.services.cluster()) is not None
    assert not done.is_cancelled
    table.upsert(rows(("b", "sf", 3, 3)))
    assert fares(table.read_arrow()) == fares(hudi.read(table.uri, {})) == {"a": 100, "b": 3}
    assert table.inspect.problems(deep=True).num_rows == 0


@pytest.mark.parametrize("is_fenced", [False, True])
def test_by_default_hudi_writes_nothing_to_file_groups_that_are_to_be_clustered(
    hudi: HudiPeer, tmp_path: Path, is_fenced: bool
) -> None:
    table = planned(tmp_path, Case(COW, is_fenced))
    with pytest.raises(HudiError, match="Not allowed to update the clustering file group"):
        hudi.write(rows(("a", "sf", 2, 100)), table.uri, THEIRS)
