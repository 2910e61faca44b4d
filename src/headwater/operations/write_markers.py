"""The markers of a write, as the process that commits it keeps them.

Tasks announce their files either in storage themselves or through a service of this process; see
`markers`. A write that another process may go on with has no service: it would end with this one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from headwater.config.detection import DetectionConfig
from headwater.config.markers import MarkerConfig, MarkerType
from headwater.errors import StorageError
from headwater.kernel.txn.markers import delete_markers, delete_unlisted
from headwater.markers.batches import load_markers_and_files
from headwater.markers.checker import MarkerChecker
from headwater.markers.detection import Detection
from headwater.markers.running import RunningMarkerService, start_marker_service
from headwater.model.instant import InstantTime
from headwater.seams.components import Components
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)


class WriteMarkers:
    """The markers of one instant, until it has ended."""

    def __init__(
        self,
        storage: Storage,
        time: InstantTime,
        *,
        has_detection: bool,
        service: RunningMarkerService | None = None,
    ) -> None:
        self._storage = storage
        self._time = time
        self._has_detection = has_detection
        self._service = service
        self._files: list[str] | None = None

    def settle(self, listed: Collection[str]) -> None:
        """Take no marker any more, and delete the announced files that no task lists.

        Raises:
            CorruptTableError: markers are damaged, so that nobody knows all files.
            StorageError: storage failed.
        """
        if self._service is not None:
            self._service.seal()
        markers, self._files = load_markers_and_files(self._storage, self._time)
        delete_unlisted(self._storage, markers, listed)

    def forget(self) -> None:
        """Delete the markers of an instant that is committed."""
        try:
            if self._files is not None and not self._has_detection:
                # No task may make any since they were settled; clean finds those of one that does.
                self._storage.delete_many(self._files)
                return
            delete_markers(self._storage, self._time, had_detection=self._has_detection)
        except StorageError as error:
            # The commit stands; clean sweeps markers of instants that have ended.
            log.warning("markers left behind instant=%s error=%s", self._time, error)

    def close(self) -> None:
        """End the service, whatever became of the write."""
        if self._service is not None:
            self._service.stop(waits=False)


def start_service(
    components: Components,
    time: InstantTime,
    config: MarkerConfig,
    detection: Detection | None,
    detection_config: DetectionConfig,
    *,
    host: str | None,
) -> RunningMarkerService | None:
    """Start the service that keeps the markers of an instant, if the config asks for one.

    Args:
        host: where tasks reach this process; None if they cannot, and make their own markers.
    """
    if config.type is not MarkerType.TIMELINE_SERVER_BASED or host is None:
        return None
    storage, clock, ids = components.storage, components.clock, components.ids
    checker = None
    if detection is not None and detection.strategy.markers is config.type:
        checker = MarkerChecker(detection, detection_config, storage, clock, ids)
    return start_marker_service(storage, ids, time, config, host=host, conflicts=checker)
