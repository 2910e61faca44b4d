"""The table that services of retention work on, as one process reaches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.config.table import TableConfig
from headwater.engine.inline import EngineFor, inline_engine
from headwater.indexes.keep import IndexKeeper
from headwater.kernel.layout import TableLayout
from headwater.kernel.table_config import load_table_config, table_layout
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.attempts import load_newest_number
from headwater.kernel.txn.steps import Claim
from headwater.kernel.txn.transaction import LockTransaction
from headwater.kernel.view.commits import CommitReader
from headwater.model.instant import Instant, InstantTime, instant_time_at
from headwater.seams.components import Components
from headwater.seams.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTarget:
    """A table, and how this process claims attempts on it."""

    components: Components
    txn: LockTransaction
    config: TableConfig
    interval_ms: int
    tolerable_misses: int
    storage_options: Mapping[str, str] = field(default_factory=dict)
    engine_for: EngineFor = inline_engine
    merge_function: str | None = None

    @property
    def indexes(self) -> IndexKeeper:
        """Tells the indexes of the table what its instants do."""
        return IndexKeeper(
            components=self.components,
            config=self.config,
            storage_options=self.storage_options,
            engine_for=self.engine_for,
            merge_function=self.merge_function,
        )

    @property
    def storage(self) -> Storage:
        return self.components.storage

    @property
    def layout(self) -> TableLayout:
        return table_layout(self.config)

    def load_config(self) -> TableConfig:
        """Return the config of now: indexes may have come or gone since the table was opened."""
        return load_table_config(self.storage, self.components.clock)

    def load_timeline(self) -> Timeline:
        return load_active(self.storage, self.layout.timeline)

    def commit_reader(self) -> CommitReader:
        return CommitReader(self.storage, self.layout)

    def now(self) -> InstantTime:
        """Return the time of this process's clock in the digits of the timeline."""
        return instant_time_at(self.components.clock.now_ms(), is_utc=self.layout.is_utc)

    def claim(self) -> Claim:
        return Claim.new(
            self.components.ids,
            interval_ms=self.interval_ms,
            tolerable_misses=self.tolerable_misses,
        )

    def is_ours(self, pending: Instant) -> bool:
        """Whether Headwater scheduled a pending plan; other engines claim no attempts."""
        return load_newest_number(self.storage, pending.requested_time) > 0
