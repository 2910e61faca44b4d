"""From layout 1 to layout 2: what the timeline of an upgraded table holds. Pure, but for loads.

Completion times. Hudi takes the time at which a completed file was modified. A copy of the table
has other times there, all of them late, and several files may have one. So these times are taken
only if each lies between its instant and the one after it, where it must lie if writers came one
after the other; else every instant is taken for completed a millisecond after it was requested,
which is how the table was read before (N-113). No two times of the table are equal afterwards.

Archived instants come from the archive, and if files bear a time that it does not have, from these
files: before version 8 such files count, and with layout 2 only what a commit lists does (N-112).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from headwater.format.timeline.archived_entries import ArchivedEntry, decode_archived
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.layout import HOODIE
from headwater.kernel.timeline.history.rows import HistoryRow
from headwater.kernel.timeline.layout_one import is_completed_name, modern_content, modern_name
from headwater.kernel.timeline.names import COMPLETED_SUFFIXES, REQUESTED_SUFFIXES, is_instant_time
from headwater.model.commit_metadata import CommitMetadata, WriteStat
from headwater.model.files import DataFile
from headwater.model.instant import (
    Action,
    Instant,
    InstantTime,
    State,
    instant_time_after,
    instant_time_at,
)
from headwater.model.plans import RequestedReplace
from headwater.seams.storage import ObjectInfo, Storage

_ARCHIVE_FILE = re.compile(r"\.commits_\.archive\.([0-9]+).*", re.ASCII)
_NEVER = InstantTime("9" * 17)
_CLUSTER = "CLUSTER"
_REPLACE_REQUESTED = f".{Action.REPLACE_COMMIT}.{State.REQUESTED}"


@dataclass(frozen=True, slots=True)
class OldTimeline:
    """The timeline files of a table with layout 1, by name; nothing else of its folder."""

    files: Mapping[str, ObjectInfo]

    @property
    def requested_times(self) -> set[InstantTime]:
        return {InstantTime(name.partition(".")[0]) for name in self.files}

    def completion_times(self, *, is_utc: bool) -> dict[str, InstantTime]:
        """Return by the name of every completed file when its instant completed."""
        requested = sorted(self.requested_times)
        after = dict(pairwise(requested))
        names = sorted(filter(is_completed_name, self.files))
        times = {name: InstantTime(name.partition(".")[0]) for name in names}
        modified = {
            name: instant_time_at(self.files[name].modified_ms, is_utc=is_utc) for name in names
        }
        is_original = all(
            times[name] < modified[name] < after.get(times[name], _NEVER) for name in names
        )
        taken = set(requested)
        return {
            name: _free(modified[name] if is_original else instant_time_after(times[name]), taken)
            for name in names
        }


def load_old_timeline(storage: Storage) -> OldTimeline:
    """List the timeline files of a table with layout 1."""
    infos = {info.path.removeprefix(f"{HOODIE}/"): info for info in storage.list_tree(HOODIE)}
    return OldTimeline(
        {name: info for name, info in infos.items() if modern_name(name) is not None}
    )


def load_modern_files(
    storage: Storage, old: OldTimeline, completions: Mapping[str, InstantTime]
) -> dict[str, bytes]:
    """Return the names and contents that the timeline files have in layout 2.

    Raises:
        CorruptTableError: a file is damaged.
        NotFoundError: one is gone since it was listed.
    """
    names = sorted(old.files)
    paths = [old.files[name].path for name in names]
    contents = dict(zip(names, storage.at_once(storage.read, paths), strict=True))
    clusterings = {
        name.partition(".")[0]
        for name, data in contents.items()
        if name.endswith(_REPLACE_REQUESTED) and _is_clustering(data, old.files[name].path)
    }
    files = {}
    for name in names:
        modern = modern_name(name, completions.get(name)) or name
        is_pending = name not in completions
        if is_pending and name.partition(".")[0] in clusterings:
            # Since version 8 the files of a clustering that is pending, or was, bear its own name.
            modern = modern.replace(f".{Action.REPLACE_COMMIT}.", f".{Action.CLUSTERING}.")
        files[modern] = modern_content(name, contents[name], path=old.files[name].path)
    return files


def load_archive(storage: Storage, folder: str) -> list[ArchivedEntry]:
    """Load the archived timeline of a table with layout 1, the newest file first.

    Raises:
        CorruptTableError: a file is damaged.
    """
    found = [(match, name) for name in storage.list_names(folder) if (match := _match(name))]
    found.sort(key=lambda each: int(each[0][1]), reverse=True)
    entries: list[ArchivedEntry] = []
    for _, name in found:
        path = f"{folder}/{name}"
        entries += decode_archived(storage.read(path), path=path)
    return entries


def archived_rows(
    entries: Iterable[ArchivedEntry], older: Iterable[DataFile], active: Iterable[InstantTime]
) -> list[HistoryRow]:
    """Return the rows of the archived timeline in layout 2, in order.

    Args:
        older: the files that count although no commit of the active timeline lists them.
        active: the requested times of the active timeline, whose instants are not archived twice.
    """
    active = set(active)
    instants: dict[InstantTime, tuple[Action, InstantTime | None, bytes]] = {}
    plans: dict[InstantTime, bytes] = {}
    for entry in entries:
        time = InstantTime(entry.requested_time)
        if time in active or not is_instant_time(time) or entry.action == Action.SAVEPOINT:
            continue
        action = COMPLETED_SUFFIXES.get(entry.action)
        if entry.state == "COMPLETED" and action is not None:
            done = entry.transition_time
            completed = InstantTime(done) if done and is_instant_time(done) else None
            # A merge of archive files that died leaves an entry twice.
            instants.setdefault(time, (action, completed, entry.content))
        elif entry.state == "REQUESTED" and f"{entry.action}.requested" in REQUESTED_SUFFIXES:
            plans.setdefault(time, entry.content)
    for time, metadata in _commits_of_files(older, instants).items():
        instants[time] = (Action.COMMIT, None, metadata)
    taken = active | instants.keys()
    times = sorted(instants)
    after = dict(pairwise(times))
    rows = []
    for time in times:
        action, completed, metadata = instants[time]
        end = after.get(time, min(active, default=_NEVER))
        is_plausible = completed is not None and time < completed < end
        done = _free(completed if completed and is_plausible else instant_time_after(time), taken)
        instant = Instant(time, action, State.COMPLETED, done)
        rows.append(HistoryRow(instant, metadata, plans.get(time, b"")))
    return rows


def _commits_of_files(
    older: Iterable[DataFile], known: Mapping[InstantTime, object]
) -> dict[InstantTime, bytes]:
    """Return commit metadata for files of times that nothing tells of."""
    stats: dict[InstantTime, dict[str, list[WriteStat]]] = {}
    for file in older:
        if file.instant_time in known:
            continue
        stat = WriteStat(
            file_id=file.file_id,
            path=file.path,
            partition_path=file.partition,
            prev_commit="null",
            total_write_bytes=file.size_bytes,
            file_size_in_bytes=file.size_bytes,
        )
        stats.setdefault(file.instant_time, {}).setdefault(file.partition, []).append(stat)
    return {
        time: encode_record(
            CommitMetadata(
                partition_to_write_stats={
                    partition: tuple(some) for partition, some in partitions.items()
                }
            )
        )
        for time, partitions in stats.items()
    }


def _free(time: InstantTime, taken: set[InstantTime]) -> InstantTime:
    """Return the first time from one on that nothing has yet; it is taken then."""
    while time in taken:
        time = instant_time_after(time)
    taken.add(time)
    return time


def _match(name: str) -> re.Match[str] | None:
    return _ARCHIVE_FILE.fullmatch(name)


def _is_clustering(data: bytes, path: str) -> bool:
    if not data:
        return False
    return decode_record(RequestedReplace, data, path=path).operation_type == _CLUSTER
