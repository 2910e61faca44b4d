"""Which blocks a write to a merge-on-read table leaves in its log files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.tables import a_table, columns, rows_of

from headwater.arrow.log_parts import DataPart, DeletePart, LogPart
from headwater.files.log_files import read_log_parts
from headwater.metadata.view import load_view
from headwater.model.files import LogFile
from headwater.table import Table

SCHEMA = columns("id string not null, ts long, note string, op string")
DELETE_MARK = {
    "hoodie.record.merge.property.hoodie.payload.delete.field": "op",
    "hoodie.record.merge.property.hoodie.payload.delete.marker": "D",
}


NON_BLOCKING = {
    "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
    "hoodie.write.lock.provider": "in_process",
}
"""Only these writers start a file group with a log."""


def new_table(path: Path, ordering: str | None, **options: str) -> Table:
    shape = a_table(path, SCHEMA, ordering=ordering, table_type="MERGE_ON_READ", buckets=1)
    return shape.with_options({**DELETE_MARK, **options}).create()


def logs_of(table: Table) -> list[LogFile]:
    (file_slice,) = load_view(table.storage, table.config).slices()
    return list(file_slice.logs)


def last_blocks(table: Table) -> list[LogPart]:
    return read_log_parts(table.storage, logs_of(table)[-1:])


rows = rows_of(SCHEMA)


@pytest.mark.parametrize("ordering", [None, "ts"])
def test_a_row_marked_as_a_delete_goes_into_a_delete_block(
    tmp_path: Path, ordering: str | None
) -> None:
    table = new_table(tmp_path, ordering)
    table.insert(rows(("a", 5, "x", None), ("b", 5, "y", None), ("c", 5, "z", None)))
    commit = table.upsert(
        rows(("a", 6, "x", "D"), ("d", 1, "new", "I"), ("b", 4, "y", "D"), ("c", None, "z", "D"))
    )
    data, *deletes = last_blocks(table)
    assert isinstance(data, DataPart)
    assert data.rows["id"].to_pylist() == ["d"]
    found = []
    for block in deletes:
        assert isinstance(block, DeletePart)
        values = None if block.ordering is None else [one.to_pylist() for one in block.ordering]
        found.append((block.record_keys.to_pylist(), values))
    # Without a value to order it by, a delete removes whatever came before. It goes into a block of
    # its own: hudi-rs does not read one that has both kinds.
    by_ordering: list[Any] = [(["a", "b"], [[6, 4]]), (["c"], None)]
    assert found == ([(["a", "b", "c"], None)] if ordering is None else by_ordering)
    survivors = {"d"} if ordering is None else {"b", "d"}
    assert set(table.read_arrow()["id"].to_pylist()) == survivors
    (stat,) = load_view(table.storage, table.config).commits[-1].metadata.write_stats()
    assert (stat.num_writes, stat.num_deletes) == (1, 3)
    assert (commit.updated, commit.deleted) == (1, 3)


def test_a_log_of_deletes_alone_has_no_data_block(tmp_path: Path) -> None:
    table = new_table(tmp_path, None)
    table.upsert(rows(("a", 1, "x", None)))
    table.upsert(rows(("a", 1, "x", "D")))
    (deletes,) = last_blocks(table)
    assert isinstance(deletes, DeletePart)
    assert table.read_arrow().num_rows == 0


def test_deletes_that_start_a_file_group_go_into_a_log_if_others_write_too(tmp_path: Path) -> None:
    table = new_table(tmp_path, None, **NON_BLOCKING)
    table.upsert(rows(("a", 1, "x", "D")))
    (deletes,) = last_blocks(table)
    assert isinstance(deletes, DeletePart)
    assert table.read_arrow().num_rows == 0


def test_inv_50_deletes_among_the_first_rows_of_a_group_hide_what_comes_late(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, "ts")
    commit = table.upsert(rows(("a", 5, "x", "D"), ("b", 1, "y", None)))
    (file_slice,) = load_view(table.storage, table.config).slices()
    assert file_slice.base is not None
    assert [log.instant_time for log in file_slice.logs] == [commit.instant]
    (deletes,) = last_blocks(table)
    assert isinstance(deletes, DeletePart)
    assert deletes.record_keys.to_pylist() == ["a"]
    assert (commit.inserted, commit.deleted) == (1, 1)
    table.upsert(rows(("a", 4, "late", None)))
    assert table.read_arrow()["id"].to_pylist() == ["b"]
    table.upsert(rows(("a", 6, "new", None)))
    assert table.read_arrow().sort_by("id")["id"].to_pylist() == ["a", "b"]


def test_deletes_among_the_first_rows_of_a_group_leave_nothing_without_ordering(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, None)
    table.upsert(rows(("a", 5, "x", "D"), ("b", 1, "y", None)))
    assert logs_of(table) == []
    assert table.read_arrow()["id"].to_pylist() == ["b"]
    table.upsert(rows(("a", 4, "late", None)))
    assert table.read_arrow().sort_by("id")["id"].to_pylist() == ["a", "b"]


@pytest.mark.parametrize("first", ["insert", "bulk_insert"])
@pytest.mark.parametrize("ordering", [None, "ts"])
def test_a_partial_row_without_a_record_to_complete_is_written_whole(
    tmp_path: Path, ordering: str | None, first: str
) -> None:
    table = new_table(tmp_path, ordering)
    getattr(table, first)(rows(("a", 5, "x", None), ("b", 5, "y", None), ("c", 5, "z", None)))
    table.delete(pa.table({"id": ["b"]}))
    table.upsert(rows(("c", 6, "z", "D")))
    some = pa.table({"id": ["a", "b", "c", "d"], "ts": [7, 7, 7, 7], "note": list("ABCD")})
    table.upsert(some, partial=True)
    whole, partial = last_blocks(table)
    assert isinstance(whole, DataPart)
    assert isinstance(partial, DataPart)
    assert (whole.is_partial, partial.is_partial) == (False, True)
    assert whole.rows["id"].to_pylist() == ["b", "c", "d"]
    assert "op" in whole.rows.column_names
    assert partial.rows["id"].to_pylist() == ["a"]
    assert "op" not in partial.rows.column_names
    notes = {row["id"]: row["note"] for row in table.read_arrow().to_pylist()}
    assert notes == {"a": "A", "b": "B", "c": "C", "d": "D"}


@pytest.mark.parametrize("options", [{}, NON_BLOCKING], ids=["base file", "log"])
def test_a_partial_write_that_starts_a_file_group_is_whole(
    tmp_path: Path, options: dict[str, str]
) -> None:
    merges = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    table = new_table(tmp_path, None, **merges, **options)
    table.upsert(pa.table({"id": ["a"], "note": ["n"]}), partial=True)
    if options:
        (block,) = last_blocks(table)
        assert isinstance(block, DataPart)
        assert not block.is_partial
    else:
        assert logs_of(table) == []
    assert table.read_arrow().to_pylist() == [{"id": "a", "ts": None, "note": "n", "op": None}]
