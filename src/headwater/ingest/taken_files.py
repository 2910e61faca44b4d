"""Which files of a folder a job has taken, in few bytes for each and whatever their times say.

A file is known by a hash of its path; a second hash, of size and modification time, tells whether
it has changed since. A note has the files of its own batch; now and then one has all of them,
without those that are gone from the folder. So all notes together have a few entries for each file,
and nobody reads further back than to the last that has all.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.errors import CorruptTableError, ErrorKind
from headwater.ingest.checkpoint import Note
from headwater.model.instant import InstantTime
from headwater.seams.storage import ObjectInfo

_ENTRY = np.dtype([("path", "<u8"), ("version", "<u4")])
_ALL_UP_TO = 500
"""So few entries are always said all; that many may follow before all are said again."""
_NOTES_MAX = 50
"""How many notes may follow one that has all."""


@dataclass(frozen=True, slots=True)
class TakenFiles:
    """By hash of its path the version of each file that was taken."""

    versions: Mapping[int, int]
    since_all: int = 0
    """Entries of notes since the last that has all."""
    notes_since_all: int = 0

    def has(self, file: ObjectInfo) -> bool:
        return _path_hash(file) in self.versions

    def has_changed(self, file: ObjectInfo) -> bool:
        """Whether a file was taken and is another one now."""
        return self.versions.get(_path_hash(file), version := _version(file)) != version

    def after(
        self, batch: Iterable[ObjectInfo], listed: Iterable[ObjectInfo]
    ) -> tuple[TakenFiles, dict[str, Any]]:
        """Return what is taken after a batch, and what its note says.

        Args:
            listed: all files of the folder.
        """
        new = {_path_hash(file): _version(file) for file in batch}
        versions = {**self.versions, **new}
        since = self.since_all + len(new)
        is_due = since > max(_ALL_UP_TO, len(versions) // 4) or self.notes_since_all >= _NOTES_MAX
        if len(versions) > _ALL_UP_TO and not is_due:
            return TakenFiles(versions, since, self.notes_since_all + 1), {"new": _encoded(new)}
        there = {_path_hash(file) for file in listed}
        kept = {path: version for path, version in versions.items() if path in there or path in new}
        return TakenFiles(kept), {"all": _encoded(kept)}


def taken_in(
    notes: Iterable[Note], known: tuple[InstantTime | None, TakenFiles] | None = None
) -> TakenFiles:
    """Return what a job has taken by its notes, of which the newest come first.

    Args:
        known: what was taken as of the note of a commit, if somebody has read that far before.

    Raises:
        CorruptTableError: a note cannot be read.
    """
    versions: dict[int, int] = {}
    since = count = 0
    for note in notes:
        if known is not None and note.instant == known[0]:
            _, before = known
            return TakenFiles(
                {**before.versions, **versions},
                before.since_all + since,
                before.notes_since_all + count,
            )
        is_all = "all" in note.content
        entries = _decoded(note.value("all" if is_all else "new"), note)
        versions = {**entries, **versions}
        if is_all:
            return TakenFiles(versions, since, count)
        since, count = since + len(entries), count + 1
    return TakenFiles(versions, since, count)


def _encoded(entries: Mapping[int, int]) -> str:
    array = np.array(sorted(entries.items()), dtype=_ENTRY)
    return base64.b64encode(array.tobytes()).decode()


def _decoded(text: object, note: Note) -> dict[int, int]:
    try:
        array = np.frombuffer(base64.b64decode(str(text), validate=True), _ENTRY)
    except ValueError as error:
        raise CorruptTableError(
            f"Note {note.number} of the job {note.job} does not tell its files: {error}",
            kind=ErrorKind.CORRUPT_TIMELINE,
        ) from error
    return dict(zip(array["path"].tolist(), array["version"].tolist(), strict=True))


def _path_hash(file: ObjectInfo) -> int:
    return _hash(file.path, 8)


def _version(file: ObjectInfo) -> int:
    return _hash(f"{file.size_bytes} {file.modified_ms}", 4)


def _hash(text: str, size: int) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest(), "little")
