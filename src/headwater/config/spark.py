"""How Spark is used."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.option import Option
from headwater.config.option_config import OptionConfig, setting

WARM_WORKERS = Option(
    "headwater.spark.warm.workers",
    bool,
    default=True,
    doc="Whether Spark's Python workers keep what they know of archives on the import path, which "
    "makes each task a quarter of a second faster. Turn it off if archives are replaced in place "
    "while workers live.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConfig(OptionConfig):
    warms_workers: bool = setting(WARM_WORKERS)
