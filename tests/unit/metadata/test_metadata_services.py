"""Compaction, cleaning and archiving of the metadata table, by several processes that may die."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.counting_storage import CountingStorage
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

import headwater as hw
from headwater.errors import ConflictError, ErrorKind
from headwater.format.timeline.records import decode_record
from headwater.kernel.timeline.active import Timeline, instant_path
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.index_plan import PlannedIndex, encode_index_plan
from headwater.metadata.compaction import plan_metadata_compaction
from headwater.metadata.rollback_metadata import load_partitions_holding
from headwater.metadata.services import (
    COMMITS_KEPT,
    compact_metadata_table,
    execute_plan,
    load_held_back,
    metadata_services,
    plan_metadata_archive,
    run_metadata_services,
    unfolded_since,
)
from headwater.metadata.table import SLICES_KEPT, load_own_timeline
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import parse_data_file
from headwater.model.instant import Action, Instant, InstantTime, State, instant_time_at
from headwater.model.plans import CompactionPlan
from headwater.seams.sub_storage import SubStorage

MetadataBench = Any  # In conftest.py, which cannot be imported.

A = "city=sf/a-0_0-1-0_{T}.parquet"
OWN_TIMELINE = ".hoodie/metadata/.hoodie/timeline"
EXPIRY_MS = 2_000


def dying_process(metadata: MetadataBench, dying: Any, writes: int) -> Any:
    storage = dying(metadata.storage, writes)
    return metadata.process("x", storage=storage, clock=metadata.clock_of_its_own())


def commit_some(metadata: MetadataBench, number: int = 3) -> list[Instant]:
    process = metadata.process()
    return [process.commit(added=[A], told={f"k{n}": b"%d" % n}) for n in range(number)]


def test_logs_are_folded_when_there_are_enough(metadata: MetadataBench) -> None:
    upkeep = metadata.process().upkeep(commits=3 + len(metadata.partitions))
    commit_some(metadata, 2)
    assert run_metadata_services(upkeep) is None
    newest = commit_some(metadata, 1)[0]
    files, keys = metadata.files(), metadata.keys()
    done = run_metadata_services(upkeep)
    assert done is not None
    # The time is one that the data table's timeline knows, so later times are larger.
    assert done.requested_time == newest.completion_time
    assert (metadata.files(), metadata.keys()) == (files, keys)
    (one,) = metadata.table().slices("files")
    assert one.cut == done.requested_time
    # What completed at that very time is not folded.
    assert [log.instant_time for log in one.logs] == [newest.requested_time]
    assert metadata.table().newest_compaction == done.requested_time


def test_a_compaction_that_was_planned_just_now_is_left_to_its_maker(
    metadata: MetadataBench,
) -> None:
    upkeep = metadata.process().upkeep(commits=3)
    commit_some(metadata, 3)
    now_ms = upkeep.components.clock.now_ms()

    def seen_since(age_ms: int) -> Timeline:
        planned = instant_time_at(now_ms - age_ms)
        return Timeline([Instant(planned, Action.COMPACTION, State.REQUESTED)])

    assert run_metadata_services(upkeep, seen_since(1_000)) is None
    assert run_metadata_services(upkeep, seen_since(60_000)) is not None
    # Times of the table may be an hour ahead of this clock; its plans are not left for an hour.
    commit_some(metadata, 3)
    assert run_metadata_services(upkeep, seen_since(-3_600_000)) is not None


def test_who_sees_the_new_plan_of_another_only_now_leaves_it_as_well(
    metadata: MetadataBench, dying: Any, killed: type[BaseException]
) -> None:
    commit_some(metadata, 3)
    seen = metadata.table().timeline
    with pytest.raises(killed):
        compact_metadata_table(dying_process(metadata, dying, 3).upkeep())
    assert metadata.table().timeline.pending
    storage = CountingStorage(metadata.storage)
    upkeep = metadata.process(storage=storage).upkeep(commits=3)
    assert run_metadata_services(upkeep, seen) is None
    assert storage.counts == {"list_names": 1}


def test_a_plan_that_others_disturb_is_left_to_them_unless_it_is_overdue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"id": ["a"], "value": [1]})
    later = {"hoodie.metadata.compact.max.delta.commits": "100"}
    table = hw.create_table(tmp_path / "t", schema=rows.schema, record_key="id", options=later)
    other = hw.open_table(tmp_path / "t", later)
    for _ in range(5):
        table.upsert(rows)
    planned = 0

    def plan_disturbed(slices: Any) -> Any:
        nonlocal planned
        planned += 1
        if planned == 1:
            other.upsert(rows)
        return plan_metadata_compaction(slices)

    monkeypatch.setattr("headwater.metadata.services.plan_metadata_compaction", plan_disturbed)
    seen = load_own_timeline(table.context.storage)
    upkeep = metadata_services(table.context)
    assert run_metadata_services(replace(upkeep, commits=4), seen) is None
    assert planned == 1
    planned = 0
    assert run_metadata_services(replace(upkeep, commits=2), seen) is not None
    assert planned == 2


def test_a_check_costs_one_listing(metadata: MetadataBench) -> None:
    commit_some(metadata, 2)
    storage = CountingStorage(metadata.storage)
    enough = 3 + len(metadata.partitions)
    assert run_metadata_services(metadata.process(storage=storage).upkeep(commits=enough)) is None
    assert storage.counts == {"list_names": 1}


def test_files_of_the_compaction_are_as_other_engines_expect_them(metadata: MetadataBench) -> None:
    commit_some(metadata)
    done = compact_metadata_table(metadata.process().upkeep())
    assert done is not None
    time = done.requested_time
    path = f"{OWN_TIMELINE}/{time}.compaction.requested"
    plan = decode_record(CompactionPlan, metadata.storage.read(path), path=path)
    assert plan.version == 2
    by_group = {operation.file_id: operation for operation in plan.operations or ()}
    files = by_group["files-0000-0"]
    assert files.partition_path == "files"
    assert files.base_instant_time == "0" * 17
    assert files.data_file_path == f"files-0000-0_0-0-0_{'0' * 17}.hfile"
    path = instant_path(OWN_TIMELINE, done)
    assert path.endswith(".commit")
    content = decode_record(CommitMetadata, metadata.storage.read(path), path=path)
    assert (content.operation_type, content.compacted) == ("COMPACT", True)
    for stat in content.write_stats():
        stored = metadata.storage.info(f".hoodie/metadata/{stat.path}")
        assert stored.size_bytes == stat.file_size_in_bytes
        assert (stat.path or "").endswith(".hfile")


def test_groups_without_logs_are_left_alone(metadata: MetadataBench) -> None:
    metadata.process().commit(told={"k0": b"1"})
    metadata.process().commit()
    done = compact_metadata_table(metadata.process().upkeep())
    assert done is not None
    written = [path for path in metadata.paths(done.requested_time) if path.endswith(".hfile")]
    assert len([path for path in written if "record_index" in path]) == 1


def test_attempts_lie_inside_and_the_lock_is_the_tables(
    metadata: MetadataBench, dying: Any, killed: type[BaseException]
) -> None:
    commit_some(metadata)
    with pytest.raises(killed):
        compact_metadata_table(dying_process(metadata, dying, 3).upkeep())
    paths = [info.path for info in metadata.storage.list_tree(".hoodie") if "attempts" in info.path]
    assert [path.rpartition("/.attempts/")[0] for path in paths] == [".hoodie/metadata/.hoodie"]
    with metadata.process("other").txn.hold(), pytest.raises(ConflictError) as caught:
        compact_metadata_table(metadata.process("third").upkeep())
    assert caught.value.kind is ErrorKind.LOCK_TIMEOUT


def test_a_slow_clock_cannot_put_a_commit_below_the_compaction(metadata: MetadataBench) -> None:
    """H-45: times issued after the plan are larger, whatever the clocks say."""
    fast = metadata.process("fast", clock=metadata.clock.with_wall_ahead_ms(60_000))
    slow = metadata.process("slow")
    writes = [slow.begin() for _ in range(2)]
    fast.commit(told={"k": b"fast"})
    fast.commit(told={"k": b"faster"})
    done = compact_metadata_table(fast.upkeep())
    assert done is not None
    for number, write in enumerate(writes):
        late = slow.commit(write, told={"k": b"%d" % number})
        assert late.requested_time < done.requested_time < (late.completion_time or "")
        assert metadata.keys()["k"] == b"%d" % number


def test_a_pending_write_holds_nothing_back(metadata: MetadataBench) -> None:
    write = metadata.process("slow").begin()
    commit_some(metadata)
    assert compact_metadata_table(metadata.process().upkeep()) is not None
    metadata.process("slow").commit(write, told={"late": b"1"})
    assert metadata.keys()["late"] == b"1"


def test_entries_of_an_instant_that_may_be_rolled_back_are_not_folded(
    metadata: MetadataBench,
) -> None:
    """INV-72: the process died between the two completed files."""
    commit_some(metadata)
    lost = metadata.process().commit(told={"lost": b"1"})
    metadata.storage.delete(instant_path(metadata.layout.timeline, lost))
    commit_some(metadata, 1)
    assert compact_metadata_table(metadata.process().upkeep()) is None
    held = load_held_back(
        metadata.storage, metadata.layout, metadata.timeline(), metadata.table().timeline
    )
    assert held == (lost.requested_time,)
    for path in metadata.paths(lost.requested_time):
        metadata.storage.delete(path)
    assert compact_metadata_table(metadata.process().upkeep()) is not None
    assert set(metadata.keys()) == {"k0", "k1", "k2"}


def test_a_partition_that_is_being_built_is_left_alone(metadata: MetadataBench) -> None:
    """INV-80."""
    process = metadata.process()
    commit_some(metadata)
    plan = encode_index_plan(
        [PlannedIndex(partition="record_index", group_count=3)], InstantTime("0" * 17)
    )
    time = InstantTime(process.commit().completion_time[:-1] + "9")
    name = file_name(time, Action.INDEXING, State.REQUESTED)
    metadata.storage.put(f"{metadata.layout.timeline}/{name}", plan)
    assert metadata.table().usable == {"files"}
    done = compact_metadata_table(process.upkeep())
    assert done is not None
    written = [path for path in metadata.paths(done.requested_time) if path.endswith(".hfile")]
    assert [path.split("/")[2] for path in written] == ["files"]


def test_a_plan_whose_files_are_gone_is_passed_over(
    metadata: MetadataBench, dying: Any, killed: type[BaseException]
) -> None:
    """The index was dropped after the compaction was planned."""
    commit_some(metadata)
    with pytest.raises(killed):
        compact_metadata_table(dying_process(metadata, dying, 3).upkeep())
    assert metadata.table().timeline.pending
    for path in metadata.paths("record-index"):
        metadata.storage.delete(path)
    done = _take_over(metadata, "y")
    written = [path for path in metadata.paths(done.requested_time) if path.endswith(".hfile")]
    assert [path.split("/")[2] for path in written] == ["files"]


def _take_over(metadata: MetadataBench, name: str) -> Instant:
    """Finish the pending compaction of a dead process: watch its heartbeat run out."""
    upkeep = metadata.process(name).upkeep()
    txn = upkeep.transaction()
    for pending in metadata.table().timeline.pending:
        with pytest.raises(ConflictError):
            _execute(upkeep, txn, pending.requested_time)
        metadata.clock.advance_ms(EXPIRY_MS)
        return _execute(upkeep, txn, pending.requested_time)
    raise AssertionError("nothing is pending")


def _execute(upkeep: Any, txn: Any, time: InstantTime) -> Instant:
    done = execute_plan(upkeep, txn, time)
    assert done is not None
    return done


def test_old_files_go_and_the_timeline_stays_short(metadata: MetadataBench) -> None:
    upkeep = metadata.process().upkeep(commits=3)
    longest = most = 0
    for number in range(90):
        metadata.process().commit(added=[A], told={f"k{number % 5}": b"%d" % number})
        run_metadata_services(upkeep)
        longest = max(longest, len(metadata.table().timeline))
        most = max(most, len(metadata.paths("files-0000-0")))
    assert longest < 2 * COMMITS_KEPT
    assert most < 25
    assert len(metadata.files()) == 90
    assert metadata.keys() == {f"k{n}": b"%d" % (85 + n) for n in range(5)}
    assert metadata.table().is_behind is None
    own = HistoryTimeline(
        SubStorage(metadata.storage, ".hoodie/metadata"), ".hoodie/timeline/history"
    )
    archived = own.instants()
    assert len(archived) > 40
    # Whatever is archived has no files left, so nobody has to ask for its completion time.
    times = {instant.requested_time for instant in archived}
    files = [parse_data_file(path) for path in metadata.paths()]
    assert not times & {file.instant_time for file in files if file is not None}


def test_who_dies_while_instants_are_archived_leaves_some_between_others(
    metadata: MetadataBench,
) -> None:
    """They are deleted all at once, for none of them has a file; a few may be left, any of them."""
    upkeep = metadata.process().upkeep(commits=3)
    ends: dict[str, bytes] = {}
    archived: set[str] = set()
    while len(archived) < 12:
        metadata.process().commit(added=[A], told={"key": b"%d" % len(ends)})
        run_metadata_services(upkeep)
        names = {each for each in metadata.storage.list_names(OWN_TIMELINE) if "_" in each}
        archived |= ends.keys() - names
        ends |= {each: metadata.storage.read(f"{OWN_TIMELINE}/{each}") for each in names}
    files, keys = metadata.files(), metadata.keys()
    for left in (sorted(archived)[1:2], sorted(archived)[3::3]):
        for name in left:
            metadata.storage.put(f"{OWN_TIMELINE}/{name}", ends[name])
        seen = {one.requested_time for one in metadata.table().timeline.instants}
        assert seen.issuperset(name[:17] for name in left)
        assert metadata.table().is_behind is None
        assert (metadata.files(), metadata.keys()) == (files, keys)
    for _ in range(3 * COMMITS_KEPT):
        metadata.process().commit(added=[A], told={"key": b"new"})
        run_metadata_services(upkeep)
    assert not archived & {*metadata.storage.list_names(OWN_TIMELINE)}
    assert metadata.table().is_behind is None


def test_a_view_survives_some_compactions(metadata: MetadataBench) -> None:
    commit_some(metadata)
    early = metadata.table()
    assert early.is_behind is None
    expected = len(metadata.files())
    upkeep = metadata.process().upkeep()
    for _ in range(SLICES_KEPT):
        commit_some(metadata)
        assert compact_metadata_table(upkeep) is not None
    assert sum(len(group.keys) for group in early.read("record_index")) == 3
    assert len(early.look_up("files", ["city=sf"]).keys) == 1
    assert expected == 3


def test_archival_of_the_data_table_stops_before_what_is_not_folded(
    metadata: MetadataBench,
) -> None:
    """Or else readers would have to ask the archived timeline what counts."""
    first, *_ = done = commit_some(metadata)
    storage, config = metadata.storage, metadata.config
    assert unfolded_since(storage, config, metadata.timeline()) == first.completion_time
    compact_metadata_table(metadata.process().upkeep())
    assert unfolded_since(storage, config, metadata.timeline()) == done[-1].completion_time


def test_what_is_folded_cannot_be_taken_back(metadata: MetadataBench) -> None:
    """An index that has an instant in a base file has to be built again."""

    def holding(instant: Instant) -> frozenset[str]:
        return load_partitions_holding(
            metadata.storage, metadata.config, metadata.timeline(), [instant.requested_time]
        )

    first, second = commit_some(metadata, 2)
    assert holding(first) == frozenset()
    assert compact_metadata_table(metadata.process().upkeep()) is not None
    assert holding(first) == {"files", "record_index"}
    assert holding(second) == frozenset()


def test_two_processes_compact_at_once(metadata: MetadataBench) -> None:
    """One does the work; the other finds it at work, or done, and goes away."""
    commit_some(metadata)
    other = metadata.process("other", clock=metadata.clock_of_its_own()).upkeep()
    seen: list[Instant | None] = []

    class Meddling:
        """Storage of a process that another one overtakes at every write."""

        def put_many(self, objects: Mapping[str, bytes]) -> None:
            for path, data in objects.items():
                self.put(path, data)

        def delete_many(self, paths: Iterable[str]) -> None:
            for path in paths:
                self.delete(path)

        def __getattr__(self, name: str) -> Any:
            call = getattr(metadata.storage, name)
            if name not in ("put", "put_if_absent") or not callable(call):
                return call

            def and_then(*arguments: Any) -> Any:
                done = call(*arguments)
                if ".hoodie/metadata/" in arguments[0]:
                    seen.append(run_metadata_services(other))
                return done

            return and_then

    files, keys = metadata.files(), metadata.keys()
    done = compact_metadata_table(metadata.process("one", storage=Meddling()).upkeep())
    assert done is not None
    assert len(seen) > 3
    assert set(seen) == {None}
    assert (metadata.files(), metadata.keys()) == (files, keys)
    assert metadata.table().timeline.pending == ()


def test_a_crash_after_every_write_is_repaired_by_the_next(
    metadata_bench: Callable[..., Any], dying: Any, killed: type[BaseException]
) -> None:
    whole = metadata_bench()
    # With as many as this there is something to delete and to archive, too.
    for number in range(COMMITS_KEPT + 22):
        whole.process().commit(added=[A], told={f"k{number % 3}": b"%d" % number})
        if number < COMMITS_KEPT + 20:
            run_metadata_services(whole.process().upkeep(commits=3))
    files, keys = whole.files(), whole.keys()
    writes_max = 0
    for writes in count():
        metadata = whole.copy()
        victim = dying_process(metadata, dying, writes).upkeep()
        try:
            compact_metadata_table(victim)
            has_died = False
        except killed:
            has_died = True
        assert (metadata.files(), metadata.keys()) == (files, keys)
        assert metadata.table().is_behind is None
        if not has_died:
            break
        writes_max = writes
        if metadata.table().timeline.pending:
            _take_over(metadata, "y")
        time = metadata.process("z").commit(added=[A]).requested_time
        assert compact_metadata_table(metadata.process("z").upkeep()) is not None
        assert metadata.table().timeline.pending == ()
        assert metadata.files() == sorted([*files, A.format(T=time)])
        assert metadata.keys() == keys
    assert writes_max > 15


def test_a_crash_of_a_commit_is_never_half_told(
    metadata_bench: Callable[..., Any], dying: Any, killed: type[BaseException]
) -> None:
    """After every write: what counts is told, what does not count is not."""
    outcomes = set()
    for writes in count():
        metadata = metadata_bench()
        commit_some(metadata)
        files, keys = metadata.files(), metadata.keys()
        process = dying_process(metadata, dying, writes)
        time = None
        try:
            write = process.begin()
            time = write.instant_time
            process.commit(write, added=[A], told={"k0": None, "new": b"1"})
            has_died = False
        except killed:
            has_died = True
        instant = metadata.timeline().find(time) if time is not None else None
        is_told = instant is not None and instant.is_completed
        outcomes.add((is_told, has_died))
        added = [A.format(T=time)] if is_told else []
        assert metadata.files() == sorted([*files, *added])
        told = {**{k: v for k, v in keys.items() if k != "k0"}, "new": b"1"} if is_told else keys
        assert metadata.keys() == told
        assert metadata.table().is_behind is None
        if not has_died:
            break
    assert outcomes == {(False, True), (True, True), (True, False)}


def test_what_can_be_archived_is_chosen_in_the_order_of_completion() -> None:
    def time(number: int) -> InstantTime:
        return InstantTime(f"202401010000{number:05d}")

    told = [
        Instant(time(n), Action.DELTA_COMMIT, State.COMPLETED, time(n + 500)) for n in range(60)
    ]
    own = Timeline(
        [Instant(InstantTime("0" * 17), Action.DELTA_COMMIT, State.COMPLETED, time(1)), *told]
    )
    assert plan_metadata_archive(own, frozenset(), None) == told[: 60 - COMMITS_KEPT]
    assert plan_metadata_archive(own, frozenset([time(7)]), None) == told[:7]
    assert plan_metadata_archive(own, frozenset(), time(504)) == told[:5]


# Any sequence of commits and compactions -------------------------------------------------------

KEYS = [f"k{number}" for number in range(6)]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("told"), st.dictionaries(st.sampled_from(KEYS), st.booleans())),
        st.tuples(st.just("add"), st.integers(0, 3)),
        st.tuples(st.just("remove"), st.integers(0, 5)),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("begin"), st.none()),
        st.tuples(st.just("end"), st.none()),
    ),
    max_size=25,
)


@settings(
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=steps)
def test_look_ups_equal_a_dict(
    metadata_bench: Callable[..., Any], steps: list[tuple[str, Any]]
) -> None:
    clock = ManualClock()
    metadata = metadata_bench(clock, storage=MemoryStorage(clock=clock))
    process = metadata.process()
    keys: dict[str, bytes] = {}
    files: list[str] = []
    waiting: list[Any] = []
    for number, (step, what) in enumerate(steps):
        if step == "told":
            value = b"%d" % number
            process.commit(told={key: value if kept else None for key, kept in what.items()})
            keys |= {key: value for key, kept in what.items() if kept}
            keys = {key: value for key, value in keys.items() if what.get(key, True)}
        elif step == "add":
            name = f"city=c{what}/f{number}-0_0-1-0_{{T}}.parquet"
            files.append(name.format(T=process.commit(added=[name]).requested_time))
        elif step == "remove" and files:
            process.commit(removed=[files.pop(what % len(files))])
        elif step == "compact":
            compact_metadata_table(process.upkeep())
        elif step == "begin":
            waiting.append(process.begin())
        elif step == "end" and waiting:
            # Requested long ago, perhaps before a compaction.
            process.commit(waiting.pop(0), told={"late": b"%d" % number})
            keys["late"] = b"%d" % number
        table = metadata.table()
        assert table.is_behind is None
        found = table.look_up("record_index", [*KEYS, "late"])
        assert metadata.told(found) == keys
        assert metadata.files() == sorted(files)
    assert metadata.keys() == keys


def test_a_released_attempt_is_taken_over_at_once(metadata: MetadataBench) -> None:
    """A compaction that failed for a reason that went away."""
    commit_some(metadata)

    class Failing:
        """Storage that takes no base files."""

        def put_many(self, objects: Mapping[str, bytes]) -> None:
            for path, data in objects.items():
                self.put(path, data)

        def delete_many(self, paths: Iterable[str]) -> None:
            for path in paths:
                self.delete(path)

        def __getattr__(self, name: str) -> Any:
            call = getattr(metadata.storage, name)
            if name != "put":
                return call

            def refuse(path: str, data: bytes) -> None:
                if path.endswith(".hfile"):
                    raise ConflictError("no")
                call(path, data)

            return refuse

    assert run_metadata_services(metadata.process("x", storage=Failing()).upkeep()) is None
    assert metadata.table().timeline.pending
    assert run_metadata_services(metadata.process("y").upkeep()) is not None
