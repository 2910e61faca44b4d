"""An overwrite of partitions empties those that it names besides, in the same commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.tables import FENCED, a_table, trips

from headwater.table import Table


@pytest.mark.parametrize("options", [{}, FENCED], ids=["lock", "journal"])
def test_partitions_are_emptied_beside_those_that_get_rows(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = a_table(tmp_path, partition_by="city", options=options).create()
    rows = trips(("a", "sf", 1), ("b", "ny", 1), ("c", "la", 1))
    table.insert(rows)
    by_city = dict(zip(rows["city"].to_pylist(), _paths(table), strict=True))
    table.overwrite_partitions(trips(("d", "la", 1)), [by_city["ny"], "nowhere"])
    assert _ids(table) == ["a", "d"]
    table.overwrite_partitions(rows.slice(0, 0), [by_city["sf"]])
    assert _ids(table) == ["d"]
    assert table.history().num_rows == 3


def _paths(table: Table) -> list[str]:
    """Return the partition path of every row, by the ids of rows."""
    shown = table.read_arrow(["_hoodie_partition_path", "id"]).sort_by("id")
    return [str(path) for path in shown["_hoodie_partition_path"].to_pylist()]


def _ids(table: Table) -> list[str]:
    return sorted(table.read_arrow()["id"].to_pylist())
