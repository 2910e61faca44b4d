"""Reading the archived timeline: which instants it holds, when they completed, what they said.

1. list the folder and read the newest manifest;
2. of the data files that may hold what is asked for, by the times in their names, read the
   columns that are asked for.

Instants are read on first use and then kept, so a `HistoryTimeline` shows one manifest. With
`is_kept` those of a file are kept for the next one as well: a file never changes, and services ask
again and again. Who deletes what is archived does without: it wants to know what storage holds.
Cleaning leaves the files of a manifest alone until three newer manifests exist; a reader slower
than that gets a `NotFoundError` and starts over with a new `HistoryTimeline`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

import pyarrow as pa

from headwater.kernel.timeline.active import completed_at, completed_within_open_closed
from headwater.kernel.timeline.history.archived_files import (
    HistoryFile,
    Manifest,
    load_newest_manifest,
)
from headwater.kernel.timeline.history.columns import load_columns, load_portions
from headwater.kernel.timeline.history.rows import (
    CONTENT_COLUMNS,
    INSTANT_COLUMNS,
    METADATA_COLUMNS,
    ArchivedContents,
    ArchivedMetadata,
    check_agreement,
    decode_contents,
    decode_instants,
    decode_metadata,
)
from headwater.model.instant import Instant, InstantTime
from headwater.seams.cached import cached_property
from headwater.seams.storage import Storage
from headwater.seams.sub_storage import SubStorage

_Instants = dict[InstantTime, Instant]

INSTANTS_KEPT_MAX = 100_000
"""Of one table; they take some 20 MB."""
_KEPT: WeakKeyDictionary[Storage, dict[str, dict[HistoryFile, _Instants]]] = WeakKeyDictionary()


class HistoryTimeline:
    """The archived timeline as of the first look at it. All its instants are completed.

    Every method may raise `NotFoundError` of kind INSTANT_NOT_FOUND when cleaning was faster, and
    `CorruptTableError` for damaged files.
    """

    def __init__(self, storage: Storage, folder: str, *, is_kept: bool = False) -> None:
        self._storage = storage
        self._folder = folder
        self._kept = _kept_of(storage, folder) if is_kept else {}

    @cached_property
    def manifest(self) -> Manifest:
        return load_newest_manifest(self._storage, self._folder)

    def instants(self, after: InstantTime | None = None) -> tuple[Instant, ...]:
        """Return the archived instants requested later than `after`, by requested time."""
        return self._all if after is None else self._instants(after)

    @cached_property
    def _all(self) -> tuple[Instant, ...]:
        return self._instants(None)

    def _instants(self, after: InstantTime | None) -> tuple[Instant, ...]:
        files = [file for file in self.manifest.files if after is None or file.max_time > after]
        found: dict[InstantTime, Instant] = {}
        for instants in self._load_instants(files):
            for time in found.keys() & instants.keys():
                check_agreement(found[time], instants[time], self._folder)
            found |= instants
        if after is not None:
            found = {time: instant for time, instant in found.items() if time > after}
        return tuple(map(found.__getitem__, sorted(found)))

    def completed_within_open_closed(
        self, after: InstantTime | None, up_to: InstantTime | None
    ) -> tuple[Instant, ...]:
        """Archived instants with `after` < completion time <= `up_to`, in that order."""
        return completed_within_open_closed(self._by_completion, after, up_to)

    @cached_property
    def _by_completion(self) -> tuple[Instant, ...]:
        return tuple(sorted(self.instants(), key=completed_at))

    def find(self, time: InstantTime) -> Instant | None:
        """Return the archived instant requested at `time`, or None if there is none."""
        return self.find_all([time]).get(time)

    def find_all(self, times: Iterable[InstantTime]) -> dict[InstantTime, Instant]:
        """Return those of the instants requested at `times` that are archived."""
        wanted = sorted(set(times))
        found = {}
        for instants in self._load_instants(self._files_for(wanted)):
            found.update({time: instants[time] for time in wanted if time in instants})
        return found

    def completion_time_of(self, time: InstantTime) -> InstantTime | None:
        """Return when the instant requested at `time` completed, or None if it is not archived."""
        instant = self.find(time)
        return None if instant is None else instant.completion_time

    def contents(self, times: Iterable[InstantTime]) -> dict[InstantTime, ArchivedContents]:
        """Return what the files of the archived ones among `times` said. Nothing of it is kept."""
        return dict(self.iter_contents(times))

    def iter_contents(
        self, times: Iterable[InstantTime]
    ) -> Iterator[tuple[InstantTime, ArchivedContents]]:
        """Give the same one by one, for who needs each content once: there may be many."""
        for rows, path in self._load_rows(times, CONTENT_COLUMNS):
            yield from decode_contents(rows, path)

    def iter_metadata(
        self, times: Iterable[InstantTime]
    ) -> Iterator[tuple[InstantTime, ArchivedMetadata]]:
        """Give the metadata of the archived ones among `times`, to be decoded where it lies."""
        for rows, path in self._load_rows(times, METADATA_COLUMNS):
            yield from decode_metadata(rows, path)

    def _load_rows(
        self, times: Iterable[InstantTime], columns: Sequence[str]
    ) -> Iterator[tuple[pa.Table, str]]:
        """Give columns of the rows of some times, with the path of their file, in portions."""
        wanted = set(times)
        for file in self._files_for(sorted(wanted)):
            path = f"{self._folder}/{file.name}"
            for portion in load_portions(self._storage, self._folder, file, columns):
                is_wanted = [time in wanted for time in portion.column("instantTime").to_pylist()]
                # Filtering copies every content it keeps.
                yield portion if all(is_wanted) else portion.filter(pa.array(is_wanted)), path

    def _files_for(self, wanted: Sequence[InstantTime]) -> list[HistoryFile]:
        """Return the data files that may hold one of `wanted`, which are ordered."""
        files = []
        for file in self.manifest.files:
            first = bisect_left(wanted, file.min_time)
            if first < len(wanted) and wanted[first] <= file.max_time:
                files.append(file)
        return files

    def _load_instants(self, files: Sequence[HistoryFile]) -> list[_Instants]:
        kept = ((file, self._kept.get(file)) for file in files)
        found = {file: instants for file, instants in kept if instants is not None}
        unread = [file for file in files if file not in found]
        tables = load_columns(self._storage, self._folder, unread, INSTANT_COLUMNS)
        for file, table in zip(unread, tables, strict=True):
            instants = decode_instants(table, f"{self._folder}/{file.name}")
            found[file] = {instant.requested_time: instant for instant in instants}
        if unread:
            self._keep(found)
        return [found[file] for file in files]

    def _keep(self, found: Mapping[HistoryFile, _Instants]) -> None:
        """Keep what was read, of the files that there are, as long as it is not too much."""
        known = {**self._kept, **found}
        current = {file: known[file] for file in self.manifest.files if file in known}
        self._kept.clear()
        if sum(map(len, current.values())) <= INSTANTS_KEPT_MAX:
            self._kept.update(current)


def _kept_of(storage: Storage, folder: str) -> dict[HistoryFile, _Instants]:
    """Return what this process keeps of a folder, for as long as it has the storage."""
    whole, below = storage, folder
    if isinstance(storage, SubStorage):
        whole, below = storage.whole, f"{storage.folder}/{folder}"
    try:
        return _KEPT.setdefault(whole, {}).setdefault(below, {})
    except TypeError:
        return {}  # Nobody can tell how long such a storage lives, as one of the simulator.
