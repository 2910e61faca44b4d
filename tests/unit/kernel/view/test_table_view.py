"""Views of tables in memory: what is visible, what is hidden, what it costs, how far back it goes.

Times are small numbers here, written as instant times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.errors import CorruptTableError, ErrorKind, NotFoundError
from headwater.format.avro.schema import encode_avro_schema
from headwater.format.timeline.records import encode_record
from headwater.format.timeline.schemas import Record
from headwater.kernel.layout import TableLayout
from headwater.kernel.new_table import NewTable, plan_table_config
from headwater.kernel.timeline.active import instant_path, load_active
from headwater.kernel.timeline.contents import TimelineContents
from headwater.kernel.timeline.history.write import archive_instants
from headwater.kernel.view.commits import COMMIT_ACTIONS, CommitReader
from headwater.kernel.view.file_index import ListingFileIndex
from headwater.kernel.view.slicing import without_logs
from headwater.kernel.view.table_view import TableView, load_listed_view, load_view_start
from headwater.metadata.indexed_files import IndexedFiles
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata, WriteStat
from headwater.model.files import BaseFile, DataFile, FileGroupId, LogFile
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import (
    ActionInstant,
    CleanerPlan,
    CompactionOperation,
    CompactionPlan,
)
from headwater.model.service_metadata import CleanMetadata

LAYOUT = TableLayout()
COLUMNS = pa.schema([("id", pa.string()), ("v", pa.int64())])
GROUP = FileGroupId("p", "f")


def at(number: int) -> InstantTime:
    return InstantTime(f"{number:017d}")


def base(requested: int, group: FileGroupId = GROUP, token: str = "0-0-0") -> BaseFile:
    return BaseFile(*group, token, at(requested))


def log(requested: int, group: FileGroupId = GROUP, token: str = "0-0-0") -> LogFile:
    return LogFile(*group, at(requested), 1, token)


class CommittedIndex:
    """Knows what the metadata table would know: the files of commits that storage still has."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage

    def list_partitions(self) -> list[str]:
        return sorted({file.partition for file in self.list_data_files()})

    def list_data_files(self, partitions: Iterable[str] | None = None) -> list[DataFile]:
        stored = {file.path: file for file in ListingFileIndex(self._storage).list_data_files()}
        wanted = None if partitions is None else set(partitions)
        reader = CommitReader(self._storage, LAYOUT)
        done = [
            instant
            for instant in load_active(self._storage, LAYOUT.timeline).completed
            if instant.action.completed_name in COMMIT_ACTIONS
        ]
        archived = [instant.requested_time for instant in reader.history.instants()]
        return [
            stored[file.path]
            for commit in (*reader.load(done), *reader.load_archived(archived))
            for file in commit.files
            if file.path in stored and (wanted is None or file.partition in wanted)
        ]


class Written:
    """A table in memory, written file by file."""

    def __init__(self, *, is_indexed: bool = False) -> None:
        self.is_indexed = is_indexed
        self.storage = MemoryStorage()
        self.config = plan_table_config(
            NewTable(location="orders", schema=COLUMNS, record_key=["id"]), {}
        )

    def commit(
        self,
        requested: int,
        completed: int,
        *files: DataFile,
        action: Action = Action.DELTA_COMMIT,
        operation: str = "UPSERT",
        replaced: Iterable[FileGroupId] = (),
        unlisted: Collection[DataFile] = (),
        schema: pa.Schema | None = None,
    ) -> None:
        """Complete an instant that wrote `files`; those in `unlisted` are not in its stats."""
        self.put_files(*files)
        stats: dict[str, tuple[WriteStat, ...]] = {}
        for file in files:
            if file not in unlisted:
                stat = WriteStat(file_id=file.file_id, path=file.path)
                stats[file.partition] = (*stats.get(file.partition, ()), stat)
        extra = {} if schema is None else {"schema": encode_avro_schema(schema, table="orders")}
        metadata = CommitMetadata(
            partition_to_write_stats=stats, extra_metadata=extra, operation_type=operation
        )
        ids: dict[str, tuple[str, ...]] = {}
        for group in replaced:
            ids[group.partition] = (*ids.get(group.partition, ()), group.file_id)
        if action.completed_name is Action.REPLACE_COMMIT:
            metadata = ReplaceCommitMetadata(
                partition_to_write_stats=stats,
                extra_metadata=extra,
                operation_type=operation,
                partition_to_replace_file_ids=ids,
            )
        self.complete(requested, completed, action, metadata)

    def complete(self, requested: int, completed: int, action: Action, record: Record) -> None:
        instant = Instant(at(requested), action, State.COMPLETED, at(completed))
        self.storage.put(instant_path(LAYOUT.timeline, instant), encode_record(record))

    def request(self, requested: int, action: Action, record: Record | None = None) -> None:
        instant = Instant(at(requested), action, State.REQUESTED)
        data = b"" if record is None else encode_record(record)
        self.storage.put(instant_path(LAYOUT.timeline, instant), data)

    def put_files(self, *files: DataFile) -> None:
        for file in files:
            self.storage.put(file.path, b"data")

    def archive(self, *requested: int) -> None:
        timeline = load_active(self.storage, LAYOUT.timeline)
        archive_instants(self.storage, LAYOUT, [timeline.get(at(time)) for time in requested])

    def view(self, as_of: int | None = None) -> TableView:
        time = None if as_of is None else at(as_of)
        if not self.is_indexed:
            return load_listed_view(self.storage, self.config, as_of=time)
        start = load_view_start(self.storage, self.config, as_of=time)
        source = IndexedFiles(
            CommittedIndex(self.storage),
            start.reader,
            start.timeline,
            start.commit_instants,
            is_merge_on_read=True,
        )
        return TableView(self.config, start, source)


@pytest.fixture(params=["listed", "indexed"])
def table(request: pytest.FixtureRequest) -> Written:
    return Written(is_indexed=request.param == "indexed")


@pytest.fixture
def listed() -> Written:
    return Written()


@pytest.fixture
def demo(table: Written) -> Written:
    """The demo of invariants 5.7: F10 [10,20], l1 [21,40], l2 [30,50], F60 [60,80], l3 [35,90]."""
    table.commit(10, 20, base(10))
    table.commit(21, 40, log(21))
    table.commit(30, 50, log(30))
    table.request(60, Action.COMPACTION, plan_of(GROUP, base(10).name, log(21).name, log(30).name))
    table.commit(60, 80, base(60), action=Action.COMPACTION, operation="COMPACT")
    table.commit(35, 90, log(35))
    return table


def plan_of(group: FileGroupId, data_file: str | None, *logs: str) -> CompactionPlan:
    operation = CompactionOperation(
        base_instant_time=at(1),
        delta_file_paths=logs,
        data_file_path=data_file,
        file_id=group.file_id,
        partition_path=group.partition,
    )
    return CompactionPlan(operations=(operation,))


def names(view: TableView) -> list[list[str]]:
    """Return the paths of each slice to read."""
    return [[file.path for file in one.files()] for one in view.slices()]


def paths(*slices: Iterable[DataFile]) -> list[list[str]]:
    return [[file.path for file in one] for one in slices]


class TestDemo:
    @pytest.mark.parametrize(
        ("as_of", "files"),
        [
            (None, [base(60), log(35)]),
            (100, [base(60), log(35)]),
            (85, [base(60)]),
            (80, [base(60)]),
            (79, [base(10), log(21), log(30)]),
            (45, [base(10), log(21)]),
            (20, [base(10)]),
        ],
    )
    def test_view(self, demo: Written, as_of: int | None, files: list[DataFile]) -> None:
        view = demo.view(as_of)
        assert names(view) == paths(files)
        assert view.partitions() == ["p"]
        view.check_complete(view.slices())

    @pytest.mark.parametrize(
        ("after", "until", "writes"),
        [(45, 85, [30]), (85, 100, [35]), (20, 40, [21]), (None, None, [10, 21, 30, 35])],
    )
    def test_incremental(
        self, demo: Written, after: int | None, until: int | None, writes: list[int]
    ) -> None:
        found = demo.view().instants_within_open_closed(
            None if after is None else at(after), None if until is None else at(until)
        )
        assert [commit.requested_time for commit in found] == [at(time) for time in writes]

    def test_incremental_ends_where_the_view_does(self, demo: Written) -> None:
        found = demo.view(as_of=45).instants_within_open_closed(at(20), at(100))
        assert [commit.requested_time for commit in found] == [at(21)]

    def test_the_instant_of_a_view_is_a_time_that_has_come(self, demo: Written) -> None:
        assert demo.view().instant == at(90)
        assert demo.view(as_of=1_000).instant == at(90)
        assert demo.view(as_of=45).instant == at(45)

    def test_before_and_up_to_a_commit(self, demo: Written) -> None:
        view = demo.view()
        (before,), (after,) = view.slices_before(at(50)), view.slices_up_to(at(50))
        assert list(before.files()) == [f._replace(size_bytes=4) for f in (base(10), log(21))]
        assert [file.instant_time for file in after.logs] == [at(21), at(30)]
        assert view.slices_before(at(20)) == []
        assert view.slices_up_to(at(500)) == view.slices_before(at(500)) == view.slices()

    def test_read_optimized_is_the_newest_base_file(self, demo: Written) -> None:
        (only,) = without_logs(demo.view().slices())
        assert (only.base_instant, only.logs) == (at(60), ())
        (before,) = without_logs(demo.view(as_of=79).slices())
        assert (before.base_instant, before.logs) == (at(10), ())

    def test_groups_of_logs_only_are_not_in_a_read_optimized_view(self, table: Written) -> None:
        table.commit(1, 2, log(1))
        assert without_logs(table.view().slices()) == []
        assert names(table.view()) == paths([log(1)])

    def test_slices_of_some_groups(self, table: Written) -> None:
        groups = [FileGroupId(partition, f"{n}") for partition in ("p", "q") for n in range(2)]
        table.commit(1, 2, *(base(1, group) for group in groups))
        table.commit(3, 4, log(3, groups[-1]))
        found = table.view().slices()
        wanted = groups[1::2]
        absent = FileGroupId("r", "0")
        assert table.view().slices_of([*wanted[::-1], absent]) == found[1::2]
        assert [len(file_slice.logs) for file_slice in found[1::2]] == [0, 1]
        assert table.view().slices_of([absent]) == table.view().slices_of([]) == []

    def test_planners_see_all_slices(self, demo: Written) -> None:
        (slices,) = demo.view().all_slices().values()
        assert [one.base_instant for one in slices] == [at(60), at(10)]


class TestM6:
    def test_a_file_that_no_commit_lists_is_invisible(self, table: Written) -> None:
        speculative = base(1, token="0-0-1")
        elsewhere = base(1, FileGroupId("p", "zombie"))
        table.commit(
            1, 2, base(1), speculative, elsewhere, log(1), unlisted=[speculative, elsewhere, log(1)]
        )
        assert names(table.view()) == paths([base(1)])

    def test_files_of_pending_and_unknown_instants_are_invisible(self, table: Written) -> None:
        table.commit(10, 20, base(10))
        table.request(30, Action.DELTA_COMMIT)
        table.put_files(log(30), base(5), base(40), log(41))
        assert names(table.view()) == paths([base(10)])

    def test_the_archive_decides_about_files_of_archived_commits(self, table: Written) -> None:
        orphan = base(1, FileGroupId("p", "zombie"))
        table.commit(1, 2, base(1), orphan, unlisted=[orphan])
        table.commit(3, 4, log(3))
        table.commit(5, 6, log(5))
        table.archive(1, 3)
        view = table.view()
        assert names(view) == paths([base(1), log(3), log(5)])
        assert names(table.view(as_of=4)) == paths([base(1), log(3)])
        assert [c.requested_time for c in view.instants_within_open_closed(at(2))] == [at(3), at(5)]

    def test_log_files_and_cdc_logs_of_a_stat_belong_to_the_commit(self, table: Written) -> None:
        older, rolled = log(1), log(3)._replace(version=2)
        cdc = log(3)._replace(is_cdc=True)
        table.commit(1, 2, older)
        table.put_files(log(3), rolled, cdc)
        stat = WriteStat(
            file_id="f",
            path=log(3).path,
            log_files=(older.name, log(3).name, rolled.name),
            cdc_stats={cdc.path: 4},
        )
        table.complete(
            3, 4, Action.DELTA_COMMIT, CommitMetadata(partition_to_write_stats={"p": (stat,)})
        )
        view = table.view()
        assert names(view) == paths([older, log(3), rolled])
        assert [file.path for file in view.commits[1].files] == [
            log(3).path,
            rolled.path,
            cdc.path,
        ]

    def test_a_listed_name_of_no_data_file_is_corrupt(self, table: Written) -> None:
        stat = WriteStat(file_id="f", path="p/part-0.parquet")
        table.complete(1, 2, Action.COMMIT, CommitMetadata(partition_to_write_stats={"p": (stat,)}))
        with pytest.raises(CorruptTableError, match=r"Commit 0+1 lists p/part-0.parquet"):
            table.view().slices()

    def test_sizes_are_those_of_storage(self, table: Written) -> None:
        table.commit(1, 2, base(1))
        (only,) = table.view().slices()
        assert only.size_bytes == 4


class TestReplaced:
    OTHER = FileGroupId("p", "g")

    def overwrite(self, table: Written, requested: int, completed: int, *files: DataFile) -> None:
        table.commit(
            requested,
            completed,
            *files,
            action=Action.REPLACE_COMMIT,
            operation="INSERT_OVERWRITE",
            replaced=[GROUP],
        )

    def test_a_replaced_group_is_hidden_from_the_moment_the_replace_completes(
        self, table: Written
    ) -> None:
        table.commit(1, 2, base(1))
        table.commit(3, 4, log(3))
        self.overwrite(table, 10, 20, base(10, self.OTHER))
        assert names(table.view()) == paths([base(10, self.OTHER)])
        assert names(table.view(as_of=20)) == paths([base(10, self.OTHER)])
        assert names(table.view(as_of=19)) == paths([base(1), log(3)])

    def test_a_later_view_knows_what_was_there_before_the_replace(self, table: Written) -> None:
        table.commit(1, 2, base(1))
        self.overwrite(table, 10, 20, base(10, self.OTHER))
        view = table.view()
        (before,) = view.slices_before(at(20))
        assert before.group == GROUP
        assert view.slices_up_to(at(19)) == [before]
        assert [one.group for one in view.slices_up_to(at(20))] == [self.OTHER]

    def test_the_same_file_id_elsewhere_is_not_hidden(self, table: Written) -> None:
        elsewhere = base(1, FileGroupId("q", "f"))
        table.commit(1, 2, base(1), elsewhere)
        self.overwrite(table, 10, 20)
        assert names(table.view()) == paths([elsewhere])

    def test_h43_what_the_replace_itself_writes_to_the_group_is_visible(
        self, table: Written
    ) -> None:
        table.commit(1, 2, base(1))
        self.overwrite(table, 10, 20, base(10))
        assert names(table.view()) == paths([base(10)])

    def test_h43_a_group_used_again_after_a_replace_is_visible(self, table: Written) -> None:
        table.commit(1, 2, base(1))
        self.overwrite(table, 10, 20)
        table.commit(30, 40, base(30))
        # Requested before the replace completed, but with a snapshot taken after it.
        table.commit(15, 50, log(15))
        assert names(table.view()) == paths([base(30), log(15)])
        assert table.view(as_of=25).slices() == []

    def test_h43_a_compaction_planned_before_the_replace_does_not_bring_rows_back(
        self, table: Written
    ) -> None:
        table.commit(1, 2, base(1))
        table.commit(3, 4, log(3))
        self.overwrite(table, 10, 20)
        table.commit(5, 30, base(5), action=Action.COMPACTION, operation="COMPACT")
        assert table.view().slices() == []

    def test_the_last_of_several_replaces_counts(self, table: Written) -> None:
        table.commit(1, 2, base(1))
        self.overwrite(table, 10, 20, base(10))
        self.overwrite(table, 30, 40, base(30))
        assert names(table.view()) == paths([base(30)])
        assert names(table.view(as_of=39)) == paths([base(10)])
        assert names(table.view(as_of=19)) == paths([base(1)])

    def test_clustering_is_no_write_but_an_overwrite_is(self, table: Written) -> None:
        table.commit(1, 2, base(1))
        table.commit(
            5,
            6,
            base(5, self.OTHER),
            action=Action.CLUSTERING,
            operation="CLUSTER",
            replaced=[GROUP],
        )
        self.overwrite(table, 10, 20)
        found = table.view().instants_within_open_closed(at(2))
        assert [commit.requested_time for commit in found] == [at(10)]


class TestServices:
    def test_a_pending_compaction_is_for_planners_only(self, table: Written) -> None:
        table.commit(1, 2, base(1))
        table.commit(3, 4, log(3))
        table.request(5, Action.COMPACTION, plan_of(GROUP, base(1).name, log(3).name))
        table.commit(6, 7, log(6))
        view = table.view()
        assert names(view) == paths([base(1), log(3), log(6)])
        assert view.pending_compactions == {GROUP: at(5)}
        (slices,) = view.all_slices().values()
        assert [(one.base_instant, len(one.logs)) for one in slices] == [(at(5), 1), (at(1), 1)]

    @pytest.mark.parametrize("is_archived", [False, True])
    def test_inv_51_a_log_compaction_stands_for_its_inputs(
        self, table: Written, is_archived: bool
    ) -> None:
        table.commit(1, 2, log(1))
        table.commit(3, 4, log(3))
        table.request(5, Action.LOG_COMPACTION, plan_of(GROUP, None, log(1).name, log(3).name))
        table.commit(6, 7, log(6))
        table.commit(5, 8, log(5), action=Action.LOG_COMPACTION, operation="LOG_COMPACT")
        table.commit(9, 10, base(9, FileGroupId("q", "g")))
        if is_archived:
            table.archive(1, 3, 5)
        view = table.view()
        assert names(view)[0] == paths([log(5), log(6)])[0]
        assert names(table.view(as_of=7)) == paths([log(1), log(3), log(6)])
        writes = view.instants_within_open_closed(None)
        assert [commit.requested_time for commit in writes] == list(map(at, (1, 3, 6, 9)))


class TestCompleteness:
    """Only who lists storage can tell what is not there."""

    def test_a_missing_file_is_named(self, listed: Written) -> None:
        listed.commit(1, 2, base(1), base(1, FileGroupId("q", "g")))
        listed.storage.delete(base(1).path)
        view = listed.view()
        slices = view.slices()
        with pytest.raises(CorruptTableError, match=base(1).path) as caught:
            view.check_complete(slices)
        assert caught.value.kind is ErrorKind.MISSING_DATA_FILE
        view.check_complete(view.slices(["q"]))

    def test_many_missing_files_are_counted(self, listed: Written) -> None:
        files = [base(1, FileGroupId("p", f"f{n}")) for n in range(5)]
        listed.commit(1, 2, *files)
        for file in files:
            listed.storage.delete(file.path)
        view = listed.view()
        with pytest.raises(CorruptTableError, match=r"f2_.* and 2 more"):
            view.check_complete(view.slices())

    def test_files_of_older_slices_may_be_cleaned(self, listed: Written) -> None:
        listed.commit(1, 2, base(1))
        listed.commit(3, 4, base(3), action=Action.COMMIT)
        listed.storage.delete(base(1).path)
        view = listed.view()
        view.check_complete(view.slices())
        with pytest.raises(CorruptTableError):
            view.check_complete(view.slices_before(at(4)))


class TestAsOf:
    @pytest.mark.parametrize("is_archived", [False, True])
    def test_before_the_first_commit(self, table: Written, is_archived: bool) -> None:
        table.commit(1, 20, base(1))
        table.commit(3, 40, log(3))
        if is_archived:
            table.archive(1)
        assert names(table.view(as_of=20)) == paths([base(1)])
        with pytest.raises(
            NotFoundError, match=r"orders .* first commit completed at 0+20"
        ) as caught:
            table.view(as_of=19)
        assert caught.value.kind is ErrorKind.BEFORE_FIRST_INSTANT

    def test_of_a_table_without_commits(self, table: Written) -> None:
        with pytest.raises(NotFoundError, match="no commit has completed yet") as caught:
            table.view(as_of=19)
        assert caught.value.kind is ErrorKind.BEFORE_FIRST_INSTANT
        assert (table.view().slices(), table.view().instant) == ([], None)

    def three_versions(self, table: Written) -> None:
        table.commit(10, 11, base(10), action=Action.COMMIT)
        table.commit(20, 21, base(20), action=Action.COMMIT)
        table.commit(30, 31, base(30), action=Action.COMMIT)

    def clean(self, table: Written, requested: int, *, earliest: str, last: int = 30) -> None:
        metadata = CleanMetadata(
            start_clean_time=at(requested),
            time_taken_in_millis=1,
            total_files_deleted=1,
            earliest_commit_to_retain=earliest,
            last_completed_commit_timestamp=at(last),
            partition_metadata={},
        )
        table.complete(requested, requested + 1, Action.CLEAN, metadata)

    def assert_floor(self, table: Written, floor: int) -> None:
        table.view(as_of=floor).slices()
        with pytest.raises(NotFoundError, match=f"as of .*earliest .* is {at(floor)};") as caught:
            table.view(as_of=floor - 1)
        assert caught.value.kind is ErrorKind.OUTSIDE_RETENTION

    def test_before_the_earliest_commit_to_retain(self, table: Written) -> None:
        self.three_versions(table)
        self.clean(table, 40, earliest=at(20))
        self.assert_floor(table, 20)

    def test_a_commit_from_before_that_completed_late_raises_the_floor(
        self, table: Written
    ) -> None:
        self.three_versions(table)
        table.commit(15, 25, base(15, FileGroupId("p", "g")), action=Action.COMMIT)
        self.clean(table, 40, earliest=at(20))
        self.assert_floor(table, 25)

    def test_a_clean_by_versions_keeps_what_was_newest(self, table: Written) -> None:
        self.three_versions(table)
        self.clean(table, 40, earliest="", last=20)
        self.assert_floor(table, 21)

    def test_a_pending_clean_may_have_begun(self, table: Written) -> None:
        self.three_versions(table)
        plan = CleanerPlan(
            policy="KEEP_LATEST_COMMITS",
            earliest_instant_to_retain=ActionInstant(
                timestamp=at(20), action="commit", state="COMPLETED"
            ),
            last_completed_commit_timestamp=at(30),
        )
        table.request(40, Action.CLEAN, plan)
        self.assert_floor(table, 20)

    def test_an_archived_clean_counts(self, table: Written) -> None:
        self.three_versions(table)
        self.clean(table, 40, earliest=at(20))
        table.commit(50, 51, base(50), action=Action.COMMIT)
        table.archive(10, 40)
        self.assert_floor(table, 20)

    def test_a_savepoint_keeps_its_view(self, table: Written) -> None:
        self.three_versions(table)
        self.clean(table, 40, earliest=at(30))
        savepoint = Instant(at(20), Action.SAVEPOINT, State.COMPLETED, at(35))
        table.storage.put(instant_path(LAYOUT.timeline, savepoint), b"")
        assert names(table.view(as_of=21)) == paths([base(20)])
        with pytest.raises(NotFoundError):
            table.view(as_of=20)

    def test_the_newest_view_is_never_outside_retention(self, table: Written) -> None:
        table.commit(10, 11, base(10))
        self.clean(table, 40, earliest=at(99))
        assert names(table.view(as_of=41)) == names(table.view()) == paths([base(10)])


class TestRetentionOfAnIndex:
    """An index has forgotten cleaned files, so views of before must not be made of what is left."""

    @pytest.fixture
    def cleaned(self) -> Written:
        table = Written(is_indexed=True)
        for time in (10, 20, 30):
            table.commit(time, time + 1, base(time), action=Action.COMMIT)
        metadata = CleanMetadata(
            start_clean_time=at(40),
            time_taken_in_millis=1,
            total_files_deleted=1,
            earliest_commit_to_retain=at(20),
            last_completed_commit_timestamp=at(30),
            partition_metadata={},
        )
        table.complete(40, 41, Action.CLEAN, metadata)
        table.storage.delete(base(10).path)
        return table

    def test_slices_up_to_a_time_before_retention(self, cleaned: Written) -> None:
        view = cleaned.view()
        assert [one.base_instant for one in view.slices_up_to(at(21))] == [at(20)]
        with pytest.raises(NotFoundError) as caught:
            view.slices_up_to(at(19))
        assert caught.value.kind is ErrorKind.OUTSIDE_RETENTION

    def test_slices_before_a_commit(self, cleaned: Written) -> None:
        view = cleaned.view()
        assert [one.base_instant for one in view.slices_before(at(31))] == [at(20)]
        with pytest.raises(NotFoundError) as caught:
            view.slices_before(at(20))
        assert caught.value.kind is ErrorKind.OUTSIDE_RETENTION


class TestSchema:
    WIDER = COLUMNS.append(pa.field("w", pa.int32()))

    def test_of_a_new_table(self, table: Written) -> None:
        assert table.view().schema() == COLUMNS

    def test_of_the_newest_write_that_has_one(self, table: Written) -> None:
        table.commit(1, 10, base(1), schema=COLUMNS)
        table.commit(2, 20, log(2), schema=self.WIDER)
        table.commit(3, 30, log(3))
        assert table.view().schema() == self.WIDER
        assert table.view(as_of=19).schema() == COLUMNS

    def test_a_compaction_planned_earlier_does_not_narrow_it(self, table: Written) -> None:
        table.commit(2, 20, log(2), schema=self.WIDER)
        table.commit(1, 30, base(1), action=Action.COMPACTION, operation="COMPACT", schema=COLUMNS)
        assert table.view().schema() == self.WIDER

    def test_of_archived_commits(self, table: Written) -> None:
        table.commit(1, 10, base(1), schema=COLUMNS)
        table.commit(2, 20, log(2), schema=self.WIDER)
        table.commit(3, 30, log(3))
        table.archive(1, 2)
        assert table.view().schema() == self.WIDER

    def test_unknown(self, table: Written) -> None:
        table.config = replace(table.config, create_schema=None)
        with pytest.raises(NotFoundError, match="orders") as caught:
            table.view().schema()
        assert caught.value.kind is ErrorKind.SCHEMA_NOT_FOUND


class TestCost:
    """A view costs one listing of the timeline, of the files, and one read a commit."""

    @pytest.fixture
    def counted(self, listed: Written) -> CountingStorage:
        groups = [FileGroupId(partition, "f") for partition in ("p", "q", "r")]
        for time in (10, 20, 30):
            listed.commit(time, time + 1, *(base(time, group) for group in groups))
        return CountingStorage(listed.storage)

    @pytest.mark.parametrize(("partitions", "listings"), [(None, 1), (["p"], 1), (["p", "r"], 2)])
    def test_of_a_view(
        self,
        listed: Written,
        counted: CountingStorage,
        partitions: list[str] | None,
        listings: int,
    ) -> None:
        view = load_listed_view(counted, listed.config)
        slices = view.slices(partitions)
        assert len(slices) == (3 if partitions is None else len(partitions))
        assert counted.counts == {"list_names": 1, "list_tree": listings, "read_many": 3}

    def test_of_no_partitions(self, listed: Written, counted: CountingStorage) -> None:
        assert load_listed_view(counted, listed.config).slices([]) == []
        assert counted.counts == {"list_names": 1}

    def test_a_view_loads_each_piece_once(self, listed: Written, counted: CountingStorage) -> None:
        view = load_listed_view(counted, listed.config)
        first = view.slices(["q"])
        everything = view.slices()
        counted.reset()
        assert view.slices(["q"]) == first
        assert view.slices() == everything
        assert len(view.slices_before(at(31), ["p"])) == 1
        assert view.partitions() == ["p", "q", "r"]
        assert len(view.commits) == 3
        assert counted.count("read_many", "list_tree") == 0

    def test_contents_may_be_shared_by_views(
        self, listed: Written, counted: CountingStorage
    ) -> None:
        contents = TimelineContents(counted, LAYOUT.timeline)
        load_listed_view(counted, listed.config, contents=contents).slices()
        counted.reset()
        load_listed_view(counted, listed.config, contents=contents).slices()
        assert counted.counts == {"list_names": 1, "list_tree": 1}

    def test_of_an_indexed_view(self, counted: CountingStorage, listed: Written) -> None:
        """An index tells the files, so no storage is listed and no write is read."""
        listed.commit(40, 41, action=Action.REPLACE_COMMIT, replaced=[FileGroupId("q", "f")])
        listed.request(50, Action.LOG_COMPACTION, plan_of(GROUP, None))
        listed.commit(50, 51, action=Action.LOG_COMPACTION, operation="LOG_COMPACT")
        start = load_view_start(counted, listed.config)
        index = CommittedIndex(listed.storage)
        source = IndexedFiles(
            index, start.reader, start.timeline, start.commit_instants, is_merge_on_read=True
        )
        view = TableView(listed.config, start, source)
        assert [one.group.partition for one in view.slices()] == ["p", "r"]
        assert counted.counts == {"list_names": 1, "read_many": 2}

    def test_a_partition_is_not_loaded_twice(self, table: Written) -> None:
        table.commit(1, 2, base(1), base(1, FileGroupId("q", "g")))
        table.commit(3, 4, log(3))
        table.commit(5, 6, log(5))
        table.archive(1)
        view = table.view()
        assert len(view.slices(["p", "p"])) == 1
        assert names(view) == paths([base(1), log(3), log(5)], [base(1, FileGroupId("q", "g"))])
        assert [len(one.logs) for one in view.slices(["p", "q"])] == [2, 0]

    def test_archival_during_a_view_does_no_harm(self, table: Written) -> None:
        table.commit(1, 2, base(1))
        table.commit(3, 4, log(3))
        table.commit(5, 6, log(5))
        view = table.view()
        table.archive(1, 3)
        assert names(view) == paths([base(1), log(3), log(5)])


def test_only_listed_partitions_are_shown(table: Written) -> None:
    table.commit(1, 2, base(1), base(1, FileGroupId("", "root")), base(1, FileGroupId("p/q", "g")))
    view = table.view()
    assert view.partitions() == ["", "p", "p/q"]
    found: Mapping[str, int] = {name: len(view.slices([name])) for name in ("", "p", "p/q", "nil")}
    assert found == {"": 1, "p": 1, "p/q": 1, "nil": 0}
