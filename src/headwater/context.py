"""One table as one process reaches it: made once, and handed to every operation and service.

Options are parsed here and nowhere below. Whoever works on a table takes the context whole, so that
nothing can be wired in one place and forgotten in another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Self

from headwater.config.detection import DetectionConfig
from headwater.config.files import FileConfig
from headwater.config.lock import LockConfig
from headwater.config.markers import MarkerConfig
from headwater.config.metadata import MetadataConfig
from headwater.config.plans import PlanConfig
from headwater.config.secrets import shown_options
from headwater.config.table import TableConfig
from headwater.config.write import FailedWritesPolicy, WriteConfig
from headwater.engine.inline import EngineFor, inline_engine
from headwater.kernel.journal.journal import table_gone, table_switched
from headwater.kernel.layout import PROPERTIES, PROPERTIES_BACKUP, TableLayout
from headwater.kernel.table_config import load_table_config, table_layout, with_chosen_index
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.timeline.metering import meter_timeline
from headwater.kernel.txn.attempts import load_newest_number
from headwater.kernel.txn.heartbeat import age_by_store
from headwater.kernel.txn.locks.in_process import InProcessLocks
from headwater.kernel.txn.locks.select import lock_provider_for
from headwater.model.instant import Instant, InstantTime, State, instant_time_at
from headwater.seams.clock import Clock
from headwater.seams.components import Components
from headwater.seams.ids import Ids
from headwater.seams.kept_objects import KeptObjects
from headwater.seams.lock import LockProvider
from headwater.seams.meters import is_listening
from headwater.seams.storage import Storage

if TYPE_CHECKING:
    from headwater.kernel.txn.cancel import Cancellations
    from headwater.kernel.txn.foreign import ForeignRule
    from headwater.kernel.txn.rollback import Rollbacks
    from headwater.kernel.txn.steps import Claim
    from headwater.kernel.txn.transaction import Transaction
    from headwater.kernel.view.commits import CommitReader
    from headwater.kernel.view.kept_slices import KeptSlices

# The protocol is imported by the properties that take part in it: whoever only looks at a table
# starts in a third of the time.

# The locks that threads of this process take from each other. They are the process's own by nature,
# so every table of the process shares them.
_LOCKS_OF_THIS_PROCESS = InProcessLocks()


class SeenOnce:
    """A timeline that somebody saw, to be used once."""

    def __init__(self) -> None:
        self._seen: Timeline | None = None

    def note(self, seen: Timeline | None) -> None:
        self._seen = seen

    def take(self) -> Timeline | None:
        seen, self._seen = self._seen, None
        return seen


class BucketsByFiles:
    """What files tell of the buckets of a table that does not, once somebody has asked them."""

    count: int | None = None
    are_plain: bool | None = None


@dataclass(frozen=True, kw_only=True)
class TableContext:
    """A table, and everything through which this process works on it. Threads may share it."""

    storage: Storage
    clock: Clock
    ids: Ids
    stored_config: TableConfig
    """What the table says of itself."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Checked options of this process, those of storage among them, and so its secrets."""
    unknown_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Those that nothing here reads."""
    locks: LockProvider | None = None
    """The table lock; by default the one that the options choose."""
    engine_for: EngineFor = inline_engine
    """Gives the engine for work on so many bytes of files."""

    @classmethod
    def through(
        cls, components: Components, config: TableConfig, options: Mapping[str, str] | None = None
    ) -> Self:
        """Return a table as it is reached through seams that are there already."""
        return cls(
            storage=components.storage,
            clock=components.clock,
            ids=components.ids,
            locks=components.locks,
            stored_config=config,
            options=options or {},
        )

    def __post_init__(self) -> None:
        # Whoever prints a table, a plan or an error with options in it shows no secret.
        object.__setattr__(self, "options", shown_options(self.options))
        object.__setattr__(self, "unknown_options", shown_options(self.unknown_options))

    @property
    def config(self) -> TableConfig:
        """The table's config; one that does not say its index has the one of the options."""
        return self._config

    @cached_property
    def _config(self) -> TableConfig:
        return with_chosen_index(self.stored_config, self.options)

    @property
    def layout(self) -> TableLayout:
        return table_layout(self.config)

    # What the options say.

    @cached_property
    def write_config(self) -> WriteConfig:
        return WriteConfig.from_options(self.options)

    @cached_property
    def lock_config(self) -> LockConfig:
        return LockConfig.from_options(self.options)

    @cached_property
    def file_config(self) -> FileConfig:
        return FileConfig.from_options(self.options)

    @cached_property
    def detection_config(self) -> DetectionConfig:
        return DetectionConfig.from_options(self.options)

    @cached_property
    def marker_config(self) -> MarkerConfig:
        return MarkerConfig.from_options(self.options)

    @cached_property
    def metadata_config(self) -> MetadataConfig:
        return MetadataConfig.from_options(self.options)

    @cached_property
    def plan_config(self) -> PlanConfig:
        return PlanConfig.from_options(self.options)

    @property
    def merge_function(self) -> str | None:
        """The function of a table with merge mode CUSTOM."""
        return self.file_config.merge_function

    # How this process takes part in the protocol.

    @cached_property
    def components(self) -> Components:
        """The seams together. Made when first needed: a reader never connects to a lock server."""
        locks = self.locks or lock_provider_for(
            self.lock_config,
            self.storage,
            self.clock,
            self.ids,
            in_process=_LOCKS_OF_THIS_PROCESS,
        )
        return Components(self.storage, self.clock, self.ids, locks)

    def close(self) -> None:
        """End the session with the server that keeps the locks, if there is one."""
        if "components" in vars(self):  # Or there is no session to end.
            self.components.locks.close()

    @cached_property
    def txn(self) -> Transaction:
        """Transactions on the table's timeline.

        One for all that the process does: of two calls the second knows more about who is dead,
        because the first has seen their heartbeats.
        """
        from headwater.files.record_keys import load_record_keys
        from headwater.kernel.txn.fenced import transaction_on
        from headwater.kernel.txn.foreign import PendingElsewhere
        from headwater.markers.batches import load_every_marker

        return transaction_on(
            self.components,
            self.layout,
            lock_timeout_ms=self.lock_config.acquire_timeout_ms,
            check_mode=self.check_mode,
            elsewhere=PendingElsewhere(rule=self.foreign_rule, expiry_ms=self.foreign_expiry_ms),
            clock_ahead_ms_max=self.write_config.clock_ahead_ms_max,
            age_ms=age_by_store(self.storage),
            load_markers=load_every_marker,
            load_keys=load_record_keys,
            check_config=self._check_config,
        )

    def check_mode(self) -> None:
        """Check that a table which trusted its lock when it was opened does so still.

        Raises:
            ConflictError: kind TABLE_SWITCHED.
            NotFoundError: kind NOT_A_TABLE; it was deleted, or another one is in its place.
        """
        config = load_table_config(self.storage, self.clock)
        if config.is_fenced:
            raise table_switched(self.storage.uri, "it has a journal now")
        self._check_config(config)

    def _check_config(self, config: TableConfig) -> None:
        if not config.places_rows_as(self.stored_config):
            raise table_gone(self.storage.uri, is_another_there=True)

    @cached_property
    def rollbacks(self) -> Rollbacks:
        from headwater.kernel.txn.rollback import Rollbacks
        from headwater.markers.batches import load_every_marker

        return Rollbacks(
            components=self.components,
            txn=self.txn,
            layout=self.layout,
            load_markers=load_every_marker,
            interval_ms=self.write_config.heartbeat_interval_ms,
            tolerable_misses=self.write_config.heartbeat_tolerable_misses,
            delay_ms=self.plan_config.rollback_delay_ms,
            foreign=self.foreign_rule,
        )

    @property
    def foreign_rule(self) -> ForeignRule | None:
        """When a write of another engine counts as dead; None if all are left to their engines."""
        from headwater.kernel.txn.foreign import ForeignRule

        config = self.write_config
        if config.failed_writes_policy is FailedWritesPolicy.NEVER:
            return None
        return ForeignRule.of(
            interval_ms=config.heartbeat_interval_ms,
            tolerable_misses=config.heartbeat_tolerable_misses,
            is_said=config.failed_writes_policy is not None,
        )

    def load_left_ms(self, plan: Instant) -> int:
        """Return for how much longer a pending plan is left to the engine that requested it.

        0 if it is ours, or anybody's by now. One that another engine has begun is always its own.
        """
        from headwater.kernel.txn.foreign import load_left_ms

        if plan.state is not State.REQUESTED or self.is_ours(plan):
            return 0
        return load_left_ms(self.storage, self.layout.timeline, plan, self.foreign_expiry_ms)

    @property
    def foreign_expiry_ms(self) -> int:
        """For how long nothing may be heard of what another engine has begun."""
        from headwater.kernel.txn.foreign import foreign_expiry_ms

        return foreign_expiry_ms(
            interval_ms=self.write_config.heartbeat_interval_ms,
            tolerable_misses=self.write_config.heartbeat_tolerable_misses,
        )

    @cached_property
    def cancellations(self) -> Cancellations:
        from headwater.kernel.txn.cancel import Cancellations
        from headwater.markers.batches import load_every_marker

        return Cancellations(
            components=self.components,
            txn=self.txn,
            layout=self.layout,
            load_markers=load_every_marker,
            interval_ms=self.write_config.heartbeat_interval_ms,
            tolerable_misses=self.write_config.heartbeat_tolerable_misses,
            is_guarded=self.plan_config.is_guarded,
            poll_interval_ms=self.plan_config.poll_interval_ms,
        )

    @cached_property
    def buckets_by_files(self) -> BucketsByFiles:
        return BucketsByFiles()

    @cached_property
    def seen_metadata(self) -> SeenOnce:
        """The metadata table's timeline as the last write saw it, for who looks what is due."""
        return SeenOnce()

    @cached_property
    def kept_metadata(self) -> KeptObjects:
        """What this process has read and written of the metadata table's partition of files."""
        return KeptObjects()

    @cached_property
    def kept_slices(self) -> KeptSlices:
        """What this process made of that partition last."""
        from headwater.kernel.view.kept_slices import KeptSlices

        return KeptSlices()

    def claim(self) -> Claim:
        """Return a new claim to an attempt, by the heartbeat of the options."""
        from headwater.kernel.txn.steps import Claim

        return Claim.new(
            self.ids,
            interval_ms=self.write_config.heartbeat_interval_ms,
            tolerable_misses=self.write_config.heartbeat_tolerable_misses,
        )

    def now(self) -> InstantTime:
        """Return the time of this process's clock in the digits of the timeline."""
        return instant_time_at(self.clock.now_ms(), is_utc=self.layout.is_utc)

    def moment(self) -> datetime:
        """Return the time of this process's clock as people's programs have it."""
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)

    # What storage holds now.

    def load_config(self) -> TableConfig:
        """Return the config of now: indexes may have come or gone since the table was opened."""
        return load_table_config(self.storage, self.clock)

    def reload(self) -> Self:
        """Return the context with the config of now.

        Nothing else changes: parsed options, the lock and what was seen of others are kept.
        """
        return self.with_stored_config(self.load_config())

    def with_stored_config(self, config: TableConfig) -> Self:
        """Return the context with another config, and everything else as it is."""
        fresh = replace(self, stored_config=config)
        kept = {name: made for name, made in vars(self).items() if name not in vars(fresh)}
        kept.pop("_config", None)
        vars(fresh).update(kept)
        return fresh

    def check_there(self) -> None:
        """Check that a table which shows no instants is one; a journal tells by itself.

        Raises:
            NotFoundError: kind NOT_A_TABLE; it was deleted or moved since it was opened.
        """
        if self.stored_config.is_fenced:
            return
        if self.storage.read_many([PROPERTIES, PROPERTIES_BACKUP]) == [None, None]:
            raise table_gone(self.storage.uri, is_another_there=False)

    def load_timeline(self) -> Timeline:
        timeline = load_active(self.storage, self.layout.timeline)
        if not timeline.instants:
            self.check_there()
        if is_listening():
            meter_timeline(self.storage.uri, timeline, self.now())
        return timeline

    def commit_reader(self) -> CommitReader:
        from headwater.kernel.view.commits import CommitReader

        return CommitReader(self.storage, self.layout)

    def is_ours(self, pending: Instant) -> bool:
        """Whether Headwater scheduled a pending plan; other engines claim no attempts."""
        return load_newest_number(self.storage, pending.requested_time) > 0
