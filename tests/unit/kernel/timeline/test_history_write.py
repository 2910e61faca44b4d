"""Archiving: what moves, what must stay, and what two archivers at once come to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.errors import (
    ConflictError,
    CorruptTableError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
)
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import load_active, parse_timeline
from headwater.kernel.timeline.history.archived_files import load_newest_manifest, load_pointer
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.history.rows import ArchivedContents
from headwater.kernel.timeline.history.write import (
    archive_instants,
    check_archivable,
    delete_archived,
    write_history,
)
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.storage import Storage

LAYOUT = TableLayout()
WRITES = ("put", "put_if_absent", "replace", "delete", "delete_many")
PutInstants = Callable[[Storage, Iterable[Instant]], None]


def archived_form(instants: Iterable[Instant]) -> tuple[Instant, ...]:
    return tuple(i._replace(action=i.action.completed_name) for i in instants if i.is_completed)


@pytest.fixture
def storage(
    put_instants: PutInstants, terminal: list[Instant], staying: list[Instant]
) -> MemoryStorage:
    storage = MemoryStorage()
    put_instants(storage, terminal + staying)
    return storage


def test_archived_instants_leave_the_active_timeline_with_all_their_files(
    storage: MemoryStorage, terminal: list[Instant], staying: list[Instant]
) -> None:
    archive_instants(storage, LAYOUT, terminal)
    assert load_active(storage, LAYOUT.timeline).instants == tuple(staying)
    assert len(storage.list_names(LAYOUT.timeline)) == 5
    assert HistoryTimeline(storage, LAYOUT.history).instants() == archived_form(terminal)


def test_contents_are_those_of_the_completed_and_the_requested_file(
    storage: MemoryStorage, terminal: list[Instant]
) -> None:
    archive_instants(storage, LAYOUT, terminal)
    times = [instant.requested_time for instant in terminal]
    contents = HistoryTimeline(storage, LAYOUT.history).contents(times)
    path = f"{LAYOUT.history}/{times[0]}_{times[-1]}_0.parquet"
    assert contents == {
        i.requested_time: ArchivedContents(
            f"completed of {i.requested_time}".encode(),
            f"requested of {i.requested_time}".encode(),
            path,
        )
        for i in terminal
        if i.is_completed
    }


def test_an_instant_known_from_its_completed_file_alone_has_no_plan() -> None:
    storage = MemoryStorage()
    storage.put(f"{LAYOUT.timeline}/20240101000000001_20240101000000002.commit", b"done")
    storage.put(f"{LAYOUT.timeline}/20240101000000003_20240101000000004.commit", b"done")
    oldest = load_active(storage, LAYOUT.timeline).instants[0]
    archive_instants(storage, LAYOUT, [oldest])
    (contents,) = (
        HistoryTimeline(storage, LAYOUT.history).contents([oldest.requested_time]).values()
    )
    assert (contents.metadata, contents.plan) == (b"done", b"")


def test_a_data_file_a_manifest_and_the_pointer_come_before_the_first_deletion(
    storage: MemoryStorage, terminal: list[Instant]
) -> None:
    counting = CountingStorage(storage, keep_trace=True)
    archive_instants(counting, LAYOUT, terminal[:1])
    writes = [call for call in counting.trace if call[0] in WRITES]
    time = terminal[0].requested_time
    assert writes == [
        ("put_if_absent", f"{LAYOUT.history}/{time}_{time}_0.parquet"),
        ("put_if_absent", f"{LAYOUT.history}/manifest_1"),
        ("put_if_absent", f"{LAYOUT.history}/_version_"),
        ("delete_many", f"{LAYOUT.timeline}/{time}.deltacommit.requested"),
        ("delete_many", f"{LAYOUT.timeline}/{time}.deltacommit.inflight"),
        ("delete_many", f"{LAYOUT.timeline}/{time}_{terminal[0].completion_time}.deltacommit"),
    ]


def test_all_that_was_pending_is_deleted_first_and_then_the_oldest_instant_first(
    storage: MemoryStorage, terminal: list[Instant]
) -> None:
    counting = CountingStorage(storage, keep_trace=True)
    archive_instants(counting, LAYOUT, terminal[::-1])
    calls = [path for method, path in counting.trace if method == "delete_many"]
    deleted = [path.rpartition("/")[2] for path in calls]
    assert len(deleted) == 3 * len(terminal)
    pending, ends = deleted[: 2 * len(terminal)], deleted[2 * len(terminal) :]
    assert all(name.endswith((".requested", ".inflight")) for name in pending)
    assert all("_" in name or name.endswith(".aborted") for name in ends)
    assert [name[:17] for name in ends] == sorted(name[:17] for name in ends)


def test_instants_without_files_are_deleted_in_two_requests_however_many_there_are(
    storage: MemoryStorage, terminal: list[Instant], staying: list[Instant]
) -> None:
    asked: list[list[str]] = []

    class Asked(CountingStorage):
        def delete_many(self, paths: Iterable[str]) -> None:
            asked.append([*paths])
            super().delete_many(asked[-1])

    archive_instants(Asked(storage), LAYOUT, terminal, have_files=False)
    assert [len(paths) for paths in asked] == [2 * len(terminal), len(terminal)]
    assert load_active(storage, LAYOUT.timeline).instants == tuple(staying)


def test_a_savepoint_outlives_the_instant_it_protects(
    storage: MemoryStorage, terminal: list[Instant]
) -> None:
    guard = f"{LAYOUT.timeline}/{terminal[0].requested_time}_20240101000000155.savepoint"
    storage.put(guard, b"")
    archive_instants(storage, LAYOUT, terminal)
    assert storage.read(guard) == b""


def test_archiving_nothing_does_nothing(storage: MemoryStorage) -> None:
    counting = CountingStorage(storage)
    archive_instants(counting, LAYOUT, [])
    assert counting.count() == 0


def test_aborted_instants_are_archived_by_deletion(
    storage: MemoryStorage, terminal: list[Instant]
) -> None:
    aborted = [instant for instant in terminal if instant.state is State.ABORTED]
    archive_instants(storage, LAYOUT, aborted)
    assert storage.list_names(LAYOUT.history) == []
    assert load_active(storage, LAYOUT.timeline).find(aborted[0].requested_time) is None


def test_archiving_again_changes_nothing(storage: MemoryStorage, terminal: list[Instant]) -> None:
    archive_instants(storage, LAYOUT, terminal)
    before = storage.list_tree("")
    archive_instants(storage, LAYOUT, terminal)
    assert storage.list_tree("") == before


def test_pending_instants_are_refused_and_nothing_happens(
    storage: MemoryStorage, terminal: list[Instant], staying: list[Instant]
) -> None:
    before = storage.list_tree("")
    with pytest.raises(InvalidInputError, match="is pending") as raised:
        archive_instants(storage, LAYOUT, [*terminal, staying[1]])
    assert raised.value.kind is ErrorKind.INVALID_STATE
    assert raised.value.context["instant"] == staying[1].requested_time
    # Believing that it completed does not help.
    claimed = staying[1]._replace(state=State.COMPLETED, completion_time=InstantTime("2" * 17))
    with pytest.raises(InvalidInputError, match="is pending"):
        archive_instants(storage, LAYOUT, [claimed])
    assert storage.list_tree("") == before


def test_savepoints_are_refused() -> None:
    savepoint = Instant(
        InstantTime("1" * 17), Action.SAVEPOINT, State.COMPLETED, InstantTime("2" * 17)
    )
    with pytest.raises(InvalidInputError, match="is a savepoint"):
        check_archivable(parse_timeline([]), [savepoint])


@pytest.mark.parametrize(
    ("names", "newest"),
    [
        (["20240101000000001_20240101000000009.commit", "20240101000000002.inflight"], 0),
        (["20240101000000001_20240101000000003.commit", "20240101000000005.clustering.aborted"], 1),
        (
            [
                "20240101000000001_20240101000000009.commit",
                "20240101000000002_20240101000000003.clean",
            ],
            0,
        ),
    ],
)
def test_the_instant_with_the_largest_time_stays(names: list[str], newest: int) -> None:
    timeline = parse_timeline(names)
    for index, instant in enumerate(timeline.instants):
        if index == newest:
            with pytest.raises(InvalidInputError, match="is the newest"):
                check_archivable(timeline, [instant])
        elif not instant.is_pending:
            check_archivable(timeline, [instant])


def test_a_later_savepoint_lets_the_newest_instant_go() -> None:
    timeline = parse_timeline(
        [
            "20240101000000001_20240101000000002.commit",
            "20240101000000001_20240101000000003.savepoint",
        ]
    )
    check_archivable(timeline, timeline.instants)


def test_an_instant_on_neither_timeline_is_not_found(storage: MemoryStorage) -> None:
    unknown = Instant(
        InstantTime("20230101000000000"), Action.CLEAN, State.COMPLETED, InstantTime("2" * 17)
    )
    with pytest.raises(NotFoundError) as raised:
        archive_instants(storage, LAYOUT, [unknown])
    assert raised.value.kind is ErrorKind.INSTANT_NOT_FOUND


def test_nothing_is_deleted_that_the_history_does_not_show(
    storage: MemoryStorage, terminal: list[Instant]
) -> None:
    history = write_history(storage, LAYOUT, [terminal[0]])
    before = storage.list_tree("")
    with pytest.raises(InvalidInputError, match="is not archived"):
        delete_archived(storage, LAYOUT, terminal[:2], history)
    assert storage.list_tree("") == before


def test_an_instant_that_is_not_aborted_is_not_deleted_as_such(
    storage: MemoryStorage, staying: list[Instant]
) -> None:
    claimed = staying[1]._replace(state=State.ABORTED)
    with pytest.raises(InvalidInputError, match="is not archived"):
        delete_archived(storage, LAYOUT, [claimed], HistoryTimeline(storage, LAYOUT.history))


class Candidate(MemoryStorage):
    """Lets a rival act once, right before the first write to a path that contains `trigger`."""

    def __init__(self, trigger: str) -> None:
        super().__init__()
        self.trigger = trigger
        self.act: Callable[[], None] | None = None

    def put_if_absent(self, path: str, data: bytes) -> None:
        if self.trigger in path and self.act is not None:
            act, self.act = self.act, None
            act()
        super().put_if_absent(path, data)


@pytest.mark.parametrize("trigger", [".parquet", "manifest_"])
@pytest.mark.parametrize(
    "rivals",
    [slice(0, 9), slice(0, 3), slice(3, 6), slice(6, 9), slice(0, 9, 2), slice(1, 8), slice(2, 3)],
)
def test_of_two_archivers_the_slower_starts_over(
    put_instants: PutInstants,
    terminal: list[Instant],
    staying: list[Instant],
    trigger: str,
    rivals: slice,
) -> None:
    storage = Candidate(trigger)
    put_instants(storage, terminal + staying)
    storage.act = lambda: archive_instants(storage, LAYOUT, terminal[rivals])
    archive_instants(storage, LAYOUT, terminal)
    history = HistoryTimeline(storage, LAYOUT.history)
    assert history.instants() == archived_form(terminal)
    assert load_active(storage, LAYOUT.timeline).instants == tuple(staying)
    assert load_pointer(storage, LAYOUT.history) == history.manifest.version


def test_no_instant_is_archived_twice(
    put_instants: PutInstants, terminal: list[Instant], staying: list[Instant]
) -> None:
    storage = Candidate("manifest_")
    put_instants(storage, terminal + staying)
    storage.act = lambda: archive_instants(storage, LAYOUT, terminal[:4])
    archive_instants(storage, LAYOUT, terminal)
    files = load_newest_manifest(storage, LAYOUT.history).files
    assert [(file.min_time[-1], file.max_time[-1]) for file in files] == [("0", "3"), ("5", "8")]


def test_a_data_file_of_a_dead_archiver_is_adopted(
    storage: MemoryStorage, terminal: list[Instant]
) -> None:
    # Its middle differs from what is archived now, its ends do not.
    write_history(storage, LAYOUT, [terminal[0], terminal[3], terminal[5]])
    storage.delete(f"{LAYOUT.history}/manifest_1")
    storage.delete(f"{LAYOUT.history}/_version_")
    archive_instants(storage, LAYOUT, terminal[:6])
    history = HistoryTimeline(storage, LAYOUT.history)
    assert history.instants() == archived_form(terminal[:6])
    ends = [(file.min_time[-1], file.max_time[-1]) for file in history.manifest.files]
    assert ends == [("0", "5"), ("1", "2")]


def test_a_torn_data_file_that_no_manifest_lists_is_replaced(
    storage: MemoryStorage, terminal: list[Instant]
) -> None:
    ends = f"{terminal[0].requested_time}_{terminal[-1].requested_time}"
    storage.put(f"{LAYOUT.history}/{ends}_0.parquet", b"PAR1 torn")
    archive_instants(storage, LAYOUT, terminal)
    assert HistoryTimeline(storage, LAYOUT.history).instants() == archived_form(terminal)


def test_a_data_file_that_lies_about_its_ends_is_corrupt(
    storage: MemoryStorage, terminal: list[Instant]
) -> None:
    write_history(storage, LAYOUT, [terminal[5]])
    five = terminal[5].requested_time
    data = storage.read(f"{LAYOUT.history}/{five}_{five}_0.parquet")
    zero = terminal[0].requested_time
    path = f"{LAYOUT.history}/{zero}_{zero}_0.parquet"
    storage.put(path, data)
    with pytest.raises(CorruptTableError) as raised:
        archive_instants(storage, LAYOUT, terminal[:1])
    assert raised.value.context["path"] == path


def test_a_damaged_listed_data_file_stops_archival_of_what_it_may_hold(
    storage: MemoryStorage, terminal: list[Instant]
) -> None:
    write_history(storage, LAYOUT, terminal[:1])
    (name,) = (n for n in storage.list_names(LAYOUT.history) if n.endswith(".parquet"))
    storage.put(f"{LAYOUT.history}/{name}", b"damaged")
    before = storage.list_tree("")
    with pytest.raises(CorruptTableError) as raised:
        archive_instants(storage, LAYOUT, terminal)
    assert raised.value.context["path"] == f"{LAYOUT.history}/{name}"
    assert storage.list_tree("") == before


class BusyHistory(MemoryStorage):
    """Somebody else commits every manifest first, and none of them lists our files."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        if "manifest_" in path:
            super().put_if_absent(path, b'{"files": []}')
        super().put_if_absent(path, data)


def test_an_archiver_that_always_loses_gives_up(
    put_instants: PutInstants, terminal: list[Instant], staying: list[Instant]
) -> None:
    storage = BusyHistory()
    put_instants(storage, terminal + staying)
    active = storage.list_names(LAYOUT.timeline)
    with pytest.raises(ConflictError):
        archive_instants(storage, LAYOUT, terminal)
    assert storage.list_names(LAYOUT.timeline) == active
