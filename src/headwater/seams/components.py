"""The seams of one process, handed around together."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.seams.clock import Clock
from headwater.seams.ids import Ids
from headwater.seams.lock import LockProvider
from headwater.seams.storage import Storage


@dataclass(frozen=True, slots=True)
class Components:
    """Everything through which a process touches the world."""

    storage: Storage
    clock: Clock
    ids: Ids
    locks: LockProvider
