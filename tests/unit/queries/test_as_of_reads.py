"""What a reader may read a table as of."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import InvalidInputError
from headwater.table import Table

OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.clean.commits.retained": "1",
    "hoodie.clean.automatic": "false",
    "hoodie.metadata.compact.max.delta.commits": "1",
}
each_type = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])


def make_table(path: Path, table_type: str) -> Table:
    return hw.create_table(
        path / "t",
        schema="id string, city string, v long",
        record_key="id",
        partition_by="city",
        table_type=table_type,
        options=OPTIONS,
    )


def upsert(table: Table, value: int) -> hw.Commit:
    return table.upsert(pa.table({"id": ["a"], "city": ["x"], "v": [value]}))


def value_of(table: Table, as_of: str | datetime) -> int:
    return int(table.read_arrow(as_of=as_of)["v"][0].as_py())


def moment_of(time: str) -> datetime:
    whole = datetime.strptime(time[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return whole.replace(microsecond=int(time[14:]) * 1000)


@each_type
def test_an_instant_is_the_table_right_after_it(tmp_path: Path, table_type: str) -> None:
    table = make_table(tmp_path, table_type)
    commits = [upsert(table, value) for value in range(3)]
    for value, commit in enumerate(commits):
        assert value_of(table, commit.instant) == value
        assert value_of(table, commit.completion_time) == value
        completed = moment_of(commit.completion_time)
        assert value_of(table, completed) == value
        assert value_of(table, completed.isoformat(timespec="milliseconds")) == value
        carried = table.read_arrow(["_hoodie_commit_time"], as_of=commit.completion_time)
        assert value_of(table, carried["_hoodie_commit_time"][0].as_py()) == value
    # A datetime is a moment, and no instant: the second had not completed when it was requested.
    assert value_of(table, moment_of(commits[1].instant)) == 0


@each_type
def test_an_archived_instant_is_found(tmp_path: Path, table_type: str) -> None:
    table = make_table(tmp_path, table_type)
    commits = [upsert(table, value) for value in range(8)]
    table.services.archive()
    active = {row["requested_time"] for row in table.inspect.timeline().to_pylist()}
    assert commits[0].instant not in active
    for value, commit in enumerate(commits):
        assert value_of(table, commit.instant) == value


def test_a_partition_that_is_not_there_is_not_deleted(tmp_path: Path) -> None:
    table = make_table(tmp_path, "COPY_ON_WRITE")
    upsert(table, 1)
    with pytest.raises(InvalidInputError, match=r"no partition 'x', 'city=y'.*are 'city=x'"):
        table.delete_partitions(["x", "city=x", "city=y"])
    assert table.read_arrow().num_rows == 1
    table.delete_partitions(["city=x"])
    with pytest.raises(InvalidInputError, match=r"no partition 'city=x'.*are none"):
        table.delete_partitions(["city=x"])
