"""INV-54 over random histories: windows put together give the views at their ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.tables import columns

import headwater as hw
from headwater.config.table_options import TableType
from headwater.errors import ErrorKind, NotFoundError
from headwater.metadata.view import load_view
from headwater.queries.incremental import parse_window, plan_incremental
from headwater.table import Table

COLUMNS = columns("id string, city string, ts long, v long")
KEYS = ("a", "b", "c", "d")
CITIES = ("sf", "la")

Record = dict[str, Any]
View = dict[tuple[str, str], Record]


class Write(NamedTuple):
    verb: str
    rows: list[tuple[str, str, int]]
    """Key, city and ordering value. What is written is the number of the write."""

    def run(self, table: Table, number: int) -> str:
        rows = pa.table(
            {
                "id": [key for key, _, _ in self.rows],
                "city": [city for _, city, _ in self.rows],
                "ts": [ts for _, _, ts in self.rows],
                "v": [number] * len(self.rows),
            },
            COLUMNS,
        )
        if self.verb == "delete_partitions":
            prefix = "city=" if table.config.is_hive_style else ""
            path = f"{prefix}{self.rows[0][1]}"
            known = load_view(table.storage, table.config).partitions()
            # A partition that is not there is refused; an empty write stands for it.
            if path not in known:
                return table.upsert(rows.slice(0, 0)).completion_time
            return table.delete_partitions([path]).completion_time
        completed: str = getattr(table, self.verb)(rows).completion_time
        return completed


ROWS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(CITIES), st.integers(0, 3)),
    min_size=1,
    max_size=5,
    unique_by=lambda row: row[:2],
)
VERBS = st.sampled_from(
    [
        *("upsert",) * 4,
        *("delete",) * 3,
        "insert",
        "bulk_insert",
        "overwrite",
        "overwrite_partitions",
        "delete_partitions",
    ]
)
HISTORIES = st.lists(st.builds(Write, VERBS, ROWS), min_size=2, max_size=5)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("ordering", [None, "ts"])
@settings(deadline=None, max_examples=5)
@given(history=HISTORIES)
@pytest.mark.some(2)
def test_windows_put_together_give_views(
    kind: str, ordering: str | None, history: list[Write]
) -> None:
    with TemporaryDirectory() as folder:
        table = hw.create_table(
            f"{folder}/t",
            schema=COLUMNS,
            record_key="id",
            partition_by="city",
            ordering=ordering,
            table_type=kind,
            buckets=2,
        )
        times = [write.run(table, number) for number, write in enumerate(history)]
        views: dict[str | None, View] = {None: {}}
        views |= {time: view_of(table.read_arrow(as_of=time).to_pylist()) for time in times}
        for after, until in [*pairwise([None, *times]), (None, times[-1]), (times[0], times[-1])]:
            first = 0 if after is None else times.index(after) + 1
            check_window(table, after, until, views, first_number=first)
        check_partition_of_time(table, times)


def check_window(
    table: Table,
    after: str | None,
    until: str | None,
    views: dict[str | None, View],
    *,
    first_number: int,
) -> None:
    assert until is not None
    folded = dict(views[after])
    for change in table.changes_arrow(after, until, cdc=True).to_pylist():
        apply_change(folded, change)
        # A record that is deleted does not come back but by who writes it (N-11).
        assert change["op"] != "i" or change["after"]["v"] >= first_number
    assert folded == views[until]
    written = view_of(table.changes_arrow(after, until).to_pylist())
    # Deletes do not show up, so the records that are gone are taken away by hand.
    merged = {**views[after], **written}
    assert {key: merged[key] for key in views[until]} == views[until]
    assert written.keys() <= views[until].keys()


def apply_change(records: View, change: Record) -> None:
    """Fold one change, which must fit what it changes."""
    before, after = change["before"], change["after"]
    key = key_of(after or before)
    assert records.get(key) == before
    match change["op"]:
        case "i":
            assert before is None
            records[key] = after
        case "u":
            assert before is not None
            assert before["v"] != after["v"]
            records[key] = after
        case "d":
            assert after is None
            del records[key]


def check_partition_of_time(table: Table, times: Sequence[str]) -> None:
    """Every write is in exactly one of the windows between `times`."""
    seen = [
        instant
        for after, until in pairwise([None, *times])
        for instant in plan_incremental(table.context, parse_window(after, until)).instants
    ]
    assert len(seen) == len(set(seen)) == len(times)


def view_of(rows: list[Record]) -> View:
    view = {key_of(row): row for row in rows}
    assert len(view) == len(rows)
    return view


def key_of(row: Record) -> tuple[str, str]:
    return row["city"], row["id"]


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_rows_without_key_are_inserts(kind: str) -> None:
    with TemporaryDirectory() as folder:
        table = hw.create_table(f"{folder}/t", schema=COLUMNS, table_type=kind)
        first = Write("insert", [("a", "sf", 0), ("a", "sf", 0)]).run(table, 1)
        Write("insert", [("a", "sf", 0), ("b", "la", 0)]).run(table, 2)
        changes = table.changes_arrow(first, cdc=True)
        assert changes["op"].to_pylist() == ["i", "i"]
        assert [row["id"] for row in changes["after"].to_pylist()] == ["a", "b"]
        assert table.changes_arrow(first)["id"].to_pylist() == ["a", "b"]
        assert table.changes_arrow("0").num_rows == 4


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_write_that_loses_changes_nothing(kind: str) -> None:
    with TemporaryDirectory() as folder:
        table = hw.create_table(
            f"{folder}/t", schema=COLUMNS, record_key="id", ordering="ts", table_type=kind
        )
        first = Write("upsert", [("a", "sf", 5)]).run(table, 1)
        Write("upsert", [("a", "sf", 4)]).run(table, 2)
        assert table.changes_arrow(first).num_rows == 0
        assert table.changes_arrow(first, cdc=True).num_rows == 0


def test_columns_that_came_later_are_null_in_older_images() -> None:
    with TemporaryDirectory() as folder:
        table = hw.create_table(f"{folder}/t", schema=COLUMNS, record_key="id")
        first = Write("upsert", [("a", "sf", 0)]).run(table, 1)
        wider = pa.table({"id": ["a"], "city": ["sf"], "ts": [0], "v": [2], "new": ["x"]})
        table.upsert(wider)
        old = {"id": "a", "city": "sf", "ts": 0, "v": 1, "new": None}
        (change,) = table.changes_arrow(first, cdc=True).to_pylist()
        assert change["before"] == old
        assert change["after"] == {**old, "v": 2, "new": "x"}
        (insert,) = table.changes_arrow(None, first, cdc=True).to_pylist()
        assert "new" not in insert["after"]


@pytest.mark.parametrize("table_type", TableType)
@pytest.mark.parametrize(("old", "new"), [("z", "a"), ("a", "z")])
def test_a_record_that_moves_is_deleted_before_it_is_inserted(
    table_type: TableType, old: str, new: str
) -> None:
    with TemporaryDirectory() as place:
        table = hw.create_table(
            f"{place}/moves",
            schema=COLUMNS,
            record_key="id",
            partition_by="city",
            index="global_simple",
            table_type=table_type,
        )
        Write("upsert", [("a", old, 0), ("b", new, 0), ("c", new, 0)]).run(table, 0)
        # Both partitions are there before the write, and both get records beside the one moved.
        moved = Write("upsert", [("a", new, 1), ("b", new, 1), ("c", old, 1)]).run(table, 1)
        feed = table.changes_arrow(None, cdc=True).to_pylist()
        ops = [change["op"] for change in feed if change["ts"] == moved]
        assert ops[:2] == ["d", "d"]
        folded: dict[str, Record] = {}
        for change in feed:
            if change["op"] == "d":
                del folded[change["before"]["id"]]
            else:
                folded[change["after"]["id"]] = change["after"]
        rows = table.read_arrow().to_pylist()
    assert sorted(folded.values(), key=str) == sorted(rows, key=str)


@pytest.mark.parametrize("service", ["compact", "cluster"])
def test_who_has_read_all_writes_reads_on_after_services_and_a_clean(
    tmp_path: Path, service: str
) -> None:
    versions = {
        "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
        "hoodie.clean.fileversions.retained": "1",
    }
    table = hw.create_table(
        tmp_path, schema=COLUMNS, record_key="id", table_type="MERGE_ON_READ", options=versions
    )
    Write("upsert", [("a", "sf", 0), ("b", "sf", 0)]).run(table, 1)
    read_until = Write("upsert", [("a", "sf", 0)]).run(table, 2)
    getattr(table.services, service)()
    (cleaned,) = table.services.clean()
    assert cleaned.deleted_paths
    Write("upsert", [("a", "sf", 0), ("c", "sf", 0)]).run(table, 3)

    (update, insert) = table.changes_arrow(read_until, cdc=True).to_pylist()
    assert (update["before"]["v"], update["after"]["v"]) == (2, 3)
    assert insert["after"]["id"] == "c"


@pytest.mark.parametrize("has_indexes", ["false", "true"])
def test_savepoints_at_the_beginning_do_not_stand_for_what_was_cleaned_after_them(
    tmp_path: Path, has_indexes: str
) -> None:
    options = {
        "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
        "hoodie.clean.fileversions.retained": "1",
        "hoodie.metadata.enable": has_indexes,
    }
    table = hw.create_table(tmp_path, schema=COLUMNS, record_key="id", options=options)
    times = []
    for number in range(4):
        times.append(Write("upsert", [("a", "sf", 0)]).run(table, number))
        if number < 2:
            table.services.savepoint()
    table.services.clean()

    assert table.changes_arrow(times[0], times[1], cdc=True).num_rows == 1
    with pytest.raises(NotFoundError) as caught:
        table.changes_arrow(times[0], cdc=True)
    assert caught.value.kind is ErrorKind.OUTSIDE_RETENTION
