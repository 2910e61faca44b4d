"""Steps that change table config alone, as pure decisions.

    IndexesRebuilt    take the indexes that are in use again off the list of those to rebuild

Other steps change it together with the timeline or with definitions of indexes: `withdrawal` and
`indexing_steps`. What a crash leaves behind inside a change is listed in `kernel.table_config`;
before it, nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.table_options import INDEXES_TO_REBUILD
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.events import ConfigChanged
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.transaction import Decision


@dataclass(frozen=True, slots=True)
class IndexesRebuilt:
    """Forget that indexes were to be built again which are in use now.

    By what table config says at this moment: others may have been dropped since, or the same one
    again (N-67). Answers with those that are still to be built.
    """

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(config=True)

    def decide(self, prefix: Prefix) -> Decision[tuple[str, ...]]:
        config = prefix.config
        if config is None:
            return Decision((), ())
        names = config.indexes_to_rebuild
        left = tuple(name for name in names if name not in config.metadata_partitions)
        if left == names:
            return Decision((), left)
        value = INDEXES_TO_REBUILD.encode(left) if left else None
        return Decision((ConfigChanged({INDEXES_TO_REBUILD.key: value}),), left)
