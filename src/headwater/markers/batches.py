"""Files of markers: one line for each marker, many lines in a few files (format rule 1.5).

    .hoodie/.temp/<T>/MARKERS.type   how the markers of T are kept: TIMELINE_SERVER_BASED
    .hoodie/.temp/<T>/MARKERS<n>     names of markers, each ended by a newline, in UTF-8

Stores cannot append, so a file is written whole again for each batch of lines that goes to it. A
write that failed may still land later (see `seams.storage`), and would then undo a newer one. So a
file is never written again after a failure: whichever of its writes is the last to land, it holds
all lines that were ever reported as durable. For the same reason a service creates its files under
numbers that nobody used before it.

Markers are read in two ways (INV-69). Whoever is going to delete or to commit must know all of
them, and fails if a file is damaged. Early detection of conflicts takes what can be read: a marker
that it misses costs time, not correctness.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence

from headwater.config.limits import check_object_bytes
from headwater.config.markers import MarkerType
from headwater.errors import (
    CorruptTableError,
    ErrorKind,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from headwater.kernel.layout import marker_folder
from headwater.kernel.txn.markers import Marker, marker_name, parse_marker
from headwater.markers.bloom_markers import NewFilter, no_filter
from headwater.markers.data_path import check_data_path
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

_PREFIX = "MARKERS"
_TYPE = f"{_PREFIX}.type"
_BATCH_FILE = re.compile(rf"{_PREFIX}([0-9]{{1,9}})", re.ASCII)


def marker_type_path(time: InstantTime) -> str:
    return f"{marker_folder(time)}/{_TYPE}"


def batch_path(time: InstantTime, number: int) -> str:
    return f"{marker_folder(time)}/{_PREFIX}{number}"


def is_batch_file(name: str) -> bool:
    """Whether a name in an instant's folder of markers is that of a file of many."""
    return _BATCH_FILE.fullmatch(name) is not None


def encode_markers(markers: Iterable[Marker]) -> bytes:
    return "".join(f"{marker_name(marker)}\n" for marker in markers).encode()


def parse_markers(data: bytes, path: str) -> list[Marker]:
    """Return the markers of a file, all of them.

    Raises:
        CorruptTableError: kind CORRUPT_MARKERS, if a line is cut off or is no marker.
    """
    check_object_bytes(data, path)
    *lines, rest = data.split(b"\n")
    if rest or not lines:
        raise _damaged(path, "it does not end with a whole line")
    markers = []
    for number, line in enumerate(lines, start=1):
        try:
            markers.append(_parse_line(line))
        except InvalidInputError as error:
            raise _damaged(path, f"line {number}: {error.message}") from error
    return markers


def parse_readable_markers(data: bytes) -> list[Marker]:
    """Return the markers of a file that may be damaged, without the lines that are no markers."""
    markers = []
    for line in data.split(b"\n"):
        try:
            markers.append(_parse_line(line))
        except InvalidInputError:
            continue
    return markers


def load_every_marker(storage: Storage, time: InstantTime) -> list[Marker]:
    """Return what instant `time` has said it would write, ordered by path, whatever the kind.

    Raises:
        CorruptTableError: kind CORRUPT_MARKERS, if a file is damaged or of an unknown kind.
        StorageError: storage failed.
    """
    return _every_marker(storage, time, _names(storage, time))


def _every_marker(storage: Storage, time: InstantTime, names: set[str]) -> list[Marker]:
    if _TYPE in names:
        _check_type(_read(storage, marker_type_path(time)), marker_type_path(time))
    found = _direct_markers(names)
    for path in _batch_paths(time, names):
        found.update(parse_markers(_read(storage, path), path))
    return sorted(found)


def load_readable_markers(storage: Storage, time: InstantTime) -> list[Marker]:
    """Return what can be known of what instant `time` writes, ordered by path.

    A file that cannot be read, or that vanishes, counts as one without markers.

    Raises:
        StorageError: the folder cannot be listed.
    """
    names = _names(storage, time)
    found = _direct_markers(names)
    for path in _batch_paths(time, names):
        try:
            found.update(parse_readable_markers(storage.read(path)))
        except (NotFoundError, StorageError) as error:
            log.info("unreadable markers passed over path=%s error=%s", path, error)
    return sorted(found)


def load_markers_and_files(storage: Storage, time: InstantTime) -> tuple[list[Marker], list[str]]:
    """Do as `load_every_marker`, and return the paths of the files of markers too.

    Raises: see `load_every_marker`.
    """
    names = _names(storage, time)
    files = [f"{marker_folder(time)}/{name}" for name in sorted(names)]
    return _every_marker(storage, time, names), files


def put_marker_type(storage: Storage, time: InstantTime) -> None:
    """Say that the markers of an instant are in files of many; comes before the first of them."""
    storage.put(marker_type_path(time), MarkerType.TIMELINE_SERVER_BASED.encode())


def first_free_number(storage: Storage, time: InstantTime) -> int:
    """Return the first number after those of all batch files of an instant."""
    names = storage.list_names(marker_folder(time))
    used = [int(match[1]) for name in names if (match := _BATCH_FILE.fullmatch(name))]
    return max(used, default=-1) + 1


class BatchFile:
    """One file that this process made and alone writes to, one call at a time."""

    def __init__(
        self,
        storage: Storage,
        time: InstantTime,
        number: int,
        new_filter: NewFilter = no_filter,
    ) -> None:
        self._storage = storage
        self._path = batch_path(time, number)
        self._filter = new_filter(self._path.rpartition("/")[2])
        self._content = b""

    @property
    def path(self) -> str:
        return self._path

    def add(self, markers: Sequence[Marker]) -> None:
        """Return once the markers are durable. After any error the file must not be used again.

        Raises:
            AlreadyExistsError: another process made a file of that number.
            StorageError: the markers may be durable or not, also later.
        """
        if self._filter is not None:
            self._filter.add(markers)
        whole = self._content + encode_markers(markers)
        if self._content:
            self._storage.put(self._path, whole)
        else:
            self._storage.put_if_absent(self._path, whole)
        self._content = whole


def _names(storage: Storage, time: InstantTime) -> set[str]:
    """Return the paths below the folder of an instant, relative to it."""
    prefix = f"{marker_folder(time)}/"
    return {info.path.removeprefix(prefix) for info in storage.list_tree(marker_folder(time))}


def _direct_markers(names: Iterable[str]) -> set[Marker]:
    return {marker for name in names if (marker := parse_marker(name)) is not None}


def _batch_paths(time: InstantTime, names: Iterable[str]) -> list[str]:
    return [
        f"{marker_folder(time)}/{name}" for name in sorted(names) if _BATCH_FILE.fullmatch(name)
    ]


def _read(storage: Storage, path: str) -> bytes:
    try:
        return storage.read(path)
    except NotFoundError as error:
        raise _damaged(path, "it vanished while it was read") from error


def _check_type(data: bytes, path: str) -> None:
    """Refuse kinds of markers that are kept in a way this release does not know.

    Hudi creates the file before it writes to it, so an empty one says nothing.
    """
    text = data.decode(errors="replace").strip()
    if text and text not in MarkerType.__members__:
        raise _damaged(path, f"it names the unknown kind {text!r}")


def _parse_line(line: bytes) -> Marker:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise InvalidInputError(f"{line!r} is not UTF-8") from None
    marker = parse_marker(text)
    if marker is None:
        raise InvalidInputError(f"{text!r} is not the name of a marker")
    check_data_path(marker.data_path)
    return marker


def _damaged(path: str, reason: str) -> HeadwaterError:
    return CorruptTableError(
        f"The marker file {path} cannot be relied on: {reason}. Find the files of this instant by "
        "the instant time in their names instead",
        kind=ErrorKind.CORRUPT_MARKERS,
    )
