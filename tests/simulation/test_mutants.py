"""Every planted bug is noticed, and by an invariant that the unbroken product keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.testing.catalog import MUTANTS
from headwater.testing.explore import exhaust, replay
from headwater.testing.faults import Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.guard import guard_2
from headwater.testing.scenarios.unknown import unknown
from headwater.testing.simulation import Scenario


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_killed(mutant: Mutant) -> None:
    report = mutant.hunt()
    assert report.violation is not None, f"{mutant.name} survived {report.states} states"
    assert report.violation.invariant in mutant.must_violate
    with mutant.planted() as scenario:
        again = replay(scenario, report.decisions, stop_at=mutant.is_noticed_by)
    assert again.violation == report.violation


def _unbroken(scenario: Scenario) -> Scenario:
    """Return the scenario with the actors it has when nothing is planted."""
    is_ingestion = set(scenario.actors) == {"W", "R"}
    whole = unknown(scenario.faults) if is_ingestion else guard_2(scenario.faults)
    return replace(scenario, actors=whole.actors)


_UNBROKEN = {
    (scenario.name, scenario.faults): _unbroken(scenario)
    for scenario in (mutant.scenario() for mutant in MUTANTS)
}
_STATES_MAX = 3_000
"""Enough to be sure that a mutant dies of its own bug; the proofs go to the end."""


@pytest.mark.parametrize("key", _UNBROKEN, ids=lambda key: f"{key[0]} {key[1].budgets()}")
def test_the_unbroken_product_survives_the_same_scenario(key: tuple[str, Faults]) -> None:
    assert exhaust(_UNBROKEN[key], states_max=_STATES_MAX).violation is None
