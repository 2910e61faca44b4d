"""The metadata table is compacted before a process of Apache Hudi would have to begin with it.

Hudi 1.2 counts the delta commits that completed after the time of the newest compaction, or all of
them if there is none, and compacts once there are as many as its option says. A process whose
first act that is fails for good, so it must find fewer: with the one that it writes itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.tables import COW, MOR, a_table
from tests.support.tables import trips as rows

from headwater.kernel.layout import METADATA_TIMELINE
from headwater.kernel.timeline.active import load_active
from headwater.metadata.compaction import commits_ahead_of_hudi
from headwater.model.instant import Action
from headwater.table import Table

HUDI_COMPACTS_AFTER = 10
ALL_INDEXES = {
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "1",
}


def counted_by_hudi(table: Table) -> int:
    own = load_active(table.storage, METADATA_TIMELINE)
    done = [i.requested_time for i in own.completed if i.action.completed_name is Action.COMMIT]
    compacted = max(done, default="")
    assert not any(i.action is Action.COMPACTION for i in own.pending)
    deltas = (i for i in own.completed if i.action is Action.DELTA_COMMIT)
    return sum((instant.completion_time or "") > compacted for instant in deltas)


@pytest.mark.parametrize("indexes", [{}, ALL_INDEXES], ids=["files", "all indexes"])
@pytest.mark.some(1)
def test_inv_113_after_each_of_thirty_commits(tmp_path: Path, indexes: dict[str, str]) -> None:
    shape = a_table(tmp_path, partition_by="city", buckets=1, table_type=COW)
    table = shape.with_options(indexes).create()
    counts = []
    for number in range(30):
        table.upsert(rows(("a", "sf", number)))
        counts.append(counted_by_hudi(table))
    assert max(counts) + 1 < HUDI_COMPACTS_AFTER, counts
    assert min(counts) < counts[0], "it was compacted now and then"


def test_inv_113_after_services_that_tell_it_too(tmp_path: Path) -> None:
    table = a_table(tmp_path, partition_by="city", buckets=1, table_type=MOR).create()
    services: tuple[Callable[[], object], ...] = (
        table.services.compact,
        table.services.clean,
        table.services.cluster,
    )
    for number in range(6):
        table.upsert(rows(("a", "sf", number)))
        for service in services:
            service()
            assert counted_by_hudi(table) + 1 < HUDI_COMPACTS_AFTER


@pytest.mark.parametrize(("theirs", "ours"), [(1, 1), (2, 1), (3, 2), (4, 3), (10, 8), (24, 20)])
def test_it_is_ahead_of_what_hudi_is_told(theirs: int, ours: int) -> None:
    assert commits_ahead_of_hudi(theirs) == ours
