"""Births: which plan an index of a fenced table is of, and how many file groups it has.

A process that stood still may add files to an index that was dropped and planned again under its
name. Table config, which is journaled, tells whose files count (ADR 14). The request of a plan says
so and a drop takes it back, in their slots. Tables that trust their lock, and indexes from before,
have no birth: all files in their folders count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.config.table import TableConfig
from headwater.config.table_options import INDEXES_PLANNED
from headwater.errors import CorruptTableError
from headwater.kernel.layout import PROPERTIES
from headwater.kernel.timeline.names import is_instant_time
from headwater.model.instant import InstantTime


@dataclass(frozen=True, slots=True)
class IndexBirth:
    """The plan that a partition of the metadata table is of."""

    plan: InstantTime
    group_count: int
    """0 if it has groups of its own for each partition of the table."""


def births_of(config: TableConfig) -> dict[str, IndexBirth]:
    """Return the births of indexes that have one, by partition of the metadata table.

    Raises:
        CorruptTableError: table config is damaged.
    """
    births = {}
    for text in config.indexes_planned:
        partition, _, rest = text.partition(":")
        plan, _, groups = rest.partition(":")
        if not partition or not is_instant_time(plan) or not groups.isdecimal():
            raise CorruptTableError(
                f"Table config of {config.name} says {text!r} of an index, which is no "
                f"`index:instant:groups`. Correct {INDEXES_PLANNED.key} in {PROPERTIES}, or drop "
                "the index and create it again",
                path=PROPERTIES,
            )
        births[partition] = IndexBirth(InstantTime(plan), int(groups))
    return births


def births_changed(
    config: TableConfig, added: dict[str, IndexBirth], removed: Iterable[str] = ()
) -> dict[str, str | None]:
    """Return how table config changes when indexes come or go; not at all in most cases."""
    before = births_of(config)
    gone = set(removed)
    after = {name: birth for name, birth in before.items() if name not in gone} | added
    if after == before:
        return {}
    texts = tuple(f"{name}:{after[name].plan}:{after[name].group_count}" for name in sorted(after))
    return {INDEXES_PLANNED.key: INDEXES_PLANNED.encode(texts) if texts else None}
