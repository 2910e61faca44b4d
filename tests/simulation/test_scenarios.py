"""The protocol under every interleaving of small scenarios, and the outcomes they may have.

These are the short proofs; `make sim` runs larger ones.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.testing.catalog import Proof, proofs
from headwater.testing.check import COMMITTED, FENCED, RETURNED
from headwater.testing.explore import exhaust
from headwater.testing.faults import Fate, Faults
from headwater.testing.scenarios.guard import guard_2, guard_3, guard_skewed, guard_with_tickers
from headwater.testing.sim import main, run_seed
from headwater.testing.simulation import Scenario

_STALL = Faults(ticks=1, has_long_ticks=False)


def _words(scenario: Scenario) -> set[tuple[str, ...]]:
    report = exhaust(scenario)
    assert report.violation is None
    assert report.is_complete
    return {tuple(sorted(word for _, word in ends)) for ends in report.results}


@pytest.mark.parametrize("proof", proofs("short"), ids=lambda proof: proof.label)
@pytest.mark.some(20)
def test_no_run_of_a_small_scenario_breaks_an_invariant(proof: Proof) -> None:
    report = proof.run()
    assert report.violation is None
    assert report.is_complete
    assert report.missing_marks == ()


def test_5_1_a_one_of_two_executors_commits_and_the_other_gets_its_result() -> None:
    assert _words(guard_2(Faults())) == {(COMMITTED, RETURNED)}


def test_5_1_a_one_of_three_executors_commits() -> None:
    assert _words(guard_3(Faults())) == {(COMMITTED, RETURNED, RETURNED)}


def test_5_1_a_prime_after_a_crash_the_other_commits_or_finds_it_done() -> None:
    faults = Faults(crashes=1, fates=(Fate.DROP,))
    words = _words(guard_2(faults))
    assert ("crashed", "refused") not in words
    assert {(COMMITTED, RETURNED), (COMMITTED, "crashed"), ("crashed", RETURNED)} == words


def test_5_1_b2_who_is_taken_over_is_fenced_and_never_commits() -> None:
    words = _words(replace(guard_2(_STALL), has_eager_clocks=True))
    assert (COMMITTED, FENCED) in words
    assert (COMMITTED, COMMITTED) not in words


def test_5_1_c_a_dead_attempt_is_settled_first() -> None:
    assert _words(guard_2(Faults(), is_after_death=True)) == {(COMMITTED, RETURNED)}


def test_inv_43_skew_changes_no_outcome() -> None:
    straight = exhaust(replace(guard_2(_STALL), has_twins=False, has_eager_clocks=True))
    skewed = exhaust(
        replace(guard_skewed(_STALL, {"X": 7_200_000, "Y": -7_200_000}), has_eager_clocks=True)
    )
    assert skewed.violation is None
    assert skewed.results == straight.results


def test_a_beating_heartbeat_is_not_taken_over_without_a_stall() -> None:
    scenario = replace(guard_with_tickers(Faults(crashes=1, fates=(Fate.DROP,))), marks={})
    words = _words(scenario)
    assert all(FENCED not in ends for ends in words)


def test_n_132_a_deletion_of_a_rollback_may_land_after_it_was_taken_over() -> None:
    assert run_seed(4396).violation is None


def test_seeds_of_the_swarm_hold() -> None:
    for seed in range(100):
        assert run_seed(seed).violation is None, f"HEADWATER_SIM_SEEDS={seed} replays it"


def test_the_command_replays_a_seed_and_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--workers", "1"]) == 0
    assert "swarm: seeds 3 to 3" in capsys.readouterr().out
