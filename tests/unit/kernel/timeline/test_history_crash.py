"""INV-35 and INV-36 in every state: a crash after every write, and rivals at every call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count

import greenlet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.completion_times import load_completion_times
from tests.support.memory_storage import MemoryStorage

from headwater.errors import ConflictError, NotFoundError
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import instant_path, load_active
from headwater.kernel.timeline.history.archived_files import (
    load_pointer,
    manifest_path,
    manifest_versions,
    parse_manifest,
)
from headwater.kernel.timeline.history.compact import compact_history
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.history.rows import INSTANT_COLUMNS, decode_instants, decode_table
from headwater.kernel.timeline.history.write import archive_instants
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.storage import ObjectInfo, Storage

LAYOUT = TableLayout()
PutInstants = Callable[[Storage, Iterable[Instant]], None]


def time(number: int) -> InstantTime:
    return InstantTime(f"202401010000{number:05d}")


def commits(count: int) -> list[Instant]:
    return [
        Instant(time(number), Action.DELTA_COMMIT, State.COMPLETED, time(500 + number))
        for number in range(count)
    ]


def check_every_instant_is_readable(storage: MemoryStorage, instants: Sequence[Instant]) -> None:
    """INV-35: on the active or the archived timeline, with its contents."""
    completion_times = load_completion_times(storage, LAYOUT)
    active = load_active(storage, LAYOUT.timeline)
    history = HistoryTimeline(storage, LAYOUT.history)
    history.instants()
    for instant in instants:
        requested_time = instant.requested_time
        assert completion_times.find(requested_time) == instant.completion_time
        if not instant.is_completed:
            continue
        if active.find(requested_time) is not None:
            metadata = storage.read(instant_path(LAYOUT.timeline, instant))
        else:
            contents = history.contents([requested_time])[requested_time]
            assert contents.plan == f"requested of {requested_time}".encode()
            metadata = contents.metadata
        assert metadata == f"completed of {requested_time}".encode()


def check_no_terminal_instant_looks_pending(
    storage: MemoryStorage, instants: Sequence[Instant]
) -> None:
    """INV-36, first half."""
    ended = {instant.requested_time for instant in instants if not instant.is_pending}
    pending = {i.requested_time for i in load_active(storage, LAYOUT.timeline).pending}
    assert not ended & pending


def check_no_hole_opens(storage: MemoryStorage, instants: Sequence[Instant]) -> None:
    """INV-36, second half: what is left of the chosen instants is their newest part."""
    active = load_active(storage, LAYOUT.timeline)
    left = [active.find(instant.requested_time) is not None for instant in sorted(instants)]
    assert left == sorted(left)


def check_stock_hudi_finds_every_instant(
    storage: MemoryStorage, instants: Sequence[Instant]
) -> None:
    """Stock Hudi believes the pointer; without one it takes the largest manifest."""
    active = load_active(storage, LAYOUT.timeline)
    version = load_pointer(storage, LAYOUT.history)
    if version is None:
        versions = manifest_versions(storage.list_names(LAYOUT.history))
        version = max(versions, default=None)
    archived: set[InstantTime] = set()
    if version is not None:
        path = manifest_path(LAYOUT.history, version)
        for file in parse_manifest(storage.read(path), path):
            data = storage.read(f"{LAYOUT.history}/{file.name}")
            assert len(data) == file.size_bytes
            table = decode_table(data, file.name, INSTANT_COLUMNS)
            archived |= {i.requested_time for i in decode_instants(table, file.name)}
    for instant in instants:
        if instant.is_completed and active.find(instant.requested_time) is None:
            assert instant.requested_time in archived


def check_all(storage: MemoryStorage, instants: Sequence[Instant]) -> None:
    check_every_instant_is_readable(storage, instants)
    check_no_terminal_instant_looks_pending(storage, instants)
    check_stock_hudi_finds_every_instant(storage, instants)


class Crashed(BaseException):
    """The process is gone."""


class CrashingStorage(MemoryStorage):
    """Dies right after a number of writes."""

    writes_left: int | None = None

    def copy(self) -> CrashingStorage:
        again = CrashingStorage()
        for info in self.list_tree(""):
            again.put(info.path, self.read(info.path))
        return again

    def put(self, path: str, data: bytes) -> None:
        super().put(path, data)
        self._count_down()

    def put_if_absent(self, path: str, data: bytes) -> None:
        super().put_if_absent(path, data)
        self._count_down()

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        replaced = super().replace(path, data, version=version)
        self._count_down()
        return replaced

    def delete(self, path: str) -> None:
        super().delete(path)
        self._count_down()

    def _count_down(self) -> None:
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left == 0:
                self.writes_left = None
                raise Crashed


def crash_after(storage: CrashingStorage, writes: int, run: Callable[[], object]) -> bool:
    """Run until `writes` writes have landed; return whether there were that many."""
    storage.writes_left = writes
    try:
        run()
    except Crashed:
        return True
    finally:
        storage.writes_left = None
    return False


def test_archival_keeps_every_instant_after_every_write(
    put_instants: PutInstants, terminal: list[Instant], staying: list[Instant]
) -> None:
    everything = terminal + staying
    writes = 0
    crashed = True
    while crashed:
        writes += 1
        storage = CrashingStorage()
        put_instants(storage, everything)
        archive = partial(archive_instants, storage, LAYOUT, terminal)
        crashed = crash_after(storage, writes, archive)
        check_all(storage, everything)
        check_no_hole_opens(storage, terminal)
        archive()
        check_all(storage, everything)
        assert load_active(storage, LAYOUT.timeline).instants == tuple(staying)
        history = HistoryTimeline(storage, LAYOUT.history)
        assert len(history.manifest.files) == 1
        assert load_pointer(storage, LAYOUT.history) == history.manifest.version == 1
    assert writes == 3 + 3 * len(terminal) + 1


def test_two_crashes_in_a_row_are_repaired_too(
    put_instants: PutInstants, terminal: list[Instant], staying: list[Instant]
) -> None:
    everything = terminal + staying
    for first in range(1, 6):
        for second in range(1, 6):
            storage = CrashingStorage()
            put_instants(storage, everything)
            archive = partial(archive_instants, storage, LAYOUT, terminal)
            # The first archiver chose fewer instants, with the same ends.
            crash_after(storage, first, partial(archive_instants, storage, LAYOUT, terminal[::8]))
            check_all(storage, everything)
            crash_after(storage, second, archive)
            check_all(storage, everything)
            archive()
            check_all(storage, everything)
            assert load_active(storage, LAYOUT.timeline).instants == tuple(staying)


def archived_one_by_one(
    put_instants: PutInstants, instants: Sequence[Instant], storage: MemoryStorage
) -> None:
    put_instants(storage, instants)
    for instant in instants[:-1]:
        archive_instants(storage, LAYOUT, [instant])


def test_compaction_keeps_every_instant_after_every_write(put_instants: PutInstants) -> None:
    instants = commits(9)
    archived = CrashingStorage()
    archived_one_by_one(put_instants, instants, archived)
    writes = 0
    crashed = True
    while crashed:
        writes += 1
        storage = archived.copy()
        compact = partial(compact_history, storage, LAYOUT.history, batch_size=2)
        crashed = crash_after(storage, writes, compact)
        check_all(storage, instants)
        compact()
        check_all(storage, instants)
        levels = [f.level for f in HistoryTimeline(storage, LAYOUT.history).manifest.files]
        assert levels == [3]
        # The next archival tidies up what is left of the pointer.
        put_instants(storage, [*instants, *commits(11)[9:]])
        archive_instants(storage, LAYOUT, commits(11)[8:10])
        check_all(storage, commits(11))
        assert (
            load_pointer(storage, LAYOUT.history)
            == HistoryTimeline(storage, LAYOUT.history).manifest.version
        )
    assert writes > 20


class InterruptedStorage(MemoryStorage):
    """Calls `interrupt` before the call number `interrupt_at` of whoever is not the interrupt."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.interrupt_at: int | None = None
        self.interrupt: Callable[[], None] | None = None

    def _enter(self, method: str, path: str) -> None:
        self.calls += 1
        if self.calls == self.interrupt_at and self.interrupt is not None:
            interrupt, self.interrupt = self.interrupt, None
            interrupt()

    def _read_or_none(self, path: str) -> bytes | None:
        self._enter("read", path)
        return super()._read_or_none(path)

    def info(self, path: str) -> ObjectInfo:
        self._enter("info", path)
        return super().info(path)

    def list_names(self, folder: str, after: str = "") -> list[str]:
        self._enter("list_names", folder)
        return super().list_names(folder, after)

    def put(self, path: str, data: bytes) -> None:
        self._enter("put", path)
        super().put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._enter("put_if_absent", path)
        super().put_if_absent(path, data)

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        self._enter("replace", path)
        return super().replace(path, data, version=version)

    def delete(self, path: str) -> None:
        self._enter("delete", path)
        super().delete(path)


def archive_and_compact(storage: Storage, instants: Sequence[Instant], step: int) -> None:
    """Archive a few at a time and compact after each, so that manifests are cleaned often."""
    for start in range(0, len(instants), step):
        archive_instants(storage, LAYOUT, instants[start : start + step])
        compact_history(storage, LAYOUT.history, batch_size=2)


def tolerant(run: Callable[[], object]) -> None:
    """Run, and run again if cleaning was faster: a typed error that says so is a right answer."""
    for _ in range(3):
        try:
            run()
            return
        except (ConflictError, NotFoundError):
            continue
    run()


EVERY = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
"""Which calls are tried, one by one in the long suites."""


@pytest.mark.parametrize(
    ("stalled", "rival"),
    [
        (slice(0, 5), slice(2, 8)),
        pytest.param(slice(0, 8), slice(0, 8), marks=pytest.mark.long),
        pytest.param(slice(0, 8), slice(0, 8, 7), marks=pytest.mark.long),
        pytest.param(slice(3, 4), slice(0, 8), marks=pytest.mark.long),
    ],
)
@EVERY
def test_an_archiver_that_stalls_at_any_call_loses_nothing(
    put_instants: PutInstants, stalled: slice, rival: slice, every: int
) -> None:
    instants = commits(9)
    for interrupt_at in count(1, every):
        storage = InterruptedStorage()
        put_instants(storage, instants)
        storage.calls = 0
        storage.interrupt_at = interrupt_at
        storage.interrupt = partial(archive_and_compact, storage, instants[rival], 1)
        tolerant(partial(archive_instants, storage, LAYOUT, instants[stalled]))
        is_over, storage.interrupt = storage.interrupt is not None, None
        check_all(storage, instants)
        if is_over:
            break
    assert interrupt_at > 10


@EVERY
def test_a_compaction_that_stalls_at_any_call_loses_nothing(
    put_instants: PutInstants, every: int
) -> None:
    instants = commits(9)
    for interrupt_at in count(1, every):
        storage = InterruptedStorage()
        archived_one_by_one(put_instants, instants[:5], storage)
        put_instants(storage, instants[5:])
        storage.calls = 0
        storage.interrupt_at = interrupt_at
        storage.interrupt = partial(archive_and_compact, storage, instants[4:8], 2)
        tolerant(partial(compact_history, storage, LAYOUT.history, batch_size=2))
        is_over, storage.interrupt = storage.interrupt is not None, None
        check_all(storage, instants)
        if is_over:
            break
    assert interrupt_at > 30


class SharedStorage(InterruptedStorage):
    """Hands over to the scheduler before every call of a greenlet, telling which call it is."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = greenlet.getcurrent()

    def _enter(self, method: str, path: str) -> None:
        if greenlet.getcurrent() is not self.scheduler:
            self.scheduler.switch((method, path.rpartition("/")[2]))


def run_until(process: greenlet.greenlet, call: tuple[str, str] | None, times: int = 1) -> None:
    """Run a process until it is about to make a call for the n-th time, or to its end."""
    while not process.dead:
        if process.switch() == call:
            times -= 1
            if times == 0:
                return


def test_a_plan_that_is_deleted_while_it_is_read_is_not_taken_for_absent(
    put_instants: PutInstants,
) -> None:
    instants = commits(4)
    storage = SharedStorage()
    put_instants(storage, instants)
    reader = greenlet.greenlet(partial(archive_instants, storage, LAYOUT, instants[:3]))
    rival = greenlet.greenlet(partial(archive_instants, storage, LAYOUT, instants[1:2]))
    run_until(reader, ("read", f"{time(1)}.deltacommit.requested"))
    run_until(rival, ("delete", f"{time(1)}.deltacommit.inflight"))
    # Had the reader written a row without plan, it would find it again under the same ends.
    run_until(reader, None)
    run_until(rival, None)
    check_all(storage, instants)
    assert load_active(storage, LAYOUT.timeline).instants == tuple(instants[3:])


def test_cleaning_spares_a_data_file_that_its_writer_is_about_to_list(
    put_instants: PutInstants,
) -> None:
    instants = commits(4)
    storage = SharedStorage()
    archived_one_by_one(put_instants, instants[:3], storage)
    put_instants(storage, instants[3:])
    archiver = greenlet.greenlet(partial(archive_instants, storage, LAYOUT, instants[2:3]))
    compaction = greenlet.greenlet(partial(compact_history, storage, LAYOUT.history, batch_size=2))
    run_until(archiver, ("put_if_absent", "manifest_3"))
    # The compaction commits this manifest first, so the archiver starts over and finds its file.
    run_until(compaction, ("delete", f"{time(2)}_{time(2)}_0.parquet"))
    run_until(archiver, None)
    run_until(compaction, None)
    check_all(storage, instants)
    assert load_active(storage, LAYOUT.timeline).instants == tuple(instants[3:])


def test_cleaning_spares_a_merged_file_that_its_writer_is_about_to_list(
    put_instants: PutInstants,
) -> None:
    instants = commits(5)
    storage = SharedStorage()
    archived_one_by_one(put_instants, instants[:3], storage)
    put_instants(storage, instants[3:])
    cleaning = greenlet.greenlet(partial(compact_history, storage, LAYOUT.history, batch_size=2))
    run_until(cleaning, ("put_if_absent", "manifest_3"))
    # It lists the folder once more to find no level full, and is stopped before it cleans.
    run_until(cleaning, ("list_names", "history"), times=2)
    for instant in instants[2:4]:
        archive_instants(storage, LAYOUT, [instant])
    merging = greenlet.greenlet(partial(compact_history, storage, LAYOUT.history, batch_size=2))
    run_until(merging, ("put_if_absent", "manifest_6"))
    assert f"{time(2)}_{time(3)}_1.parquet" in storage.list_names(LAYOUT.history)
    run_until(cleaning, None)
    run_until(merging, None)
    check_all(storage, instants)
    assert len(HistoryTimeline(storage, LAYOUT.history).manifest.files) == 1


@settings(deadline=None, max_examples=settings().max_examples // 25)
@given(data=st.data())
def test_archivers_and_compactions_may_interleave_in_any_way(data: st.DataObject) -> None:
    instants = commits(9)
    storage = SharedStorage()
    for instant in instants:
        for state in State:
            if state is not State.ABORTED:
                content = f"{state} of {instant.requested_time}".encode()
                storage.put(instant_path(LAYOUT.timeline, instant, state), content)
    runs: list[Callable[[], object]] = [
        partial(archive_and_compact, storage, instants[:8], data.draw(st.integers(1, 4))),
        partial(archive_and_compact, storage, instants[: data.draw(st.integers(1, 8))], 3),
        partial(archive_instants, storage, LAYOUT, data.draw(st.permutations(instants[:8]))[:3]),
        partial(compact_history, storage, LAYOUT.history, batch_size=2),
    ]
    processes = [greenlet.greenlet(partial(tolerant, run)) for run in runs]
    while processes:
        # Sticking to a process for a while reaches deeper states than switching at every call.
        process = data.draw(st.sampled_from(processes))
        for _ in range(data.draw(st.integers(1, 30))):
            process.switch()
            if process.dead:
                processes.remove(process)
                break
        check_every_instant_is_readable(storage, instants)
        check_no_terminal_instant_looks_pending(storage, instants)
    archive_instants(storage, LAYOUT, instants[:8])
    check_all(storage, instants)
