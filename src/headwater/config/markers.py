"""How a writer keeps its markers: what its tasks are about to write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Any, Self

from headwater.config.option import Option, OptionReader, integer

_PORT_MAX = 65_535


@unique
class MarkerType(StrEnum):
    """A way to keep markers, under the name it has in marker folders."""

    DIRECT = "DIRECT"
    TIMELINE_SERVER_BASED = "TIMELINE_SERVER_BASED"


MARKERS_TYPE = Option(
    "hoodie.write.markers.type",
    MarkerType,
    default=MarkerType.DIRECT,
    doc="Whether each task makes a file for each marker, or asks a service on the driver that "
    "writes the markers of all tasks in batches: fewer writes to storage when many tasks run at "
    "once, but on a local disk each marker takes longer. Stock Hudi's default is the service.",
)
MARKERS_BATCH_FILES = Option(
    "hoodie.markers.timeline_server_based.batch.num_threads",
    integer(minimum=1),
    default=20,
    doc="How many files the marker service spreads its batches over. A batch is written as soon as "
    "a writer is idle, so there is no interval to wait for.",
)
MARKERS_PORT = Option(
    "hoodie.embed.timeline.server.port",
    integer(minimum=0),
    default=0,
    doc="Port of the marker service on the driver; 0 means any that is free.",
)

MARKER_OPTIONS: tuple[Option[Any, Any], ...] = (MARKERS_TYPE, MARKERS_BATCH_FILES, MARKERS_PORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerConfig:
    type: MarkerType = MARKERS_TYPE.default
    batch_files: int = MARKERS_BATCH_FILES.default
    port: int = MARKERS_PORT.default

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the config that `options` describe; keys of other subjects are left alone.

        Raises:
            InvalidInputError: kind INVALID_OPTION, naming every malformed option.
        """
        reader = OptionReader(options)
        config = cls(
            type=reader.read(MARKERS_TYPE),
            batch_files=reader.read(MARKERS_BATCH_FILES),
            port=reader.read(MARKERS_PORT),
        )
        reader.require(
            config.port <= _PORT_MAX,
            f"{MARKERS_PORT.key} must be at most {_PORT_MAX}, got {config.port}",
        )
        reader.finish()
        return config

    def to_options(self) -> dict[str, str]:
        """Return the options that `from_options` turns into this config."""
        return {
            MARKERS_TYPE.key: MARKERS_TYPE.encode(self.type),
            MARKERS_BATCH_FILES.key: MARKERS_BATCH_FILES.encode(self.batch_files),
            MARKERS_PORT.key: MARKERS_PORT.encode(self.port),
        }
