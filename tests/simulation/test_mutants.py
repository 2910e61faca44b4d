"""Every planted bug is noticed, and by an invariant that the unbroken product keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.config.detection import DetectionStrategy
from headwater.testing.catalog import MUTANTS
from headwater.testing.explore import exhaust, replay
from headwater.testing.faults import Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.cancel import cancel_commit
from headwater.testing.scenarios.early_conflict import ecd
from headwater.testing.scenarios.guard import guard_2
from headwater.testing.scenarios.logcompact import logcompact
from headwater.testing.scenarios.nbcc import nbcc_replace, nbcc_slice
from headwater.testing.scenarios.occ import occ_3
from headwater.testing.scenarios.rollback import rollback_two
from headwater.testing.scenarios.unknown import unknown
from headwater.testing.simulation import Scenario

LONG = {
    "abort does not look at heartbeats",
    "archival takes the newest to complete",
    "archived candidates are not looked for",
    "base file below one that its writer has seen",
    "clean planned while a commit is being taken back",
    "compaction of the metadata table takes in an index that is being built",
    "completion time of a delta commit issued before its lock scope",
    "detection ignores instant order",
    "every writer names its own bucket group",
    "first deadline counted from after the claim",
    "index not announced until its builder has caught up",
    "index set evaluated before the lock",
    "merge by requested time",
    "OCC by requested time",
    "rollback by prefix listing",
    "savepoint deleted while a restore to it is pending",
    "second rollback for the same write",
    "slot behind a late one not asked which it follows",
    "slot read back by name only",
    "write rolled back by listing its files",
}
"""Those that are found after a second; `make sim` hunts all of them."""
assert {mutant.name for mutant in MUTANTS} >= LONG


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=mutant.name, marks=[pytest.mark.long] * (mutant.name in LONG))
        for mutant in MUTANTS
    ],
)
@pytest.mark.some(20)
def test_it_is_killed(mutant: Mutant) -> None:
    report = mutant.hunt()
    assert report.violation is not None, f"{mutant.name} survived {report.states} states"
    assert report.violation.invariant in mutant.must_violate
    with mutant.planted() as scenario:
        again = replay(scenario, report.decisions, stop_at=mutant.is_noticed_by)
    assert again.violation == report.violation


PATCHED = (
    "occ_keys",
    "occ_redo",
    "occ_append",
    "occ_rebase",
    "cancel_",
    "removable",
    "index_",
    "restore",
    "rollback of",
    "savepoint",
    "undo_",
    "sweep_",
)


def _unbroken(scenario: Scenario) -> Scenario:
    """Return the scenario with the actors it has when nothing is planted."""
    is_ingestion = set(scenario.actors) == {"W", "R"}
    whole = unknown(scenario.faults) if is_ingestion else guard_2(scenario.faults)
    if scenario.name == "rollback_two":
        whole = rollback_two(scenario.faults, cleaners=len(scenario.actors) - 1)
    if scenario.name.startswith("ecd_"):
        whole = ecd(DetectionStrategy.DIRECT, len(scenario.actors), scenario.faults)
    if scenario.name == "occ_3":
        whole = occ_3(scenario.faults)
    if scenario.name == "nbcc_columns":
        whole = scenario  # What is broken there is patched into the product.
    if scenario.name == "nbcc_slice":
        whole = nbcc_slice(scenario.faults)
    if scenario.name.startswith("nbcc_replace by "):
        whole = nbcc_replace(scenario.faults, by=scenario.name.removeprefix("nbcc_replace by "))
    if scenario.name == "logcompact":
        whole = logcompact(scenario.faults)
    if scenario.name == "cancel_commit":
        whole = cancel_commit(scenario.faults)
    elif scenario.name.startswith(PATCHED) or scenario.name.endswith(", fenced"):
        whole = scenario  # What is broken there is patched into the product.
    return replace(scenario, actors=whole.actors)


_UNBROKEN = {
    (scenario.name, scenario.faults): _unbroken(scenario)
    for scenario in (mutant.scenario() for mutant in MUTANTS)
}
_STATES_MAX = 1_000
"""Enough to be sure that a mutant dies of its own bug; the proofs go to the end."""


@pytest.mark.long
@pytest.mark.parametrize("key", _UNBROKEN, ids=lambda key: f"{key[0]} {key[1].budgets()}")
def test_the_unbroken_product_survives_the_same_scenario(key: tuple[str, Faults]) -> None:
    assert exhaust(_UNBROKEN[key], states_max=_STATES_MAX).violation is None
