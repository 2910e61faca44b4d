"""Choosing the lock provider of a table from its options.

| `hoodie.write.lock.provider` | provider | works between |
|---|---|---|
| `in_process`, `...InProcessLockProvider` | `InProcessLockProvider` | threads of one process |
| `filesystem`, `...FileSystemBasedLockProvider` | `FileSystemLockProvider` | all writers |
| `storage`, `...StorageBasedLockProvider` | `StorageBasedLockProvider` | all writers |
| `zookeeper`, `...ZookeeperBasedLockProvider` | `ZookeeperLockProvider` | all writers |

On an object store it is the storage-based lock unless the options say otherwise, in every mode: it
needs nothing beside the store, and it is what Hudi has for them.

Elsewhere, with several writers, somebody has to choose, because all of them must choose the same; a
default could differ from what the others use. An in-process lock is allowed there, as in Hudi, for
several writers in one process, with a warning: nothing here can tell whether there are more
processes.

A single writer without a choice gets a lock of the table's own store: it costs little, and a second
writer started by mistake waits instead of damaging the table.
"""

from __future__ import annotations

import logging

from headwater.config.lock import LockConfig
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError
from headwater.kernel.journal.storage import JournaledStorage
from headwater.kernel.txn.locks.file_system import FileSystemLockProvider
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.kernel.txn.locks.lease import OnLost
from headwater.kernel.txn.locks.storage_based import StorageBasedLockProvider
from headwater.kernel.txn.locks.zookeeper import ZookeeperLockProvider
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids
from headwater.seams.lock import LockProvider
from headwater.seams.open_storage import is_object_store, place_of
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

PROVIDER_KEY = "hoodie.write.lock.provider"

# Hudi never lets a file lock expire unless told to. That is a wish only of those who chose the
# provider; a lock that nobody chose must not outlive a killed process for ever. Half the default
# waiting time, so that a waiter can watch a lease run out.
DEFAULT_FILE_LEASE_MS = 30_000

_HUDI_LOCKS = "org.apache.hudi.client.transaction.lock"
_NAMES = {
    f"{_HUDI_LOCKS}.InProcessLockProvider": "in_process",
    f"{_HUDI_LOCKS}.FileSystemBasedLockProvider": "filesystem",
    f"{_HUDI_LOCKS}.StorageBasedLockProvider": "storage",
    f"{_HUDI_LOCKS}.ZookeeperBasedLockProvider": "zookeeper",
}
_CHOICES = tuple(_NAMES.values())
_NOT_IMPLEMENTED = (
    f"{_HUDI_LOCKS}.ZookeeperBasedImplicitBasePathLockProvider",
    "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
    "org.apache.hudi.aws.transaction.lock.DynamoDBBasedImplicitPartitionKeyLockProvider",
    "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
)


def lock_provider_for(
    config: LockConfig,
    storage: Storage,
    clock: Clock,
    ids: Ids,
    *,
    in_process: InProcessLocks,
    on_lost: OnLost | None = None,
) -> LockProvider:
    """Return the lock provider that the options ask for.

    `in_process` holds the locks of this process; everyone in it must pass the same one.

    Raises:
        InvalidInputError: kind INVALID_OPTION; the choice is missing, unknown, or does not work on
            this storage.
        UnsupportedError: kind UNSUPPORTED_OPTION; Hudi has this provider, this release has not.
        StorageError: ZooKeeper does not answer.
    """
    name = chosen_provider(config, storage)
    if name is None and storage.can_replace:
        name = "storage"
    match name:
        case "storage":
            return StorageBasedLockProvider(
                storage,
                clock,
                ids,
                validity_ms=config.storage_validity_ms,
                renew_ms=config.storage_renew_ms,
                on_lost=on_lost,
                asks_store=storage.is_distant,
            )
        case "zookeeper":
            return _zookeeper(config, clock, ids, on_lost)
        case "in_process":
            if config.is_multi_writer:
                log.warning(
                    "the in-process lock does not exclude other processes table=%s mode=%s",
                    storage.uri,
                    config.concurrency_mode,
                )
            return InProcessLockProvider(in_process, clock, ids, table=place_of(storage.uri))
        case _:
            return FileSystemLockProvider(
                storage,
                clock,
                ids,
                folder=_folder_in(storage.uri, config.filesystem_path),
                expire_ms=config.filesystem_expire_ms or (0 if name else DEFAULT_FILE_LEASE_MS),
                on_lost=on_lost,
            )


def chosen_provider(config: LockConfig, storage: Storage) -> str | None:
    """Return the provider by its short name; None when a single writer on a disk leaves it open.

    Raises:
        InvalidInputError: kind INVALID_OPTION; the choice is missing or unknown.
        UnsupportedError: kind UNSUPPORTED_OPTION; Hudi has this provider, this release has not.
    """
    if config.provider is None:
        if is_object_store(storage.uri) or isinstance(storage, JournaledStorage):
            return "storage"  # On a fenced table it is no more than a queue.
        if config.is_multi_writer:
            raise InvalidInputError(
                f"hoodie.write.concurrency.mode {config.concurrency_mode} needs a lock that all "
                f"writers share. Set {PROVIDER_KEY} to one of {', '.join(_CHOICES)}, or to Hudi's "
                "class name of it, the same for every writer.",
                kind=ErrorKind.INVALID_OPTION,
                key=PROVIDER_KEY,
            )
        return None
    if config.provider in _NOT_IMPLEMENTED:
        raise UnsupportedError(
            f"{PROVIDER_KEY} {config.provider} is a provider of Hudi that this release does not "
            f"have. Use one of {', '.join(_CHOICES)} for every writer of the table.",
            kind=ErrorKind.UNSUPPORTED_OPTION,
            key=PROVIDER_KEY,
        )
    name = _NAMES.get(config.provider, config.provider)
    if name not in _CHOICES:
        raise InvalidInputError(
            f"{PROVIDER_KEY} is {config.provider!r}, which is no lock provider. Use one of "
            f"{', '.join(_CHOICES)}, or Hudi's class name of it.",
            kind=ErrorKind.INVALID_OPTION,
            key=PROVIDER_KEY,
        )
    return name


def _folder_in(base: str, path: str | None) -> str:
    """The lock's folder relative to the table's base, given as an address or relative to it."""
    if path is None:
        return ".hoodie"
    if "://" not in path and not path.startswith(("/", "file:")):
        return path.strip("/")
    inside = f"{_without_file_scheme(base)}/"
    given = f"{_without_file_scheme(path)}/"
    if not given.startswith(inside):
        raise InvalidInputError(
            f"hoodie.write.lock.filesystem.path {path!r} is outside the table {base}. Use a folder "
            "of the table, or leave the option out.",
            kind=ErrorKind.INVALID_OPTION,
            key="hoodie.write.lock.filesystem.path",
        )
    return given[len(inside) :].strip("/")


def _without_file_scheme(address: str) -> str:
    """A local path without the scheme, which Hadoop writes with one slash or with three."""
    if address.startswith("file:"):
        address = "/" + address.removeprefix("file:").lstrip("/")
    return address.rstrip("/")


def _zookeeper(
    config: LockConfig, clock: Clock, ids: Ids, on_lost: OnLost | None
) -> ZookeeperLockProvider:
    url, base_path, lock_key = (
        config.zookeeper_url,
        config.zookeeper_base_path,
        config.zookeeper_lock_key,
    )
    if not url or not base_path or not lock_key:
        wanted = {"url": url, "base_path": base_path, "lock_key": lock_key}
        missing = [f"hoodie.write.lock.zookeeper.{name}" for name, v in wanted.items() if not v]
        raise InvalidInputError(
            f"The ZooKeeper lock provider needs {', '.join(missing)}. Set the same values for "
            "every writer of the table.",
            kind=ErrorKind.INVALID_OPTION,
            key=missing[0],
        )
    return ZookeeperLockProvider(
        clock,
        ids,
        url=url,
        port=config.zookeeper_port,
        base_path=base_path,
        lock_key=lock_key,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        on_lost=on_lost,
    )
