"""Planted bugs in how indexes of fenced tables are planned, wiped and published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headwater.config.table import TableConfig
from headwater.format.metadata.index_definitions import IndexDefinition
from headwater.kernel.index_definitions import load_index_definitions
from headwater.kernel.layout import METADATA
from headwater.kernel.table_config import load_table_config
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.index_births import IndexBirth
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.metadata.indexing import Indexing
from headwater.testing.faults import Faults
from headwater.testing.mutants.index import SayUsable
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.journal_index import (
    journal_built,
    journal_definitions,
    journal_dropped,
    journal_index,
)
from headwater.testing.toy_index import INDEX

_INDEXING = "headwater.metadata.indexing"
_schedule = Indexing.schedule


@dataclass(frozen=True, slots=True)
class _ByEarlierRead:
    """A step that is shown the definitions of an earlier moment."""

    step: Any
    definitions: Mapping[str, IndexDefinition]

    def needs(self, timeline: Timeline) -> Needs:
        needs: Needs = self.step.needs(timeline)
        return needs

    def decide(self, prefix: Prefix) -> Any:
        return self.step.decide(replace(prefix, definitions=self.definitions))


@dataclass(frozen=True, slots=True)
class _EarlierRead:
    """Transactions whose steps are shown the definitions of an earlier moment."""

    txn: Any
    definitions: Mapping[str, IndexDefinition]

    def run(self, step: Any) -> Any:
        return self.txn.run(_ByEarlierRead(step, self.definitions))

    def undisturbed(self, block: Callable[[], Any]) -> Any:
        return self.txn.undisturbed(block)


def _schedule_by_earlier_read(self: Indexing, wanted: Any) -> Any:
    """Read the definitions first, and put what they come to whatever was decided meanwhile."""
    storage = self.components.storage
    config = load_table_config(storage, self.components.clock)
    txn: Any = _EarlierRead(self.txn, load_index_definitions(storage, config))
    return _schedule(replace(self, txn=txn), wanted)


def _wipe_what_is_there_now(self: Indexing, paths: Iterable[str]) -> None:
    """Delete a partition by its name, whatever was listed."""
    if any(True for _ in paths):
        for info in self.components.storage.list_tree(f"{METADATA}/{INDEX}"):
            self.components.storage.delete(info.path)


def _publish_what_was_built(self: Indexing) -> None:
    """Say that the index can be used, whatever has become of it since."""
    self.txn.run(SayUsable(frozenset({INDEX})))


def _no_births(config: TableConfig) -> dict[str, IndexBirth]:
    return {}


MUTANTS = (
    Mutant(
        name="definitions of indexes written from a stale read",
        scenario=lambda: journal_definitions(Faults()),
        patches=((f"{_INDEXING}.Indexing.schedule", _schedule_by_earlier_read),),
        must_violate=("INV-135",),
        preemptions_max=1,
    ),
    Mutant(
        name="index wiped by its name",
        scenario=lambda: journal_dropped(Faults()),
        patches=((f"{_INDEXING}.Indexing._wipe", _wipe_what_is_there_now),),
        must_violate=("INV-136",),
        preemptions_max=1,
    ),
    Mutant(
        name="index published by what was built",
        scenario=lambda: journal_built(Faults()),
        patches=((f"{_INDEXING}.Indexing._publish_quietly", _publish_what_was_built),),
        must_violate=("INV-71",),
        preemptions_max=1,
    ),
    Mutant(
        name="file groups of an earlier index counted",
        scenario=lambda: journal_index(Faults()),
        patches=(("headwater.metadata.table.births_of", _no_births),),
        must_violate=("INV-136",),
        preemptions_max=1,
    ),
)
