"""Writers that insert the same new key: one of them is written again, and there is one record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from headwater import Table, create_table, open_table
from headwater.cli.commands.fsck import find_problems
from headwater.engine.inline import InlineRows
from headwater.errors import ConflictError, ErrorKind
from headwater.files.record_keys import load_record_keys
from headwater.kernel.txn import key_conflicts
from headwater.model.files import DataFile
from headwater.operations import key_comparison
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import RunningWrite, start_write
from headwater.seams.storage import Storage

OPTIONS = {
    "hoodie.write.lock.provider": "filesystem",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.concurrency.early.conflict.detection.enable": "false",
}
GLOBAL = ("record_index", "global_simple", "global_bloom")
IN_PARTITION = ("record_level_index", "simple", "bloom")
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")


def rows(ids: str, value: int, city: str = "x") -> pa.Table:
    return pa.table({"id": list(ids), "value": [value] * len(ids), "city": [city] * len(ids)})


def new_table(folder: Path, index: str, table_type: str, *, partitioned: bool = False) -> Table:
    return create_table(
        folder / "trips",
        schema=rows("a", 0).schema,
        record_key="id",
        table_type=table_type,
        index=index,
        partition_by=["city"] if partitioned else None,
        options=OPTIONS,
    )


class Writer:
    """A write of another process that a test takes step by step."""

    def __init__(
        self, table: Table, given: pa.Table, operation: Operation = Operation.UPSERT
    ) -> None:
        self.table = open_table(table.storage.uri, OPTIONS)
        rows = InlineRows(given)
        request = WriteRequest(operation=operation, columns=rows.schema)
        self.write: RunningWrite = start_write(self.table.context, request, held=rows.held())
        self.stats = self.write.run_tasks(rows)

    def commit(self) -> None:
        self.write.commit(self.stats)

    def lose(self) -> ConflictError:
        with pytest.raises(ConflictError) as caught:
            self.commit()
        self.write.abandon()
        assert caught.value.kind is ErrorKind.WRITE_CONFLICT
        return caught.value


def places(table: Table) -> list[tuple[str, str, int]]:
    found = table.read_arrow().select(["id", "city", "value"]).to_pylist()
    return sorted((row["id"], row["city"], row["value"]) for row in found)


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("index", [*GLOBAL, *IN_PARTITION])
@pytest.mark.some(4)
def test_inv_94_of_two_writers_of_a_new_key_the_second_loses_and_updates(
    tmp_path: Path, index: str, table_type: str
) -> None:
    table = new_table(tmp_path, index, table_type)
    first, second = Writer(table, rows("ak", 1)), Writer(table, rows("kz", 2))
    first.commit()
    conflict = second.lose()
    assert "'k'" in conflict.message
    table.upsert(rows("kz", 2))
    assert places(table) == [("a", "x", 1), ("k", "x", 2), ("z", "x", 2)]


@pytest.mark.parametrize("index", [*GLOBAL, *IN_PARTITION])
def test_inv_94_writers_of_different_new_keys_both_commit(tmp_path: Path, index: str) -> None:
    table = new_table(tmp_path, index, "MERGE_ON_READ")
    first, second = Writer(table, rows("ac", 1)), Writer(table, rows("bd", 2))
    first.commit()
    second.commit()
    assert [key for key, _, _ in places(table)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("index", GLOBAL)
def test_inv_94_a_key_is_there_once_in_the_table(tmp_path: Path, index: str) -> None:
    table = new_table(tmp_path, index, "MERGE_ON_READ", partitioned=True)
    first, second = Writer(table, rows("k", 1, "x")), Writer(table, rows("k", 2, "y"))
    first.commit()
    second.lose()
    assert places(table) == [("k", "x", 1)]


@pytest.mark.parametrize("index", IN_PARTITION)
def test_inv_94_a_key_may_be_in_two_partitions(tmp_path: Path, index: str) -> None:
    table = new_table(tmp_path, index, "MERGE_ON_READ", partitioned=True)
    first, second = Writer(table, rows("k", 1, "x")), Writer(table, rows("k", 2, "y"))
    first.commit()
    second.commit()
    assert places(table) == [("k", "x", 1), ("k", "y", 2)]


def test_inv_94_an_upsert_meets_keys_of_an_insert_but_an_insert_promises_nothing(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, "simple", "MERGE_ON_READ")
    upsert = Writer(table, rows("k", 1))
    insert = Writer(table, rows("k", 2), Operation.INSERT)
    insert.commit()
    upsert.lose()
    upsert = Writer(table, rows("q", 1))
    insert = Writer(table, rows("q", 2), Operation.INSERT)
    upsert.commit()
    insert.commit()
    assert [key for key, _, _ in places(table)] == ["k", "q", "q"]


def test_inv_94_an_overwrite_does_not_double_a_key_that_came_meanwhile(tmp_path: Path) -> None:
    table = new_table(tmp_path, "record_index", "COPY_ON_WRITE")
    overwrite = Writer(table, rows("k", 1), Operation.OVERWRITE)
    table.upsert(rows("k", 2))
    overwrite.lose()
    table.overwrite(rows("k", 3))
    assert places(table) == [("k", "x", 3)]


@pytest.mark.parametrize("index", ["record_index", "simple"])
def test_inv_94_keys_that_are_doubled_already_are_found(
    tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, index, "MERGE_ON_READ", partitioned=True)
    first, second = Writer(table, rows("ak", 1, "x")), Writer(table, rows("kz", 2, "x"))
    other = Writer(table, rows("a", 3, "y"))
    with monkeypatch.context() as patched:
        patched.setattr(key_conflicts.KeyCheck, "meetings", lambda *_: [])  # As it was before.
        first.commit()
        second.commit()
        other.commit()
    found = table.inspect.doubled_keys()
    keys = ["k", "k"] if index == "simple" else ["a", "a", "k", "k"]
    assert found["key"].to_pylist() == keys
    assert found["records"].to_pylist() == [1] * len(keys)
    told = {problem.subject for problem in find_problems(table, is_deep=True)}
    assert told == ({"city=x"} if index == "simple" else {"city=x", "city=y"})


def test_inv_94_small_writes_read_keys_at_once_and_only_if_there_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, "record_index", "MERGE_ON_READ")
    reads: list[int] = []

    def load(storage: Storage, files: Sequence[DataFile]) -> list[pa.ChunkedArray | None]:
        if files:
            reads.append(len(files))
        return load_record_keys(storage, files)

    monkeypatch.setattr(key_comparison, "load_record_keys", load)
    Writer(table, rows("a", 1)).commit()
    assert reads == []
    mine = Writer(table, rows("b", 1))
    for key in "xyz":
        table.upsert(rows(key, 2))
    mine.commit()
    assert reads == [4]


def test_inv_94_keys_of_large_writes_are_compared_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_conflicts, "ROWS_UNDER_LOCK_MAX", 1)
    monkeypatch.setattr(key_comparison, "_ROWS_HELD_MAX", 1)
    table = new_table(tmp_path, "global_simple", "MERGE_ON_READ", partitioned=True)
    cities = pa.concat_tables([rows("ab", 1, "x"), rows("cd", 1, "y"), rows("ef", 1, "z")])
    mine, fitting = Writer(table, cities), Writer(table, rows("uv", 3, "w"))
    table.upsert(pa.concat_tables([rows("pq", 2, "x"), rows("re", 2, "w")]))
    fitting.commit()
    assert "'e'" in mine.lose().message


class TestUnderTheLock:
    """A rival that completes after the keys were compared, right before the lock is taken."""

    @pytest.fixture
    def rival_at_the_lock(self, monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
        rivals: list[Writer] = []

        def compare(*arguments: object) -> object:
            done = key_comparison.compare_keys(*arguments)  # type: ignore[arg-type]
            if rivals:
                rivals.pop().commit()
            return done

        monkeypatch.setattr("headwater.operations.write.compare_keys", compare)
        return rivals

    @pytest.mark.parametrize("rows_max", [key_conflicts.ROWS_UNDER_LOCK_MAX, 1])
    def test_inv_94_it_is_compared_however_late_it_comes(
        self,
        tmp_path: Path,
        rival_at_the_lock: list[Writer],
        monkeypatch: pytest.MonkeyPatch,
        rows_max: int,
    ) -> None:
        monkeypatch.setattr(key_conflicts, "ROWS_UNDER_LOCK_MAX", rows_max)
        table = new_table(tmp_path, "record_index", "COPY_ON_WRITE")
        mine = Writer(table, rows("ak", 1))
        rival_at_the_lock.append(Writer(table, rows("kz", 2)))
        mine.lose()
        assert places(table) == [("k", "x", 2), ("z", "x", 2)]

    @pytest.mark.parametrize("rows_max", [key_conflicts.ROWS_UNDER_LOCK_MAX, 1])
    def test_inv_94_other_keys_do_not_keep_it_from_committing(
        self,
        tmp_path: Path,
        rival_at_the_lock: list[Writer],
        monkeypatch: pytest.MonkeyPatch,
        rows_max: int,
    ) -> None:
        monkeypatch.setattr(key_conflicts, "ROWS_UNDER_LOCK_MAX", rows_max)
        table = new_table(tmp_path, "bloom", "MERGE_ON_READ")
        mine = Writer(table, rows("ab", 1))
        rival_at_the_lock.append(Writer(table, rows("yz", 2)))
        mine.commit()
        assert [key for key, _, _ in places(table)] == ["a", "b", "y", "z"]


@pytest.mark.parametrize("index", [*GLOBAL, *IN_PARTITION])
def test_n_172_a_key_that_came_back_while_it_was_compacted_away_is_found(
    tmp_path: Path, index: str
) -> None:
    """It is in a log only: neither in the base file, nor among the deletes that were kept."""
    table = new_table(tmp_path, index, "MERGE_ON_READ")
    table.upsert(rows("ab", 1))
    table.delete(rows("b", 1))
    plan = table.services.schedule_compaction()
    assert plan is not None
    table.upsert(rows("b", 2))
    table.services.compact(plan)
    table.upsert(rows("b", 3))
    found = table.read_arrow().select(["id", "value"]).sort_by("id").to_pylist()
    assert found == [{"id": "a", "value": 1}, {"id": "b", "value": 3}]
    table.delete(rows("b", 3))
    assert table.read_arrow()["id"].to_pylist() == ["a"]
    assert list(find_problems(table)) == []
