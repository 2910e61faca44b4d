"""Which ends many writers can come to, under every interleaving of small scenarios."""

from __future__ import annotations

import pytest

from headwater.testing.check import COMMITTED
from headwater.testing.explore import Report, exhaust
from headwater.testing.faults import Faults
from headwater.testing.scenarios.nbcc import (
    IDLE,
    REPLACERS,
    nbcc_columns,
    nbcc_replace,
    nbcc_slice,
)
from headwater.testing.scenarios.occ import occ_3
from headwater.testing.scenarios.writes import LOST
from headwater.testing.simulation import Scenario


def _search(scenario: Scenario) -> Report:
    report = exhaust(scenario, preemptions_max=1)
    assert report.violation is None
    assert report.is_complete
    return report


def _ends(report: Report, actors: str) -> set[tuple[str, ...]]:
    return {tuple(dict(ends)[actor] for actor in actors) for ends in report.results}


def test_non_blocking_writers_and_a_compaction_never_fail_each_other() -> None:
    report = _search(nbcc_slice(Faults()))
    assert _ends(report, "AB") == {(COMMITTED, COMMITTED)}
    assert _ends(report, "C") == {(COMMITTED,), (IDLE,)}


def test_non_blocking_writers_who_bring_columns_all_get_them_in() -> None:
    report = _search(nbcc_columns(Faults()))
    assert "lost to the columns of another" in report.marks
    assert _ends(report, "ABC") == {(COMMITTED, COMMITTED, COMMITTED)}


@pytest.mark.parametrize("by", REPLACERS)
def test_a_non_blocking_writer_loses_to_a_replace_that_it_did_not_see(by: str) -> None:
    report = _search(nbcc_replace(Faults(), by=by))
    assert "lost to the replacing one" in report.marks
    gave_up = (LOST, COMMITTED)  # Twice, because clustering stays pending while it works.
    expected = {(COMMITTED, COMMITTED), gave_up if by == "clustering" else (COMMITTED, LOST)}
    assert _ends(report, "AO") == expected


def test_of_three_optimistic_writers_one_always_commits_and_the_others_may_lose() -> None:
    ends = _ends(_search(occ_3(Faults())), "ABC")
    assert all(COMMITTED in words for words in ends)
    assert all(set(words) <= {COMMITTED, LOST} for words in ends)
    assert (COMMITTED, COMMITTED, LOST) in ends
    assert (COMMITTED, COMMITTED, COMMITTED) in ends
