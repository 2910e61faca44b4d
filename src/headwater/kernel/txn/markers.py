"""Markers: what a running instant is about to write, published before it is written (INV-60).

Two things need them: a commit removes files that its tasks wrote but its stats do not list (a task
that failed half-way and ran again), and a rollback knows what to delete without listing the table.

A direct marker is an empty file `.hoodie/.temp/<T>/<path of the data file>.marker.<kind>`, made by
the task itself. The other kind, lines in a few files that one service writes for all tasks, is in
`headwater.markers`, and so is what reads both kinds. Here is what they share.

Markers of T are removed only after T has reached its end. Until then a crash anywhere leaves them
for whoever rolls T back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import StrEnum, unique
from typing import NamedTuple, Protocol

from headwater.kernel.layout import HOODIE, detection_folder, marker_folder
from headwater.model.files import FileGroupId, is_file_of, parse_data_file
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage

_INFIX = ".marker."


@unique
class MarkerKind(StrEnum):
    CREATE = "CREATE"  # A log file, or the first base file of a file group.
    MERGE = "MERGE"  # A new base file of a group that has one.
    APPEND = "APPEND"  # A log file in tables of older versions; Hudi's rollbacks stop at it now.


class Marker(NamedTuple):
    data_path: str
    kind: MarkerKind

    @property
    def group(self) -> FileGroupId:
        """The file group of the data file, by its name alone."""
        partition, _, name = self.data_path.rpartition("/")
        return FileGroupId(partition, name.removeprefix(".").partition("_")[0])

    @property
    def is_log(self) -> bool:
        """Whether the data file is a log file; its kind does not tell."""
        return self.data_path.rpartition("/")[2].startswith(".")


class Markers(Protocol):
    """Where the tasks of one instant say what they are about to write."""

    def create(self, marker: Marker) -> None:
        """Return once the marker is durable. Saying it twice is no harm.

        Raises:
            EarlyConflictError: another writer holds what this instant writes.
            StorageError: the marker may be missing, so the data file must not be written.
        """
        ...


LoadMarkers = Callable[[Storage, InstantTime], list[Marker]]
"""Returns all that an instant announced, and raises if it cannot tell."""


class DirectMarkers:
    """One empty file for each marker."""

    def __init__(self, storage: Storage, time: InstantTime) -> None:
        self._storage = storage
        self._time = time

    def create(self, marker: Marker) -> None:
        create_marker(self._storage, self._time, marker)

    def create_all(self, markers: Iterable[Marker]) -> None:
        """Create several, as `create` does each."""
        self._storage.put_many({marker_path(self._time, marker): b"" for marker in markers})


def announce_all(markers: Markers, some: Sequence[Marker]) -> None:
    """Create several markers, all at once where each is a file of its own.

    Raises: as `Markers.create`.
    """
    if isinstance(markers, DirectMarkers) and len(some) > 1:
        markers.create_all(some)
    else:
        for marker in some:
            markers.create(marker)


def marker_name(marker: Marker) -> str:
    return f"{marker.data_path}{_INFIX}{marker.kind}"


def parse_marker(name: str) -> Marker | None:
    """Return the marker of that name, relative to the folder of its instant; None if it is none."""
    path, infix, kind = name.rpartition(_INFIX)
    if not path or not infix or kind not in MarkerKind.__members__:
        return None
    return Marker(path, MarkerKind(kind))


def marker_path(time: InstantTime, marker: Marker) -> str:
    return f"{marker_folder(time)}/{marker_name(marker)}"


def create_marker(storage: Storage, time: InstantTime, marker: Marker) -> None:
    """Say that the data file is about to be written. Saying it twice is no harm."""
    storage.put(marker_path(time, marker), b"")


def load_markers(storage: Storage, time: InstantTime) -> list[Marker]:
    """Return what direct markers say that instant `time` would write, ordered by path."""
    prefix = f"{marker_folder(time)}/"
    names = (info.path.removeprefix(prefix) for info in storage.list_tree(marker_folder(time)))
    return [marker for name in names if (marker := parse_marker(name)) is not None]


def files_by_name(storage: Storage, time: InstantTime) -> Iterator[Marker]:
    """Give a marker for every data file that bears the time of an instant, by a whole listing."""
    for info in storage.list_tree(""):
        file = None if info.path.startswith(f"{HOODIE}/") else parse_data_file(info.path)
        if file is not None and file.instant_time == time:
            yield Marker(info.path, MarkerKind.CREATE)


def own_files(
    markers: Iterable[Marker], time: InstantTime, *, before_attempt: int | None = None
) -> list[str]:
    """Return the announced files whose names say that the instant, or such attempts, wrote them."""
    announced = (marker.data_path for marker in markers)
    return [path for path in announced if is_file_of(path, time, before_attempt=before_attempt)]


def delete_unlisted(storage: Storage, markers: Iterable[Marker], listed: Collection[str]) -> int:
    """Delete the files that are announced but not listed; return how many there were.

    Called before the commit, so that readers which go by names alone see none of them.
    """
    unlisted = [marker.data_path for marker in markers if marker.data_path not in listed]
    storage.delete_many(unlisted)
    return len(unlisted)


def delete_markers(storage: Storage, time: InstantTime, *, had_detection: bool = True) -> None:
    """Forget the markers of an instant that has reached its end, and what goes with them."""
    # Markers last: whoever tidies up after a crash goes by them.
    notes = (detection_folder(time),) if had_detection else ()
    for folder in (*notes, marker_folder(time)):
        storage.delete_many([info.path for info in storage.list_tree(folder)])
