"""Tables that do not say their index, as those of Apache Hudi: told by files, or asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import InvalidInputError, UnsupportedError
from headwater.files.base_files import open_base_file
from headwater.kernel.layout import BUCKET_INDEX
from headwater.kernel.table_config import update_table_config
from headwater.model.files import BaseFile
from headwater.model.instant import InstantTime
from headwater.operations.inferred_index import with_inferred_index

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")


def rows(numbers: range, value: int) -> pa.Table:
    ids = [f"key-{number}" for number in numbers]
    return pa.table({"id": ids, "city": ["sf"] * len(ids), "n": [value] * len(ids)})


def unnamed(path: Path, some: pa.Table, **arguments: Any) -> hw.Table:
    """Make a table and forget its index, as Hudi does not record it."""
    given = {"schema": "id string, city string, n long", "record_key": "id", **arguments}
    table = hw.create_table(path / "t", **given)
    table.insert(some)
    gone = dict.fromkeys(
        ("hoodie.index.type", "hoodie.bucket.index.num.buckets", "hoodie.table.index.type")
    )
    locks = table.context.components.locks
    update_table_config(table.storage, locks, table.context.clock, gone, lock_timeout_ms=1_000)
    reopened = hw.open_table(path / "t")
    assert reopened.config.index_type is None
    return reopened


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("buckets", [1, 7])
def test_buckets_are_told_by_the_files(tmp_path: Path, buckets: int, table_type: str) -> None:
    table = unnamed(
        tmp_path, rows(range(60), 1), buckets=buckets, table_type=table_type, partition_by="city"
    )
    assert with_inferred_index(table.context).config.bucket_count == buckets
    table.upsert(rows(range(30, 90), 2))
    found = table.read_arrow(["id", "n"]).to_pylist()
    assert {row["id"]: row["n"] for row in found} == {
        f"key-{n}": 1 if n < 30 else 2 for n in range(90)
    }
    assert len(found) == 90


def test_too_few_keys_to_tell_by(tmp_path: Path) -> None:
    table = unnamed(tmp_path, rows(range(1), 1), buckets=8)
    with pytest.raises(InvalidInputError, match=r"bucket index.*num\.buckets.*default is 256"):
        table.upsert(rows(range(1), 2))


def test_files_are_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = unnamed(tmp_path, rows(range(40), 1), buckets=3)
    table.upsert(rows(range(40), 2))
    monkeypatch.delattr("headwater.operations.inferred_index.view_of")
    table.reload().upsert(rows(range(40), 3))
    assert set(table.reload().read_arrow(["n"])["n"].to_pylist()) == {3}


@pytest.mark.parametrize("partition_by", ["city", None])
def test_every_other_index_is_asked_for(tmp_path: Path, partition_by: str | None) -> None:
    options = {"hoodie.index.type": "SIMPLE"}
    table = unnamed(tmp_path, rows(range(3), 1), partition_by=partition_by, options=options)
    with pytest.raises(InvalidInputError, match=r"hoodie\.index\.type.*default on Spark is SIMPLE"):
        table.upsert(rows(range(3), 2))
    hw.open_table(tmp_path / "t", options).upsert(rows(range(3), 2))
    assert set(table.reload().read_arrow(["n"])["n"].to_pylist()) == {2}


@pytest.mark.parametrize("extension", ["hfile", "orc"])
def test_base_files_of_other_formats_are_refused_by_name(tmp_path: Path, extension: str) -> None:
    table = unnamed(tmp_path, rows(range(1), 1), buckets=1)
    time = InstantTime("20260101000000000")
    file = BaseFile("city=sf", "00000000-0", "0-1-2", time, extension)
    table.storage.put(file.path, b"not looked at")
    with pytest.raises(UnsupportedError, match=f"{extension.upper()}.*Nothing is damaged"):
        open_base_file(table.storage, file)


def test_n_123_buckets_that_are_not_all_alike_are_left_to_hudi(tmp_path: Path) -> None:
    """By whatever index they were written, the next job of Hudi's would write records twice."""
    table = unnamed(tmp_path, rows(range(9), 1), index="simple")
    table.storage.put(f"{BUCKET_INDEX}/consistent_hashing_metadata/sf/0.hashing_meta", b"{}")
    for options in ({}, {"hoodie.index.type": "SIMPLE"}):
        opened = hw.open_table(table.uri, options)
        for write in (opened.upsert, opened.insert, opened.delete):
            with pytest.raises(UnsupportedError, match=r"consistent hashing.* reads but does not"):
                write(rows(range(1), 2))
        with pytest.raises(UnsupportedError, match="consistent hashing"):
            opened.services.schedule_clustering(sort_by=["n"])
    assert table.read_arrow().num_rows == 9


def test_a_table_that_has_no_buckets_is_not_written_by_them(tmp_path: Path) -> None:
    table = unnamed(tmp_path, rows(range(9), 1), index="simple")
    with_letters = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
    (file_id,) = table.inspect.slices()["file_id"].to_pylist()
    # Some ids begin with eight digits by chance; they are in none of two buckets.
    with pytest.raises(InvalidInputError, match=f"{file_id}.* written by another index"):
        hw.open_table(table.uri, with_letters).upsert(rows(range(1), 2))


def test_a_table_with_more_buckets_than_it_is_opened_with_is_not_written(tmp_path: Path) -> None:
    table = unnamed(tmp_path, rows(range(99), 1), index="bucket", buckets=7)
    too_few = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
    with pytest.raises(InvalidInputError, match=r"in none of 2 buckets.* or with more buckets"):
        hw.open_table(table.uri, too_few).upsert(rows(range(99), 2))
    assert table.read_arrow()["n"].unique().to_pylist() == [1]
