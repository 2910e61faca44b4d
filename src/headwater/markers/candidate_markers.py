"""Reading the markers of candidates, in the little time there is before one's own are made.

Both kinds of markers are read, because writers of one table may keep different ones. Whatever
cannot be read counts as no marker (INV-69): a missed conflict shows at the commit.

    one file group    `GroupMarkerReader`: the names in the group's partition, not the whole folder
    many at once      `CandidateIndex`: conflict keys of all markers, each file read when it changed
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum, auto, unique
from typing import Protocol

from headwater.errors import NotFoundError, StorageError
from headwater.format.bloom import BloomFilter
from headwater.kernel.layout import marker_folder
from headwater.kernel.txn.markers import Marker, parse_marker
from headwater.markers.batches import is_batch_file, parse_readable_markers
from headwater.markers.bloom_markers import AskedKeys, RivalFilters
from headwater.markers.conflict_keys import conflict_key, keys_of_lines, lines_with
from headwater.model.files import FileGroupId
from headwater.model.instant import InstantTime
from headwater.seams.storage import ObjectInfo, Storage

log = logging.getLogger(__name__)

_HEAD_LENGTH = 8
"""How much of a file id tells most others apart; all of it that file ids of a bucket share."""

_LINES_MAX = 10_000
"""Markers that are looked at one by one; if none of so many is a conflict, none will be."""


class MarkerReader(Protocol):
    """Sees which markers of a candidate meet a file group."""

    def markers_on(self, time: InstantTime, group: FileGroupId) -> list[Marker]:
        """Return the markers of instant `time` whose conflict key is that of the group."""
        ...


@unique
class _Kept(Enum):
    """How a candidate keeps its markers, as far as they have told."""

    DIRECT = auto()
    IN_BATCHES = auto()


class GroupMarkerReader:
    """Looks at the markers themselves, one file group at a time."""

    def __init__(self, storage: Storage, *, is_bucketed: bool) -> None:
        self._storage = storage
        self._is_bucketed = is_bucketed
        self._kept: dict[InstantTime, _Kept] = {}
        self._indexes: dict[InstantTime, CandidateIndex] = {}

    def markers_on(self, time: InstantTime, group: FileGroupId) -> list[Marker]:
        try:
            return self._markers_on(time, group)
        except StorageError as error:
            log.info("markers passed over instant=%s error=%s", time, error)
            return []

    def _markers_on(self, time: InstantTime, group: FileGroupId) -> list[Marker]:
        folder, kept = marker_folder(time), self._kept.get(time)
        key = conflict_key(group, is_bucketed=self._is_bucketed)
        names: list[str] = []
        if kept is None or not group.partition:
            names = self._storage.list_names(folder)
            if any(is_batch_file(name) for name in names):
                kept = self._kept[time] = _Kept.IN_BATCHES
        if kept is _Kept.IN_BATCHES:
            index = self._indexes.setdefault(
                time, CandidateIndex(self._storage, time, is_bucketed=self._is_bucketed)
            )
            index.refresh(frozenset({key}))
            return index.markers({key})
        if group.partition:
            names = self._storage.list_names(f"{folder}/{group.partition}")
            if names:
                self._kept[time] = _Kept.DIRECT
        path = f"{group.partition}/" if group.partition else ""
        near = [f"{path}{name}" for name in names if group.file_id[:_HEAD_LENGTH] in name]
        found = [marker for name in near if (marker := parse_marker(name)) is not None]
        return [m for m in found if conflict_key(m.group, is_bucketed=self._is_bucketed) == key]


class FilteredMarkerReader:
    """Asks a candidate's filters first, and looks at markers only if they may hold the group."""

    def __init__(self, sight: MarkerReader, storage: Storage, *, is_bucketed: bool) -> None:
        self._sight = sight
        self._storage = storage
        self._is_bucketed = is_bucketed
        self._filters: dict[InstantTime, RivalFilters] = {}

    def markers_on(self, time: InstantTime, group: FileGroupId) -> list[Marker]:
        filters = self._filters.setdefault(time, RivalFilters(self._storage, time))
        if not filters.may_hold(conflict_key(group, is_bucketed=self._is_bucketed)):
            return []
        return self._sight.markers_on(time, group)


@dataclass(frozen=True, slots=True)
class _Indexed:
    """One file of markers."""

    info: ObjectInfo
    keys: frozenset[bytes] | None
    """None: not read, because its filter holds none of the keys wanted at the last refresh."""


class CandidateIndex:
    """The conflict keys of all markers of one candidate, in memory.

    A file of markers only ever grows, so its size tells whether it has changed.
    """

    def __init__(
        self, storage: Storage, time: InstantTime, *, is_bucketed: bool, has_filters: bool = False
    ) -> None:
        """Begin with nothing read.

        Args:
            has_filters: whether to ask the candidate's filters before its files are read.
        """
        self._storage = storage
        self._folder = marker_folder(time)
        self._is_bucketed = is_bucketed
        self._filters = RivalFilters(storage, time) if has_filters else None
        self._files: dict[str, _Indexed] = {}
        self._wanted: frozenset[bytes] = frozenset()
        self._direct = b""
        self._direct_keys: frozenset[bytes] = frozenset()

    def refresh(self, wanted: frozenset[bytes]) -> None:
        """Read what has changed, and may hold one of the wanted keys.

        Raises:
            StorageError: the folder cannot be listed.
        """
        prefix = f"{self._folder}/"
        infos = {
            info.path.removeprefix(prefix): info for info in self._storage.list_tree(self._folder)
        }
        batches = {name: info for name, info in infos.items() if is_batch_file(name)}
        self._files = self._refreshed(batches, wanted)
        self._direct = "\n".join(name for name in infos if name not in batches).encode()
        self._direct_keys = self._keys_of(self._direct)

    def _refreshed(
        self, batches: Mapping[str, ObjectInfo], wanted: frozenset[bytes]
    ) -> dict[str, _Indexed]:
        files: dict[str, _Indexed] = {}
        filters = self._load_filters() if batches else None
        every, new = AskedKeys(wanted), AskedKeys(wanted - self._wanted)
        unread = []
        for name, info in batches.items():
            known = self._files.get(name)
            if known is not None and known.info != info:
                known = None
            if known is not None and known.keys is not None:
                files[name] = known
                continue
            if filters is not None and name in filters:
                asked = every if known is None else new
                if not asked.may_be_in(filters[name]):
                    files[name] = _Indexed(info, None)
                    continue
            unread.append(info)
        for info, data in zip(unread, self._read(unread), strict=True):
            if data is not None:
                name = info.path.removeprefix(f"{self._folder}/")
                files[name] = _Indexed(info, self._keys_of(data))
        self._wanted = wanted
        return files

    def _load_filters(self) -> Mapping[str, BloomFilter] | None:
        if self._filters is None:
            return None
        try:
            return self._filters.load()
        except StorageError as error:
            log.info("filters not read, markers are looked at error=%s", error)
            return None

    def _read(self, infos: Sequence[ObjectInfo]) -> list[bytes | None]:
        try:
            return self._storage.read_many(info.path for info in infos)
        except StorageError:
            return [self._read_one(info.path) for info in infos]

    def _read_one(self, path: str) -> bytes | None:
        try:
            return self._storage.read(path)
        except (NotFoundError, StorageError) as error:
            log.info("unreadable markers passed over path=%s error=%s", path, error)
            return None

    def _keys_of(self, lines: bytes) -> frozenset[bytes]:
        return frozenset(keys_of_lines(lines, is_bucketed=self._is_bucketed))

    def meeting(self, keys: Set[bytes]) -> Set[bytes]:
        """Return those of the keys that the candidate has, as of the last refresh."""
        met = keys & self._direct_keys
        for file in self._files.values():
            if file.keys:
                met |= keys & file.keys
        return met

    def markers(self, keys: Set[bytes]) -> list[Marker]:
        """Return markers with these keys, having read the files that hold them once more."""
        lines = self._lines_with(keys & self._direct_keys, self._direct)
        for file in list(self._files.values()):
            if file.keys and keys & file.keys:
                [data] = self._read([file.info])
                lines += self._lines_with(keys, data or b"")
        return parse_readable_markers(b"\n".join(lines[:_LINES_MAX]))

    def _lines_with(self, keys: Set[bytes], lines: bytes) -> list[bytes]:
        return lines_with(keys, lines, is_bucketed=self._is_bucketed) if keys else []
