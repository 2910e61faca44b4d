"""How plans of table services are guarded while they run, and how they end without a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headwater.config.option import Option, OptionReader, milliseconds, minutes

GUARD = Option(
    "headwater.table.service.guard.enable",
    bool,
    default=True,
    doc="Whether an execution of a plan leaves another one alone that seems alive (RFC-79). "
    "Without, the newcomer takes over at once: a retry after a crash need not wait for the "
    "heartbeat to lapse, but who starts a plan twice does its work twice. The table is safe either "
    "way: of two executions only the newest completes.",
)
CANCEL_POLL_INTERVAL = Option(
    "headwater.cancel.poll.interval.ms",
    milliseconds(minimum=1),
    default=5_000,
    doc="How often a running clustering looks whether it has been cancelled. A smaller number "
    "stops it sooner and costs a call of storage each time.",
)
ROLLBACK_DELAY = Option(
    "headwater.table.service.rollback.delay.minutes",
    minutes(minimum=0),
    default=60 * 60_000,
    doc="How old a removable plan that nobody has begun to execute must be before clean rolls it "
    "back (`table_service_rollback_delay` of RFC-79). One whose execution failed is rolled back at "
    "once.",
)

PLAN_OPTIONS: tuple[Option[Any, Any], ...] = (
    GUARD,
    CANCEL_POLL_INTERVAL,
    ROLLBACK_DELAY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConfig:
    is_guarded: bool = GUARD.default
    poll_interval_ms: int = CANCEL_POLL_INTERVAL.default
    rollback_delay_ms: int = ROLLBACK_DELAY.default

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the config that `options` describe; keys of other subjects are left alone.

        Raises:
            InvalidInputError: kind INVALID_OPTION, naming every malformed option.
        """
        reader = OptionReader(options)
        config = cls(
            is_guarded=reader.read(GUARD),
            poll_interval_ms=reader.read(CANCEL_POLL_INTERVAL),
            rollback_delay_ms=reader.read(ROLLBACK_DELAY),
        )
        reader.finish()
        return config

    def to_options(self) -> dict[str, str]:
        """Return the options that `from_options` turns into this config."""
        return {
            GUARD.key: GUARD.encode(self.is_guarded),
            CANCEL_POLL_INTERVAL.key: CANCEL_POLL_INTERVAL.encode(self.poll_interval_ms),
            ROLLBACK_DELAY.key: ROLLBACK_DELAY.encode(self.rollback_delay_ms),
        }
