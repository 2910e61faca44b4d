"""Where things are inside a table: one place for every path the protocol uses.

All paths are relative to the table's base. Folders that stock Hudi knows keep its names;
`.attempts`, `.cancel`, `.cancel_count.json`, `.detection`, `.journal`, `.sinks` and `.upgrade.json`
are ours, and other engines ignore them.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from headwater.model.instant import InstantTime

HOODIE = ".hoodie"
PROPERTIES = f"{HOODIE}/hoodie.properties"
PROPERTIES_BACKUP = f"{HOODIE}/hoodie.properties.backup"
METADATA = f"{HOODIE}/metadata"
METADATA_TIMELINE = f"{METADATA}/{HOODIE}/timeline"
ATTEMPTS = f"{HOODIE}/.attempts"
HEARTBEATS = f"{HOODIE}/.heartbeat"
CANCELS = f"{HOODIE}/.cancel"
CANCEL_COUNT = f"{HOODIE}/.cancel_count.json"
MARKERS = f"{HOODIE}/.temp"
DETECTION = f"{HOODIE}/.detection"
SINKS = f"{HOODIE}/.sinks"
SCHEMAS = f"{HOODIE}/.schema"
"""Hudi's schemas of a table that evolves on read."""
BUCKET_INDEX = f"{HOODIE}/.bucket_index"
"""Hudi's own: which hashes each bucket has, if not all of them have as many."""
INDEX_DEFINITIONS = f"{HOODIE}/.index_defs/index.json"
"""Where Hudi puts the definitions of indexes, unless table config says another place."""
JOURNAL = f"{HOODIE}/.journal"
UPGRADE = f"{HOODIE}/.upgrade.json"
CLOCK = f"{HOODIE}/.clock"
"""Written to learn the time of the store's own clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """What table config may change about the places and digits of a timeline."""

    timeline: str = f"{HOODIE}/timeline"
    history: str = f"{HOODIE}/timeline/history"
    is_utc: bool = True  # Whether instant times are UTC digits, or local ones of each writer.


def attempt_folder(time: InstantTime) -> str:
    return f"{ATTEMPTS}/{time}"


def attempt_path(time: InstantTime, attempt: int) -> str:
    return f"{ATTEMPTS}/{time}/{attempt:05d}.json"


def heartbeat_path(time: InstantTime) -> str:
    """The plain heartbeat file, whose modification time stock Hudi's lazy cleaning looks at."""
    return f"{HEARTBEATS}/{time}"


def cancel_path(time: InstantTime) -> str:
    return f"{CANCELS}/{time}"


def marker_folder(time: InstantTime) -> str:
    return f"{MARKERS}/{time}"


def detection_folder(time: InstantTime) -> str:
    """What a writer leaves for the detection of conflicts, beside its markers.

    Not among them: stock Hudi cannot roll an instant back whose folder of direct markers holds
    anything but markers.
    """
    return f"{DETECTION}/{time}"


def sink_path(sink: str) -> str:
    """What a streaming query has begun last; a sink's name may hold any character."""
    return f"{SINKS}/{quote(sink, safe='')}.json"
