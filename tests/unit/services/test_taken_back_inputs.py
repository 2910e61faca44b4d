"""N-189: another engine takes a commit back that a pending compaction has taken in.

Ours refuses that. What was taken back must not come back with the new file, the rows of other
commits must not be lost with it, and the plan must not stay pending for good.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables import MOR, a_table, columns, rows_of

from headwater.errors import ConflictError, ErrorKind
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import instant_path, load_active
from headwater.model.instant import Action, Instant, InstantTime, State, instant_time_after
from headwater.model.service_metadata import RollbackMetadata
from headwater.services import compaction, log_compaction
from headwater.table import Table

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

SCHEMA = columns("id string not null, ts long, value long")
rows = rows_of(SCHEMA)
TIMELINE = TableLayout().timeline
OPTIONS = {"hoodie.metadata.enable": "false", "hoodie.log.compaction.blocks.threshold": "2"}
SERVICES = ("compact", "log_compact")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with a base file, two logs on it, and a third that is to be taken back."""
    shape = a_table(tmp_path, SCHEMA, table_type=MOR, ordering="ts", buckets=1)
    table = shape.with_options(OPTIONS).create()
    table.upsert(rows(("a", 1, 1), ("b", 1, 1)))
    table.services.schedule_compaction()
    table.services.compact()
    table.upsert(rows(("a", 2, 2)))
    table.upsert(rows(("b", 2, 2)))
    return table


def take_back(table: Table, time: str) -> None:
    """Roll a commit back as an engine does that looks at no plans."""
    timeline = load_active(table.storage, TIMELINE)
    target = timeline.find(InstantTime(time))
    newest = timeline.largest_time
    assert target is not None
    assert newest is not None
    for commit in table.context.commit_reader().load([target]):
        table.storage.delete_many(file.path for file in commit.files)
    names = [name for name in table.storage.list_names(TIMELINE) if name.startswith(time)]
    table.storage.delete_many(f"{TIMELINE}/{name}" for name in names)
    began, done = instant_time_after(newest, 1), instant_time_after(newest, 2)
    metadata = RollbackMetadata(
        start_rollback_time=began,
        time_taken_in_millis=0,
        total_files_deleted=1,
        commits_rollback=(time,),
        partition_metadata={},
    )
    rollback = Instant(began, Action.ROLLBACK, State.COMPLETED, done)
    table.storage.put(instant_path(TIMELINE, rollback), encode_record(metadata))


def values(table: Table) -> dict[str, int]:
    return {row["id"]: row["value"] for row in table.read_arrow().to_pylist()}


def schedule(table: Table, service: str) -> str:
    made: Callable[[], str | None] = getattr(table.services, f"schedule_{name_of(service)}")
    plan = made()
    assert plan is not None
    return plan


def name_of(service: str) -> str:
    return "compaction" if service == "compact" else "log_compaction"


@pytest.mark.parametrize("service", SERVICES)
def test_n_189_what_was_taken_back_is_left_out(table: Table, service: str) -> None:
    wrong = table.upsert(rows(("a", 9, 9), ("wrong", 9, 9)))
    plan = schedule(table, service)
    take_back(table, wrong.instant)
    done = getattr(table.services, service)(plan)
    assert done.is_executed_here
    assert values(table) == {"a": 2, "b": 2}
    table.upsert(rows(("a", 3, 3)))
    assert values(table) == {"a": 3, "b": 2}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("after", ["still_committed", "commit_extra"], ids=["unread", "read"])
def test_n_189_what_is_taken_back_meanwhile_does_not_come_back(
    table: Table, service: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its files are read before they go or are missed, which is no damage."""
    wrong = table.upsert(rows(("a", 9, 9), ("wrong", 9, 9)))
    plan = schedule(table, service)
    module: Any = compaction if service == "compact" else log_compaction
    call = getattr(module, after)

    def then_take_back(*given: Any) -> Any:
        found = call(*given)
        take_back(table, wrong.instant)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(module, after, then_take_back)
        with pytest.raises(ConflictError, match="taken back") as raised:
            getattr(table.services, service)(plan)
    assert raised.value.kind is ErrorKind.WRITE_CONFLICT
    assert values(table) == {"a": 2, "b": 2}
    getattr(table.services, service)(plan)
    assert values(table) == {"a": 2, "b": 2}
    assert table.inspect.plans().num_rows == 0
    assert table.inspect.problems(deep=True).num_rows == 0


@pytest.mark.parametrize("service", SERVICES)
def test_n_189_a_group_that_lost_its_base_file_is_left_to_the_next_plan(
    table: Table, service: str
) -> None:
    """Without its base file the logs of a group are not all of its rows."""
    table.services.schedule_compaction()
    done = table.services.compact()
    assert done is not None
    table.upsert(rows(("a", 9, 9)))
    table.upsert(rows(("a", 10, 10)))
    plan = schedule(table, service)
    take_back(table, done.instant)
    getattr(table.services, service)(plan)
    assert values(table) == {"a": 10, "b": 2}
    assert table.inspect.plans().num_rows == 0
