"""What tasks of a write see of its table: all that is decided, whether it is in files or not."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.tables import FENCED, LOCKED, a_table, trips

from headwater import Table, open_table
from headwater.engine.inline import InlineRows
from headwater.errors import EarlyConflictError
from headwater.kernel.journal.journal import Appended
from headwater.kernel.journal.materialise import Materialiser
from headwater.kernel.journal.storage import JournaledStorage
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.table_location import TableLocation
from headwater.operations.write import RunningWrite, start_write
from headwater.seams.local import LocalStorage

OPTIMISTIC = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
APART = {"hoodie.parquet.small.file.limit": "0"}
"""New keys go to files of their own."""


@pytest.fixture(params=["here", "elsewhere"])
def tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tasks run: in the writer's own process, or in others."""
    made = TableLocation.of
    if request.param == "elsewhere":
        sent = staticmethod(lambda *given: pickle.loads(pickle.dumps(made(*given))))
        monkeypatch.setattr(TableLocation, "of", sent)


@contextmanager
def files_stay_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let decisions be put and not written to files, as if each process died right then."""

    def write(files: Materialiser, put: Appended, there: object = None) -> bool:
        return files.begin(put)

    with monkeypatch.context() as patch:
        patch.setattr(Materialiser, "write", write)
        patch.setattr(Materialiser, "finish", lambda _files, _put: None)
        yield


def begin(table: Table, rows: pa.Table) -> RunningWrite:
    """Begin a write without its rows, as one of Spark's begins."""
    request = WriteRequest(operation=Operation.UPSERT, columns=rows.schema)
    return start_write(table.context, request)


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize("index", ["record_index", "record_level_index"])
def test_n_165_keys_are_looked_up_in_what_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    shape = a_table(tmp_path, partition_by="city", index=index)
    table = shape.with_options({**FENCED, **OPTIMISTIC, **APART}).create()
    table.upsert(trips(("a", "sf", 1)))
    with files_stay_behind(monkeypatch):
        table.upsert(trips(("b", "sf", 1)))
    other = open_table(table.uri, table.context.options)

    again = trips(("b", "sf", 2))
    running = begin(other, again)
    running.commit(running.run_tasks(InlineRows(again)))

    assert other.read_arrow().sort_by("id").to_pylist() == [
        {"id": "a", "city": "sf", "value": 1},
        {"id": "b", "city": "sf", "value": 2},
    ]


@pytest.mark.usefixtures("tasks")
def test_who_began_the_first_write_is_seen_before_its_files_are(tmp_path: Path) -> None:
    options = {**OPTIMISTIC, "hoodie.write.num.retries.on.conflict.failures": "0"}
    table = a_table(tmp_path, buckets=1).with_options({**FENCED, **options}).create()
    rows = trips(("a", "sf", 1))
    first = begin(table, rows)
    first.run_tasks(InlineRows(rows))
    second = begin(open_table(table.uri, table.context.options), rows)

    with pytest.raises(EarlyConflictError) as conflict:
        second.run_tasks(InlineRows(rows))
    assert conflict.value.context["other"] == first.plan.instant_time


def test_the_journal_of_a_process_stays_in_it(tmp_path: Path) -> None:
    table = a_table(tmp_path).with_options(FENCED).create()
    location = begin(table, trips(("a", "sf", 1))).plan.location
    mine, its = location.open(), pickle.loads(pickle.dumps(location)).open()

    assert isinstance(mine, JournaledStorage)
    assert isinstance(its, JournaledStorage)
    assert isinstance(table.storage, JournaledStorage)
    assert mine.journal is table.storage.journal
    assert its.journal is not mine.journal
    assert its.journal.known.areas == mine.journal.known.areas


def test_a_table_without_a_journal_is_its_files(tmp_path: Path) -> None:
    table = a_table(tmp_path).with_options(LOCKED).create()
    plan = begin(table, trips(("a", "sf", 1))).plan
    assert isinstance(plan.location.open(), LocalStorage)
