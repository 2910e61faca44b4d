"""Markers: what a running instant is about to write, published before it is written (INV-60).

A direct marker is an empty file `.hoodie/.temp/<T>/<path of the data file>.marker.<kind>`. Two
things need it: a commit removes files that its tasks wrote but its stats do not list (a task that
failed half-way and ran again), and a rollback knows what to delete without listing the table.

Markers of T are removed only after T has reached its end. Until then a crash anywhere leaves them
for whoever rolls T back.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum, unique
from typing import NamedTuple

from headwater.kernel.layout import marker_folder
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage

_INFIX = ".marker."


@unique
class MarkerKind(StrEnum):
    CREATE = "CREATE"  # A file of a new file group.
    MERGE = "MERGE"  # A new base file of an existing one.
    APPEND = "APPEND"  # A log file.


class Marker(NamedTuple):
    data_path: str
    kind: MarkerKind


def marker_path(time: InstantTime, marker: Marker) -> str:
    return f"{marker_folder(time)}/{marker.data_path}{_INFIX}{marker.kind}"


def create_marker(storage: Storage, time: InstantTime, marker: Marker) -> None:
    """Say that the data file is about to be written. Saying it twice is no harm."""
    storage.put(marker_path(time, marker), b"")


def load_markers(storage: Storage, time: InstantTime) -> list[Marker]:
    """Return what instant `time` has said it would write, ordered by path."""
    prefix = f"{marker_folder(time)}/"
    markers = []
    for info in storage.list_tree(marker_folder(time)):
        path, infix, kind = info.path.removeprefix(prefix).rpartition(_INFIX)
        if infix and kind in MarkerKind.__members__:
            markers.append(Marker(path, MarkerKind(kind)))
    return markers


def delete_unlisted_files(storage: Storage, time: InstantTime, listed: Collection[str]) -> int:
    """Delete the files of `time` that its commit does not list; return how many there were.

    Called right before the commit, so that readers which go by names alone see none of them.
    """
    unlisted = [m.data_path for m in load_markers(storage, time) if m.data_path not in listed]
    for path in unlisted:
        storage.delete(path)
    return len(unlisted)


def delete_markers(storage: Storage, time: InstantTime) -> None:
    """Forget the markers of an instant that has reached its end."""
    for info in storage.list_tree(marker_folder(time)):
        storage.delete(info.path)
