"""Everything that a table answers, to be compared before and after what must change nothing.

Table services are invisible: what readers get of the present, of any moment within retention and
of any window of time stays the same (INV-48, INV-52, INV-54, INV-56).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.support.two_readers import Row, in_order, read_with_meta_columns

from headwater.arrow.meta_columns import FILE_NAME, META_COLUMNS

if TYPE_CHECKING:
    from headwater.table import Table

LASTING_META = tuple(name for name in META_COLUMNS if name != FILE_NAME)
"""The meta columns that no service changes; rows do move to other files."""


@dataclass(frozen=True)
class Answers:
    """What readers get: equal tables have equal answers."""

    snapshot: list[Row]
    as_of: dict[str, list[Row]]
    """By completion time."""
    incremental: dict[tuple[str | None, str], list[Row]]
    """By window."""
    changes: list[Row]
    """The change feed of all time, in its order but for the rows of one write to one group."""


def answers_of(table: Table, times: Sequence[str], *, since: str | None = None) -> Answers:
    """Ask a table everything about some completion times, which are in order.

    Args:
        since: where windows begin, if not with the table; before all of the times.
    """
    windows = {*zip((since, *times), times, strict=False), (since, times[-1])}
    return Answers(
        snapshot=_rows(table),
        as_of={time: _rows(table, as_of=time) for time in times},
        incremental={window: in_order(table.changes_arrow(*window)) for window in windows},
        changes=_by_write(table.changes_arrow(since, times[-1], cdc=True)),
    )


def _rows(table: Table, as_of: str | None = None) -> list[Row]:
    return in_order(read_with_meta_columns(table, LASTING_META, as_of=as_of))


def _by_write(feed: pa.Table) -> list[Row]:
    """Return changes ordered by the write that made them, and within it by what they are."""
    return sorted(in_order(feed), key=lambda change: str(change["ts"]))
