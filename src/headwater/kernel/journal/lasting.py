"""Files of slots on a local disk: forced out together, before a checkpoint stands for the slots.

A slot is on the disk before its author goes on. The files that follow it say the same once more,
for other engines, so nobody waits for the disk with each of them: that was half of a commit's time.
A power cut may leave such a file empty, or take its name. What it said is in the slot, and slots
are deleted only behind a checkpoint, which is written when all files are there, whole, and on the
disk. After the machine was started the first process that decides looks after them as well, because
other engines read nothing else.

Stores elsewhere keep what they have taken.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.errors import NotFoundError
from headwater.kernel.journal.state import JournalState, folder_of
from headwater.seams.local import LocalStorage
from headwater.seams.machine_start import started_at_s
from headwater.seams.storage import Storage


def unforced(storage: Storage) -> Storage:
    """Return the storage for files that are forced out later."""
    return storage.unforced() if isinstance(storage, LocalStorage) else storage


class Wrong(NamedTuple):
    """A file that is not what the state says."""

    path: str
    is_missing: bool


def force_files(storage: Storage, state: JournalState) -> list[Wrong]:
    """Have the files on the disk that the state holds the contents of.

    Returns those that are not as it says, in the order in which they are to be written.

    Raises:
        StorageError: the disk failed.
    """
    if not isinstance(storage, LocalStorage) or not storage.is_forced:
        return []
    areas = state.areas
    held = {
        path: known
        for path, known in state.paths.items()
        if known.data is not None and (areas.is_claim(path) or folder_of(path) in areas.folders)
    }
    wrong = {}
    for (path, known), stored in zip(held.items(), storage.read_many(held), strict=True):
        # Owners beat in their claims; of those only the bytes may be lost.
        is_whole = bool(stored) if areas.is_claim(path) else stored == known.data
        if not is_whole:
            wrong[path] = Wrong(path, stored is None)
    storage.force(held.keys() - wrong)
    order = sorted(wrong, key=lambda path: (held[path].slot, folder_of(path) == areas.timeline))
    return [wrong[path] for path in order]


def is_from_before_start(storage: Storage, path: str) -> bool:
    """Whether an object was written before this machine was started, as far as it can be told.

    Raises:
        StorageError: the disk failed.
    """
    if not isinstance(storage, LocalStorage) or not storage.is_forced:
        return False
    started_s = started_at_s()
    try:
        return started_s is None or storage.info(path).modified_ms < started_s * 1000
    except NotFoundError:
        return False  # Somebody has decided since.
