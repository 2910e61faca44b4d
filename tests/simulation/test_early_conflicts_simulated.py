"""5.9 under every interleaving: which ends writers with detection can come to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.config.detection import DetectionStrategy
from headwater.testing.check import COMMITTED
from headwater.testing.check_detection import STOPPED
from headwater.testing.explore import exhaust
from headwater.testing.faults import Faults
from headwater.testing.mutants.early_conflict import MUTANTS
from headwater.testing.scenarios.early_conflict import LOST, ecd


@pytest.mark.parametrize("strategy", list(DetectionStrategy))
def test_5_9_of_two_crossed_writers_one_always_commits(strategy: DetectionStrategy) -> None:
    report = exhaust(ecd(strategy, 2, Faults()), preemptions_max=1)
    assert report.violation is None
    assert report.is_complete
    ends = {tuple(sorted(word for _, word in results)) for results in report.results}
    one_after_the_other = (COMMITTED, COMMITTED)
    assert ends == {one_after_the_other, (COMMITTED, LOST), (COMMITTED, STOPPED)}


def test_inv_67_who_stops_for_a_later_writer_is_noticed() -> None:
    [mutant] = [one for one in MUTANTS if one.name == "detection ignores instant order"]
    report = replace(mutant, must_violate=("INV-67",)).hunt()
    assert report.violation is not None
    assert "was not ahead of it" in report.violation.message
