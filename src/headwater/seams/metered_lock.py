"""The table lock as metrics see it: how long it was waited for and held, and if it was lost."""

from __future__ import annotations

from collections.abc import Callable

from headwater.errors import FencedError
from headwater.seams.lock import HeldLock
from headwater.seams.meters import OK, is_listening, seconds, timed
from headwater.seams.metrics import FENCED, LOCK_HOLD, LOCK_WAIT


def acquire_metered(table: str, acquire: Callable[[], HeldLock]) -> HeldLock:
    """Take the lock of a table, and measure that if somebody listens."""
    if not is_listening():
        return acquire()
    with timed(LOCK_WAIT, table):
        held = acquire()
    return MeteredLock(table, held)


class MeteredLock:
    """A lock that is held; its first release ends the time."""

    def __init__(self, table: str, held: HeldLock) -> None:
        self._table = table
        self._held = held
        self._began = seconds()
        self._outcome = OK
        self._is_released = False

    @property
    def token(self) -> int:
        return self._held.token

    def check(self) -> None:
        try:
            self._held.check()
        except FencedError as error:
            if self._outcome == OK:
                FENCED.add(1, self._table, str(error.kind))
            self._outcome = "fenced"
            raise

    def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            LOCK_HOLD.record(seconds() - self._began, self._table, self._outcome)
        self._held.release()
