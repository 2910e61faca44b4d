"""Files of the archived timeline: an LSM tree of Parquet files (format rule 3).

    <minT>_<maxT>_<level>.parquet   archived instants; level 0 is fresh from the active timeline
    manifest_<N>                    JSON list of the live data files, N = 1, 2, ...
    _version_                       the number of the newest manifest, for other engines

Creating `manifest_<N+1>` is the commit point of every change: put-if-absent lets exactly one
process follow manifest N, and whoever loses starts over from the newest one. We take the largest
manifest for the newest. The pointer is never trusted to be up to date, because it is written after
the manifest and by whoever comes last; it only serves stock Hudi, which looks nowhere else, and
tells a manifest that was damaged after its commit from one that never was committed.

Numbers of manifests that cleaning deleted could be taken a second time by a process that stalled
meanwhile. Such a manifest is not the largest, so no reader takes it, and its author notices when it
looks for what it archived (`history.write`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

from headwater.config.limits import check_object_bytes
from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptTableError,
    ErrorKind,
    NotFoundError,
)
from headwater.format.strict_json import load_json
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage

LEVEL_MAX = 9
"""Other engines read one digit."""

_POINTER = "_version_"
_DATA_FILE = re.compile(r"([0-9]+)_([0-9]+)_([0-9])\.parquet", re.ASCII)
_MANIFEST = re.compile(r"manifest_([0-9]+)", re.ASCII)

_LOOKS_MAX = 5
"""How often a manifest may be cleaned away between listing and reading it, or the pointer be
changed between reading and replacing it. Both come once in several commits."""


@dataclass(frozen=True, slots=True, order=True)
class HistoryFile:
    """A data file. Files order by the oldest instant in them."""

    min_time: InstantTime
    max_time: InstantTime
    level: int
    size_bytes: int

    @property
    def name(self) -> str:
        return f"{self.min_time}_{self.max_time}_{self.level}.parquet"

    def may_hold(self, time: InstantTime) -> bool:
        return self.min_time <= time <= self.max_time


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of the archived timeline. Version 0 stands for a table that archived nothing."""

    version: int
    files: tuple[HistoryFile, ...]
    next_version: int


def parse_data_file_name(name: str, size_bytes: int) -> HistoryFile | None:
    """Return the data file that `name` belongs to, or None for any other name."""
    match = _DATA_FILE.fullmatch(name)
    if match is None:
        return None
    min_time, max_time, level = match.groups()
    return HistoryFile(InstantTime(min_time), InstantTime(max_time), int(level), size_bytes)


def manifest_versions(names: Iterable[str]) -> list[int]:
    """Return the versions of the manifests among `names`, the newest first."""
    matches = map(_MANIFEST.fullmatch, names)
    return sorted((int(match[1]) for match in matches if match), reverse=True)


def manifest_path(folder: str, version: int) -> str:
    return f"{folder}/manifest_{version}"


def encode_manifest(files: Iterable[HistoryFile]) -> bytes:
    entries = [{"fileName": file.name, "fileLen": file.size_bytes} for file in files]
    return json.dumps({"files": entries}, indent=2).encode()


def parse_manifest(data: bytes, path: str) -> tuple[HistoryFile, ...]:
    """Return the data files that a manifest lists.

    Raises:
        CorruptTableError: it is no manifest.
    """
    check_object_bytes(data, path)
    try:
        entries = load_json(data)["files"]
        named = [(str(entry["fileName"]), int(entry["fileLen"])) for entry in entries]
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(path, "it is no JSON list of data files") from error
    files = []
    for name, size_bytes in named:
        file = parse_data_file_name(name, size_bytes)
        if file is None:
            raise _corrupt(path, f"it lists {name!r}, which is no name of a data file")
        files.append(file)
    return tuple(files)


def load_newest_manifest(storage: Storage, folder: str) -> Manifest:
    """Find and read the newest manifest.

    A manifest beyond the pointer that cannot be parsed is the torn write of an engine that died;
    nothing was deleted on its account, so the one before it is the newest.

    Raises:
        CorruptTableError: a committed manifest is damaged or missing.
    """
    lost = 0
    for _ in range(_LOOKS_MAX):
        names = storage.list_names(folder)
        versions = manifest_versions(names)
        if not versions and _POINTER not in names:
            return Manifest(0, (), 1)
        newest = max(versions, default=0)
        pointed, data = storage.read_many([f"{folder}/{_POINTER}", manifest_path(folder, newest)])
        pointer = _parse_pointer(pointed)
        if data is not None and (pointer or 0) <= newest:
            return _newest_whole(storage, folder, versions, pointer, data)
        # Others went on since the listing, unless it stays like this.
        lost = max(newest, pointer or 0)
    raise _corrupt(manifest_path(folder, lost), "it is missing")


def load_pointer(storage: Storage, folder: str) -> int | None:
    """Return the manifest version that other engines read, or None if nobody can tell."""
    return _parse_pointer(storage.read_many([f"{folder}/{_POINTER}"])[0])


def commit_manifest(
    storage: Storage,
    folder: str,
    follows: Manifest,
    *,
    add: Iterable[HistoryFile],
    drop: Collection[HistoryFile] = (),
) -> None:
    """Create the manifest after `follows`: the same data files without `drop` and with `add`.

    Raises:
        ConflictError: another process changed the archived timeline first.
    """
    kept = [file for file in follows.files if file not in drop]
    path = manifest_path(folder, follows.next_version)
    try:
        storage.put_if_absent(path, encode_manifest([*kept, *add]))
    except AlreadyExistsError as taken:
        raise ConflictError(
            "Another process changed the archived timeline first; start over from its manifest",
            path=path,
        ) from taken


def advance_pointer(storage: Storage, folder: str, version: int) -> None:
    """Show `version` to other engines, unless they see a newer one already.

    A process that stalls here must not turn the pointer back, to a manifest that may be cleaned
    away by now; so it is replaced only as it was read. A store that cannot do that needs the table
    lock around archival.

    Raises:
        ConflictError: other processes kept changing the pointer.
    """
    path = f"{folder}/{_POINTER}"
    for _ in range(_LOOKS_MAX):
        with suppress(AlreadyExistsError, ConflictError):
            _advance_once(storage, path, version)
            return
    raise ConflictError(
        f"Other processes changed the pointer during each of {_LOOKS_MAX} looks; try again",
        path=path,
    )


def _advance_once(storage: Storage, path: str, version: int) -> None:
    data = str(version).encode()
    try:
        found = storage.read_versioned(path)
    except NotFoundError:
        storage.put_if_absent(path, data)
        return
    pointer = _parse_pointer(found.data)
    if pointer is not None and pointer >= version:
        return
    if storage.can_replace:
        storage.replace(path, data, version=found.version)
    else:
        storage.put(path, data)


def _newest_whole(
    storage: Storage, folder: str, versions: list[int], pointer: int | None, data: bytes
) -> Manifest:
    newest = versions[0]
    if pointer is None:
        # A pointer is lost after the newest manifest was written. Before the first there is none.
        pointer = newest if newest > 1 else 0
    for version in versions:
        path = manifest_path(folder, version)
        if version < newest:
            data = storage.read(path)
        try:
            return Manifest(version, parse_manifest(data, path), newest + 1)
        except CorruptTableError:
            if version <= pointer:
                raise
    return Manifest(0, (), newest + 1)


def _parse_pointer(data: bytes | None) -> int | None:
    return int(data) if data is not None and data.isdigit() else None


def _corrupt(path: str, reason: str) -> CorruptTableError:
    return CorruptTableError(
        f"Manifest {path} of the archived timeline is damaged: {reason}. Restore it from a copy; "
        "without it the instants it lists count as never committed",
        kind=ErrorKind.CORRUPT_TIMELINE,
        path=path,
    )
