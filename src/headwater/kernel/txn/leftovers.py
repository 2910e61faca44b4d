"""What instants leave beside the timeline: attempts, heartbeats, markers and notes of detection.

And on it: savepoints that were begun and never made.
"""

from __future__ import annotations

from headwater.kernel.layout import (
    ATTEMPTS,
    DETECTION,
    HEARTBEATS,
    MARKERS,
    attempt_folder,
    heartbeat_path,
)
from headwater.kernel.timeline.active import Timeline, instant_path
from headwater.kernel.timeline.names import is_instant_time
from headwater.kernel.txn.markers import delete_markers
from headwater.kernel.txn.store_age import age_by_store_ms
from headwater.model.instant import Instant, InstantTime
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


def load_unfinished_savepoints(
    storage: Storage, folder: str, timeline: Timeline, expiry_ms: int
) -> list[Instant]:
    """Return the savepoints that were begun so long ago that nobody is making them any more."""
    begun = [point for point in timeline.savepoints if not point.is_completed]
    ages_ms = [age_by_store_ms(storage, instant_path(folder, point)) or 0 for point in begun]
    return [point for point, age_ms in zip(begun, ages_ms, strict=True) if age_ms > expiry_ms]


def forget_instant(storage: Storage, time: InstantTime) -> None:
    """Delete all that an instant which has ended left beside the timeline; attempts go last."""
    delete_markers(storage, time)
    forget_attempts(storage, time)


def forget_attempts(storage: Storage, time: InstantTime) -> None:
    """Delete what says who works, or worked, on an instant; its heartbeat first."""
    storage.delete(heartbeat_path(time))
    folder = attempt_folder(time)
    storage.delete_many([f"{folder}/{name}" for name in sorted(storage.list_names(folder))])
