"""How often a batch lost, whether it is tried again, and what was written again for it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from headwater.config.write import WriteConfig
from headwater.errors import ConflictError, ErrorKind
from headwater.model.commit import Redone
from headwater.model.commit_metadata import WriteStat

log = logging.getLogger(__name__)

RETRIED = (ErrorKind.WRITE_CONFLICT, ErrorKind.EARLY_CONFLICT, ErrorKind.LOCK_TIMEOUT)
"""A holder that lives may be a batch that is written with the lock held, so not to get the lock in
time is a loss like another (LIV-17)."""


class Losses:
    """The losses of one batch, over all its tries."""

    def __init__(self, config: WriteConfig, *, losses_max: int | None = None) -> None:
        self._losses_max = config.conflict_retries if losses_max is None else losses_max
        self._before_lock = config.conflicts_before_lock
        self._last: ConflictError | None = None
        self._files = 0
        self._rows = 0
        self.count = 0

    @property
    def holds_lock(self) -> bool:
        """Whether the next try keeps everybody else out, so that it cannot lose."""
        return self.count >= self._before_lock

    @property
    def allows_redo(self) -> bool:
        return self.count < self._losses_max

    @property
    def redone(self) -> Redone:
        by = "" if self._last is None else self._last.context.get("other", "")
        return Redone(times=self.count, files=self._files, rows=self._rows, by=str(by))

    def note(self, conflict: ConflictError) -> None:
        """Count a loss, once, or raise it if there were enough of them."""
        if conflict is self._last:
            return
        if conflict.kind not in RETRIED or self.count >= self._losses_max:
            raise conflict
        self._last = conflict
        self.count += 1
        log.info("write lost and is tried again loss=%d conflict=%s", self.count, conflict)

    def note_discarded(self, stats: Iterable[WriteStat]) -> None:
        """Count files whose rows are written again."""
        for stat in stats:
            self._files += 1
            self._rows += sum(
                count or 0 for count in (stat.num_inserts, stat.num_update_writes, stat.num_deletes)
            )
