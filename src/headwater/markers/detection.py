"""Early detection of conflicts, as tasks do it: `Markers` that look before they are created.

    direct               look at the candidates' markers for the file group, then create
    transaction_direct   the same under a lock for the file group
    bloom_direct         the same, but their filters say where to look; own filter, then marker
    async, bloom_async   ask the marker service, whose checker looks all the time (see `checker`)

All of them apply the rule of `early_conflict`, and all can only stop a write: the check at the
commit is the same with and without (INV-66).

A marker counts if its writer is alive and its instant pending (INV-70). Markers are seen first,
then the heartbeat, and the timeline last: a candidate removes its markers after it has ended, so at
the moment in the middle all three held. Nothing of the last two is read unless there is a marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace

from headwater.config.detection import DetectionConfig, DetectionStrategy
from headwater.config.lock import LockConfig
from headwater.config.markers import MarkerType
from headwater.errors import CorruptTableError, EarlyConflictError, StorageError
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.changes import Touch
from headwater.kernel.txn.locks.in_process import InProcessLocks
from headwater.kernel.txn.locks.select import lock_provider_for
from headwater.kernel.txn.markers import Marker, MarkerKind, Markers
from headwater.markers.abort_signal import leave_abort_signal
from headwater.markers.bloom_markers import FilteredMarkers, FilterFile
from headwater.markers.candidate_instants import Candidate, CandidateWatch, load_candidates
from headwater.markers.candidate_markers import (
    FilteredMarkerReader,
    GroupMarkerReader,
    MarkerReader,
)
from headwater.markers.commits_since import CommitsSince
from headwater.markers.early_conflict import EarlyCheck, announced_change, touch_of
from headwater.markers.locked_markers import LockedMarkers
from headwater.model.files import FileGroupId
from headwater.model.instant import InstantTime
from headwater.seams.clock import Clock
from headwater.seams.components import Components
from headwater.seams.ids import Ids
from headwater.seams.lock import LockProvider
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """How one write looks for conflicts; part of the plan that its tasks get."""

    strategy: DetectionStrategy
    check: EarlyCheck
    candidates: tuple[Candidate, ...]
    layout: TableLayout
    checks_commits: bool = True
    locks: LockConfig | None = None
    """What locks file groups, if the strategy does."""

    @property
    def instant_time(self) -> InstantTime:
        return self.check.instant.requested_time

    def without_service(self) -> Detection:
        """Return the detection of a write whose tasks make their own markers."""
        if self.strategy.markers is MarkerType.DIRECT:
            return self
        has_filters = self.strategy.has_filters
        direct = DetectionStrategy.BLOOM_DIRECT if has_filters else DetectionStrategy.DIRECT
        return replace(self, strategy=direct)


def plan_detection(
    config: DetectionConfig,
    components: Components,
    mine: Attempt,
    timeline: Timeline,
    check: EarlyCheck,
    *,
    layout: TableLayout,
    locks: LockConfig | None,
) -> Detection:
    """Return how a write looks for conflicts, given the timeline of its snapshot."""
    return Detection(
        strategy=config.strategy,
        check=check,
        candidates=load_candidates(components.storage, components.ids, mine, timeline),
        layout=layout,
        checks_commits=config.checks_commits,
        locks=locks,
    )


class Detector:
    """What one process of a write knows of other writers."""

    def __init__(self, detection: Detection, storage: Storage, clock: Clock, ids: Ids) -> None:
        self._check = detection.check
        self._commits = CommitsSince(storage, clock, detection.layout, detection.check)
        self._checks_commits = detection.checks_commits
        self._watch = CandidateWatch(storage, clock, ids)

    def find_announced(
        self, touches: Mapping[FileGroupId, Touch], marks: Iterable[tuple[Candidate, list[Marker]]]
    ) -> EarlyConflictError | None:
        """Hold what the write touches against markers of candidates."""
        for candidate, markers in marks:
            change = announced_change(candidate.instant, markers, candidate.owner)
            conflict = self._check.find(touches, announced=[change])
            if conflict is not None and self._counts(candidate):
                return conflict
        return None

    def find_committed(
        self, touches: Callable[[], Mapping[FileGroupId, Touch]]
    ) -> EarlyConflictError | None:
        """Hold what the write touches, if needed, against commits since its snapshot."""
        since = self._commits.changes() if self._checks_commits else ()
        return self._check.find(touches(), since=since) if since else None

    def _counts(self, candidate: Candidate) -> bool:
        """Whether a candidate whose marker was seen is alive and has not ended."""
        try:
            return self._watch.is_active(candidate) and self._commits.is_pending(candidate.time)
        except (StorageError, CorruptTableError) as error:
            log.info("candidate passed over instant=%s error=%s", candidate.time, error)
            return False


class DetectingMarkers:
    """Markers of one task, each created only if the rule lets the write go on."""

    def __init__(
        self,
        markers: Markers,
        detection: Detection,
        sight: MarkerReader,
        detector: Detector,
        storage: Storage,
    ) -> None:
        self._markers = markers
        self._detection = detection
        self._sight = sight
        self._detector = detector
        self._storage = storage
        self._touches: dict[FileGroupId, Touch] = {}

    def create(self, marker: Marker) -> None:
        check = self._detection.check
        touch = touch_of(marker, check.instant.action)
        self._touches[marker.group] = max(touch, self._touches.get(marker.group, touch))
        marks: list[tuple[Candidate, list[Marker]]] = []
        # A new group has an id that nobody else knows, unless all agree on it as for buckets.
        if check.is_bucketed or marker.is_log or marker.kind is not MarkerKind.CREATE:
            for candidate in self._detection.candidates:
                found = self._sight.markers_on(candidate.time, marker.group)
                if found:
                    marks.append((candidate, found))
        conflict = self._detector.find_announced({marker.group: touch}, marks)
        # What was touched before counts too: the others may have committed since.
        conflict = conflict or self._detector.find_committed(lambda: self._touches)
        if conflict is not None:
            leave_abort_signal(self._storage, self._detection.instant_time, conflict)
            raise conflict
        self._markers.create(marker)


@contextmanager
def detecting_markers(
    detection: Detection,
    markers: Markers,
    storage: Storage,
    clock: Clock,
    ids: Ids,
    *,
    task: str,
    locks: LockProvider | None = None,
) -> Iterator[Markers]:
    """Return the markers of a task with detection, as the strategy says.

    Args:
        markers: those without.
        task: a name of the task that no other try of it, and no other task, has.
        locks: locks of file groups, in place of those that the write's config names.
    """
    strategy, is_bucketed = detection.strategy, detection.check.is_bucketed
    if strategy in (DetectionStrategy.ASYNC, DetectionStrategy.BLOOM_ASYNC):
        yield markers
        return
    sight: MarkerReader = GroupMarkerReader(storage, is_bucketed=is_bucketed)
    if strategy is DetectionStrategy.BLOOM_DIRECT:
        sight = FilteredMarkerReader(sight, storage, is_bucketed=is_bucketed)
        file = FilterFile(storage, detection.instant_time, task, is_bucketed=is_bucketed)
        markers = FilteredMarkers(markers, file)
    detector = Detector(detection, storage, clock, ids)
    detecting = DetectingMarkers(markers, detection, sight, detector, storage)
    if strategy is not DetectionStrategy.TRANSACTION_DIRECT or detection.locks is None:
        yield detecting
        return
    with (
        nullcontext(locks) if locks else _open_locks(detection.locks, storage, clock, ids) as opened
    ):
        wait_ms = detection.locks.acquire_timeout_ms
        yield detecting if opened is None else LockedMarkers(detecting, opened, wait_ms=wait_ms)


@contextmanager
def _open_locks(
    config: LockConfig, storage: Storage, clock: Clock, ids: Ids
) -> Iterator[LockProvider | None]:
    """Return the locks of this process; None if their server does not answer."""
    try:
        locks = lock_provider_for(config, storage, clock, ids, in_process=InProcessLocks())
    except StorageError as error:
        log.warning("file groups not locked, conflicts may show late error=%s", error)
        yield None
        return
    # A session would outlive the task, in a process that goes on to other tasks.
    with closing(locks):
        yield locks
