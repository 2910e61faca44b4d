"""When advice about a table thinks that work is worth its cost."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.option import Option, integer
from headwater.config.option_config import OptionConfig, setting

READS_MAX = Option(
    "headwater.advice.reads.max",
    integer(minimum=1),
    default=50,
    doc="After how many reads of the table the work of a service must have paid for itself, or "
    "else `advise()` does not name it and `service run --auto` does not do it.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceConfig(OptionConfig):
    reads_max: int = setting(READS_MAX)
