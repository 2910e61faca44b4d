"""What instants leave beside the timeline: attempts, heartbeats, markers and notes of detection."""

from __future__ import annotations

from headwater.kernel.layout import (
    ATTEMPTS,
    DETECTION,
    HEARTBEATS,
    MARKERS,
    attempt_folder,
    heartbeat_path,
)
from headwater.kernel.timeline.names import is_instant_time
from headwater.kernel.txn.markers import delete_markers
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage


def load_leftovers(storage: Storage) -> dict[InstantTime, list[str]]:
    """Return the instants that anything beside the timeline names, with the paths of attempts."""
    found: dict[InstantTime, list[str]] = {}
    folders = (ATTEMPTS, HEARTBEATS, MARKERS, DETECTION)
    listed = storage.at_once(storage.list_tree, folders)
    for folder, infos in zip(folders, listed, strict=True):
        for info in infos:
            name = info.path.removeprefix(f"{folder}/").partition("/")[0]
            if is_instant_time(name):
                attempts = found.setdefault(InstantTime(name), [])
                attempts += [info.path] if folder == ATTEMPTS else []
    return found


def load_instants_with_leftovers(storage: Storage) -> set[InstantTime]:
    """Return the instants that anything beside the timeline names."""
    return set(load_leftovers(storage))


def forget_instant(storage: Storage, time: InstantTime) -> None:
    """Delete all that an instant which has ended left beside the timeline; attempts go last."""
    delete_markers(storage, time)
    forget_attempts(storage, time)


def forget_attempts(storage: Storage, time: InstantTime) -> None:
    """Delete what says who works, or worked, on an instant; its heartbeat first."""
    storage.delete(heartbeat_path(time))
    folder = attempt_folder(time)
    storage.delete_many([f"{folder}/{name}" for name in sorted(storage.list_names(folder))])
