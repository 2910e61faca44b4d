"""How Spark is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headwater.config.option import Option, OptionReader

WARM_WORKERS = Option(
    "headwater.spark.warm.workers",
    bool,
    default=True,
    doc="Whether Spark's Python workers keep what they know of archives on the import path, which "
    "makes each task a quarter of a second faster. Turn it off if archives are replaced in place "
    "while workers live.",
)

SPARK_OPTIONS: tuple[Option[Any, Any], ...] = (WARM_WORKERS,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConfig:
    warms_workers: bool = WARM_WORKERS.default

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the config that `options` describe; keys of other subjects are left alone.

        Raises:
            InvalidInputError: kind INVALID_OPTION, naming every malformed option.
        """
        reader = OptionReader(options)
        config = cls(warms_workers=reader.read(WARM_WORKERS))
        reader.finish()
        return config
