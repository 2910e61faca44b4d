"""Writers that lost: what they write again, what they keep, and what they leave behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder
from tests.support.hudi_rs import location_for_hudi_rs

from headwater import Table, create_table, open_table
from headwater.engine.inline import InlineRows
from headwater.kernel.timeline.active import load_active
from headwater.metadata.view import load_view
from headwater.model.commit import Redone
from headwater.model.files import parse_data_file
from headwater.model.instant import Action
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import RunningWrite, resume_write, start_write

OPTIONS = {
    "hoodie.write.lock.provider": "filesystem",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.concurrency.early.conflict.detection.enable": "false",
}
INDEXES = {"hoodie.metadata.index.column.stats.enable": "true"}
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]

Interfere = Callable[..., None]


def rows(ids: str, value: int, city: str = "x") -> pa.Table:
    return pa.table({"id": list(ids), "value": [value] * len(ids), "city": [city] * len(ids)})


def new_table(
    folder: Path,
    table_type: str,
    index: str,
    *,
    partitioned: bool = False,
    ordering: str | None = None,
) -> Table:
    return create_table(
        folder / "trips",
        schema=rows("a", 0).schema,
        record_key="id",
        ordering=ordering,
        table_type=table_type,
        partition_by=["city"] if partitioned else None,
        options={**OPTIONS, **INDEXES},
        **({"buckets": 4} if index == "bucket" else {"index": index}),
    )


@pytest.fixture
def interfere(monkeypatch: pytest.MonkeyPatch) -> Interfere:
    """Return a function that has others write when the next writes have written their files."""
    waiting: list[Callable[[], object]] = []
    run_tasks = RunningWrite.run_tasks

    def run_and_wait(write: RunningWrite, given: object) -> object:
        stats = run_tasks(write, given)  # type: ignore[arg-type]
        others = waiting.copy()
        waiting.clear()  # The others' own writes are left in peace.
        if others:
            others.pop(0)()
        waiting.extend(others)
        return stats

    monkeypatch.setattr(RunningWrite, "run_tasks", run_and_wait)

    def interfere(*others: Callable[[], object]) -> None:
        waiting.extend(others)

    return interfere


def values(table: Table) -> dict[tuple[str, str], int]:
    found = table.read_arrow()
    keys = list(zip(found["id"].to_pylist(), found["city"].to_pylist(), strict=True))
    assert len(keys) == len(set(keys)), "a key is there twice"
    return dict(zip(keys, found["value"].to_pylist(), strict=True))


def hudi_rs_values(table: Table) -> dict[tuple[str, str], int]:
    """Return what another engine reads."""
    read = HudiTableBuilder.from_base_uri(location_for_hudi_rs(table)).build().read()
    found = [row for batch in read for row in batch.to_pylist()]
    assert len({(row["id"], row["city"]) for row in found}) == len(found), "a key is there twice"
    return {(row["id"], row["city"]): row["value"] for row in found}


def check_nothing_is_left(table: Table) -> None:
    """Every data file is one of a commit, and the indexes say what the files do."""
    timeline = load_active(table.storage, ".hoodie/timeline")
    assert not timeline.pending
    listed = {
        file.path for one in load_view(table.storage, table.config).commits for file in one.files
    }
    paths = [info.path for info in table.storage.list_tree("")]
    data = {p for p in paths if parse_data_file(p) is not None and not p.startswith(".hoodie/")}
    assert data == listed
    assert not [p for p in paths if p.startswith(".hoodie/.temp/")]
    problems = table.inspect.validate_metadata()["problem"].to_pylist()
    assert set(problems) <= {"stale"}


def rollbacks(table: Table) -> int:
    timeline = load_active(table.storage, ".hoodie/timeline")
    return sum(instant.action is Action.ROLLBACK for instant in timeline.instants)


@pytest.mark.parametrize("table_type", TYPES)
def test_n_130_a_single_writer_that_lost_to_a_service_writes_again(
    tmp_path: Path, interfere: Interfere, table_type: str
) -> None:
    alone = {
        **OPTIONS,
        "hoodie.write.concurrency.mode": "single_writer",
        "hoodie.parquet.small.file.limit": "0",
    }
    table = open_table(new_table(tmp_path, table_type, "simple").uri, alone)
    table.upsert(rows("ab", 0))
    table.upsert(rows("cd", 0))
    interfere(lambda: open_table(table.uri, alone).services.cluster())
    mine = table.upsert(rows("abcd", 1))
    assert mine.redone.times == 1
    assert values(table) == {(key, "x"): 1 for key in "abcd"}
    check_nothing_is_left(table)


def test_n_70_only_the_buckets_that_conflicted_are_written_again(
    tmp_path: Path, interfere: Interfere
) -> None:
    table = new_table(tmp_path, "COPY_ON_WRITE", "bucket")
    table.upsert(rows("abcdefgh", 0))
    # Requested before, or else the base files would lie below theirs.
    earlier = Later(open_table(table.storage.uri, OPTIONS), rows("a", 1))
    interfere(earlier.commit)
    mine = table.upsert(rows("abcdefgh", 2))
    assert len(mine.file_groups) == 4
    assert mine.redone.times == 1
    assert mine.redone.files == 1
    assert 0 < mine.redone.rows < 8
    assert values(table) == {(key, "x"): 2 for key in "abcdefgh"}
    assert table.inspect.conflicts().to_pylist() == [
        {
            "instant": mine.instant,
            "outcome": "redone",
            "by": mine.redone.by,
            "reason": f"1 files with {mine.redone.rows} rows were written again, tried 2 times",
        }
    ]
    assert mine.redone.by in [
        commit.requested_time for commit in load_view(table.storage, table.config).commits
    ]
    assert rollbacks(table) == 0
    check_nothing_is_left(table)


@pytest.mark.parametrize("ordering", [None, "value"])
def test_inv_61_logs_that_would_be_written_again_as_they_are_stay(
    tmp_path: Path, interfere: Interfere, ordering: str | None
) -> None:
    table = new_table(tmp_path, "MERGE_ON_READ", "bucket", ordering=ordering)
    table.upsert(rows("abcdefgh", 0))
    rival = open_table(table.storage.uri, OPTIONS)
    # Requested before: to other engines the later request is the later write.
    earlier = Later(rival, rows("abcd", 1))
    interfere(earlier.commit)
    mine = table.upsert(rows("defgh", 2))
    assert mine.redone == Redone()
    if ordering is not None:
        # Requested after: where values decide, it does not matter who is later.
        interfere(lambda: rival.upsert(rows("ab", 3)))
        assert table.upsert(rows("ab", 4)).redone == Redone()
    expected = {"a": 1, "b": 1, "c": 1, **dict.fromkeys("defgh", 2)}
    expected |= {} if ordering is None else {"a": 4, "b": 4}
    assert values(table) == {(key, "x"): value for key, value in expected.items()}
    assert hudi_rs_values(table) == values(table)
    check_nothing_is_left(table)


@pytest.mark.parametrize("index", ["bucket", "simple", "record_level_index"])
@pytest.mark.parametrize("is_delete", [False, True], ids=["update", "delete"])
def test_n_128_the_last_to_commit_is_the_last_for_other_engines_too(
    tmp_path: Path, interfere: Interfere, index: str, is_delete: bool
) -> None:
    """They merge logs by the times of their requests, and the rival's comes after mine."""
    table = new_table(tmp_path, "MERGE_ON_READ", index, partitioned=True)
    table.upsert(rows("abcdefgh", 0))
    rival = open_table(table.storage.uri, OPTIONS)
    interfere(lambda: rival.upsert(rows("ab", 1)))
    if is_delete:
        mine = table.delete(pa.table({"id": ["a"], "city": ["x"]}))
    else:
        mine = table.upsert(rows("a", 2))
    assert mine.redone.times == 1
    expected = {("b", "x"): 1, **{(key, "x"): 0 for key in "cdefgh"}}
    if not is_delete:
        expected |= {("a", "x"): 2}
    assert values(table) == expected
    assert hudi_rs_values(table) == expected
    check_nothing_is_left(table)


def test_n_128_a_record_that_moved_is_there_once_for_other_engines_too(
    tmp_path: Path, interfere: Interfere
) -> None:
    table = new_table(tmp_path, "MERGE_ON_READ", "global_simple", partitioned=True)
    moving = open_table(table.uri, {**OPTIONS, "hoodie.simple.index.update.partition.path": "true"})
    table.upsert(rows("abc", 0, "x"))
    interfere(lambda: moving.upsert(rows("ab", 1, "x")))
    moving.upsert(rows("a", 2, "y"))
    assert values(table) == {("a", "y"): 2, ("b", "x"): 1, ("c", "x"): 0}
    assert hudi_rs_values(table) == values(table)


def test_n_70_a_bucket_that_another_has_started_is_appended_to(
    tmp_path: Path, interfere: Interfere
) -> None:
    table = new_table(tmp_path, "MERGE_ON_READ", "bucket")
    earlier = Later(open_table(table.storage.uri, OPTIONS), rows("a", 1))
    interfere(earlier.commit)
    mine = table.upsert(rows("abcdefgh", 2))
    assert (mine.redone.times, mine.redone.files) == (1, 1)
    assert values(table) == {(key, "x"): 2 for key in "abcdefgh"}
    check_nothing_is_left(table)


@pytest.mark.parametrize("index", ["simple", "bloom", "record_level_index"])
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.some(2)
def test_n_70_only_the_partitions_that_conflicted_are_written_again(
    tmp_path: Path, interfere: Interfere, table_type: str, index: str
) -> None:
    table = new_table(tmp_path, table_type, index, partitioned=True)
    both = pa.concat_tables([rows("ab", 0, "x"), rows("ab", 0, "y")])
    table.upsert(both)
    rival = open_table(table.storage.uri, OPTIONS)
    # Requested before, or else the base files of a copy-on-write table would lie below theirs.
    earlier = Later(rival, rows("ak", 1, "x"))
    interfere(earlier.commit)
    mine = table.upsert(pa.concat_tables([rows("bk", 2, "x"), rows("ak", 2, "y")]))
    assert mine.redone.times == 1
    assert mine.redone.rows == 2
    expected = {("a", "x"): 1, ("b", "x"): 2, ("k", "x"): 2}
    assert values(table) == {**expected, ("a", "y"): 2, ("b", "y"): 0, ("k", "y"): 2}
    assert rollbacks(table) == 0
    check_nothing_is_left(table)


class Later:
    """A write that has begun and commits when it is told to."""

    def __init__(self, table: Table, given: pa.Table) -> None:
        rows = InlineRows(given)
        request = WriteRequest(operation=Operation.UPSERT, columns=rows.schema)
        self._write = start_write(table.context, request, held=rows.held())
        self._stats = self._write.run_tasks(rows)

    def commit(self) -> None:
        self._write.commit(self._stats)


def test_n_12_base_files_below_those_of_a_later_request_begin_anew(
    tmp_path: Path, interfere: Interfere
) -> None:
    table = new_table(tmp_path, "COPY_ON_WRITE", "bucket")
    table.upsert(rows("abcdefgh", 0))
    rival = open_table(table.storage.uri, OPTIONS)
    interfere(lambda: rival.upsert(rows("a", 1)))
    mine = table.upsert(rows("abcdefgh", 2))
    assert mine.redone == Redone(times=1, files=4, rows=8)
    assert values(table) == {(key, "x"): 2 for key in "abcdefgh"}
    assert rollbacks(table) == 1


@pytest.mark.parametrize("index", ["record_index", "global_simple"])
def test_n_70_new_keys_that_another_brought_become_updates(
    tmp_path: Path, interfere: Interfere, index: str
) -> None:
    table = new_table(tmp_path, "MERGE_ON_READ", index, partitioned=True)
    rival = open_table(table.storage.uri, OPTIONS)
    interfere(lambda: rival.upsert(rows("k", 1, "x")))
    mine = table.upsert(rows("kz", 2, "x"))
    assert mine.redone.times == 1
    assert (mine.inserted, mine.updated) == (1, 1)
    assert values(table) == {("k", "x"): 2, ("z", "x"): 2}
    check_nothing_is_left(table)


def test_n_70_what_completed_before_the_redo_is_compared_with_what_is_kept(
    tmp_path: Path, interfere: Interfere
) -> None:
    """Lost to one, and before it looks again another one changes what it would keep."""
    table = new_table(tmp_path, "COPY_ON_WRITE", "bucket")
    table.upsert(rows("abcdefgh", 0))
    rival = open_table(table.storage.uri, OPTIONS)
    buckets = {rival.upsert(rows(key, 0)).file_groups: key for key in "abcdefgh"}
    first, second, third = (
        Later(rival, rows(key, 1)) for key in sorted(buckets.values(), reverse=True)[:3]
    )

    def two_commits() -> None:
        first.commit()
        second.commit()

    interfere(two_commits, third.commit)
    mine = table.upsert(rows("abcdefgh", 2))
    assert (mine.redone.times, mine.redone.files) == (2, 3)
    assert values(table) == {(key, "x"): 2 for key in "abcdefgh"}
    check_nothing_is_left(table)


@pytest.mark.parametrize("table_type", TYPES)
def test_inv_100_a_column_that_another_brought_stays(
    tmp_path: Path, interfere: Interfere, table_type: str
) -> None:
    table = new_table(tmp_path, table_type, "simple", partitioned=True)
    table.upsert(pa.concat_tables([rows("a", 0, "x"), rows("b", 0, "y")]))
    rival = open_table(table.storage.uri, OPTIONS)
    interfere(lambda: rival.upsert(with_note(rows("a", 1, "x"))))
    mine = table.upsert(rows("b", 2, "y"))
    assert mine.redone == Redone(times=1)
    assert notes(table) == {"a": (1, "new"), "b": (2, None)}
    check_nothing_is_left(table)


NON_BLOCKING = {**OPTIONS, "hoodie.write.concurrency.mode": "non_blocking_concurrency_control"}


def with_note(given: pa.Table) -> pa.Table:
    return given.append_column("note", pa.array(["new"] * given.num_rows))


def notes(table: Table) -> dict[str, tuple[int, str | None]]:
    found = table.read_arrow().select(["id", "value", "note"]).to_pylist()
    return {row["id"]: (row["value"], row["note"]) for row in found}


def test_inv_100_a_column_that_another_brought_stays_beside_non_blocking_writers(
    tmp_path: Path, interfere: Interfere
) -> None:
    """Of those who came first only the newest is read, and it tells of the column of another."""
    created = new_table(tmp_path, "MERGE_ON_READ", "bucket")
    table = open_table(created.storage.uri, NON_BLOCKING)
    table.upsert(rows("abcdefgh", 0))
    rival = open_table(table.storage.uri, NON_BLOCKING)

    def two_commits() -> None:
        rival.upsert(with_note(rows("a", 1)))
        rival.upsert(rows("b", 1))

    interfere(two_commits)
    mine = table.upsert(rows("b", 2))
    assert mine.redone == Redone(times=1)
    assert notes(table) == {"a": (1, "new"), "b": (2, None)} | dict.fromkeys("cdefgh", (0, None))
    check_nothing_is_left(table)


@pytest.mark.parametrize("options", [OPTIONS, NON_BLOCKING])
def test_inv_100_a_write_that_was_handed_over_takes_columns_on_without_its_rows(
    tmp_path: Path, options: dict[str, str]
) -> None:
    created = new_table(tmp_path, "MERGE_ON_READ", "bucket")
    table, rival = (open_table(created.storage.uri, options) for _ in range(2))
    table.upsert(rows("abcdefgh", 0))
    groups = {table.upsert(rows(key, 0)).file_groups: key for key in "abcdefgh"}
    first, second = list(groups.values())[:2]
    batch = InlineRows(rows(second, 2))
    running = start_write(
        table.context, WriteRequest(operation=Operation.UPSERT, columns=batch.schema)
    )
    planned = running.hand_over()
    stats = running.run_tasks(batch)
    rival.upsert(with_note(rows(first, 1)))
    resume_write(table.context, planned).commit(stats)
    expected = dict.fromkeys("abcdefgh", (0, None)) | {first: (1, "new"), second: (2, None)}
    assert notes(table) == expected
    check_nothing_is_left(table)
