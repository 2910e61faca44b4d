"""Bloom filters of markers: a small file tells which markers need no look.

    .hoodie/.detection/<T>/filters/<name>      one for each task, or for each file of the service

A filter holds the conflict keys of all markers that its maker has announced, and is written before
the marker. So a file group that no filter of a writer may hold has no marker of that writer. A
writer without any filter keeps none, and its markers must be looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa

from headwater.errors import StorageError
from headwater.format.bloom import (
    BloomFilter,
    BloomFilterBuilder,
    BloomType,
    HashedKeys,
    MalformedBloomError,
    parse_bloom_filter,
)
from headwater.kernel.layout import detection_folder
from headwater.kernel.txn.markers import Marker, Markers
from headwater.markers.conflict_keys import conflict_key
from headwater.model.instant import InstantTime
from headwater.seams.storage import ObjectInfo, Storage

log = logging.getLogger(__name__)

_KEYS_PER_ROW = 1_000
"""What most tasks and most files of a service stay below. A filter grows by rows of this size."""

_KEYS_MAX = 1 << 30
"""Rows are added without end, or the filter would fill up and rule nothing out."""

_FALSE_POSITIVE_RATE = 1e-3
"""A look for nothing at one in a thousand groups; two kilobytes for a row."""


def filter_folder(time: InstantTime) -> str:
    return f"{detection_folder(time)}/filters"


class FilterFile:
    """One filter that this process alone writes, one call at a time."""

    def __init__(
        self, storage: Storage, time: InstantTime, name: str, *, is_bucketed: bool
    ) -> None:
        self._storage = storage
        self._path = f"{filter_folder(time)}/{name}"
        self._is_bucketed = is_bucketed
        self._builder = BloomFilterBuilder(
            BloomType.DYNAMIC,
            keys_per_row=_KEYS_PER_ROW,
            false_positive_rate=_FALSE_POSITIVE_RATE,
            keys_max=_KEYS_MAX,
        )
        self._update_count = 0

    def add(self, markers: Iterable[Marker]) -> None:
        """Return once the filter holds the markers, durably.

        Raises:
            StorageError: it may not hold them, so they must not be created.
        """
        keys = {conflict_key(marker.group, is_bucketed=self._is_bucketed) for marker in markers}
        self._builder.add(_array(sorted(keys)))
        self._update_count += 1
        # A filter keeps its size, and clocks of stores may be coarse. With a line end for each
        # update the size tells others that there is something new.
        padding = "\n" * self._update_count
        self._storage.put(self._path, f"{self._builder.build().to_text()}{padding}".encode())


NewFilter = Callable[[str], FilterFile | None]
"""Makes the filter for a file of markers, given its name; None where none is kept."""


def no_filter(name: str) -> None:
    return None


class FilteredMarkers:
    """Markers of one task, each of which is in the task's filter first."""

    def __init__(self, markers: Markers, file: FilterFile) -> None:
        self._markers = markers
        self._file = file

    def create(self, marker: Marker) -> None:
        self._file.add([marker])
        self._markers.create(marker)


@dataclass(frozen=True, slots=True)
class _ReadFilter:
    info: ObjectInfo
    filter: BloomFilter


class RivalFilters:
    """The filters of one candidate, each read again only when it has changed."""

    def __init__(self, storage: Storage, time: InstantTime) -> None:
        self._storage = storage
        self._folder = filter_folder(time)
        self._read: dict[str, _ReadFilter] = {}

    def load(self) -> dict[str, BloomFilter] | None:
        """Return the filters by name; None if there is none, or one is damaged.

        Raises:
            StorageError: storage failed.
        """
        infos = self._storage.list_tree(self._folder)
        known = {
            info.path: read
            for info in infos
            if (read := self._read.get(info.path)) is not None and read.info == info
        }
        new = [info for info in infos if info.path not in known]
        for info, data in zip(new, self._storage.read_many(info.path for info in new), strict=True):
            found = None if data is None else _parse(data, info.path)
            if found is None:
                return None
            known[info.path] = _ReadFilter(info, found)
        self._read = known
        if not known:
            return None
        prefix = f"{self._folder}/"
        return {path.removeprefix(prefix): read.filter for path, read in known.items()}

    def may_hold(self, key: bytes) -> bool:
        """Whether the candidate may have announced a marker with that key."""
        try:
            filters = self.load()
        except StorageError as error:
            log.info("filters not read, markers are looked at error=%s", error)
            return True
        asked = AskedKeys([key])
        return filters is None or any(asked.may_be_in(found) for found in filters.values())


class AskedKeys:
    """Keys to ask many filters for, hashed once."""

    def __init__(self, keys: Collection[bytes]) -> None:
        self._keys = keys
        self._hashed: HashedKeys | None = None

    def may_be_in(self, found: BloomFilter) -> bool:
        """Whether a filter may hold one of the keys."""
        if not self._keys:
            return False
        if self._hashed is None or not found.fits(self._hashed):
            self._hashed = found.hash_keys(_array(self._keys))
        return found.might_contain_any(self._hashed)


def _array(keys: Iterable[bytes]) -> pa.Array:
    return pa.array([key.decode() for key in keys], pa.string())


def _parse(data: bytes, path: str) -> BloomFilter | None:
    try:
        return parse_bloom_filter(data.decode("ascii").rstrip(), BloomType.DYNAMIC)
    except (MalformedBloomError, UnicodeDecodeError) as error:
        log.info("unreadable filter passed over path=%s error=%s", path, error)
        return None
