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
    WRITER_ID,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteConfig:
    concurrency_mode: ConcurrencyMode = CONCURRENCY_MODE.default
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL.default
    heartbeat_tolerable_misses: int = HEARTBEAT_TOLERABLE_MISSES.default
    writer_id: str | None = WRITER_ID.default

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the config that `options` describe; keys of other subjects are left alone.

        Raises:
            InvalidInputError: kind INVALID_OPTION, naming every malformed option.
        """
        reader = OptionReader(options)
        config = cls(
            concurrency_mode=reader.read(CONCURRENCY_MODE),
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
        }
        if self.writer_id is not None:
            options[WRITER_ID.key] = self.writer_id
        return options
