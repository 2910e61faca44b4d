"""Table config in storage: loading, updating, and who repairs what a crash leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.config.table import TableConfig
from headwater.errors import (
    CommitUnknownError,
    CorruptTableError,
    ErrorKind,
    FencedError,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
    Retry,
    StorageError,
    UnsupportedError,
)
from headwater.format.properties import encode_properties, parse_properties
from headwater.kernel.layout import PROPERTIES, PROPERTIES_BACKUP
from headwater.kernel.new_table import NewTable, plan_table_config
from headwater.kernel.table_config import (
    create_table_config,
    load_table_config,
    table_layout,
    update_table_config,
    update_table_config_in_lock,
)
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.seams.clock import SystemClock
from headwater.seams.ids import SystemIds
from headwater.seams.storage import StoredObject

CLOCK = ManualClock()
PARTITIONS = "hoodie.table.metadata.partitions"
INFLIGHT = "hoodie.table.metadata.partitions.inflight"
STORES = pytest.mark.parametrize("can_replace", [True, False], ids=["replace", "put"])
FATES = pytest.mark.parametrize("is_applied", [False, True], ids=["before", "after"])


class Crashed(BaseException):
    """The process died here."""


@dataclass
class Fault:
    """What happens at a write: it is applied or not, then `error` is raised."""

    is_applied: bool
    error: Callable[[], BaseException]


class FaultyStorage(MemoryStorage):
    """Objects in memory; the n-th write meets the n-th fault, counting from 1."""

    def __init__(self, *, can_replace: bool) -> None:
        super().__init__("memory://t")
        self._can_replace = can_replace
        self.faults: dict[int, Fault] = {}
        self.write_count = 0

    @property
    def can_replace(self) -> bool:
        return self._can_replace

    def put(self, path: str, data: bytes) -> None:
        self._meet(lambda: super(FaultyStorage, self).put(path, data))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._meet(lambda: super(FaultyStorage, self).put_if_absent(path, data))

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        versions: list[str] = []
        swap = super().replace
        self._meet(lambda: versions.append(swap(path, data, version=version)))
        return versions[0]

    def delete(self, path: str) -> None:
        self._meet(lambda: super(FaultyStorage, self).delete(path))

    def _meet(self, write: Callable[[], None]) -> None:
        self.write_count += 1
        fault = self.faults.get(self.write_count)
        if fault is None or fault.is_applied:
            write()
        if fault is not None:
            raise fault.error()


class LostLock:
    """A table lock whose lease ran out."""

    token = 1

    def check(self) -> None:
        raise FencedError("somebody else holds the lock", kind=ErrorKind.LOCK_LOST)

    def release(self) -> None:
        pass


class HeldForever:
    token = 1

    def check(self) -> None:
        pass

    def release(self) -> None:
        pass


def a_table(storage: MemoryStorage) -> TableConfig:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    new = NewTable(location="t", schema=schema, record_key=("id",), ordering=("ts",))
    config = plan_table_config(new, {})
    create_table_config(storage, CLOCK, SystemIds(), config)
    return config


def a_faulty_table(*, can_replace: bool) -> FaultyStorage:
    storage = FaultyStorage(can_replace=can_replace)
    a_table(storage)
    storage.write_count = 0
    return storage


def a_lock_provider() -> InProcessLockProvider:
    return InProcessLockProvider(InProcessLocks(), CLOCK, SystemIds(), table="t")


def update(storage: MemoryStorage, **changes: str | None) -> TableConfig:
    keys = {"partitions": PARTITIONS, "inflight": INFLIGHT, "vendor": "hoodie.vendor"}
    named = {keys[name]: text for name, text in changes.items()}
    return update_table_config(storage, a_lock_provider(), CLOCK, named, lock_timeout_ms=100)


def contents(storage: MemoryStorage) -> dict[str, bytes]:
    return {info.path: storage.read(info.path) for info in storage.list_tree("")}


def has_backup(storage: MemoryStorage) -> bool:
    return PROPERTIES_BACKUP in contents(storage)


@STORES
def test_an_update_sets_and_removes_keys_and_keeps_all_others(can_replace: bool) -> None:
    storage = a_faulty_table(can_replace=can_replace)
    before = load_table_config(storage, CLOCK).to_properties()
    update(storage, inflight="files", vendor="x=y")
    config = update(storage, inflight=None, partitions="files")
    assert config == load_table_config(storage, CLOCK)
    assert config.metadata_partitions == ("files",)
    assert config.to_properties() == {**before, PARTITIONS: "files", "hoodie.vendor": "x=y"}
    assert storage.read(PROPERTIES).startswith(b"#Updated at 2026-01-01T00:0")
    assert not has_backup(storage)


def test_the_checksum_is_the_last_line_so_that_any_cut_shows() -> None:
    storage = MemoryStorage()
    a_table(storage)
    whole = storage.read(PROPERTIES)
    for length in range(len(whole)):
        storage.put(PROPERTIES, whole[:length])
        with pytest.raises(CorruptTableError) as caught:
            load_table_config(storage, CLOCK)
        assert PROPERTIES in str(caught.value)


@STORES
def test_an_update_that_holds_already_writes_nothing(can_replace: bool) -> None:
    storage = a_faulty_table(can_replace=can_replace)
    update(storage, partitions="files")
    storage.write_count = 0
    assert update(storage, partitions="files", vendor=None).metadata_partitions == ("files",)
    assert storage.write_count == 0


@pytest.mark.parametrize(
    "key",
    [
        "hoodie.table.name",
        "hoodie.database.name",
        "hoodie.table.initial.version",
        "hoodie.table.checksum",
    ],
)
def test_what_identifies_a_table_never_changes(key: str) -> None:
    storage = MemoryStorage()
    a_table(storage)
    before = contents(storage)
    with pytest.raises(InvalidInputError, match=f"{key} never changes"):
        update_table_config(storage, a_lock_provider(), CLOCK, {key: "1"}, lock_timeout_ms=0)
    assert contents(storage) == before


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"hoodie.table.type": "HEAP"}, InvalidInputError),
        ({"hoodie.table.type": None}, InvalidInputError),
        ({"hoodie.table.version": "10"}, UnsupportedError),
        ({"hoodie.table.base.file.format": "ORC"}, UnsupportedError),
    ],
)
def test_an_update_that_readers_would_refuse_is_not_written(
    changes: dict[str, str | None], error: type[Exception]
) -> None:
    storage = MemoryStorage()
    a_table(storage)
    before = contents(storage)
    with pytest.raises(error):
        update_table_config(storage, a_lock_provider(), CLOCK, changes, lock_timeout_ms=0)
    assert contents(storage) == before


def test_a_table_of_version_8_is_not_updated() -> None:
    storage = MemoryStorage()
    properties = {**a_table(storage).to_properties(), "hoodie.table.version": "8"}
    storage.put(PROPERTIES, encode_properties(properties, comment="by Hudi 1.0"))
    before = contents(storage)
    with pytest.raises(UnsupportedError) as caught:
        update(storage, partitions="files")
    assert caught.value.kind is ErrorKind.UNSUPPORTED_TABLE_VERSION
    assert contents(storage) == before


def test_what_is_no_table_is_neither_loaded_nor_updated() -> None:
    storage = MemoryStorage("memory://nothing")
    storage.put(".hoodie/timeline/history/.keep", b"")
    attempts: list[Callable[[], TableConfig]] = [
        lambda: load_table_config(storage, CLOCK),
        lambda: update(storage, vendor="1"),
    ]
    for attempt in attempts:
        with pytest.raises(NotFoundError) as caught:
            attempt()
        assert caught.value.kind is ErrorKind.NOT_A_TABLE
        assert "memory://nothing" in str(caught.value)
    assert list(contents(storage)) == [".hoodie/timeline/history/.keep"]


# Crashes. Every write of an update is tried, with the process dying before and after it.


def writes_of_an_update(*, can_replace: bool) -> int:
    storage = a_faulty_table(can_replace=can_replace)
    update(storage, partitions="files")
    return storage.write_count


@FATES
@pytest.mark.parametrize(("can_replace", "write"), [(True, 1), (False, 1), (False, 2), (False, 3)])
def test_crash_table_of_an_update(can_replace: bool, write: int, is_applied: bool) -> None:
    storage = a_faulty_table(can_replace=can_replace)
    old = load_table_config(storage, CLOCK)
    storage.faults[write] = Fault(is_applied, Crashed)
    with pytest.raises(Crashed):
        update(storage, partitions="files")
    left = contents(storage)

    # A reader takes the old config or the new one, and repairs nothing.
    seen = load_table_config(storage, CLOCK)
    assert seen.to_properties() in (
        old.to_properties(),
        {**old.to_properties(), PARTITIONS: "files"},
    )
    assert contents(storage) == left

    # The next update finds what the reader saw, and leaves no trace of the crash.
    assert update(storage, vendor="1").to_properties() == {
        **seen.to_properties(),
        "hoodie.vendor": "1",
    }
    assert not has_backup(storage)


def test_an_update_makes_the_writes_the_crash_table_lists() -> None:
    assert writes_of_an_update(can_replace=True) == 1  # replace
    assert writes_of_an_update(can_replace=False) == 3  # backup, put, delete of the backup


def file_deleted(storage: MemoryStorage) -> None:
    storage.put(PROPERTIES_BACKUP, storage.read(PROPERTIES))
    storage.delete(PROPERTIES)


def file_torn(storage: MemoryStorage) -> None:
    whole = storage.read(PROPERTIES)
    storage.put(PROPERTIES_BACKUP, whole)
    storage.put(PROPERTIES, whole[: len(whole) // 2])


def file_empty(storage: MemoryStorage) -> None:
    storage.put(PROPERTIES_BACKUP, storage.read(PROPERTIES))
    storage.put(PROPERTIES, b"")


def backup_torn(storage: MemoryStorage) -> None:
    storage.put(PROPERTIES_BACKUP, storage.read(PROPERTIES)[:40])


HUDI_CRASHES = pytest.mark.parametrize("crash", [file_deleted, file_torn, file_empty, backup_torn])


@HUDI_CRASHES
@STORES
def test_what_stock_hudi_leaves_behind_is_read_and_repaired(
    can_replace: bool, crash: Callable[[MemoryStorage], None]
) -> None:
    storage = a_faulty_table(can_replace=can_replace)
    old = load_table_config(storage, CLOCK).to_properties()
    crash(storage)
    left = contents(storage)
    assert load_table_config(storage, CLOCK).to_properties() == old
    assert contents(storage) == left
    assert update(storage, vendor="1").to_properties() == {**old, "hoodie.vendor": "1"}
    assert parse_properties(storage.read(PROPERTIES), path="")["hoodie.vendor"] == "1"
    assert not has_backup(storage)


@HUDI_CRASHES
@FATES
@pytest.mark.parametrize("write", [1, 2, 3])
@STORES
def test_dying_in_the_repair_is_repaired_too(
    can_replace: bool, write: int, is_applied: bool, crash: Callable[[MemoryStorage], None]
) -> None:
    storage = a_faulty_table(can_replace=can_replace)
    old = load_table_config(storage, CLOCK).to_properties()
    crash(storage)
    storage.write_count = 0
    storage.faults[write] = Fault(is_applied, Crashed)

    def update_until_it_dies() -> None:
        for _ in range(write):
            update(storage, partitions="files")
            update(storage, partitions=None)

    with pytest.raises(Crashed):
        update_until_it_dies()
    seen = load_table_config(storage, CLOCK).to_properties()
    assert seen in (old, {**old, PARTITIONS: "files"})
    assert update(storage, vendor="1").to_properties() == {**seen, "hoodie.vendor": "1"}
    assert not has_backup(storage)


def test_two_damaged_files_are_left_for_people() -> None:
    storage = MemoryStorage()
    a_table(storage)
    file_torn(storage)
    storage.put(PROPERTIES_BACKUP, b"\x00")
    before = contents(storage)
    attempts: list[Callable[[], TableConfig]] = [
        lambda: load_table_config(storage, CLOCK),
        lambda: update(storage, vendor="1"),
    ]
    for attempt in attempts:
        with pytest.raises(CorruptTableError) as caught:
            attempt()
        # The file is what people know; its backup is a detail.
        assert str(caught.value.context["path"]).endswith(PROPERTIES)
    assert contents(storage) == before


# Lost replies. Every write is tried, applied or not, once or twice in a row.


@FATES
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("write", [1, 2, 3])
@STORES
def test_a_lost_reply_is_read_back(
    can_replace: bool, write: int, times: int, is_applied: bool
) -> None:
    storage = a_faulty_table(can_replace=can_replace)
    old = load_table_config(storage, CLOCK).to_properties()
    for number in range(write, write + times):
        storage.faults[number] = Fault(is_applied, lambda: StorageError("no answer"))
    assert update(storage, partitions="files").metadata_partitions == ("files",)
    assert load_table_config(storage, CLOCK).to_properties() == {**old, PARTITIONS: "files"}
    update(storage, vendor="1")
    assert not has_backup(storage)


@STORES
def test_an_outcome_that_stays_unknown_is_called_unknown(can_replace: bool) -> None:
    storage = a_faulty_table(can_replace=can_replace)
    before = storage.read(PROPERTIES)
    first = 1 if can_replace else 2  # The file itself; before it comes its backup.
    for number in range(first, 50):
        storage.faults[number] = Fault(False, lambda: StorageError("no answer"))
    with pytest.raises(CommitUnknownError, match="Load the config") as caught:
        update(storage, partitions="files")
    assert PARTITIONS in str(caught.value)
    assert storage.read(PROPERTIES) == before


class SilentReads(MemoryStorage):
    """Storage that stops answering some reads of the file."""

    def __init__(self, silent: range) -> None:
        super().__init__()
        self.silent = silent
        self.read_count = 0

    def read_versioned(self, path: str) -> StoredObject:
        self.read_count += 1
        if self.read_count in self.silent:
            raise StorageError("no answer")
        return super().read_versioned(path)


def test_an_update_that_cannot_be_read_back_yet_is_read_back_later() -> None:
    storage = SilentReads(range(2, 5))
    a_table(storage)
    assert update(storage, partitions="files").metadata_partitions == ("files",)


def test_an_update_that_cannot_be_read_back_is_unknown_not_failed() -> None:
    storage = SilentReads(range(2, 50))
    a_table(storage)
    with pytest.raises(CommitUnknownError):
        update(storage, partitions="files")


def test_a_read_that_fails_before_any_write_is_plainly_a_failure() -> None:
    storage = SilentReads(range(1, 2))
    a_table(storage)
    before = contents(storage)
    with pytest.raises(StorageError, match="no answer"):
        update(storage, partitions="files")
    assert contents(storage) == before


def test_a_write_that_is_denied_fails_at_once() -> None:
    storage = a_faulty_table(can_replace=True)
    storage.faults[1] = Fault(
        False, lambda: StorageError("no", kind=ErrorKind.STORAGE_DENIED, retry=Retry.NEVER)
    )
    before = contents(storage)
    with pytest.raises(StorageError) as caught:
        update(storage, partitions="files")
    assert caught.value.kind is ErrorKind.STORAGE_DENIED
    assert contents(storage) == before


# Concurrency.


@STORES
def test_inv_79_concurrent_updates_of_different_keys_all_survive(can_replace: bool) -> None:
    storage = a_faulty_table(can_replace=can_replace)
    clock, locks = SystemClock(), InProcessLocks()
    failures: list[HeadwaterError] = []

    def run(worker: int) -> None:
        provider = InProcessLockProvider(locks, clock, SystemIds(), table="t")
        try:
            for step in range(5):
                changes = {
                    f"hoodie.vendor.{worker}.{step}": "1",
                    f"hoodie.last.{worker}": str(step),
                }
                update_table_config(storage, provider, clock, changes, lock_timeout_ms=60_000)
        except HeadwaterError as error:
            failures.append(error)

    workers = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    raw = load_table_config(storage, clock).raw
    assert {f"hoodie.vendor.{w}.{s}" for w in range(4) for s in range(5)} <= set(raw)
    assert [raw[f"hoodie.last.{w}"] for w in range(4)] == ["4"] * 4


def test_inv_79_holds_without_the_lock_where_the_store_compares_and_swaps() -> None:
    """A1 is broken: a rival updates between our read and our write."""
    storage = a_faulty_table(can_replace=True)

    class RivalAtCheck(HeldForever):
        rivals = 2

        def check(self) -> None:
            if self.rivals:
                self.rivals -= 1
                changes = {f"hoodie.rival.{self.rivals}": "1"}
                update_table_config_in_lock(storage, HeldForever(), CLOCK, changes)

    config = update_table_config_in_lock(storage, RivalAtCheck(), CLOCK, {"hoodie.vendor": "1"})
    assert {"hoodie.rival.0", "hoodie.rival.1", "hoodie.vendor"} <= set(config.raw)


@pytest.mark.parametrize("crash", [None, file_deleted, file_torn, backup_torn])
@STORES
def test_who_lost_the_lock_writes_nothing(
    can_replace: bool, crash: Callable[[MemoryStorage], None] | None
) -> None:
    storage = a_faulty_table(can_replace=can_replace)
    if crash is not None:
        crash(storage)
    before = contents(storage)
    with pytest.raises(FencedError):
        update_table_config_in_lock(storage, LostLock(), CLOCK, {PARTITIONS: "files"})
    assert contents(storage) == before


def test_the_lock_is_free_again_after_success_and_failure() -> None:
    storage = MemoryStorage()
    a_table(storage)
    provider = a_lock_provider()
    update_table_config(storage, provider, CLOCK, {PARTITIONS: "files"}, lock_timeout_ms=0)
    assert provider.inspect() is None
    with pytest.raises(InvalidInputError):
        update_table_config(
            storage, provider, CLOCK, {"hoodie.table.type": "HEAP"}, lock_timeout_ms=0
        )
    assert provider.inspect() is None


class UpdatedMeanwhile(MemoryStorage):
    """Stock Hudi finishes an update between a reader's look at the file and at the backup."""

    def read(self, path: str) -> bytes:
        if path == PROPERTIES_BACKUP:
            whole = super().read(path)
            self.delete(path)
            self.put(PROPERTIES, whole)
        return super().read(path)


def test_a_reader_that_misses_both_files_looks_again() -> None:
    storage = UpdatedMeanwhile()
    config = a_table(storage)
    file_deleted(storage)
    assert load_table_config(storage, CLOCK) == config


class TornAtFirst(MemoryStorage):
    """Another engine is writing the file while we read it."""

    read_count = 0

    def read(self, path: str) -> bytes:
        self.read_count += 1
        whole = super().read(path)
        return whole if self.read_count > 3 else whole[:-20]


def test_a_file_that_is_just_being_written_is_read_again() -> None:
    storage = TornAtFirst()
    config = a_table(storage)
    assert load_table_config(storage, ManualClock()) == config
    assert storage.read_count > 3


def test_loading_reads_one_object_and_updating_little_more() -> None:
    storage = CountingStorage(MemoryStorage())
    a_table_in = NewTable(location="t", schema=pa.schema([("id", pa.string())]))
    create_table_config(storage, CLOCK, SystemIds(), plan_table_config(a_table_in, {}))
    storage.reset()
    load_table_config(storage, CLOCK)
    assert storage.counts == {"read": 1}
    storage.reset()
    update_table_config_in_lock(storage, HeldForever(), CLOCK, {PARTITIONS: "files"})
    assert storage.counts == {"list_names": 1, "read_versioned": 2, "replace": 1}


def test_the_layout_follows_the_config() -> None:
    config = a_table(MemoryStorage())
    layout = table_layout(config)
    assert (layout.timeline, layout.history) == (".hoodie/timeline", ".hoodie/timeline/history")
    assert layout.is_utc
