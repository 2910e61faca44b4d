"""The options of the lock providers, and the config they add up to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.config.lock import LockConfig
from headwater.config.option import (
    Option,
    OptionReader,
    integer,
    milliseconds,
    minutes,
    seconds,
)
from headwater.config.write import CONCURRENCY_MODE

_DEFAULT = LockConfig()
_RENEWALS_PER_VALIDITY = 10
"""Hudi demands this of a storage lock: a holder that misses a few renewals keeps its lock."""

PROVIDER = Option(
    "hoodie.write.lock.provider",
    str,
    default=None,
    doc="Lock provider: `in_process`, `filesystem`, `storage`, `zookeeper`, or Hudi's Java class "
    "name of one of them. Several writers must name one.",
)
WAIT_TIME = Option(
    "hoodie.write.lock.wait_time_ms",
    milliseconds(minimum=0),
    default=_DEFAULT.acquire_timeout_ms,
    doc="How long one attempt to take the table lock waits.",
)
FILESYSTEM_PATH = Option(
    "hoodie.write.lock.filesystem.path",
    str,
    default=None,
    doc="Folder of the file system lock. Default: `.hoodie` of the table.",
)
FILESYSTEM_EXPIRE = Option(
    "hoodie.write.lock.filesystem.expire",
    minutes(minimum=0),
    default=_DEFAULT.filesystem_expire_ms,
    doc="Minutes after which others may take over a file system lock; 0 is never.",
)
STORAGE_VALIDITY = Option(
    "hoodie.write.lock.storage.validity.timeout.secs",
    seconds(minimum=10),
    default=_DEFAULT.storage_validity_ms,
    doc="Seconds for which a storage lock is valid after it was taken or renewed; at least ten "
    "times the renewal interval.",
)
STORAGE_RENEW_INTERVAL = Option(
    "hoodie.write.lock.storage.renew.interval.secs",
    seconds(minimum=1),
    default=_DEFAULT.storage_renew_ms,
    aliases=("hoodie.write.lock.storage.heartbeat.poll.secs",),
    doc="Seconds between two renewals of a storage lock.",
)
ZOOKEEPER_URL = Option(
    "hoodie.write.lock.zookeeper.url",
    str,
    default=None,
    doc="Hosts of the ZooKeeper servers, `host:port` separated by commas.",
)
ZOOKEEPER_PORT = Option(
    "hoodie.write.lock.zookeeper.port",
    integer(minimum=1),
    default=None,
    doc="Port of those ZooKeeper hosts whose entry names none.",
)
ZOOKEEPER_BASE_PATH = Option(
    "hoodie.write.lock.zookeeper.base_path",
    str,
    default=None,
    doc="Node under which locks are made; the same for all writers of a table.",
)
ZOOKEEPER_LOCK_KEY = Option(
    "hoodie.write.lock.zookeeper.lock_key",
    str,
    default=None,
    doc="Name of the lock's node; the same for all writers of a table.",
)
ZOOKEEPER_SESSION_TIMEOUT = Option(
    "hoodie.write.lock.zookeeper.session_timeout_ms",
    milliseconds(minimum=1),
    default=_DEFAULT.zookeeper_session_timeout_ms,
    doc="How long a lost connection keeps its ZooKeeper session, and with it the lock.",
)
ZOOKEEPER_CONNECTION_TIMEOUT = Option(
    "hoodie.write.lock.zookeeper.connection_timeout_ms",
    milliseconds(minimum=1),
    default=_DEFAULT.zookeeper_connection_timeout_ms,
    doc="How long connecting to ZooKeeper may take.",
)

LOCK_OPTIONS: tuple[Option[Any, Any], ...] = (
    PROVIDER,
    WAIT_TIME,
    FILESYSTEM_PATH,
    FILESYSTEM_EXPIRE,
    STORAGE_VALIDITY,
    STORAGE_RENEW_INTERVAL,
    ZOOKEEPER_URL,
    ZOOKEEPER_PORT,
    ZOOKEEPER_BASE_PATH,
    ZOOKEEPER_LOCK_KEY,
    ZOOKEEPER_SESSION_TIMEOUT,
    ZOOKEEPER_CONNECTION_TIMEOUT,
)


def lock_config_from_options(options: Mapping[str, str]) -> LockConfig:
    """Return the lock config that `options` describe; keys of other subjects are left alone.

    Raises:
        InvalidInputError: kind INVALID_OPTION, naming every malformed option.
    """
    reader = OptionReader(options)
    validity_ms, renew_ms = reader.read(STORAGE_VALIDITY), reader.read(STORAGE_RENEW_INTERVAL)
    # Whoever states one of the two leaves it to us that the other fits.
    if STORAGE_VALIDITY.find(options) is None:
        validity_ms = max(validity_ms, _RENEWALS_PER_VALIDITY * renew_ms)
    elif STORAGE_RENEW_INTERVAL.find(options) is None:
        renew_ms = min(renew_ms, validity_ms // _RENEWALS_PER_VALIDITY)
    config = LockConfig(
        provider=reader.read(PROVIDER),
        concurrency_mode=reader.read(CONCURRENCY_MODE).value,
        acquire_timeout_ms=reader.read(WAIT_TIME),
        filesystem_path=reader.read(FILESYSTEM_PATH),
        filesystem_expire_ms=reader.read(FILESYSTEM_EXPIRE),
        storage_validity_ms=validity_ms,
        storage_renew_ms=renew_ms,
        zookeeper_url=reader.read(ZOOKEEPER_URL),
        zookeeper_port=reader.read(ZOOKEEPER_PORT),
        zookeeper_base_path=reader.read(ZOOKEEPER_BASE_PATH),
        zookeeper_lock_key=reader.read(ZOOKEEPER_LOCK_KEY),
        zookeeper_session_timeout_ms=reader.read(ZOOKEEPER_SESSION_TIMEOUT),
        zookeeper_connection_timeout_ms=reader.read(ZOOKEEPER_CONNECTION_TIMEOUT),
    )
    reader.require(
        config.storage_validity_ms >= _RENEWALS_PER_VALIDITY * config.storage_renew_ms,
        f"{STORAGE_VALIDITY.key} ({config.storage_validity_ms // 1000}) must be at least "
        f"{_RENEWALS_PER_VALIDITY} times {STORAGE_RENEW_INTERVAL.key} "
        f"({config.storage_renew_ms // 1000})",
    )
    reader.finish()
    return config
