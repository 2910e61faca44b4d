"""How one process writes: alone or among others, and how it shows that it is alive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Any, Self

from headwater.config.option import NON_BLANK, Option, OptionReader, integer, milliseconds


@unique
class ConcurrencyMode(StrEnum):
    SINGLE_WRITER = "single_writer"
    OPTIMISTIC = "optimistic_concurrency_control"
    NON_BLOCKING = "non_blocking_concurrency_control"

    @property
    def is_multi_writer(self) -> bool:
        return self is not ConcurrencyMode.SINGLE_WRITER


CONFLICT_RETRIES_AMONG_WRITERS = 3

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
CONFLICT_RETRIES = Option(
    "hoodie.write.num.retries.on.conflict.failures",
    integer(minimum=0),
    default=None,
    doc="How often a batch that lost against another writer is planned and written again. Default: "
    f"{CONFLICT_RETRIES_AMONG_WRITERS} times if other writers are allowed, else never.",
)
CONFLICTS_BEFORE_LOCK = Option(
    "headwater.write.conflicts.before.lock",
    integer(minimum=1),
    default=2,
    doc="After how many losses a batch is written with the table lock held from beginning to end, "
    "so that it cannot lose again.",
)
WRITER_ID = Option(
    "headwater.writer.id",
    NON_BLANK,
    default=None,
    doc="Name of this writer in heartbeats and locks. Default: a random one for each process.",
)

WRITE_OPTIONS: tuple[Option[Any, Any], ...] = (
    CONCURRENCY_MODE,
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TOLERABLE_MISSES,
    CONFLICT_RETRIES,
    CONFLICTS_BEFORE_LOCK,
    WRITER_ID,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteConfig:
    concurrency_mode: ConcurrencyMode = CONCURRENCY_MODE.default
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL.default
    heartbeat_tolerable_misses: int = HEARTBEAT_TOLERABLE_MISSES.default
    conflict_retries: int = 0
    conflicts_before_lock: int = CONFLICTS_BEFORE_LOCK.default
    writer_id: str | None = WRITER_ID.default

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the config that `options` describe; keys of other subjects are left alone.

        Raises:
            InvalidInputError: kind INVALID_OPTION, naming every malformed option.
        """
        reader = OptionReader(options)
        mode = reader.read(CONCURRENCY_MODE)
        retries = reader.read(CONFLICT_RETRIES)
        if retries is None:
            retries = CONFLICT_RETRIES_AMONG_WRITERS if mode.is_multi_writer else 0
        config = cls(
            concurrency_mode=mode,
            conflict_retries=retries,
            conflicts_before_lock=reader.read(CONFLICTS_BEFORE_LOCK),
            heartbeat_interval_ms=reader.read(HEARTBEAT_INTERVAL),
            heartbeat_tolerable_misses=reader.read(HEARTBEAT_TOLERABLE_MISSES),
            writer_id=reader.read(WRITER_ID),
        )
        reader.finish()
        return config

    def to_options(self) -> dict[str, str]:
        """Return the options that `from_options` turns into this config."""
        options = {
            CONCURRENCY_MODE.key: CONCURRENCY_MODE.encode(self.concurrency_mode),
            HEARTBEAT_INTERVAL.key: HEARTBEAT_INTERVAL.encode(self.heartbeat_interval_ms),
            HEARTBEAT_TOLERABLE_MISSES.key: HEARTBEAT_TOLERABLE_MISSES.encode(
                self.heartbeat_tolerable_misses
            ),
            CONFLICT_RETRIES.key: CONFLICT_RETRIES.encode(self.conflict_retries),
            CONFLICTS_BEFORE_LOCK.key: CONFLICTS_BEFORE_LOCK.encode(self.conflicts_before_lock),
        }
        if self.writer_id is not None:
            options[WRITER_ID.key] = self.writer_id
        return options
