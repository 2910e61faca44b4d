"""The marker service's search for conflicts: on the driver, for all tasks at once.

1. `note` takes the markers that tasks ask for, as they ask;
2. `check` compares all of them with what the candidates have in storage, and with commits since the
   snapshot; every period, and when the first marker is asked for;
3. once there is a conflict, every request is answered with it, and a note stops the tasks that have
   nothing to ask for a while.

Between two checks a marker is compared with what the last one read of the candidates: if it meets
something, the check is made at once. So a marker that a candidate has had for a period is refused
before the file is written. Files that a filter has ruled out were not read, so with filters a
marker may have to wait for the next check.

`note` belongs to the event loop of the service, `check` to any thread; what they share is replaced
as a whole or guarded by a mutex.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from headwater.config.detection import DetectionConfig
from headwater.errors import EarlyConflictError, StorageError
from headwater.kernel.txn.changes import Touch
from headwater.kernel.txn.markers import Marker
from headwater.markers.abort_signal import leave_abort_signal
from headwater.markers.bloom_markers import FilterFile
from headwater.markers.candidate_instants import Candidate
from headwater.markers.candidate_markers import CandidateIndex
from headwater.markers.conflict_keys import conflict_key
from headwater.markers.detection import Detection, Detector
from headwater.markers.early_conflict import touch_of
from headwater.model.files import FileGroupId
from headwater.model.instant import InstantTime
from headwater.seams.clock import Clock, Timer
from headwater.seams.ids import Ids
from headwater.seams.mutex import new_mutex
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

_Touches = Mapping[FileGroupId, Touch]
"""Never changed in place, since a check may be at it."""


class MarkerChecker:
    """The conflicts of one write whose markers a service creates."""

    def __init__(
        self,
        detection: Detection,
        config: DetectionConfig,
        storage: Storage,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._detection = detection
        self._config = config
        self._storage = storage
        self._clock = clock
        self._is_bucketed = detection.check.is_bucketed
        self._detector = Detector(detection, storage, clock, ids)
        self._indexes: dict[InstantTime, CandidateIndex] = {
            candidate.time: CandidateIndex(
                storage,
                candidate.time,
                is_bucketed=self._is_bucketed,
                has_filters=detection.strategy.has_filters,
            )
            for candidate in detection.candidates
        }
        self._mutex = new_mutex()
        self._groups: dict[bytes, _Touches] = {}
        self._harmless: frozenset[bytes] = frozenset()
        self._began_ms: int | None = None
        self._conflict: EarlyConflictError | None = None
        self._timer: Timer | None = None

    def start(self) -> None:
        """Check in the background until `stop`, or until a conflict is found."""
        self._timer = self._clock.every_ms(
            self._config.period_ms,
            self._check_in_background,
            f"early-conflicts-{self._detection.instant_time}",
        )

    def stop(self) -> None:
        """End the background check; may be called twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def new_filter(self, name: str) -> FilterFile | None:
        """Return the filter to keep for a file of markers, if the strategy keeps any."""
        if not self._detection.strategy.has_filters:
            return None
        return FilterFile(
            self._storage, self._detection.instant_time, name, is_bucketed=self._is_bucketed
        )

    async def admit(self, markers: Sequence[Marker]) -> EarlyConflictError | None:
        """Return the conflict that forbids the markers, if one is known; for the event loop."""
        if self.note(markers):
            return await asyncio.to_thread(self.check)
        return self._conflict

    def note(self, markers: Sequence[Marker]) -> bool:
        """Take markers that are about to be created; return whether a check must come first."""
        noted: dict[bytes, dict[FileGroupId, Touch]] = {}
        action = self._detection.check.instant.action
        for marker in markers:
            group, touch = marker.group, touch_of(marker, action)
            key = conflict_key(group, is_bucketed=self._is_bucketed)
            noted.setdefault(key, {})[group] = touch
        with self._mutex:
            is_first = not self._groups
            for key, touches in noted.items():
                self._groups[key] = _strongest(self._groups.get(key, {}), touches)
        if self._conflict is not None:
            return False
        if is_first:
            self._began_ms = self._clock.monotonic_ms()
            return self._config.delay_ms == 0
        new = noted.keys() - self._harmless
        return bool(new) and any(index.meeting(new) for index in self._indexes.values())

    def check(self) -> EarlyConflictError | None:
        """Look for a conflict, unless one is known; return it."""
        if self._conflict is not None:
            return self._conflict
        with self._mutex:
            groups = dict(self._groups)
        keys = frozenset(groups)
        marks: list[tuple[Candidate, list[Marker]]] = []
        met: frozenset[bytes] = frozenset()
        for candidate in self._detection.candidates:
            here = self._met_by(candidate, keys)
            if here:
                met |= here
                marks.append((candidate, self._indexes[candidate.time].markers(here)))
        conflict = self._detector.find_announced(_touches(groups, met), marks)
        conflict = conflict or self._detector.find_committed(lambda: _touches(groups, groups))
        if conflict is None:
            # Whoever meets these again before the next check need not look: nothing came of it.
            self._harmless = met
            return None
        leave_abort_signal(self._storage, self._detection.instant_time, conflict)
        self._conflict = conflict
        return conflict

    def _met_by(self, candidate: Candidate, keys: frozenset[bytes]) -> frozenset[bytes]:
        index = self._indexes[candidate.time]
        try:
            index.refresh(keys)
        except StorageError as error:
            log.info("markers passed over instant=%s error=%s", candidate.time, error)
        return frozenset(index.meeting(keys))

    def _check_in_background(self) -> bool:
        began_ms = self._began_ms
        if began_ms is None or self._clock.monotonic_ms() < began_ms + self._config.delay_ms:
            return True
        return self.check() is None


def _strongest(known: _Touches, new: _Touches) -> _Touches:
    return {**known, **{group: max(touch, known.get(group, touch)) for group, touch in new.items()}}


def _touches(groups: Mapping[bytes, _Touches], keys: Iterable[bytes]) -> _Touches:
    return {group: touch for key in keys for group, touch in groups[key].items()}
