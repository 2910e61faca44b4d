"""Writes that were acknowledged, and that no reader sees (N-193).

Two writes gave one file group a new base file each, and neither lost to the other. Readers take the
file of the later time; if the earlier one completed last, it had not been seen by the other, and
its rows are lost. Writes of Headwater are compared when they complete. Hudi compares its own with
what completed since it first looked, which is a moment after it was requested: who is requested and
completes within that moment hides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from headwater.inspect.damage.problem import Problem
from headwater.kernel.view.group_history import GroupHistory
from headwater.kernel.view.table_view import TableView
from headwater.model.files import BaseFile


def hidden_writes(view: TableView, groups: Iterable[GroupHistory]) -> Iterator[Problem]:
    rewrites = {one.requested_time for one in view.commits if one.is_any_compaction}
    for group in groups:
        bases = sorted(
            (
                file
                for file in group.files
                if isinstance(file, BaseFile) and file.instant_time not in rewrites
            ),
            key=lambda base: base.instant_time,
        )
        for first, second in pairwise(bases):
            time, other = first.instant_time, second.instant_time
            if group.completion_time_of(time) > group.completion_time_of(other):
                yield Problem(
                    check="files",
                    subject=first.path,
                    problem=f"{time} and {other} changed this file group at once, and neither "
                    f"lost: {other} hides what {time} wrote, which completed later",
                    instant=time,
                    at_stake=f"what {time} did to this file group: nobody sees it",
                    advice=f"do again what {time} did",
                )
