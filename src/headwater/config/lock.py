"""Which lock a table uses, and how long its holders may keep it."""

from __future__ import annotations

from dataclasses import dataclass

SINGLE_WRITER = "single_writer"
MULTI_WRITER_MODES = ("optimistic_concurrency_control", "non_blocking_concurrency_control")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockConfig:
    """Settings of the lock providers; each field names the Hudi option it comes from."""

    # hoodie.write.lock.provider: a Java class name of Hudi, or in_process | filesystem | storage |
    # zookeeper. None leaves the choice to `lock_provider_for`. (Hudi's own default is ZooKeeper.)
    provider: str | None = None

    # hoodie.write.concurrency.mode, in any case.
    concurrency_mode: str = SINGLE_WRITER

    # hoodie.write.lock.wait_time_ms: how long one acquisition waits.
    acquire_timeout_ms: int = 60_000

    # hoodie.write.lock.filesystem.path: the folder of the file `lock`, as an address or relative to
    # the table's base. None is the table's `.hoodie`.
    filesystem_path: str | None = None
    # hoodie.write.lock.filesystem.expire, there in minutes. 0 never expires.
    filesystem_expire_ms: int = 0

    # hoodie.write.lock.storage.validity.timeout.secs, there in seconds. Hudi's default is 300: a
    # killed holder would block the table for five minutes, although it needed the lock for a
    # fraction of a second. Holders renew, so a shorter lease costs them nothing.
    storage_validity_ms: int = 30_000
    # hoodie.write.lock.storage.renew.interval.secs, there in seconds; its older name is
    # hoodie.write.lock.storage.heartbeat.poll.secs.
    storage_renew_ms: int = 3_000

    # hoodie.write.lock.zookeeper.url: host:port pairs separated by commas, required.
    zookeeper_url: str | None = None
    # hoodie.write.lock.zookeeper.port: for hosts in the url that name none.
    zookeeper_port: int | None = None
    # hoodie.write.lock.zookeeper.base_path, required.
    zookeeper_base_path: str | None = None
    # hoodie.write.lock.zookeeper.lock_key, required; Hudi infers the table's name.
    zookeeper_lock_key: str | None = None
    # hoodie.write.lock.zookeeper.session_timeout_ms
    zookeeper_session_timeout_ms: int = 60_000
    # hoodie.write.lock.zookeeper.connection_timeout_ms
    zookeeper_connection_timeout_ms: int = 15_000

    @property
    def is_multi_writer(self) -> bool:
        return self.concurrency_mode.lower() in MULTI_WRITER_MODES
