"""Section 5.9 of the invariants: who stops and who commits, for every strategy, on a real disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.manual_clock import ManualClock

import headwater as hw
from headwater.config.detection import (
    DETECTION_CHECKS_COMMITS,
    DETECTION_ENABLED,
    DETECTION_STRATEGY,
    DetectionStrategy,
)
from headwater.config.markers import MarkerConfig, MarkerType
from headwater.errors import ConflictError, EarlyConflictError, ErrorKind, StorageError
from headwater.kernel.layout import attempt_path, heartbeat_path, marker_folder
from headwater.kernel.txn.attempts import encode_attempt
from headwater.kernel.txn.markers import DirectMarkers, Marker, MarkerKind, Markers, create_marker
from headwater.markers.batches import batch_path, put_marker_type
from headwater.markers.checker import MarkerChecker
from headwater.markers.client import MarkerClient
from headwater.markers.detection import Detection, detecting_markers
from headwater.markers.running import start_marker_service
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import FileGroupId, LogFile, write_token
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import RunningWrite, start_write
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.ids import SystemIds
from headwater.seams.local import LocalStorage
from headwater.seams.storage import ObjectInfo, Storage
from headwater.table import Table

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
STRATEGY = "hoodie.write.concurrency.early.conflict.detection.strategy"
OPTIONS = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "filesystem",
    "headwater.storage.fsync": "false",
}

A = FileGroupId("city=sf", "00000000-0000-0000-0000-000000000000-0")
B = FileGroupId("city=sf", "00000001-0000-0000-0000-000000000000-0")
A_ELSEWHERE = FileGroupId("city=la", A.file_id)

every_strategy = pytest.mark.parametrize("strategy", list(DetectionStrategy))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return hw.create_table(
        tmp_path / "t",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type="MERGE_ON_READ",
        index="bucket",
        buckets=2,
        options=OPTIONS,
    )


class Writer:
    """A write whose markers a test creates one by one."""

    def __init__(
        self,
        table: Table,
        strategy: DetectionStrategy | None,
        *,
        clock: Clock | None = None,
        change: Callable[[Detection], Detection] = lambda found: found,
        checks_commits: bool = True,
    ) -> None:
        self.table = table
        chosen = strategy or DetectionStrategy.DIRECT
        options = {
            **table.context.options,
            "hoodie.write.markers.type": (
                "TIMELINE_SERVER_BASED" if chosen.value.endswith("async") else "DIRECT"
            ),
            DETECTION_ENABLED.key: DETECTION_ENABLED.encode(strategy is not None),
            DETECTION_STRATEGY.key: DETECTION_STRATEGY.encode(chosen),
            DETECTION_CHECKS_COMMITS.key: DETECTION_CHECKS_COMMITS.encode(checks_commits),
        }
        target = replace(table.context, options=options)
        self.config = target.detection_config
        request = WriteRequest(operation=Operation.UPSERT, columns=SCHEMA)
        self.write: RunningWrite = start_write(target, request)
        self._clock = clock or SystemClock()
        self._change = change
        self._stack = ExitStack()
        self._markers: Markers | None = None
        self._checker: MarkerChecker | None = None
        self._stats: list[WriteStat] = []

    @property
    def time(self) -> InstantTime:
        return self.write.plan.instant_time

    @property
    def detection(self) -> Detection | None:
        found = self.write.plan.announcing.detection
        return None if found is None else self._change(found)

    def mark(self, group: FileGroupId, storage: Storage | None = None) -> None:
        """Create the marker of a log file for a group, as a task would."""
        log = LogFile(*group, self.time, 1, write_token(0, 1, len(self._stats)))
        if self._markers is None:
            self._markers = self._stack.enter_context(self._open(storage or self.table.storage))
        self._markers.create(Marker(log.path, MarkerKind.CREATE))
        self.table.storage.put(log.path, b"")
        stat = WriteStat(file_id=group.file_id, path=log.path, partition_path=group.partition)
        self._stats.append(stat)

    @contextmanager
    def _open(self, storage: Storage) -> Iterator[Markers]:
        detection = self.detection
        if detection is None:
            yield DirectMarkers(storage, self.time)
        elif detection.strategy.markers is MarkerType.DIRECT:
            direct = DirectMarkers(self.table.storage, self.time)
            ids = SystemIds()
            with detecting_markers(
                detection, direct, storage, self._clock, ids, task="0-1-0"
            ) as markers:
                yield markers
        else:
            checker = MarkerChecker(
                detection, self.config, storage, self._clock, self.table.context.ids
            )
            self._checker = checker
            config = MarkerConfig(type=MarkerType.TIMELINE_SERVER_BASED)
            ids = SystemIds()
            with (
                start_marker_service(
                    self.table.storage, ids, self.time, config, conflicts=checker
                ) as service,
                MarkerClient(service.address, SystemClock(), ids) as client,
            ):
                yield client

    def is_stopped_at(self, group: FileGroupId, storage: Storage | None = None) -> str | None:
        """Return the instant that a marker makes the write stop for, if it does."""
        try:
            self.mark(group, storage)
        except EarlyConflictError as conflict:
            return str(conflict.context["other"])
        if self._checker is not None and self.config.strategy is DetectionStrategy.BLOOM_ASYNC:
            # Filters are asked once in a period, and not for each marker.
            found = self._checker.check()
            return None if found is None else str(found.context["other"])
        return None

    def commit(self) -> None:
        self._stack.close()
        self.write.commit(self._stats)

    def loses_at_commit(self) -> bool:
        try:
            self.commit()
        except ConflictError as conflict:
            self.abandon()
            return conflict.kind is ErrorKind.WRITE_CONFLICT
        return False

    def abandon(self) -> None:
        self._stack.close()
        self.write.abandon()


@pytest.fixture
def begin(table: Table) -> Iterator[Callable[..., Writer]]:
    with ExitStack() as stack:

        def begin(strategy: DetectionStrategy | None, **arguments: object) -> Writer:
            writer = Writer(table, strategy, **arguments)  # type: ignore[arg-type]
            stack.callback(writer.abandon)
            return writer

        yield begin


Begin = Callable[..., Writer]


# 5.9, row by row -------------------------------------------------------------------------------


@every_strategy
def test_of_two_writers_of_a_group_the_second_to_start_stops(
    begin: Begin, strategy: DetectionStrategy
) -> None:
    first, second = begin(strategy), begin(strategy)
    assert first.is_stopped_at(A) is None
    assert second.is_stopped_at(A) == first.time
    first.commit()


@every_strategy
def test_the_order_in_which_they_come_to_a_group_does_not_matter(
    begin: Begin, strategy: DetectionStrategy
) -> None:
    first, second = begin(strategy), begin(strategy)
    assert second.is_stopped_at(A) is None
    assert first.is_stopped_at(A) is None
    second.commit()
    assert first.loses_at_commit(), "whoever commits first wins, as without detection"


@every_strategy
def test_writers_that_cross_do_not_stop_each_other(
    begin: Begin, strategy: DetectionStrategy
) -> None:
    first, second = begin(strategy), begin(strategy)
    assert first.is_stopped_at(A) is None
    assert second.is_stopped_at(B) is None
    assert first.is_stopped_at(B) is None
    assert second.is_stopped_at(A) == first.time
    first.commit()


@every_strategy
def test_who_committed_since_is_found_although_its_markers_are_gone(
    begin: Begin, table: Table, strategy: DetectionStrategy
) -> None:
    first, second = begin(strategy), begin(strategy)
    first.mark(A)
    first.commit()
    assert table.storage.list_tree(marker_folder(first.time)) == []
    assert second.is_stopped_at(A) == first.time


@every_strategy
def test_without_the_look_at_commits_the_commit_finds_it(
    begin: Begin, strategy: DetectionStrategy
) -> None:
    first, second = begin(strategy), begin(strategy, checks_commits=False)
    first.mark(A)
    first.commit()
    assert second.is_stopped_at(A) is None
    assert second.loses_at_commit()


@every_strategy
def test_a_commit_that_the_snapshot_holds_stops_nobody(
    begin: Begin, strategy: DetectionStrategy
) -> None:
    first = begin(strategy)
    first.mark(A)
    first.commit()
    second = begin(strategy)
    assert second.is_stopped_at(A) is None
    second.commit()


@every_strategy
def test_a_heartbeat_that_has_run_out_stops_nobody(
    begin: Begin, strategy: DetectionStrategy
) -> None:
    clock = ManualClock()
    first = begin(strategy)
    second = begin(strategy, clock=clock)
    assert second.detection is not None
    [rival] = second.detection.candidates
    first.mark(A)
    assert second.is_stopped_at(B) is None
    clock.advance_ms(rival.remaining_ms)
    assert second.is_stopped_at(A) is None
    first.commit()
    assert second.loses_at_commit(), "it was alive after all"


class BrokenMarkers(LocalStorage):
    """Storage that cannot show other writers' markers."""

    def __init__(self, base: str, mine: str) -> None:
        super().__init__(base)
        self._mine = mine

    def _fail(self, path: str) -> None:
        if path.startswith(".hoodie/.temp/") and not path.startswith(self._mine):
            raise StorageError("The disk is broken", path=path)

    def list_names(self, folder: str, after: str = "") -> list[str]:
        self._fail(folder)
        return super().list_names(folder, after)

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        self._fail(folder)
        return super().list_tree(folder)


@every_strategy
def test_markers_that_cannot_be_listed_stop_nobody(
    begin: Begin, table: Table, strategy: DetectionStrategy
) -> None:
    first, second = begin(strategy), begin(strategy)
    first.mark(A)
    broken = BrokenMarkers(table.uri, marker_folder(second.time))
    assert second.is_stopped_at(A, broken) is None
    first.commit()
    assert second.loses_at_commit()


@every_strategy
def test_files_of_markers_that_are_garbage_stop_nobody(
    begin: Begin, table: Table, strategy: DetectionStrategy
) -> None:
    first, second = begin(None), begin(strategy)
    put_marker_type(table.storage, first.time)
    garbage = f"{A.partition}/{A.file_id}_\n\x00\xff{A.file_id}".encode("latin-1")
    table.storage.put(batch_path(first.time, 0), garbage)
    assert second.is_stopped_at(A) is None


# What counts as alive (INV-70) -----------------------------------------------------------------


@every_strategy
def test_a_writer_that_has_given_up_stops_nobody(begin: Begin, strategy: DetectionStrategy) -> None:
    first, second = begin(strategy), begin(strategy)
    first.mark(A)
    first.abandon()
    assert second.is_stopped_at(A) is None
    second.commit()


@every_strategy
def test_a_writer_that_gave_up_before_is_no_rival(
    begin: Begin, strategy: DetectionStrategy
) -> None:
    first = begin(strategy)
    first.mark(A)
    first.abandon()
    second = begin(strategy)
    assert second.detection is not None
    assert second.detection.candidates == ()
    assert second.is_stopped_at(A) is None


@every_strategy
@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_writer_that_was_taken_over_stops_nobody(
    begin: Begin, table: Table, strategy: DetectionStrategy
) -> None:
    first, second = begin(strategy), begin(strategy)
    first.mark(A)
    table.storage.put(attempt_path(first.time, 2), b"{}")
    assert second.is_stopped_at(A) is None


@every_strategy
@pytest.mark.usefixtures("tables_with_a_lock")
def test_markers_left_by_a_crash_after_the_commit_stop_nobody(
    begin: Begin, table: Table, strategy: DetectionStrategy
) -> None:
    """The instant is complete without the group: a task announced it, failed, and ran again."""
    first, second = begin(strategy), begin(strategy)
    first.mark(B)
    attempt = next(i for i in table.storage.list_tree(".hoodie/.attempts") if first.time in i.path)
    heartbeat = table.storage.read(attempt.path)
    first.commit()
    left = LogFile(*A, first.time, 1, "7-1-0")
    create_marker(table.storage, first.time, Marker(left.path, MarkerKind.CREATE))
    table.storage.put(attempt.path, heartbeat)
    assert second.is_stopped_at(A) is None
    second.commit()


@every_strategy
def test_a_heartbeat_that_beats_on_stops_the_second(
    begin: Begin, table: Table, strategy: DetectionStrategy
) -> None:
    clock = ManualClock()
    first, second = begin(strategy), begin(strategy, clock=clock)
    assert second.detection is not None
    [rival] = second.detection.candidates
    first.mark(A)
    assert second.is_stopped_at(B) is None
    clock.advance_ms(10 * rival.expiry_ms)
    assert rival.attempt is not None
    table.storage.put(rival.attempt.path, encode_attempt(rival.attempt.next_beat()))
    assert second.is_stopped_at(A) == first.time


@every_strategy
@pytest.mark.usefixtures("tables_with_a_lock")
def test_another_engine_counts_while_its_heartbeat_file_is_there(
    begin: Begin, table: Table, strategy: DetectionStrategy
) -> None:
    other = InstantTime("20250101000000000")
    for state in (State.REQUESTED, State.INFLIGHT):
        name = f"{other}.deltacommit.{state}"
        table.storage.put(f".hoodie/timeline/{name}", b"")
    table.storage.put(heartbeat_path(other), b"")
    log = LogFile(*A, other, 1, "0-1-0")
    create_marker(table.storage, other, Marker(log.path, MarkerKind.CREATE))
    second = begin(strategy)
    assert second.detection is not None
    [rival] = second.detection.candidates
    assert rival.instant == Instant(other, Action.DELTA_COMMIT, State.INFLIGHT)
    assert second.is_stopped_at(A) == other
    third = begin(strategy)
    table.storage.delete(heartbeat_path(other))
    assert third.is_stopped_at(A) is None


# What counts as the same group -----------------------------------------------------------------


@every_strategy
def test_equal_file_ids_in_two_partitions_are_two_groups(
    begin: Begin, strategy: DetectionStrategy
) -> None:
    first, second = begin(strategy), begin(strategy)
    first.mark(A)
    assert second.is_stopped_at(A_ELSEWHERE) is None
    first.commit()
    assert second.is_stopped_at(B) is None
    second.commit()


@pytest.mark.parametrize("theirs", list(DetectionStrategy))
@every_strategy
def test_each_strategy_sees_the_markers_of_each_other(
    begin: Begin, strategy: DetectionStrategy, theirs: DetectionStrategy
) -> None:
    first, second = begin(theirs), begin(strategy)
    first.mark(B)
    assert second.is_stopped_at(A) is None
    first.mark(A)
    other = begin(strategy)
    assert other.is_stopped_at(A) == first.time


@every_strategy
def test_a_writer_alone_is_not_slowed_by_looks_at_markers(
    begin: Begin, strategy: DetectionStrategy
) -> None:
    writer = begin(strategy)
    assert writer.detection is not None
    assert writer.detection.candidates == ()
    writer.mark(A)
    writer.commit()


def test_what_detection_leaves_behind_goes_with_the_markers(begin: Begin, table: Table) -> None:
    writer = begin(DetectionStrategy.BLOOM_DIRECT)
    writer.mark(A)
    assert len(table.storage.list_tree(".hoodie/.detection")) == 1
    writer.commit()
    assert table.storage.list_tree(".hoodie/.detection") == []


def test_the_folder_of_direct_markers_holds_nothing_else(begin: Begin, table: Table) -> None:
    """Stock Hudi could not roll the write back otherwise."""
    first, second = begin(DetectionStrategy.BLOOM_DIRECT), begin(DetectionStrategy.BLOOM_DIRECT)
    first.mark(A)
    second.is_stopped_at(A)
    second.mark(B)
    for writer in (first, second):
        for info in table.storage.list_tree(marker_folder(writer.time)):
            assert ".marker." in info.path
