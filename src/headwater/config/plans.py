"""How plans of table services are guarded while they run, and how they end without a result."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.option import Option, milliseconds, minutes
from headwater.config.option_config import OptionConfig, setting

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConfig(OptionConfig):
    is_guarded: bool = setting(GUARD)
    poll_interval_ms: int = setting(CANCEL_POLL_INTERVAL)
    rollback_delay_ms: int = setting(ROLLBACK_DELAY)
