"""A timeline to archive, with contents that tell the files apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import instant_path
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.storage import Storage


def time(number: int) -> InstantTime:
    return InstantTime(f"202401010000{number:05d}")


@pytest.fixture
def put_instants() -> Callable[[Storage, Iterable[Instant]], None]:
    """Write all files that instants leave on the active timeline."""

    def put(storage: Storage, instants: Iterable[Instant]) -> None:
        folder = TableLayout().timeline
        for instant in instants:
            for state in (State.REQUESTED, State.INFLIGHT, State.ABORTED, State.COMPLETED):
                content = f"{state} of {instant.requested_time}".encode()
                if state.is_pending or state is instant.state:
                    storage.put(instant_path(folder, instant, state), content)
                if state is instant.state:
                    break

    return put


@pytest.fixture
def terminal() -> list[Instant]:
    """Terminal instants of many kinds, one of which completed late."""
    actions = [
        Action.DELTA_COMMIT,
        Action.COMPACTION,
        Action.COMMIT,
        Action.CLUSTERING,
        Action.CLUSTERING,
        Action.CLEAN,
        Action.ROLLBACK,
        Action.LOG_COMPACTION,
        Action.REPLACE_COMMIT,
    ]
    instants = [
        Instant(time(number), action, State.COMPLETED, time(100 + number))
        for number, action in enumerate(actions)
    ]
    instants[2] = instants[2]._replace(completion_time=time(150))
    instants[4] = Instant(time(4), Action.CLUSTERING, State.ABORTED)
    return instants


@pytest.fixture
def staying() -> list[Instant]:
    """What archival leaves alone: the newest completed instant, and a pending one."""
    return [
        Instant(time(10), Action.DELTA_COMMIT, State.COMPLETED, time(160)),
        Instant(time(11), Action.DELTA_COMMIT, State.INFLIGHT),
    ]
