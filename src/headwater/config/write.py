"""How one process writes: alone or among others, and how it shows that it is alive."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique

from headwater.config.option import NON_BLANK, Option, integer, milliseconds
from headwater.config.option_config import OptionConfig, setting


@unique
class ConcurrencyMode(StrEnum):
    SINGLE_WRITER = "single_writer"
    OPTIMISTIC = "optimistic_concurrency_control"
    NON_BLOCKING = "non_blocking_concurrency_control"

    @property
    def is_multi_writer(self) -> bool:
        return self is not ConcurrencyMode.SINGLE_WRITER


@unique
class FailedWritesPolicy(StrEnum):
    EAGER = "EAGER"
    LAZY = "LAZY"
    NEVER = "NEVER"


CONCURRENCY_MODE = Option(
    "hoodie.write.concurrency.mode",
    ConcurrencyMode,
    default=ConcurrencyMode.SINGLE_WRITER,
    doc="Whether other writers may work on the table at the same time, and how conflicts between "
    "them are settled.",
)
HEARTBEAT_INTERVAL = Option(
    "hoodie.client.heartbeat.interval_in_ms",
    milliseconds(minimum=1),
    default=60_000,
    doc="How often a writer says that it is alive.",
)
HEARTBEAT_TOLERABLE_MISSES = Option(
    "hoodie.client.heartbeat.tolerable.misses",
    integer(minimum=1),
    default=2,
    doc="How many heartbeats may fail to come before others take the writer for dead.",
)
FAILED_WRITES_POLICY = Option(
    "hoodie.clean.failed.writes.policy",
    FailedWritesPolicy,
    default=None,
    aliases=("hoodie.cleaner.policy.failed.writes",),
    doc="Who rolls back writes whose process died, those of Apache Hudi among them: LAZY: clean "
    "and archive; EAGER: writes as well, when they begin; NEVER: like LAZY, but those of other "
    "engines are left to them. No live one is ever rolled back. To give it also says that Hudi's "
    "jobs go by it: a write of theirs without a heartbeat is then dead after "
    "`hoodie.client.heartbeat.interval_in_ms` times one more than the tolerable misses, and "
    "otherwise after a day. Default: LAZY.",
)
CONFLICT_RETRIES = Option(
    "hoodie.write.num.retries.on.conflict.failures",
    integer(minimum=0),
    default=3,
    doc="How often a batch that lost against another writer or a table service, or the part of it "
    "that lost, is planned and written again.",
)
CONFLICTS_BEFORE_LOCK = Option(
    "headwater.write.conflicts.before.lock",
    integer(minimum=1),
    default=2,
    doc="After how many losses a batch keeps the table lock while it, or the part of it that lost, "
    "is written again, so that it cannot lose once more.",
)
WRITER_ID = Option(
    "headwater.writer.id",
    NON_BLANK,
    default=None,
    doc="Name of this writer in heartbeats and locks. Default: a random one for each process.",
)


CLOCK_AHEAD_MAX = Option(
    "headwater.clock.ahead.max.ms",
    milliseconds(minimum=0),
    default=3_600_000,
    doc="How far this process's clock may be ahead of the store's and of the timeline before it "
    "may write no instant; a tenth of it is warned of. 0 is any time.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteConfig(OptionConfig):
    concurrency_mode: ConcurrencyMode = setting(CONCURRENCY_MODE)
    heartbeat_interval_ms: int = setting(HEARTBEAT_INTERVAL)
    heartbeat_tolerable_misses: int = setting(HEARTBEAT_TOLERABLE_MISSES)
    failed_writes_policy: FailedWritesPolicy | None = setting(FAILED_WRITES_POLICY)
    conflict_retries: int = setting(CONFLICT_RETRIES)
    conflicts_before_lock: int = setting(CONFLICTS_BEFORE_LOCK)
    writer_id: str | None = setting(WRITER_ID)
    clock_ahead_ms_max: int = setting(CLOCK_AHEAD_MAX)
