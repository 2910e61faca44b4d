"""Questions people ask about a table. Every answer is a pyarrow table; nothing is changed.

Each has a file of its own, which is imported when the question is asked: who holds the lock is told
without loading what compares indexes with files.
"""

from __future__ import annotations

import os
from dataclasses import asdict

import pyarrow as pa

from headwater.context import TableContext


class Inspect:
    """`table.inspect`: one method per question."""

    def __init__(self, table: TableContext) -> None:
        self._table = table

    def timeline(self, *, operations: bool = False) -> pa.Table:
        """The instants of the active timeline, oldest first.

        Args:
            operations: whether to add the column `operation`, the kind of write of each completed
                commit, such as UPSERT. Every commit is read for it.
        """
        from headwater.inspect.timeline import list_instants, list_operations

        list_rows = list_operations if operations else list_instants
        return list_rows(self._table.storage, self._table.config)

    def draw_timeline(self, *paths: str | os.PathLike[str]) -> None:
        """Draw the timeline, and write the picture to local files ending in `.svg` or `.png`.

        Needs the `pictures` extra.

        Raises: see `inspect.timeline_picture.draw_timeline`.
        """
        from headwater.inspect.timeline_picture import draw_timeline

        zone = "UTC" if self._table.config.is_utc else "each writer's local time"
        title = f"Timeline of {self._table.config.name} ({zone})"
        draw_timeline(self.timeline(operations=True), paths, title=title)

    def files(self) -> pa.Table:
        """The committed data files of the newest view, one row each."""
        from headwater.inspect.data_files import list_files

        return list_files(self._table.storage, self._table.config)

    def slices(self) -> pa.Table:
        """What a snapshot reads: the newest file slice of every file group, one row each."""
        from headwater.inspect.slices import list_slices

        return list_slices(self._table.storage, self._table.config)

    def heartbeats(self) -> pa.Table:
        """Who is at work, or was when it died: one row per attempt and per plain heartbeat."""
        from headwater.inspect.heartbeats import list_heartbeats

        return list_heartbeats(self._table.storage, self._table.clock)

    def locks(self) -> pa.Table:
        """Who holds the table lock; no row when it is free."""
        from headwater.inspect.locks import list_locks

        return list_locks(self._table.components.locks)

    def plans(self) -> pa.Table:
        """The plans that have not ended: what each is, and who works on it."""
        from headwater.inspect.plans import list_plans

        return list_plans(self._table)

    def plan(self, instant: str) -> pa.Table:
        """What a plan is to do: one row per file group, index or partition.

        Raises: see `inspect.plans.show_plan`.
        """
        from headwater.inspect.plans import show_plan

        return show_plan(self._table, instant)

    def conflicts(self) -> pa.Table:
        """Work that gave way to other work: cancelled plans and rolled back writes."""
        from headwater.inspect.conflicts import list_conflicts

        return list_conflicts(self._table)

    def cancels(self) -> pa.Table:
        """The plans that were cancelled: those that wait to be aborted, and those that were."""
        from headwater.inspect.cancels import list_cancels

        return list_cancels(self._table.storage, self._table.layout)

    def cancel_count(self) -> pa.Table:
        """How often plans of this table were cancelled since it was created, as one row."""
        from headwater.inspect.cancels import count_cancels

        return count_cancels(self._table.storage)

    def indexes(self) -> pa.Table:
        """The indexes: state, file groups, logs not folded yet, plans and what they wait for.

        `compaction_waits_for` are the instants that keep the metadata table from being compacted:
        a process died between telling the indexes and completing. Rolling back failed writes, or
        executing the plan again, ends that.
        """
        from headwater.metadata.listing import list_indexes

        return list_indexes(self._table.storage, self._table.clock)

    def problems(self, *, deep: bool = False) -> pa.Table:
        """What is wrong with the table: what, since when, which rows are at stake, what to do.

        Nothing is raised for damage, however bad it is. `headwater fsck` shows the same.

        Args:
            deep: whether all files in use are read, and keys are looked for that are there twice.
        """
        from headwater.inspect.damage import find_problems
        from headwater.inspect.damage.problem import SCHEMA

        found = [asdict(one) for one in find_problems(self._table, is_deep=deep)]
        return pa.Table.from_pylist(found, schema=SCHEMA)

    def doubled_keys(self) -> pa.Table:
        """The record keys that are there more than once where the index promises one: each place.

        All keys are read. Tables with a simple or bloom index may have them by `insert`.

        Raises: see `inspect.doubled_keys.find_doubled_keys`.
        """
        from headwater.inspect.doubled_keys import find_doubled_keys

        return find_doubled_keys(self._table)

    def validate_metadata(self) -> pa.Table:
        """How the indexes differ from what the files say: none of the rows `missing` or `wrong`.

        Everything is derived again from the data, which takes about as long as building all
        indexes. Rows that are `stale` are harmless: an index may name more than there is.

        Raises: see `inspect.validate_metadata.validate_metadata`.
        """
        from headwater.inspect.validate_metadata import validate_metadata

        # Indexes may have come since the table was opened.
        return validate_metadata(self._table.reload())
