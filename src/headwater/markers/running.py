"""A marker service while it runs, as the driver holds it.

1. `start_marker_service`, once the instant is inflight; the plan takes the `address` to the tasks;
2. tasks create markers;
3. `seal`, before the commit looks which announced files no task lists: a task that is still
   running, whose result nobody waits for, can announce no more files from here on;
4. `stop`, whether the write is committed or given up. The files stay; see `delete_markers`.

If the driver dies, what was answered as durable is in storage, and the tasks fail.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headwater.config.markers import MarkerConfig
from headwater.markers.client import MarkerServiceAddress
from headwater.model.instant import InstantTime
from headwater.seams.ids import Ids
from headwater.seams.network import LOOPBACK
from headwater.seams.storage import Storage

if TYPE_CHECKING:
    from headwater.markers.service import ConflictWatch, MarkerService
    from headwater.seams.http_server import HttpServer


class RunningMarkerService:
    """A service and the server it runs in."""

    def __init__(
        self,
        service: MarkerService,
        server: HttpServer,
        address: MarkerServiceAddress,
        conflicts: ConflictWatch,
    ) -> None:
        self._service = service
        self._server = server
        self._address = address
        self._conflicts = conflicts

    @property
    def address(self) -> MarkerServiceAddress:
        return self._address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def seal(self) -> None:
        """Create no marker any more; return once those under way are durable, or failed."""
        self._conflicts.stop()
        self._server.run(self._service.seal)

    def stop(self, *, waits: bool = True) -> None:
        """End the service; may be called twice.

        Args:
            waits: whether to return only when its thread has ended.
        """
        self._conflicts.stop()
        self._server.stop(waits=waits)


def start_marker_service(
    storage: Storage,
    ids: Ids,
    time: InstantTime,
    config: MarkerConfig,
    *,
    host: str = LOOPBACK,
    conflicts: ConflictWatch | None = None,
) -> RunningMarkerService:
    """Serve the markers of an instant.

    Args:
        host: an address of this machine that all tasks can reach.
        conflicts: what looks for conflicts with other writers, if anything does.

    Raises:
        InvalidInputError: this machine cannot listen there.
        StorageError: storage failed.
    """
    # Servers are loaded by who runs one.
    from headwater.markers.service import MarkerService, NoConflictWatch
    from headwater.seams.http_server import HttpServer

    token = ids.new_uuid()
    watch = conflicts or NoConflictWatch()
    service = MarkerService(
        storage, time, token=token, file_count=config.batch_files, conflicts=watch
    )
    server = HttpServer(service.app, host=host, port=config.port)
    with ExitStack() as stack:
        stack.callback(server.stop, waits=False)
        server.start()
        stack.callback(watch.stop)
        watch.start()
        running = RunningMarkerService(
            service, server, MarkerServiceAddress(host, server.port, time, token), watch
        )
        stack.pop_all()  # From here on it is the caller who stops them.
        return running
