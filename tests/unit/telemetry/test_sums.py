"""The numbers of small real runs are those that the tests count themselves."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore
from tests.support.collecting import collecting, total
from tests.support.dying import DyingStorage, Killed
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage
from tests.support.tables import FENCED, MOR, NUMBERS, TableBuilder, a_table, numbers, trips

from headwater import Table, open_table
from headwater.context import TableContext
from headwater.engine.inline import InlineRows
from headwater.errors import ConflictError, FencedError, NotFoundError, StorageError
from headwater.kernel.journal.journal import Journal, Look
from headwater.kernel.journal.slots import Wave
from headwater.kernel.layout import CANCELS
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.kernel.txn.steps import Claim
from headwater.kernel.write_once import put_once
from headwater.model.commit import Commit
from headwater.model.instant import InstantTime
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import RunningWrite, start_write
from headwater.seams.components import Components
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.meters import Counter, Gauge, Histogram, Labels, listen, stop_listening
from headwater.seams.object_store import ObjectStorage
from headwater.seams.storage import Storage
from headwater.services import Services

OPTIMISTIC = "optimistic_concurrency_control"
NON_BLOCKING = "non_blocking_concurrency_control"
MODE = "hoodie.write.concurrency.mode"
EARLY = "hoodie.write.concurrency.early.conflict.detection.enable"
RETRIES = "hoodie.write.num.retries.on.conflict.failures"
FILE_LOCK = {"hoodie.write.lock.provider": "filesystem"}
KILLED_WRITER = Path(__file__).parents[2] / "processes" / "killed_writer.py"


def shared(folder: Path, mode: str, **options: str) -> TableBuilder:
    shape = a_table(folder, NUMBERS, ordering="ts", table_type=MOR, buckets=2)
    return shape.with_options({MODE: mode, **FILE_LOCK, **options})


def begun(table: Table, rows: pa.Table) -> tuple[RunningWrite, list[object]]:
    """Begin a write of another job and let it write its files."""
    given = InlineRows(rows)
    other = open_table(table.uri, table.context.options)
    request = WriteRequest(operation=Operation.UPSERT, columns=given.schema)
    running = start_write(other.context, request)
    return running, list(running.run_tasks(given))


@pytest.mark.usefixtures("tables_with_a_lock")
def test_writers_in_threads(tmp_path: Path) -> None:
    with collecting() as kept:
        table = shared(tmp_path, NON_BLOCKING).create()

        def write(writer: int) -> list[Commit]:
            mine = open_table(table.uri, table.context.options)
            return [mine.upsert(numbers("abcdef", writer * 10 + n)) for n in range(3)]

        with ThreadPoolExecutor(3) as threads:
            done = [commit for commits in threads.map(write, range(3)) for commit in commits]
        text = kept.text()
    about = {"table": table.uri, "operation": "UPSERT"}
    assert total(text, "headwater_commits_total", mode=NON_BLOCKING, outcome="ok", **about) == 9
    assert total(text, "headwater_commits_total") == len(done)
    assert total(text, "headwater_write_duration_seconds_count", outcome="ok", **about) == 9
    rows = sum(one.inserted + one.updated + one.deleted for one in done)
    assert total(text, "headwater_rows_total", **about) == rows == 54
    stored = [info for info in table.storage.list_tree("") if ".hoodie" not in info.path]
    assert total(text, "headwater_written_bytes_total", **about) == sum(
        info.size_bytes for info in stored
    )
    waits = total(text, "headwater_lock_wait_seconds_count", table=table.uri)
    assert waits == total(text, "headwater_lock_hold_seconds_count", table=table.uri) >= 18
    assert total(text, "headwater_pending", table=table.uri) == 0
    assert total(text, "headwater_conflicts_total") == 0


def test_a_write_that_loses_at_its_commit_and_is_redone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = shared(tmp_path, OPTIMISTIC, **{EARLY: "false"}).create()
    table.upsert(numbers("abcdefgh", 0))
    other, stats = begun(table, numbers("a", 1))
    run_tasks = RunningWrite.run_tasks
    others: list[Callable[[], object]] = [lambda: other.commit(stats)]  # type: ignore[arg-type]

    def run_and_let_others_commit(write: RunningWrite, rows: InlineRows) -> object:
        written = run_tasks(write, rows)
        while others:
            others.pop()()
        return written

    monkeypatch.setattr(RunningWrite, "run_tasks", run_and_let_others_commit)
    with collecting() as kept:
        # Rows that were made of the table's are not appended blindly, so they lose.
        table.update(where="id = 'a'", set={"value": "value + 5"})
        done = table.upsert(numbers("abcdefgh", 2))
        text = kept.text()
    lost = {"table": table.uri, "mode": OPTIMISTIC, "strategy": "commit"}
    assert total(text, "headwater_conflicts_total", **lost) == 1
    assert total(text, "headwater_conflicts_total") == 1
    assert total(text, "headwater_commits_total", outcome="conflict") == 1
    # The one of the other job, that of the update after its loss, and the last.
    assert total(text, "headwater_commits_total", outcome="ok") == 3
    assert total(text, "headwater_redone_files_total", table=table.uri) == 1
    assert total(text, "headwater_redone_rows_total", table=table.uri) == 1
    assert done.redone.times == 0
    assert total(text, "headwater_rollbacks_total", cause="own") == 1


def test_a_write_that_redoes_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = a_table(tmp_path, NUMBERS, buckets=4)
    table = shape.with_options({MODE: OPTIMISTIC, EARLY: "false", **FILE_LOCK}).create()
    table.upsert(numbers("abcdefgh", 0))
    # Requested before, or else the base files would lie below theirs.
    other, stats = begun(table, numbers("a", 1))
    commit, others = RunningWrite.commit, [other]

    def let_others_commit(write: RunningWrite, mine: object, *more: object) -> object:
        while others:
            commit(others.pop(), stats)  # type: ignore[arg-type]
        return commit(write, mine, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(RunningWrite, "commit", let_others_commit)
    with collecting() as kept:
        done = table.upsert(numbers("abcdefgh", 2))
        text = kept.text()
    assert done.redone.times == total(text, "headwater_conflicts_total", strategy="commit") == 1
    assert done.redone.files == total(text, "headwater_redone_files_total") == 1
    assert done.redone.rows == total(text, "headwater_redone_rows_total") > 0
    assert total(text, "headwater_commits_total", outcome="ok") == 2
    assert total(text, "headwater_commits_total", outcome="conflict") == 1
    assert total(text, "headwater_rollbacks_total") == 0


def test_a_write_that_finds_out_early(tmp_path: Path) -> None:
    table = (
        a_table(tmp_path, NUMBERS, ordering="ts", buckets=1)
        .with_options({MODE: OPTIMISTIC, RETRIES: "0", **FILE_LOCK})
        .create()
    )
    first, stats = begun(table, numbers("a", 1))
    with collecting() as kept:
        with pytest.raises(ConflictError):
            table.upsert(numbers("a", 2))
        text = kept.text()
    first.commit(stats)  # type: ignore[arg-type]
    assert total(text, "headwater_conflicts_total", strategy="direct", mode=OPTIMISTIC) == 1
    assert total(text, "headwater_commits_total") == 0
    assert total(text, "headwater_write_duration_seconds_count", outcome="conflict") == 1
    assert total(text, "headwater_rollbacks_total", cause="own") == 1


def test_a_clustering_that_gives_way_and_one_that_does_not(tmp_path: Path) -> None:
    with collecting() as kept:
        table = shared(tmp_path, NON_BLOCKING).create()
        table.upsert(numbers("abcdefgh", 0))
        given_way = table.services.schedule_clustering("id", cancellable=True)
        assert given_way is not None
        table.upsert(numbers("abcdefgh", 1))
        aborted = table.services.cluster(given_way)
        assert aborted is not None
        assert aborted.is_cancelled
        done = table.services.compact()
        assert done is not None
        text = kept.text()
    plans = {
        (action, event): total(text, "headwater_plans_total", action=action, event=event)
        for action in ("clustering", "compaction")
        for event in ("scheduled", "completed", "cancelled", "aborted", "rolled_back")
    }
    assert {key for key, count in plans.items() if count} == {
        ("clustering", "scheduled"),
        ("clustering", "cancelled"),
        ("clustering", "aborted"),
        ("compaction", "scheduled"),
        ("compaction", "completed"),
    }
    assert set(plans.values()) == {0, 1}
    assert total(text, "headwater_rows_total", operation="compaction") == done.row_count == 8
    assert total(text, "headwater_written_bytes_total", operation="compaction") == done.size_bytes
    runs = "headwater_service_duration_seconds_count"
    assert total(text, runs, service="clustering", outcome="ok") == 1
    assert total(text, runs, service="compaction", outcome="ok") == 1


def test_a_cancellation_counts_once_however_often_its_slot_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, lost = Journal.append, 0

    def lose_some(
        journal: Journal, look: Look, waves: Sequence[Wave], *more: InstantTime
    ) -> object:
        nonlocal lost
        if lost < 2 and any(e.path.startswith(CANCELS) for wave in waves for e in wave):
            lost += 1
            return None
        return append(journal, look, waves, *more)

    with collecting() as kept:
        table = shared(tmp_path, NON_BLOCKING, **FENCED).create()
        table.upsert(numbers("abcdefgh", 0))
        assert table.services.schedule_clustering("id", cancellable=True) is not None
        monkeypatch.setattr(Journal, "append", lose_some)
        table.upsert(numbers("abcdefgh", 1))
        text = kept.text()
    assert lost == 2
    assert total(text, "headwater_plans_total", action="clustering", event="cancelled") == 1


def services_of(table: Table, name: str, clock: ManualClock, storage: Storage) -> Services:
    """Return the services of a process of its own."""
    ids = SystemIds(Owner(name, 1, name))
    locks = InProcessLockProvider(InProcessLocks(), clock, ids, table=table.uri)
    components = Components(storage, clock, ids, locks)
    return Services(TableContext.through(components, table.config, table.context.options))


@pytest.mark.usefixtures("tables_with_a_lock")
def test_an_execution_that_is_taken_over_from_a_dead_one(tmp_path: Path) -> None:
    table = shared(tmp_path, NON_BLOCKING).create()
    table.upsert(numbers("abcdefgh", 0))
    table.upsert(numbers("abcdefgh", 1))
    clock = ManualClock()
    dying = cast(Storage, DyingStorage(table.storage, 6))
    with collecting() as kept:
        plan = table.services.schedule_compaction()
        with pytest.raises(Killed):
            services_of(table, "first", clock, dying).compact(plan)
        # To take up what was only scheduled is no take-over.
        assert total(kept.text(), "headwater_attempts_taken_over_total") == 0
        second = services_of(table, "second", clock, table.storage)
        with pytest.raises(ConflictError):
            second.compact(plan)
        with clock.timers_stalled():  # The dead do not beat.
            clock.advance_ms(table.context.write_config.heartbeat_interval_ms * 3)
        assert second.compact(plan) is not None
        text = kept.text()
    assert total(text, "headwater_attempts_taken_over_total", table=table.uri) == 1
    runs = "headwater_service_duration_seconds_count"
    assert total(text, runs, service="compaction", outcome="conflict") == 1
    assert total(text, runs, service="compaction", outcome="ok") == 1


def test_a_pending_plan_shows_with_its_age_until_it_has_ended(tmp_path: Path) -> None:
    with collecting() as kept:
        table = shared(tmp_path, NON_BLOCKING).create()
        table.upsert(numbers("abcdefgh", 0))
        table.upsert(numbers("abcdefgh", 1))
        plan = table.services.schedule_compaction()
        assert plan is not None
        while table.context.now() <= plan:
            time.sleep(0.001)  # A fast machine lists it in the millisecond that it is of.
        table.context.load_timeline()
        assert total(kept.text(), "headwater_pending", action="compaction") == 1
        assert total(kept.text(), "headwater_pending_age_seconds", action="compaction") > 0
        assert table.services.compact() is not None
        assert total(kept.text(), "headwater_pending") == 0
        assert total(kept.text(), "headwater_pending_age_seconds") == 0


def test_a_killed_writer_is_rolled_back_and_counted_once(tmp_path: Path) -> None:
    shape = a_table(tmp_path, "id string, city string, value long", partition_by="city", buckets=1)
    table = shape.create()
    table.upsert(trips(("a", "sf", 1)))
    writer = subprocess.Popen(
        [sys.executable, str(KILLED_WRITER), table.uri], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    with collecting() as kept:
        assert len(table.services.rollback_failed_writes()) == 1
        assert table.services.rollback_failed_writes() == []
        text = kept.text()
    assert total(text, "headwater_rollbacks_total", table=table.uri, cause="dead") == 1
    assert total(text, "headwater_rollbacks_total") == 1
    assert total(text, "headwater_plans_total", action="rollback", event="completed") == 1


def test_a_heartbeat_that_lapsed_counts_once() -> None:
    clock, ids = ManualClock(), SystemIds()
    claim = Claim.new(ids, interval_ms=100, tolerable_misses=2)
    attempt: Attempt = claim.attempt(InstantTime("20260101000000000"), 1, Purpose.EXECUTE, 0)
    storage = MemoryStorage("memory:/t")
    with collecting() as kept:
        heartbeat = Heartbeat(storage, clock, attempt, claimed_ms=clock.monotonic_ms())
        heartbeat.stop()
        clock.advance_ms(attempt.expiry_ms)
        for _ in range(3):
            with pytest.raises(FencedError):
                heartbeat.check()
        assert total(kept.text(), "headwater_heartbeats_lapsed_total", table="memory:/t") == 1


def test_an_attempt_that_was_taken_over_is_fenced_and_counted(tmp_path: Path) -> None:
    table = a_table(tmp_path, NUMBERS, ordering="ts", table_type=MOR, buckets=1).create()
    running, stats = begun(table, numbers("a", 1))
    with collecting() as kept:
        running._inflight.abandon()
        assert len(table.services.rollback_failed_writes()) == 1
        with pytest.raises(FencedError):
            running.commit(stats)  # type: ignore[arg-type]
        text = kept.text()
    assert total(text, "headwater_commits_total", outcome="fenced") == 1
    assert total(text, "headwater_attempts_fenced_total", table=table.uri) == 1


class Lags:
    """A listener that keeps every value of gauges."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def set(self, metric: Gauge, value: float, labels: Labels) -> None:
        if metric.name == "headwater.index.lag":
            self.seen.append(value)

    def add(self, metric: Counter, amount: float, labels: Labels) -> None: ...

    def record(self, metric: Histogram, value: float, labels: Labels) -> None: ...


def test_an_index_build_tells_how_far_it_is_behind(tmp_path: Path) -> None:
    table = a_table(tmp_path, NUMBERS, ordering="ts").with_options(FILE_LOCK).create()
    table.upsert(numbers("abc", 0))
    plan = table.indexes.schedule("column_stats")
    assert plan is not None
    for number in range(1, 4):
        table.upsert(numbers("abc", number))
    lags = Lags()
    listen(lags)
    try:
        table.indexes.run(plan)
    finally:
        stop_listening(lags)
    assert max(lags.seen) == 3
    assert lags.seen[-1] == 0


class LosesReplies(MemoryStorage):
    """A store whose first writes fail, and do not land."""

    def __init__(self, failures: int) -> None:
        super().__init__("s3://bucket/t")
        self._failures = failures

    def put_if_absent(self, path: str, data: bytes) -> None:
        if self._failures:
            self._failures -= 1
            raise StorageError("no reply")
        super().put_if_absent(path, data)


def test_writes_of_the_timeline_that_are_made_again() -> None:
    with collecting() as kept:
        put_once(LosesReplies(2), ManualClock(), "a", b"1")
        text = kept.text()
    retries = "headwater_storage_retries_total"
    assert total(text, retries, store="s3", request="write", reason="unsettled") == 2


def test_requests_failures_and_retries_of_a_store() -> None:
    storage = ObjectStorage(MemoryStore(), "s3://bucket/t")
    answers: list[object] = [GenericError("Generic S3 error: request or response body error"), 7]

    def cut_off_once() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def refuse() -> object:
        raise GenericError("no answer")

    with collecting() as kept:
        storage.put("a", b"1")
        storage.read("a")
        with pytest.raises(NotFoundError):
            storage.read("b")
        assert storage._call("read", "a", cut_off_once) == 7
        with pytest.raises(StorageError):
            storage._call("write", "a", refuse)
        text = kept.text()
    requests = "headwater_storage_requests_total"
    assert total(text, requests, store="s3", request="read", outcome="ok") == 2
    assert total(text, requests, store="s3", request="read", outcome="absent") == 1
    assert total(text, requests, store="s3", request="write", outcome="ok") == 1
    assert total(text, requests, store="s3", request="write", outcome="storage") == 1
    assert total(text, "headwater_storage_retries_total", reason="cut_off", request="read") == 1
    assert total(text, "headwater_storage_retries_total") == 1
    assert total(text, "headwater_storage_duration_seconds_count", store="s3") == 5
