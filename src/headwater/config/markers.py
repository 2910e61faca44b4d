"""How a writer keeps its markers: what its tasks are about to write."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique

from headwater.config.option import Option, OptionReader, integer
from headwater.config.option_config import OptionConfig, setting

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerConfig(OptionConfig):
    type: MarkerType = setting(MARKERS_TYPE)
    batch_files: int = setting(MARKERS_BATCH_FILES)
    port: int = setting(MARKERS_PORT)

    def _check(self, reader: OptionReader) -> None:
        reader.require(
            self.port <= _PORT_MAX,
            f"{MARKERS_PORT.key} must be at most {_PORT_MAX}, got {self.port}",
        )
