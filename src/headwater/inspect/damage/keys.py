"""Record keys that a partition has twice."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.compute as pc

from headwater.context import TableContext
from headwater.inspect.damage.problem import Problem
from headwater.inspect.doubled_keys import find_doubled_keys

_TOLD_MAX = 3
"""How many keys are named of those that are there twice."""


def of_keys(table: TableContext) -> Iterator[Problem]:
    """Give partitions with keys that are there twice.

    Inserts of tables with a simple or bloom index look nothing up, so there they may be meant.
    """
    found = find_doubled_keys(table)
    for partition in pc.unique(found["partition"]).to_pylist():
        keys = pc.unique(found.filter(pc.equal(found["partition"], partition))["key"])
        some = ", ".join(keys[:_TOLD_MAX].to_pylist())
        yield Problem(
            check="keys",
            subject=partition or ".",
            problem=f"{len(keys)} record keys are there twice, such as {some}",
            at_stake="the rows of these keys: updates and deletes reach one of several",
            advice="read the wanted row of each, delete the keys until none is found and write the "
            "rows again, unless the table was filled by inserts that look for no keys",
        )
