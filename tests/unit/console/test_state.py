"""What a look tells, and what changed between two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.tables import MOR, a_table, trips

from headwater.console import state
from headwater.console.details import load_details
from headwater.console.state import changes_between, keyed, load_look, plain
from headwater.errors import NotFoundError, UnsupportedError
from headwater.model.instant import State
from headwater.services import Services
from headwater.table import Table

LOCK = {"hoodie.write.lock.provider": "filesystem"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = a_table(tmp_path, table_type=MOR, partition_by="city", buckets=1, options=LOCK)
    return made.with_commits(2).create()


def test_a_change_is_what_is_new_other_or_gone() -> None:
    same = {"a": {"x": 1}}
    before = {"one": {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 3}}, "two": same}
    after = {"one": {"a": {"x": 1}, "b": {"x": 5}, "d": {"x": 4}}, "two": same}
    assert changes_between(before, after) == {"one": {"b": {"x": 5}, "d": {"x": 4}, "c": None}}
    assert changes_between(after, after) == {}
    assert changes_between(None, {"one": {}, "two": same}) == {"two": same}


def test_rows_are_plain_and_lack_what_is_null() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    rows = pa.table({"id": ["a", "b"], "at": [moment, None], "names": [["x"], []]})
    assert keyed(rows, "id") == {
        "a": {"id": "a", "at": 1_767_225_600_000, "names": ["x"]},
        "b": {"id": "b", "names": []},
    }


def test_values_of_any_kind_become_json() -> None:
    assert plain({"at": Path("x"), "few": ("a", {1})}) == {"at": "x", "few": ["a", [1]]}
    assert plain(State.REQUESTED) == "requested"


def test_a_look_has_instants_file_groups_and_indexes(table: Table) -> None:
    look = load_look(table)
    assert [row["state"] for row in look.section("instants").values()] == ["completed"] * 2
    groups = dict(look.section("groups"))
    total = groups.pop("")
    assert total["file_groups"] == len(groups) == 2
    assert all(row["log_count"] == 1 for row in groups.values())
    assert look.section("indexes")["files"]["state"] == "usable"
    assert look.section("troubles") == {}
    assert changes_between(look.sections, load_look(table, look).sections) == {}


def test_only_the_largest_file_groups_are_shown(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "FILE_GROUPS_MAX", 1)
    groups = load_look(table).section("groups")
    assert len(groups) == 2
    assert groups[""]["file_groups"] == 2


def test_after_a_commit_only_that_is_told(table: Table) -> None:
    before = load_look(table)
    done = table.upsert(trips(("a", "sf", 9)))
    after = load_look(table, before, heavy_every_ms=0)
    told = changes_between(before.sections, after.sections)
    assert list(told["instants"]) == [f"{done.instant} deltacommit"]
    (group,) = (row for key, row in told["groups"].items() if key)
    assert group["partition"] == "city=sf"


def test_a_quiet_table_costs_eight_requests(table: Table) -> None:
    """Those for the timeline, plans, heartbeats and the lock, whatever there is besides."""
    storage = CountingStorage(table.storage, keep_trace=True)
    counted = Table(replace(table.context, storage=storage))
    before = load_look(counted)
    assert any(".hoodie/metadata" in path for _, path in storage.trace)
    storage.reset()
    load_look(counted, before)
    assert storage.count() == 8
    assert not [path for _, path in storage.trace if ".hoodie/metadata" in path]


def test_file_groups_are_looked_at_now_and_then(table: Table) -> None:
    """However fast others commit; what changed meanwhile is seen when the time has come."""
    first = load_look(table)
    table.upsert(trips(("a", "sf", 9)))
    second = load_look(table, first, heavy_every_ms=3_600_000)
    assert len(second.section("instants")) == 3
    assert second.section("groups") is first.section("groups")
    assert second.is_stale
    third = load_look(table, second, heavy_every_ms=0)
    assert third.section("groups") != first.section("groups")
    assert not third.is_stale


def test_builds_of_indexes_and_the_lock_are_shown(table: Table) -> None:
    plan = table.indexes.schedule("column_stats")
    held = table.context.components.locks.acquire(timeout_ms=60_000)
    try:
        look = load_look(table)
    finally:
        held.release()
    index = look.section("indexes")["column_stats"]
    assert (index["state"], index["plan"]) == ("planned", plan)
    (lock,) = look.section("locks").values()
    assert str(table.context.ids.owner) in lock["owner"]
    assert load_look(table, look).section("locks") == {}


@pytest.mark.usefixtures("tables_with_a_lock")
def test_what_cannot_be_read_is_said_and_the_rest_is_shown(table: Table) -> None:
    table.services.schedule_compaction()
    (plan,) = Path(table.uri.removeprefix("file://"), ".hoodie/timeline").glob("*.compaction.*")
    plan.write_bytes(b"broken")
    look = load_look(table)
    assert "plans" in look.section("troubles")
    assert str(plan.name) in look.section("troubles")["plans"]["error"]
    assert len(look.section("instants")) == 3


@dataclass
class Advised:
    """What advice has at least; of file groups, how many is said."""

    why: str
    gain_bytes: int
    file_groups: tuple[str, ...]
    instant: str | None = None


def test_advice_is_shown_where_services_give_it(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [Advised("too many logs", 5, ("a", "b")), Advised("small files", 1, ())]
    monkeypatch.setattr(Services, "advise", lambda _: given, raising=False)
    assert load_look(table).section("advice") == {
        "000": {"why": "too many logs", "gain_bytes": 5, "file_groups": 2},
        "001": {"why": "small files", "gain_bytes": 1, "file_groups": 0},
    }

    def refuse(_: Services) -> list[Advised]:
        raise UnsupportedError("nobody can write this table")

    monkeypatch.setattr(Services, "advise", refuse, raising=False)
    look = load_look(table)
    assert (look.section("advice"), look.section("troubles")) == ({}, {})


def test_details_tell_files_rows_and_plans(table: Table) -> None:
    done = table.upsert(trips(("a", "sf", 9)))
    details = load_details(table, str(done.instant))
    assert (details["state"], details["operation"], details["updated"]) == (
        "completed",
        "UPSERT",
        1,
    )
    (file,) = details["files"]
    assert file["partition"] == "city=sf"
    plan = table.services.schedule_compaction()
    assert plan is not None
    planned = load_details(table, plan)
    assert {row["partition"] for row in planned["plan"]} == {"city=sf", "city=ny"}
    with pytest.raises(NotFoundError, match="no instant"):
        load_details(table, "20200101000000000")


def test_a_heartbeat_of_another_engine_is_shown(tmp_path: Path) -> None:
    table = a_table(tmp_path, table_type=MOR).create()
    table.storage.put(".hoodie/.heartbeat/20260101000000000", b"")
    look = load_look(table)
    assert look.section("troubles") == {}
    (beat,) = look.section("heartbeats").values()
    assert beat["instant"] == "20260101000000000"
    assert "attempt" not in beat
