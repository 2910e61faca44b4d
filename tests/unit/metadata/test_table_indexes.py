"""`t.indexes`: real indexes of a real table, by the names users give."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.tables import TRIPS, a_table, table_at, trips

import headwater as hw
from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from headwater.kernel.layout import METADATA
from headwater.metadata import index_content as build
from headwater.metadata import indexes as table_indexes
from headwater.metadata.indexing import IndexProgress, Stage
from headwater.metadata.merge_records import load_logged
from headwater.metadata.partition_files import is_catchup_log
from headwater.metadata.view import load_view
from headwater.model.files import LogFile, parse_data_file
from headwater.model.instant import Action
from headwater.seams.sub_storage import SubStorage
from headwater.table import Table

OPTIONS = {
    "hoodie.write.lock.provider": "in_process",
    "hoodie.clean.commits.retained": "1",
    "headwater.storage.fsync": "false",
}
EVERY = ["column_stats", "partition_stats", "bloom_filters", "record_index", "secondary_index_v"]


def rows(*keys: int, value: int = 0) -> pa.Table:
    return pa.table(
        {
            "id": [str(key) for key in keys],
            "city": [("sf", "la")[key % 2] for key in keys],
            "value": [key + value for key in keys],
        },
        TRIPS,
    )


def new_table(
    path: Path, options: Mapping[str, Any] | None = None, *, table_type: str = "COPY_ON_WRITE"
) -> Table:
    shape = table_at(path, partition_by=["city"], table_type=table_type, options=OPTIONS)
    writes = rows(*range(20)), rows(3, 21, value=100)
    return shape.with_options(options or {}).with_upserts(*writes).create()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return new_table(tmp_path / "t")


def again(table: Table) -> Table:
    """Open the table anew: a Table has the config of when it was opened."""
    return hw.open_table(table.uri, OPTIONS)


def check_valid(table: Table) -> None:
    """Check that every index holds what the files say."""
    found = again(table).inspect.validate_metadata().to_pylist()
    assert [row for row in found if row["problem"] != "stale"] == []


def states(table: Table) -> dict[str, str]:
    listed = table.indexes.list()
    return dict(zip(listed["index"].to_pylist(), listed["state"].to_pylist(), strict=True))


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_every_index_is_built_kept_and_right(tmp_path: Path, table_type: str) -> None:
    table = new_table(tmp_path / "t", table_type=table_type)
    reports: list[IndexProgress] = []
    columns = {"secondary_index_v": ["value"]}
    done = table.indexes.create(EVERY, columns=columns, progress=reports.append)
    assert done is not None
    assert done.finished == set(EVERY)
    assert states(table) == {**dict.fromkeys(EVERY, "usable"), "files": "usable"}
    check_valid(table)
    for stage in (Stage.BUILDING, Stage.PUBLISHED):
        assert {report.partition for report in reports if report.stage is stage} == set(EVERY)
    assert max(report.rows for report in reports) == 21
    table.upsert(rows(1, 22, value=500))
    table.delete(rows(2))
    check_valid(table)
    assert again(table).read_arrow(where="id = '22'").num_rows == 1


def test_what_is_planned_costs_writers_nothing_and_is_built_later(table: Table) -> None:
    plan = table.indexes.schedule(["record_index", "column_stats"])
    assert plan is not None
    assert states(table) == {
        "files": "usable",
        "record_index": "planned",
        "column_stats": "planned",
    }
    table.upsert(rows(30, 31))
    (row,) = [r for r in table.inspect.indexes().to_pylist() if r["index"] == "record_index"]
    assert (row["plan"], row["owner"], row["file_groups"], row["file_groups_built"]) == (
        plan,
        None,
        10,
        0,
    )
    assert row["logs_unfolded"] == 0
    (done,) = table.indexes.run()
    assert done.finished == {"record_index", "column_stats"}
    check_valid(table)
    assert table.indexes.run() == []
    assert table.indexes.create(["record_index", "column_stats"]) is None


def test_a_table_without_a_metadata_table_gets_one_with_its_first_index(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", {"hoodie.metadata.enable": "false"})
    assert table.indexes.list().num_rows == 0
    table.indexes.create("bloom_filters")
    assert states(table) == {"files": "usable", "bloom_filters": "usable"}
    check_valid(table)
    again(table).upsert(rows(40))
    check_valid(table)


def test_the_columns_of_statistics_are_chosen(table: Table) -> None:
    table.indexes.create("column_stats", columns=["value"])
    listed = table.indexes.list().to_pylist()
    columns = next(row["columns"] for row in listed if row["index"] == "column_stats")
    assert [column for column in columns if not column.startswith("_hoodie")] == ["value"]
    check_valid(table)
    assert table.indexes.create("column_stats", columns=["value"]) is None
    with pytest.raises(AlreadyExistsError) as raised:
        table.indexes.create("column_stats", columns=["id"])
    assert raised.value.kind is ErrorKind.INDEX_EXISTS


@pytest.mark.parametrize(
    ("names", "columns", "message"),
    [
        ("colum_stats", None, "no partition of a metadata table"),
        ([], None, "No index"),
        ("secondary_index_v", ["value"], "record_index"),
        (["record_index", "secondary_index_v"], None, "one column"),
        (["record_index", "secondary_index_v"], ["nothing"], "no column 'nothing'"),
        (["record_index", "secondary_index_v"], ["id", "value"], "one column"),
        (["record_index", "secondary_index_"], ["value"], "needs a name"),
        ("record_index", ["id"], "have columns"),
        ("record_index", {"record_index": ["id"]}, "no columns to choose"),
        ("column_stats", {"record_index": ["id"]}, "no index is named"),
        ("column_stats", ["value.x"], "no column 'value.x'"),
        ("partition_stats", None, "column_stats"),
        ("column_stats", "value", "list of columns"),
    ],
)
def test_bad_wishes_are_refused_and_nothing_changes(
    table: Table, names: Any, columns: Any, message: str
) -> None:
    before = table.inspect.timeline()
    with pytest.raises(InvalidInputError, match=message) as raised:
        table.indexes.create(names, columns=columns)
    assert raised.value.kind is ErrorKind.INVALID_INDEX
    assert table.inspect.timeline() == before
    assert states(table) == {"files": "usable"}


def test_partition_statistics_need_partitions(tmp_path: Path) -> None:
    table = hw.create_table(str(tmp_path / "t"), schema=TRIPS, record_key="id", options=OPTIONS)
    with pytest.raises(InvalidInputError, match="not partitioned"):
        table.indexes.create(["column_stats", "partition_stats"])


def test_expression_indexes_are_not_supported(table: Table) -> None:
    with pytest.raises(UnsupportedError, match="expression"):
        table.indexes.create("expr_index_day")


@pytest.mark.usefixtures("tables_with_a_lock")
def test_without_a_lock_provider_the_error_says_what_to_set(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    table = hw.open_table(str(path))
    for call in (
        lambda: table.indexes.create("record_index"),
        lambda: table.indexes.schedule("record_index"),
        lambda: table.indexes.run(),
        lambda: table.indexes.drop("files"),
        lambda: table.indexes.cancel("20260101000000000"),
    ):
        with pytest.raises(InvalidInputError, match=r"hoodie\.write\.lock\.provider") as raised:
            call()
        assert raised.value.kind is ErrorKind.NO_LOCK_PROVIDER
    assert states(table) == {"files": "usable"}


def test_an_index_that_is_planned_is_cancelled_and_not_dropped(table: Table) -> None:
    columns = {"secondary_index_v": ["value"]}
    plan = table.indexes.schedule(["record_index", "secondary_index_v"], columns=columns)
    assert plan is not None
    with pytest.raises(ConflictError, match="cancel"):
        table.indexes.drop("record_index")
    table.indexes.cancel(plan)
    assert states(table) == {"files": "usable"}
    with pytest.raises(NotFoundError):
        table.indexes.cancel(plan)
    table.upsert(rows(50))
    check_valid(table)
    table.indexes.create("record_index")
    check_valid(table)


def test_what_others_need_is_not_dropped(table: Table) -> None:
    table.indexes.create(
        ["record_index", "secondary_index_v"], columns={"secondary_index_v": ["value"]}
    )
    for name in ("record_index", "files"):
        with pytest.raises(InvalidInputError, match="drop them") as raised:
            table.indexes.drop(name)
        assert raised.value.kind is ErrorKind.INVALID_INDEX
    table.indexes.drop("secondary_index_v")
    table.indexes.drop("record_index")
    assert states(table) == {"files": "usable"}
    plan = table.indexes.schedule("column_stats")
    assert plan is not None
    with pytest.raises(InvalidInputError, match="cancel the plan"):
        table.indexes.drop("files")
    table.indexes.cancel(plan)
    with pytest.raises(NotFoundError) as missing:
        table.indexes.drop("record_index")
    assert missing.value.kind is ErrorKind.INDEX_NOT_FOUND
    again(table).upsert(rows(60))
    check_valid(table)


def test_files_can_be_dropped_last_and_built_again(table: Table) -> None:
    table.indexes.drop("files")
    assert table.indexes.list().num_rows == 0
    reopened = again(table)
    reopened.upsert(rows(70))
    reopened.services.clean()
    reopened.indexes.create("files")
    assert states(table) == {"files": "usable"}
    check_valid(table)
    assert again(table).read_arrow().num_rows == 22


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.some(1)
def test_a_planned_index_is_told_what_happened_meanwhile(tmp_path: Path, table_type: str) -> None:
    table = new_table(tmp_path / "t", table_type=table_type)
    table.indexes.schedule(EVERY, columns={"secondary_index_v": ["value"]})
    table.upsert(rows(3, 80, value=7))
    table.delete(rows(6, 8))
    if table_type == "MERGE_ON_READ":
        table.services.compact()
    table.upsert(rows(3, 81, value=8))
    table.services.cluster()
    table.insert(rows(90, 91))
    table.services.clean()
    table.overwrite_partitions(rows(1, 5, 93, value=1))
    expected = table.read_arrow().sort_by("id")
    (done,) = table.indexes.run()
    assert done.finished == set(EVERY)
    assert done.told
    assert set(table.inspect.indexes()["logs_unfolded"].to_pylist()) == {0}
    check_valid(table)
    read = again(table)
    assert read.read_arrow().sort_by("id") == expected
    for row in expected.to_pylist():
        assert read.read_arrow(where=f"id = '{row['id']}'").num_rows == 1
        same = [one for one in expected.to_pylist() if one["value"] == row["value"]]
        assert read.read_arrow(where=f"value = {row['value']}").num_rows == len(same)
    # From now on commits tell it themselves, and the metadata table is compacted.
    for number in range(12):
        table.upsert(rows(3, 100 + number, value=number))
    table.services.clean()
    check_valid(table)


def test_an_index_that_nobody_tells_anything_outlives_its_first_files(tmp_path: Path) -> None:
    """Its builder folds it under the time at which the build completed."""
    options = {"hoodie.metadata.compact.max.delta.commits": "1"}
    table = new_table(tmp_path / "t", options, table_type="MERGE_ON_READ")
    table.indexes.schedule(["bloom_filters", "record_index"])
    table.upsert(rows(3, 80, value=7))
    table.indexes.run()
    first = set(base_files(table, "bloom_filters"))
    for number in range(6):
        table.upsert(rows(3, 80, value=number))
    assert first.isdisjoint(base_files(table, "record_index"))
    read = again(table)
    assert load_view(read.storage, read.config).has_index("bloom_filters")
    check_valid(table)


def base_files(table: Table, partition: str) -> list[str]:
    infos = table.storage.list_tree(f"{METADATA}/{partition}")
    return [info.path for info in infos if info.path.endswith(".hfile")]


def test_an_instant_that_a_builder_told_for_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Once its logs are folded the index is dropped with what it holds, and built again.
    monkeypatch.setattr(table_indexes, "run_metadata_services", lambda upkeep: None)
    table = new_table(tmp_path / "t", table_type="MERGE_ON_READ")
    table.indexes.schedule(["column_stats", "record_index"])
    table.upsert(rows(3, 80, value=7))
    saved = table.services.savepoint()
    table.upsert(rows(3, 81, value=8))
    table.indexes.run()
    table.services.restore(saved.instant)
    read = again(table)
    view = load_view(read.storage, read.config)
    assert view.has_index("record_index")
    assert view.has_index("column_stats")
    assert read.read_arrow(where="id = '80'").num_rows == 1
    assert read.read_arrow(where="id = '81'").num_rows == 0
    check_valid(table)


def test_liv_16_many_commits_are_caught_up_with_by_few_logs(tmp_path: Path) -> None:
    logs = {}
    for commits in (2, 12):
        table = new_table(tmp_path / str(commits), table_type="MERGE_ON_READ")
        table.indexes.schedule(["column_stats", "record_index"])
        for number in range(commits):
            table.upsert(rows(*range(20), 100 + number, value=number))
        (done,) = table.indexes.run()
        logs[commits] = done.told
        check_valid(table)
    assert logs[12] == logs[2]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.some(1)
def test_a_run_is_cut_and_each_piece_says_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: str
) -> None:
    """Keys come, go and come back within a piece and across pieces, files are cleaned."""
    monkeypatch.setattr(build, "_INSTANTS_AT_ONCE", 4)
    monkeypatch.setattr(build, "_BYTES_AT_ONCE", 2_000)
    table = new_table(tmp_path / "t", table_type=table_type)
    table.indexes.create("record_index")
    table.indexes.schedule(
        ["column_stats", "bloom_filters", "secondary_index_v"],
        columns={"secondary_index_v": ["value"]},
    )
    for number in range(5):
        table.upsert(rows(3, 40, 50 + number, value=10 * number))
        table.delete(rows(40, 50 + number))
        table.upsert(rows(40, value=10 * number))
        table.services.clean()
        if table_type == "MERGE_ON_READ":
            table.services.compact()
    table.indexes.run()
    check_valid(table)
    read = again(table)
    for row in read.read_arrow().to_pylist():
        found = read.read_arrow(where=f"value = {row['value']}")
        assert row["id"] in found["id"].to_pylist()


def test_n_58_a_build_starts_again_when_what_it_caught_up_with_is_taken_back(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path / "t", table_type="MERGE_ON_READ")
    table.indexes.schedule(["record_index", "column_stats"])
    table.upsert(rows(3, 80, value=7))
    last = table.upsert(rows(3, 81, value=8))
    other = again(table)
    took_back: list[object] = []

    def take_back(progress: IndexProgress) -> None:
        is_caught_up = progress.stage is Stage.CATCHING_UP and not progress.lag
        if is_caught_up and not took_back:
            took_back.append(other.services.rollback(last.instant))

    (done,) = table.indexes.run(progress=take_back)
    assert took_back
    assert done.finished == {"record_index", "column_stats"}
    check_valid(table)
    read = again(table)
    assert read.read_arrow(where="id = '80'").num_rows == 1
    assert read.read_arrow(where="id = '81'").num_rows == 0


def test_a_planned_index_is_told_of_a_rewritten_file_what_is_new_in_it(table: Table) -> None:
    table.indexes.schedule(["record_index"])
    table.upsert(rows(2, 4, 40, value=5))
    table.indexes.run()
    own = SubStorage(table.storage, METADATA)
    files = [parse_data_file(info.path) for info in own.list_tree("record_index")]
    told = [file for file in files if isinstance(file, LogFile) and is_catchup_log(file)]
    said = load_logged(own, told)
    assert [key for one in said for key in one.keys.to_pylist()] == ["40"]
    check_valid(table)


def test_n_127_a_table_that_has_lost_all_its_indexes_is_written_all_the_same(
    tmp_path: Path,
) -> None:
    locked = {"hoodie.write.lock.provider": "in_process"}
    table = a_table(tmp_path).with_options(locked).with_commits(1).create()
    table.indexes.create("column_stats", columns=["value"])
    before = table.context.load_timeline()
    assert [i for i in before.completed if i.action is Action.INDEXING]
    for name in table.reload().config.metadata_partitions:
        table.indexes.drop(name)
    table.reload().upsert(trips(("b", "ny", 2)))
    assert "b" in table.read_arrow()["id"].to_pylist()


def test_a_pending_plan_for_the_same_indexes_is_taken_up(table: Table) -> None:
    plan = table.indexes.schedule(["column_stats", "record_index"])
    with pytest.raises(AlreadyExistsError):
        table.indexes.create(["column_stats", "bloom_filters"])
    with pytest.raises(AlreadyExistsError):
        table.indexes.create("column_stats", columns=["id"])
    built = table.indexes.create("column_stats")
    assert built is not None
    assert built.instant.requested_time == plan
    assert states(table)["record_index"] == "usable"
    check_valid(table)
