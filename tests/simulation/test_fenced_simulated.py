"""The scenarios of lock-trusting tables on fenced ones: no lock, the same steps, the same rules.

What must break where a lock is trusted and fails (A1), holds here.
"""

from __future__ import annotations

import pytest

from headwater.testing.catalog import LIMITS, Limit, Proof, proofs
from headwater.testing.explore import exhaust
from headwater.testing.fenced import fenced

STATES_MAX = 300


def searched() -> list[Proof]:
    return [proof for proof in proofs("short") if proof.strategy is None]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.build.__name__)
def test_what_breaks_without_a1_holds_without_a_lock(limit: Limit) -> None:
    report = exhaust(fenced(limit.build()), states_max=2_000)
    assert report.violation is None


@pytest.mark.parametrize("proof", searched(), ids=lambda proof: proof.label)
def test_no_run_breaks_an_invariant(proof: Proof) -> None:
    scenario = fenced(proof.build())
    report = exhaust(scenario, preemptions_max=proof.preemptions_max, states_max=STATES_MAX)
    assert report.violation is None
