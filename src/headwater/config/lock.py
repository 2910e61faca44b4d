"""Which lock a table uses, and how long its holders may keep it."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.option import Option, OptionReader, integer, milliseconds, minutes, seconds
from headwater.config.option_config import OptionConfig, inferred, setting
from headwater.config.write import CONCURRENCY_MODE, ConcurrencyMode

_RENEWALS_PER_VALIDITY = 10
"""Hudi demands this of a storage lock: a holder that misses a few renewals keeps its lock."""

# Absent leaves the choice to `lock_provider_for`; Hudi's own default is ZooKeeper.
PROVIDER = Option(
    "hoodie.write.lock.provider",
    str,
    default=None,
    doc="Lock provider: `in_process`, `filesystem`, `storage`, `zookeeper`, or Hudi's Java class "
    "name of one of them. Several writers of a table without a journal must name one; with a "
    "journal it is no more than a queue.",
)
WAIT_TIME = Option(
    "hoodie.write.lock.wait_time_ms",
    milliseconds(minimum=0),
    default=60_000,
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
    default=0,
    doc="Minutes after which others may take over a file system lock; 0 is never.",
)
# Hudi's default is 300: a killed holder would block the table for five minutes, although it needed
# the lock for a fraction of a second. Holders renew, so a shorter lease costs them nothing.
STORAGE_VALIDITY = Option(
    "hoodie.write.lock.storage.validity.timeout.secs",
    seconds(minimum=10),
    default=30_000,
    doc="Seconds for which a storage lock is valid after it was taken or renewed; at least ten "
    "times the renewal interval.",
)
STORAGE_RENEW_INTERVAL = Option(
    "hoodie.write.lock.storage.renew.interval.secs",
    seconds(minimum=1),
    default=3_000,
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
    default=60_000,
    doc="How long a lost connection keeps its ZooKeeper session, and with it the lock.",
)
ZOOKEEPER_CONNECTION_TIMEOUT = Option(
    "hoodie.write.lock.zookeeper.connection_timeout_ms",
    milliseconds(minimum=1),
    default=15_000,
    doc="How long connecting to ZooKeeper may take.",
)


# Whoever states one of the two leaves it to us that the other fits.
def _validity_ms(reader: OptionReader) -> int:
    return max(
        STORAGE_VALIDITY.default, _RENEWALS_PER_VALIDITY * reader.read(STORAGE_RENEW_INTERVAL)
    )


def _renew_ms(reader: OptionReader) -> int:
    return min(
        STORAGE_RENEW_INTERVAL.default, reader.read(STORAGE_VALIDITY) // _RENEWALS_PER_VALIDITY
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LockConfig(OptionConfig):
    provider: str | None = setting(PROVIDER)
    concurrency_mode: ConcurrencyMode = setting(CONCURRENCY_MODE, is_own=False)
    acquire_timeout_ms: int = setting(WAIT_TIME)
    filesystem_path: str | None = setting(FILESYSTEM_PATH)
    """An address, or relative to the table's base."""
    filesystem_expire_ms: int = setting(FILESYSTEM_EXPIRE)
    storage_validity_ms: int = inferred(STORAGE_VALIDITY, _validity_ms)
    storage_renew_ms: int = inferred(STORAGE_RENEW_INTERVAL, _renew_ms)
    zookeeper_url: str | None = setting(ZOOKEEPER_URL)
    zookeeper_port: int | None = setting(ZOOKEEPER_PORT)
    zookeeper_base_path: str | None = setting(ZOOKEEPER_BASE_PATH)
    zookeeper_lock_key: str | None = setting(ZOOKEEPER_LOCK_KEY)
    zookeeper_session_timeout_ms: int = setting(ZOOKEEPER_SESSION_TIMEOUT)
    zookeeper_connection_timeout_ms: int = setting(ZOOKEEPER_CONNECTION_TIMEOUT)

    @property
    def is_multi_writer(self) -> bool:
        return self.concurrency_mode.is_multi_writer

    def _check(self, reader: OptionReader) -> None:
        reader.require(
            self.storage_validity_ms >= _RENEWALS_PER_VALIDITY * self.storage_renew_ms,
            f"{STORAGE_VALIDITY.key} ({self.storage_validity_ms // 1000}) must be at least "
            f"{_RENEWALS_PER_VALIDITY} times {STORAGE_RENEW_INTERVAL.key} "
            f"({self.storage_renew_ms // 1000})",
        )
