"""What keeps a table in order. Every service may run beside writers, readers and itself."""

from __future__ import annotations

from headwater.config.table import TableConfig
from headwater.config.write import WriteConfig
from headwater.errors import UnsupportedError
from headwater.kernel.table_config import table_layout
from headwater.kernel.txn.rollback import Rollbacks, RolledBackWrite
from headwater.kernel.txn.transaction import LockTransaction
from headwater.markers.batches import load_every_marker
from headwater.model.instant import parse_instant_time
from headwater.seams.components import Components
from headwater.services.rollback import rollback_failed_writes, rollback_write


class Services:
    """`table.services`: one method per service.

    It remembers which heartbeats it has seen, so that of two calls in one process the second knows
    more about who is dead.
    """

    def __init__(
        self,
        components: Components,
        config: TableConfig,
        write_config: WriteConfig,
        *,
        lock_timeout_ms: int,
    ) -> None:
        self._components = components
        self._config = config
        layout = table_layout(config)
        txn = LockTransaction(components, layout, lock_timeout_ms=lock_timeout_ms)
        self._watch = txn.watch
        self._rollbacks = Rollbacks(
            components=components,
            txn=txn,
            layout=layout,
            load_markers=load_every_marker,
            interval_ms=write_config.heartbeat_interval_ms,
            tolerable_misses=write_config.heartbeat_tolerable_misses,
        )

    def rollback_failed_writes(self, *, wait: bool = False) -> list[RolledBackWrite]:
        """Roll back writes that failed and whose writers have given up or are dead.

        Args:
            wait: whether to watch the heartbeats of writers that may be dead until they move or
                run out, which takes up to two minutes unless writers chose otherwise. Without it,
                only those are dead that said so, whose process on this machine has ended, or whose
                heartbeat earlier calls of this process saw as well.

        Returns:
            What was rolled back, oldest first.

        Raises: see `kernel.txn.rollback.Rollbacks.roll_back`.
        """
        self._config.check_writable(self._components.storage.uri)
        return rollback_failed_writes(self._rollbacks, self._watch, wait=wait)

    def rollback(self, instant: str, *, wait: bool = False) -> RolledBackWrite:
        """Roll back one write that has not completed, given its requested time.

        Args:
            wait: see `rollback_failed_writes`.

        Raises:
            UnsupportedError: the instant has completed, is a plan or belongs to another engine.
            ConflictError: kind ALREADY_RUNNING; its writer or another rollback is at work.
            InvalidInputError: kind INVALID_INSTANT_TIME.
            Others: see `kernel.txn.rollback.Rollbacks.roll_back`.
        """
        self._config.check_writable(self._components.storage.uri)
        target = parse_instant_time(instant)
        done = rollback_write(self._rollbacks, self._watch, target, wait=wait)
        if isinstance(done, RolledBackWrite):
            return done
        raise UnsupportedError(
            f"{done.instant} has ended, so rolling it back would take away what readers may have "
            "seen. That comes with restore and the rollback of commits; only writes that failed "
            "can be rolled back so far",
            instant=target,
        )
