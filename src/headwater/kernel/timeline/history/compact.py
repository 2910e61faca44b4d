"""Merging data files of the archived timeline level by level, and cleaning up after it.

A level that holds `batch_size` files has its oldest ones merged into one file of the next level:

1. write the merged file; rows are ordered and distinct;
2. commit the next manifest, which lists it in place of its sources;
3. move the pointer that other engines read;
4. delete old manifests, then the data files that no kept manifest lists.

What a crash leaves behind, by the last write that landed:

    after            state                                   who repairs
    merged file      listed by nobody, read by nobody        the next merge of the same files
                                                             adopts it, or cleaning removes it
    manifest         other engines still read the sources    the next archival or merge moves the
                                                             pointer
    pointer          sources listed by old manifests only    the next cleaning
    some deletions   the same                                the next cleaning

Why cleaning is safe beside other processes. A file can still be listed only by a process that wrote
or adopted it and goes on to commit the manifest after the one it read. Cleaning looks only at files
that were there before its own process committed a manifest, so whoever wrote one loses that race
and starts over from a newer manifest. From there it would adopt the file only for instants that the
newest manifest lacks, or as the merge of a level that is full; and cleaning spares files with
instants that are not archived elsewhere, and runs when no level is full.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptTableError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    check,
)
from headwater.kernel.timeline.history.archived_files import (
    LEVEL_MAX,
    HistoryFile,
    Manifest,
    advance_pointer,
    commit_manifest,
    load_newest_manifest,
    manifest_path,
    manifest_versions,
    parse_data_file_name,
    parse_manifest,
)
from headwater.kernel.timeline.history.columns import load_columns
from headwater.kernel.timeline.history.merge import merge_files
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.history.rows import (
    INSTANT_COLUMNS,
    decode_instants,
    decode_table,
    encode_tables,
)
from headwater.model.instant import Instant, InstantTime
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

BATCH_SIZE = 10
"""hoodie.timeline.compaction.batch.size"""

MANIFESTS_KEPT = 3
"""A reader may be this many manifests behind before the files it reads go away."""

MERGE_BYTES_MAX = 256 * 1024 * 1024
"""A merged file is put together in memory, so files beyond this are left as they are."""

_TRIES_MAX = 10
"""How often a merge starts over. Others archive every few commits, so ten in a row is a fault."""


def compact_history(storage: Storage, folder: str, *, batch_size: int = BATCH_SIZE) -> int:
    """Merge every full level, clean if anything was merged, and return the number of merges.

    Raises:
        ConflictError: other processes kept changing the archived timeline.
        CorruptTableError: a file is damaged.
    """
    if batch_size < 2:
        raise InvalidInputError(f"A merge takes at least 2 files, got batch_size={batch_size}")
    merges = 0
    lost_races = 0
    seen: list[str] = []
    while True:
        manifest = load_newest_manifest(storage, folder)
        batch = plan_merge(manifest, batch_size)
        if not batch:
            break
        names = storage.list_names(folder)
        try:
            merged = _write_merged(storage, folder, manifest, batch)
            commit_manifest(storage, folder, manifest, add=[merged], drop=batch)
        except (ConflictError, NotFoundError):
            # Another process merged first, and may have cleaned away what was to be merged.
            lost_races += 1
            if lost_races == _TRIES_MAX:
                raise
            continue
        seen = names
        merges += 1
    if merges:
        # A pass of several merges uses up several manifests at once.
        clean_history(storage, folder, seen, keep=MANIFESTS_KEPT + merges)
    return merges


def plan_merge(manifest: Manifest, batch_size: int) -> tuple[HistoryFile, ...]:
    """Return the oldest files of the lowest full level, or () if no level is full."""
    for level in range(LEVEL_MAX):
        files = sorted(file for file in manifest.files if file.level == level)
        if len(files) < batch_size:
            continue
        batch: list[HistoryFile] = []
        for file in files[:batch_size]:
            if sum(f.size_bytes for f in batch) + file.size_bytes > MERGE_BYTES_MAX:
                break
            batch.append(file)
        if len(batch) >= 2:
            return tuple(batch)
    return ()


def clean_history(storage: Storage, folder: str, seen: Collection[str], *, keep: int) -> None:
    """Delete all but the newest `keep` manifests, then data files that none of these lists.

    Only data files among `seen` are looked at, names that were listed before this process
    committed its last manifest.
    """
    history = HistoryTimeline(storage, folder)
    advance_pointer(storage, folder, history.manifest.version)
    try:
        archived = {instant.requested_time for instant in history.instants()}
    except NotFoundError:
        return  # Another process cleans too, and came further.
    versions = manifest_versions(storage.list_names(folder))
    listed = _load_listed(storage, folder, versions[:keep])
    for version in reversed(versions[keep:]):
        storage.delete(manifest_path(folder, version))
    unlisted = (parse_data_file_name(name, size_bytes=0) for name in sorted(set(seen) - listed))
    storage.delete_many(
        f"{folder}/{file.name}"
        for file in unlisted
        if file is not None and _is_archived_elsewhere(storage, folder, file, archived)
    )


def _write_merged(
    storage: Storage, folder: str, manifest: Manifest, batch: Sequence[HistoryFile]
) -> HistoryFile:
    """Write the file of the next level that replaces `batch`, or find it written already."""
    tables = load_columns(storage, folder, batch, INSTANT_COLUMNS)
    instants = {instant for table in tables for instant in decode_instants(table, folder)}
    data = encode_tables(merge_files(storage, folder, batch))
    merged = HistoryFile(
        min(file.min_time for file in batch),
        max(file.max_time for file in batch),
        batch[0].level + 1,
        len(data),
    )
    path = f"{folder}/{merged.name}"
    check(_instants_in(data, path) == instants, "A merge keeps every instant", path=path)
    if merged.name in {file.name for file in manifest.files}:
        raise CorruptTableError(
            f"{path} is listed already beside files with the same oldest instant, so that instant "
            "was archived twice. Find out which file is right before you merge",
            kind=ErrorKind.CORRUPT_TIMELINE,
            path=path,
        )
    try:
        storage.put_if_absent(path, data)
    except AlreadyExistsError:
        leftover = _read_leftover(storage, path)
        if leftover is not None and _instants_in(leftover, path) == instants:
            return replace(merged, size_bytes=len(leftover))
        # Only the manifest that follows `manifest` can list this name, and whoever commits that one
        # merges the same files.
        storage.put(path, data)
    return merged


def _read_leftover(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except NotFoundError:
        return None


def _instants_in(data: bytes, path: str) -> set[Instant] | None:
    """Return the instants in a data file, or None if it is damaged."""
    try:
        return set(decode_instants(decode_table(data, path, INSTANT_COLUMNS), path))
    except CorruptTableError:
        return None


def _load_listed(storage: Storage, folder: str, versions: Sequence[int]) -> set[str]:
    """Return the names of the data files that any of these manifests lists."""
    paths = [manifest_path(folder, version) for version in versions]
    listed: set[str] = set()
    for path, data in zip(paths, storage.read_many(paths), strict=True):
        if data is None:
            continue  # Another process cleans too, and came further.
        try:
            listed |= {file.name for file in parse_manifest(data, path)}
        except CorruptTableError as error:
            # The torn write of an engine that died. Reading the newest manifest proved as much.
            log.warning("torn manifest of the archived timeline passed over error=%s", error)
    return listed


def _is_archived_elsewhere(
    storage: Storage, folder: str, unlisted: HistoryFile, archived: set[InstantTime]
) -> bool:
    try:
        size_bytes = storage.info(f"{folder}/{unlisted.name}").size_bytes
        file = replace(unlisted, size_bytes=size_bytes)
        (table,) = load_columns(storage, folder, [file], ["instantTime"])
    except NotFoundError:
        return False  # Another process cleans too.
    except CorruptTableError as error:
        log.warning("damaged file of the archived timeline left alone error=%s", error)
        return False
    return archived.issuperset(table.column(0).to_pylist())
