"""Which provider the options lead to."""

from __future__ import annotations

import logging

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.config.lock import LockConfig
from headwater.config.write import ConcurrencyMode
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError
from headwater.kernel.txn.locks.file_system import FileSystemLockProvider
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.kernel.txn.locks.select import DEFAULT_FILE_LEASE_MS, lock_provider_for
from headwater.kernel.txn.locks.storage_based import StorageBasedLockProvider
from headwater.seams.ids import SystemIds
from headwater.seams.lock import LockProvider

HUDI = "org.apache.hudi.client.transaction.lock"
MULTI_WRITER = [mode for mode in ConcurrencyMode if mode.is_multi_writer]


class MemoryWithoutReplace(MemoryStorage):
    @property
    def can_replace(self) -> bool:
        return False


def select(config: LockConfig, storage: MemoryStorage | None = None) -> LockProvider:
    return lock_provider_for(
        config,
        storage or MemoryStorage("s3://bucket/t"),
        ManualClock(),
        SystemIds(),
        in_process=InProcessLocks(),
    )


def test_a_single_writer_gets_the_storage_lock_where_the_store_can_replace() -> None:
    assert isinstance(select(LockConfig()), StorageBasedLockProvider)


def test_a_single_writer_gets_a_file_lock_that_expires_elsewhere() -> None:
    provider = select(LockConfig(), MemoryWithoutReplace())
    assert isinstance(provider, FileSystemLockProvider)
    assert provider.expire_ms == DEFAULT_FILE_LEASE_MS
    assert LockConfig().acquire_timeout_ms > DEFAULT_FILE_LEASE_MS


@pytest.mark.parametrize("mode", MULTI_WRITER)
def test_several_writers_on_an_object_store_have_its_lock(mode: ConcurrencyMode) -> None:
    provider = select(LockConfig(concurrency_mode=mode), MemoryStorage("s3://bucket/t"))
    assert isinstance(provider, StorageBasedLockProvider)


@pytest.mark.parametrize("mode", MULTI_WRITER)
def test_several_writers_elsewhere_must_choose(mode: ConcurrencyMode) -> None:
    with pytest.raises(InvalidInputError) as refused:
        select(LockConfig(concurrency_mode=mode), MemoryStorage("/tables/t"))
    assert refused.value.kind is ErrorKind.INVALID_OPTION
    message = str(refused.value)
    assert "hoodie.write.lock.provider" in message
    for choice in ("in_process", "filesystem", "storage", "zookeeper"):
        assert choice in message


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("in_process", InProcessLockProvider),
        (f"{HUDI}.InProcessLockProvider", InProcessLockProvider),
        ("filesystem", FileSystemLockProvider),
        (f"{HUDI}.FileSystemBasedLockProvider", FileSystemLockProvider),
        ("storage", StorageBasedLockProvider),
        (f"{HUDI}.StorageBasedLockProvider", StorageBasedLockProvider),
    ],
)
@pytest.mark.parametrize("mode", ConcurrencyMode)
def test_a_chosen_provider_is_used(
    name: str, provider: type[LockProvider], mode: ConcurrencyMode
) -> None:
    assert isinstance(select(LockConfig(provider=name, concurrency_mode=mode)), provider)


def test_a_chosen_file_lock_expires_as_the_option_says() -> None:
    never = select(LockConfig(provider="filesystem"))
    later = select(LockConfig(provider="filesystem", filesystem_expire_ms=120_000))
    assert isinstance(never, FileSystemLockProvider)
    assert isinstance(later, FileSystemLockProvider)
    assert (never.expire_ms, later.expire_ms) == (0, 120_000)


def test_the_storage_lock_takes_its_intervals_from_the_options() -> None:
    provider = select(LockConfig(storage_validity_ms=60_000, storage_renew_ms=5_000))
    assert isinstance(provider, StorageBasedLockProvider)
    assert (provider.validity_ms, provider.renew_ms) == (60_000, 5_000)


def test_the_storage_lock_is_refused_where_the_store_cannot_replace() -> None:
    with pytest.raises(InvalidInputError) as refused:
        select(LockConfig(provider="storage"), MemoryWithoutReplace())
    assert refused.value.kind is ErrorKind.INVALID_OPTION
    assert "filesystem or zookeeper" in str(refused.value)


def test_an_in_process_lock_for_several_writers_is_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        select(LockConfig(provider="in_process"))
        assert caplog.text == ""
        select(LockConfig(provider="in_process", concurrency_mode=MULTI_WRITER[0]))
    assert "does not exclude other processes" in caplog.text


def test_in_process_locks_of_one_table_are_shared_and_of_two_are_not() -> None:
    locks = InProcessLocks()

    def provider(uri: str) -> LockProvider:
        return lock_provider_for(
            LockConfig(provider="in_process"),
            MemoryStorage(uri),
            ManualClock(),
            SystemIds(),
            in_process=locks,
        )

    held = provider("memory://a").acquire(timeout_ms=0)
    assert provider("memory://a").inspect() is not None
    assert provider("memory://b").inspect() is None
    held.release()


def test_an_unknown_provider_is_refused_with_the_choices() -> None:
    with pytest.raises(InvalidInputError, match="in_process, filesystem, storage, zookeeper"):
        select(LockConfig(provider="org.example.MyLock"))


def test_a_provider_that_only_hudi_has_is_unsupported() -> None:
    name = "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider"
    with pytest.raises(UnsupportedError) as refused:
        select(LockConfig(provider=name))
    assert refused.value.kind is ErrorKind.UNSUPPORTED_OPTION


def test_zookeeper_names_the_options_it_misses() -> None:
    config = LockConfig(provider=f"{HUDI}.ZookeeperBasedLockProvider", zookeeper_base_path="/hudi")
    with pytest.raises(InvalidInputError) as refused:
        select(config)
    message = str(refused.value)
    assert "hoodie.write.lock.zookeeper.url, hoodie.write.lock.zookeeper.lock_key" in message
    assert "base_path" not in message


@pytest.mark.parametrize(
    ("base", "path", "lock"),
    [
        ("s3://bucket/t", None, ".hoodie/lock"),
        ("s3://bucket/t", "s3://bucket/t/.hoodie/.aux", ".hoodie/.aux/lock"),
        ("s3://bucket/t", "s3://bucket/t/", "lock"),
        ("s3://bucket/t", "my/locks/", "my/locks/lock"),
        ("/data/t", "/data/t/locks", "locks/lock"),
        ("/data/t", "file:///data/t/locks", "locks/lock"),
        ("/data/t", "file:/data/t/locks", "locks/lock"),
        ("file:///data/t/", "/data/t/locks", "locks/lock"),
    ],
)
def test_the_folder_of_the_file_lock(base: str, path: str | None, lock: str) -> None:
    config = LockConfig(provider="filesystem", filesystem_path=path)
    provider = select(config, MemoryStorage(base))
    assert isinstance(provider, FileSystemLockProvider)
    assert provider.path_of("table") == lock


@pytest.mark.parametrize("path", ["/elsewhere", "s3://bucket/t2/.hoodie", "s3://bucket", "file:/x"])
def test_a_folder_outside_the_table_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError, match="outside the table"):
        select(LockConfig(provider="filesystem", filesystem_path=path))
