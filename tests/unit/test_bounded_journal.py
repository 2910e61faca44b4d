"""The journal of a fenced table does not grow with its commits, and neither does opening it.

Checkpoints keep the slots few, and archival keeps the checkpoints small.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.counting_storage import CountingStorage, open_counting
from tests.support.tables import FENCED, MOR, a_table, trips

from headwater import opening
from headwater.kernel.journal import state
from headwater.kernel.journal.journal import CHECKPOINT_EVERY, Journal
from headwater.kernel.journal.state import ERASED_KEPT
from headwater.kernel.layout import JOURNAL
from headwater.table import Table

OPTIONS = {
    **FENCED,
    "hoodie.archive.automatic": "true",
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "6",
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "4",
}

LONG = (pytest.mark.long, pytest.mark.timeout(14_400))


class Size(NamedTuple):
    """How large a journal is, and what it takes to open its table and load the timeline."""

    objects: int
    checkpoint_bytes: int
    calls: int
    reads: int


def measure(table: Table) -> Size:
    infos = table.storage.list_tree(JOURNAL)
    checkpoints = [info.size_bytes for info in infos if info.path.endswith(".checkpoint")]
    again, storage = open_counting(CountingStorage, table.uri, table.context.options)
    again.context.load_timeline()
    reads = storage.count("read", "read_many", "read_range", "read_versioned", "open_input")
    return Size(len(infos), max(checkpoints, default=0), storage.count(), reads)


def sizes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, commits: int, every: int
) -> Iterator[Size]:
    """Commit, and give a size now and then: at every place between two checkpoints."""
    monkeypatch.setattr(opening, "Journal", partial(Journal, every=every))
    # How long erased names are remembered, in the same proportion.
    monkeypatch.setattr(state, "ERASED_KEPT", ERASED_KEPT * every // CHECKPOINT_EVERY)
    table = a_table(folder, table_type=MOR, buckets=1).with_options(OPTIONS).create()
    for number in range(commits):
        table.upsert(trips((f"k{number % 8}", "sf", number)))
        if number % 7 == 0:
            yield measure(table)
    values = {row["id"]: row["value"] for row in table.read_arrow().to_pylist()}
    last = range(commits - 8, commits)
    assert values == {f"k{number % 8}": number for number in last}


@pytest.mark.parametrize(
    ("commits", "every"),
    [(150, 8), pytest.param(10_000, CHECKPOINT_EVERY, marks=LONG)],
)
def test_the_journal_and_what_opening_reads_stay_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int, every: int
) -> None:
    found = list(sizes(tmp_path, monkeypatch, commits=commits, every=every))
    warm = len(found) // 3
    early, late = found[:warm], found[warm:]
    # Two checkpoints, each at most two intervals after the one before, and the slots since.
    assert max(size.objects for size in late) <= 4 * every + 2
    for name in Size._fields:
        largest = max(getattr(size, name) for size in early)
        assert max(getattr(size, name) for size in late) <= largest * 1.1, name
