"""Writes that Apache Hudi began and left: rolled back by Hudi's own rules, and live ones never."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables import trips as rows

import headwater as hw
from headwater.config.table_options import TableType
from headwater.errors import ConflictError, ErrorKind, UnsupportedError
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import (
    METADATA,
    METADATA_TIMELINE,
    TableLayout,
    attempt_folder,
    heartbeat_path,
    marker_folder,
)
from headwater.kernel.timeline.active import load_active
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.foreign import ForeignRule, Silence
from headwater.kernel.txn.markers import Marker, MarkerKind
from headwater.kernel.txn.rollback_plan import plan_deletions
from headwater.model.instant import Action, Instant, InstantTime, State, instant_time_after
from headwater.model.plans import InstantInfo, RollbackPlan
from headwater.model.service_metadata import SavepointMetadata
from headwater.table import Table

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

Bench = Any  # In conftest.py, which cannot be imported.
HOUR_MS = 3_600_000
TIMELINE = TableLayout().timeline
HEARTBEAT = {
    "hoodie.client.heartbeat.interval_in_ms": "60000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
}
EXPIRY_MS = 180_000
LAZY = {"hoodie.clean.failed.writes.policy": "LAZY"}

each_type = pytest.mark.parametrize("table_type", list(TableType))
each_kind = pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "server"])


@dataclass(frozen=True)
class LeftWrite:
    """A pending write as Hudi 1.2 lays it out, with nothing of ours behind it."""

    table: Table
    time: InstantTime
    action: Action

    @classmethod
    def begin(cls, table: Table) -> LeftWrite:
        newest = load_active(table.storage, TIMELINE).largest_time
        assert newest is not None
        is_log = table.config.table_type is TableType.MERGE_ON_READ
        action = Action.DELTA_COMMIT if is_log else Action.COMMIT
        left = cls(table, instant_time_after(newest, 1), action)
        # That of a commit is `<T>.inflight`, without its action.
        for state in (State.REQUESTED, State.INFLIGHT):
            table.storage.put(f"{TIMELINE}/{file_name(left.time, action, state)}", b"")
        return left

    @property
    def data_paths(self) -> list[str]:
        group = "11111111-2222-4333-8444-555555555555-0"
        if self.action is Action.DELTA_COMMIT:
            names = [f".{group}_{self.time}.log.1_0-12-34", f".{group}_{self.time}.log.2_0-12-34"]
        else:
            names = [f"{group}_0-12-34_{self.time}.parquet", f"{group}_1-12-35_{self.time}.parquet"]
        return [f"city=sf/{name}" for name in names]

    def write_files(self, *, is_direct: bool) -> None:
        """Write data files as Hudi does: announced first, by its own markers."""
        names = [f"{path}.marker.CREATE" for path in self.data_paths]
        folder, storage = marker_folder(self.time), self.table.storage
        if is_direct:
            for name in names:
                storage.put(f"{folder}/{name}", b"")
        else:
            storage.put(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
            for number, name in enumerate(names):
                storage.put(f"{folder}/MARKERS{number}", f"{name}\n".encode())
        for path in self.data_paths:
            storage.put(path, b"cut off")

    def beat(self) -> None:
        self.table.storage.put(heartbeat_path(self.time), b"")

    def age_by(self, milliseconds: int) -> None:
        """Make everything of the write older, as far as the store tells."""
        for path in self.paths():
            file = Path(self.table.uri) / path
            then_ns = file.stat().st_mtime_ns - milliseconds * 1_000_000
            os.utime(file, ns=(then_ns, then_ns))

    def paths(self) -> list[str]:
        found = (info.path for info in self.table.storage.list_tree(""))
        return [path for path in found if self.time in path]


def reopened(bench: Bench, options: Mapping[str, str]) -> Table:
    return hw.open_table(bench.table.uri, {**HEARTBEAT, **options})


def is_pending(left: LeftWrite) -> bool:
    found = load_active(left.table.storage, TIMELINE).find(left.time)
    return found is not None and found.is_pending


def rollbacks(table: Table) -> list[Instant]:
    found = load_active(table.storage, TIMELINE).completed
    return [instant for instant in found if instant.action is Action.ROLLBACK]


# What is rolled back ---------------------------------------------------------------------------


@each_type
@each_kind
def test_inv_112_a_write_whose_heartbeat_has_run_out_is_rolled_back(
    make_bench: Callable[..., Bench], table_type: TableType, is_direct: bool
) -> None:
    bench = make_bench(table_type)
    table = reopened(bench, {})
    before = bench.files()
    left = LeftWrite.begin(table)
    left.beat()
    left.write_files(is_direct=is_direct)
    left.age_by(EXPIRY_MS + 5_000)

    (done,) = table.services.rollback_failed_writes()

    assert (done.instant, set(done.deleted_paths)) == (left.time, set(left.data_paths))
    assert left.paths() == []
    assert before.items() <= bench.files().items()
    assert [instant.requested_time for instant in rollbacks(table)] == [done.rollback]
    assert bench.values() == {"a": 5, "b": 2}
    table.upsert(rows(("a", "sf", 7)))
    assert bench.values() == {"a": 7, "b": 2}


def _clean(table: Table) -> None:
    table.services.clean()


def _archive(table: Table) -> None:
    table.services.archive()


def _eager_write(table: Table) -> None:
    hw.open_table(table.uri, {**HEARTBEAT, "hoodie.clean.failed.writes.policy": "EAGER"}).upsert(
        rows(("b", "ny", 2))
    )


def _build_an_index(table: Table) -> None:
    chosen = {**HEARTBEAT, "hoodie.write.lock.provider": "in_process"}
    hw.open_table(table.uri, chosen).indexes.create("record_index")


def _restore(table: Table) -> None:
    (saved,) = table.services.savepoints() or [table.services.savepoint()]
    table.services.restore(saved.instant)


def _rollback(table: Table) -> None:
    table.services.rollback(table.history(1)["instant"][0].as_py())


@pytest.mark.parametrize("service", [_clean, _archive, _eager_write, _build_an_index, _restore])
def test_who_finds_it(bench: Bench, service: Callable[[Table], None]) -> None:
    table = reopened(bench, {})
    left = LeftWrite.begin(table)
    left.beat()
    left.write_files(is_direct=True)
    left.age_by(EXPIRY_MS + 5_000)
    (problem,) = table.inspect.problems().to_pylist()
    assert problem["instant"] == left.time
    assert problem["repair"]
    service(table)
    assert left.paths() == []
    assert bench.values() == {"a": 5, "b": 2}
    assert table.inspect.problems().num_rows == 0


@pytest.mark.parametrize("take_back", [_restore, _rollback])
def test_n_186_nothing_is_taken_back_beside_a_live_one(
    bench: Bench, take_back: Callable[[Table], None]
) -> None:
    """It looks for nothing that is taken back, and would bring rows of it back."""
    table = reopened(bench, {})
    left = LeftWrite.begin(table)
    left.beat()
    left.write_files(is_direct=True)
    rows_before = bench.values()
    with pytest.raises(ConflictError, match=left.time) as raised:
        take_back(table)
    assert raised.value.kind is ErrorKind.FOREIGN_WRITER
    assert is_pending(left)
    assert bench.values() == rows_before
    assert table.inspect.plans().num_rows == 0
    left.age_by(EXPIRY_MS + 5_000)
    take_back(table)
    assert not is_pending(left)


@pytest.mark.parametrize("has_begun", [False, True], ids=["requested", "inflight"])
@pytest.mark.parametrize("end", [_clean, lambda table: table.services.rollback_failed_writes()])
def test_n_195_a_rollback_that_hudi_requested_and_refused_is_ended(
    bench: Bench, end: Callable[[Table], object], has_begun: bool
) -> None:
    """Hudi requests the rollback of a commit before it looks whether that has a savepoint."""
    table = reopened(bench, {})
    rows_before = bench.values()
    commit = load_active(table.storage, TIMELINE).completed[-1]
    assert commit.completion_time is not None
    time = instant_time_after(commit.completion_time, 5)
    plan = RollbackPlan(
        instant_to_rollback=InstantInfo(
            commit_time=commit.requested_time, action=str(commit.action)
        ),
        rollback_requests=(),
    )
    states = [State.REQUESTED, State.INFLIGHT] if has_begun else [State.REQUESTED]
    for state in states:
        data = encode_record(plan) if state is State.REQUESTED else b""
        table.storage.put(f"{TIMELINE}/{file_name(time, Action.ROLLBACK, state)}", data)

    end(table)  # Without a savepoint Hudi may be about to execute it.
    assert load_active(table.storage, TIMELINE).find(time) is not None
    point = f"{TIMELINE}/{commit.requested_time}.savepoint.inflight"
    table.storage.put(point, b"")  # Hudi's own savepoints look at no rollback.
    end(table)
    assert load_active(table.storage, TIMELINE).find(time) is not None
    made = instant_time_after(time, 5)
    record = SavepointMetadata(
        savepointed_by="me", savepointed_at=0, comments="", partition_metadata={}
    )
    path = f"{TIMELINE}/{commit.requested_time}_{made}.savepoint"
    table.storage.put(path, encode_record(record))

    with pytest.raises(ConflictError, match=time):
        table.upsert(rows(("a", "sf", 7)))
    end(table)
    assert load_active(table.storage, TIMELINE).find(time) is None
    table.upsert(rows(("a", "sf", 7)))
    assert bench.values() == {**rows_before, "a": 7}


def test_n_196_a_savepoint_that_was_never_made_is_ended(bench: Bench) -> None:
    """Its process died, or lost the lock, between the two files."""
    table = reopened(bench, {})
    commit = load_active(table.storage, TIMELINE).completed[-1].requested_time
    point = f"{TIMELINE}/{commit}.savepoint.inflight"
    table.storage.put(point, b"")
    table.services.delete_savepoint(commit)
    assert table.storage.read_many([point]) == [None]
    table.storage.put(point, b"")
    table.services.clean()
    assert table.inspect.problems().num_rows == 0  # Hudi may be making it.
    file = Path(table.uri) / point
    then_ns = file.stat().st_mtime_ns - (EXPIRY_MS + 5_000) * 1_000_000
    os.utime(file, ns=(then_ns, then_ns))
    (problem,) = table.inspect.problems().to_pylist()
    assert (problem["subject"], problem["instant"]) == (point, commit)
    assert "never made" in problem["problem"]
    table.services.clean()
    assert not file.exists()
    assert table.inspect.problems().num_rows == 0
    assert table.services.savepoint().instant == commit


@pytest.mark.parametrize("has_begun", [False, True], ids=["requested", "inflight"])
def test_n_163_a_rollback_that_hudi_left_is_finished(bench: Bench, has_begun: bool) -> None:
    """It died in the rollback of its own dead write, after the first deletion."""
    table = reopened(bench, {})
    left = LeftWrite.begin(table)
    left.write_files(is_direct=True)
    time = instant_time_after(left.time, 5)
    plan = RollbackPlan(
        instant_to_rollback=InstantInfo(commit_time=left.time, action=str(left.action)),
        rollback_requests=plan_deletions(
            left.time, [Marker(path, MarkerKind.CREATE) for path in left.data_paths], table.uri
        ),
    )
    states = [State.REQUESTED, State.INFLIGHT] if has_begun else [State.REQUESTED]
    for state in states:
        data = encode_record(plan) if state is State.REQUESTED else b""
        table.storage.put(f"{TIMELINE}/{file_name(time, Action.ROLLBACK, state)}", data)
    table.storage.put(heartbeat_path(time), b"")
    table.storage.delete(left.data_paths[0])
    assert table.services.rollback_failed_writes() == []  # It may be alive.
    assert table.inspect.problems().num_rows == 0
    LeftWrite(table, time, Action.ROLLBACK).age_by(EXPIRY_MS + 5_000)

    (done,) = table.services.rollback_failed_writes()

    assert (done.instant, done.rollback) == (left.time, time)
    assert left.paths() == []
    assert [instant.requested_time for instant in rollbacks(table)] == [time]
    assert bench.values() == {"a": 5, "b": 2}
    assert table.inspect.problems(deep=True).num_rows == 0


def test_a_write_that_is_only_requested(bench: Bench) -> None:
    table = reopened(bench, LAZY)
    left = LeftWrite.begin(table)
    table.storage.delete(f"{TIMELINE}/{left.time}.inflight")
    left.age_by(EXPIRY_MS + 5_000)
    (done,) = table.services.rollback_failed_writes()
    assert done.deleted_paths == ()
    assert left.paths() == []


def test_its_delta_commit_of_the_metadata_table_goes_with_it(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(**{"hoodie.metadata.enable": "true"})
    table = reopened(bench, LAZY)
    left = LeftWrite.begin(table)
    left.write_files(is_direct=False)
    log = f"{METADATA}/files/.files-0000-0_{left.time}.log.1_0-1-2"
    table.storage.put(log, b"what Hudi told the metadata table")
    completion = instant_time_after(left.time, 1)
    for name in (f"{left.time}.deltacommit.requested", f"{left.time}.deltacommit.inflight"):
        table.storage.put(f"{METADATA_TIMELINE}/{name}", b"")
    table.storage.put(f"{METADATA_TIMELINE}/{left.time}_{completion}.deltacommit", b"")
    left.age_by(EXPIRY_MS + 5_000)
    assert len(table.services.rollback_failed_writes()) == 1
    assert left.paths() == []
    assert bench.values() == {"a": 5, "b": 2}
    assert table.inspect.problems().num_rows == 0


@pytest.mark.parametrize("torn", [b"", b"city=sf/111"], ids=["truncated", "half a line"])
def test_n_102_files_are_found_by_name_where_markers_were_torn(bench: Bench, torn: bytes) -> None:
    table = reopened(bench, LAZY)
    left = LeftWrite.begin(table)
    left.write_files(is_direct=False)
    table.storage.put(f"{marker_folder(left.time)}/MARKERS0", torn)
    left.age_by(EXPIRY_MS + 5_000)
    (done,) = table.services.rollback_failed_writes()
    assert set(done.deleted_paths) == set(left.data_paths)
    assert left.paths() == []


# What is not -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beats", "aged_ms", "policy"),
    [
        (True, 0, "LAZY"),
        (True, EXPIRY_MS - 60_000, "LAZY"),
        (False, 0, "LAZY"),
        (False, EXPIRY_MS - 60_000, "EAGER"),
        (False, HOUR_MS, None),
    ],
    ids=["beats", "one miss", "no heartbeat yet", "eager and young", "policy unknown"],
)
def test_inv_112_a_write_that_may_be_alive_is_left_alone(
    bench: Bench, beats: bool, aged_ms: int, policy: str | None
) -> None:
    options = {} if policy is None else {"hoodie.clean.failed.writes.policy": policy}
    table = reopened(bench, options)
    left = LeftWrite.begin(table)
    left.write_files(is_direct=True)
    if beats:
        left.beat()
    left.age_by(aged_ms)
    assert table.services.rollback_failed_writes() == []
    table.services.clean()
    assert table.inspect.problems().num_rows == 0
    table.upsert(rows(("a", "sf", 7)))
    assert is_pending(left)
    assert set(left.data_paths) <= set(left.paths())


def test_a_new_marker_is_a_sign_of_life(bench: Bench) -> None:
    table = reopened(bench, LAZY)
    left = LeftWrite.begin(table)
    left.age_by(HOUR_MS)
    left.write_files(is_direct=True)
    assert table.services.rollback_failed_writes() == []
    assert is_pending(left)


def test_who_names_it_vouches_for_it(bench: Bench) -> None:
    table = reopened(bench, {})
    left = LeftWrite.begin(table)
    with pytest.raises(ConflictError, match="no heartbeat") as raised:
        table.services.rollback(left.time)
    assert raised.value.kind is ErrorKind.ALREADY_RUNNING
    left.age_by(EXPIRY_MS + 5_000)
    assert table.services.rollback_failed_writes() == []
    assert table.services.rollback(left.time).instant == left.time
    assert left.paths() == []


def test_never_leaves_it_to_hudi_and_says_so(bench: Bench) -> None:
    table = reopened(bench, {"hoodie.clean.failed.writes.policy": "NEVER"})
    left = LeftWrite.begin(table)
    left.beat()
    left.age_by(48 * HOUR_MS)
    assert table.services.rollback_failed_writes() == []
    with pytest.raises(UnsupportedError, match=r"policy=NEVER"):
        table.services.rollback(left.time)
    assert is_pending(left)


def test_no_attempt_of_ours_is_claimed_for_it(bench: Bench) -> None:
    """One would make it look like a write of ours if the rollback died."""
    table = reopened(bench, LAZY)
    left = LeftWrite.begin(table)
    left.age_by(EXPIRY_MS + 5_000)
    seen: list[str] = []
    put = table.storage.put_if_absent

    def note(path: str, data: bytes) -> None:
        seen.append(path)
        put(path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(table.storage), "put_if_absent", lambda _, path, data: note(path, data))
        table.services.rollback_failed_writes()
    assert any(".rollback.requested" in path for path in seen)
    assert not any(path.startswith(attempt_folder(left.time)) for path in seen)


@pytest.mark.parametrize(
    ("silence", "is_dead"),
    [
        (Silence(0, 0), False),
        (Silence(300, 300), False),
        (Silence(301, 0), True),
        (Silence(None, 86_400_000), False),
        (Silence(None, 86_400_001), True),
    ],
)
def test_the_rule(silence: Silence, is_dead: bool) -> None:
    rule = ForeignRule.of(interval_ms=100, tolerable_misses=2, is_said=False)
    write = Instant(InstantTime("20260101000000000"), Action.COMMIT, State.INFLIGHT)
    assert (rule.why_alive(write, silence) is None) is is_dead
