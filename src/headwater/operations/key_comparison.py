"""Comparing new keys with those of other writes before the lock is taken; see `key_conflicts`.

Keys come from the files themselves, the record key column alone. Those of small writes are read all
at once. Of others a part of the write's own files is held at a time, and one file of the others: so
ten million keys take as much memory as a million, and the files of the others are gone through once
for each part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from headwater.errors import ConflictError
from headwater.files.record_keys import load_record_keys
from headwater.kernel.txn.changes import Change, NewKeys
from headwater.kernel.txn.conflicts import ConflictCheck
from headwater.kernel.txn.key_conflicts import KeyCheck, Meeting, key_conflict, shared_keys
from headwater.model.files import DataFile
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage

_ROWS_HELD_MAX = 1_000_000
"""How many own keys are held at a time; one file may have more."""


def compare_keys(
    storage: Storage, check: ConflictCheck, others: Iterable[Change]
) -> tuple[ConflictCheck, list[ConflictError]]:
    """Compare the new keys of a write with those of others that it did not see.

    Returns the check, which knows now who was compared, and a conflict for each meeting that has
    keys in common.

    Raises:
        CorruptTableError: a file is damaged.
    """
    keys = check.keys
    if keys is None:
        return check, []
    conflicts: list[ConflictError] = []
    compared: set[InstantTime] = set()
    unseen = [other for other in check.unseen(others) if other.instant.is_completed]
    files = keys.wanted(check.mine, unseen)
    loaded = dict(zip(files, load_record_keys(storage, files), strict=True))
    for other in unseen:
        found = [
            key_conflict(check.mine, other, meeting.partition, shared)
            for meeting in keys.meetings(check.mine, other)
            if len(shared := _shared(storage, meeting, loaded))
        ]
        conflicts += found
        if not found:
            compared.add(other.instant.requested_time)
    known = KeyCheck(keys.scope, keys.compared.union(compared))
    return replace(check, keys=known), conflicts


def _shared(
    storage: Storage, meeting: Meeting, loaded: Mapping[DataFile, pa.ChunkedArray | None]
) -> pa.ChunkedArray:
    """Return keys of a meeting that both sides have, those of the first files that have any.

    Nothing is known of a file that is gone but that its rows are somewhere else, so it counts as
    having them all.
    """
    for some in _parts(meeting.mine):
        mine = [keys for keys in _load(storage, some, loaded) if keys is not None]
        for one in meeting.theirs:
            (theirs,) = _load(storage, [one.file], loaded)
            shared = shared_keys(mine, mine if theirs is None else [theirs])
            if len(shared):
                return shared
    return pa.chunked_array([], pa.string())


def _load(
    storage: Storage,
    files: Sequence[DataFile],
    loaded: Mapping[DataFile, pa.ChunkedArray | None],
) -> list[pa.ChunkedArray | None]:
    if all(file in loaded for file in files):
        return [loaded[file] for file in files]
    return load_record_keys(storage, files)


def _parts(inserts: Sequence[NewKeys]) -> Iterator[list[DataFile]]:
    part: list[DataFile] = []
    rows = 0
    for one in inserts:
        if part and rows + one.row_count > _ROWS_HELD_MAX:
            yield part
            part, rows = [], 0
        part.append(one.file)
        rows += one.row_count
    if part:
        yield part
