"""What `python -m headwater.testing.sim` says of each job, and when it calls one bad."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.testing import sim
from headwater.testing.catalog import LIMITS, MUTANTS, Limit, Proof, proofs
from headwater.testing.explore import Report, Trace, replay
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.sim import LOCKED, Bounds
from headwater.testing.simulation import Scenario

LIMIT = len(LIMITS) - 1  # Any one would do; this one shows soonest.
FENCED = Bounds(is_fenced=True)


def smallest() -> int:
    """Return the place of a search that ends after a few states."""
    return next(i for i, proof in enumerate(proofs("short")) if proof.run(300).is_complete)


def only(monkeypatch: pytest.MonkeyPatch, proof: Proof) -> None:
    monkeypatch.setattr(sim, "proofs", lambda _: [proof])


def test_a_search_that_ends_is_a_proof() -> None:
    index = smallest()
    line = sim.run_proof("short", index, LOCKED)
    assert line.is_good
    assert line.verdict == "proved"
    cut = sim.run_proof("short", index, Bounds(states_max=1))
    assert (cut.is_good, cut.verdict) == (True, "no violation so far")
    assert sim.run_proof("short", index, Bounds(is_fenced=True, states_max=20)).is_good


def test_a_search_that_does_not_reach_what_it_is_about_is_bad(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proof = proofs("short")[smallest()]

    def build() -> Scenario:
        return replace(proof.build(), marks={"nobody ever does this": lambda *_: False})

    only(monkeypatch, replace(proof, build=build))
    line = sim.run_proof("short", 0, LOCKED)
    assert not line.is_good
    assert line.verdict.startswith("NOT REACHED")


def test_a_violation_is_bad_and_comes_with_its_shortest_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = LIMITS[LIMIT]
    only(monkeypatch, Proof(label="broken", build=limit.build))
    line = sim.run_proof("short", 0, LOCKED)
    assert not line.is_good
    assert line.verdict.startswith("VIOLATED")
    assert line.trace


def test_a_limit_must_break_with_a_lock_and_hold_without(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sim.run_limit(LIMIT, LOCKED).verdict.endswith("as documented")
    found, nothing = LIMITS[LIMIT].run(), Report("holds", "none")
    monkeypatch.setattr(Limit, "run", lambda self: nothing)
    monkeypatch.setattr(Limit, "run_fenced", lambda self: nothing)
    line = sim.run_limit(LIMIT, LOCKED)
    assert not line.is_good
    assert line.verdict.startswith("HOLDS")
    assert sim.run_limit(LIMIT, FENCED).verdict == "holds without a lock"
    monkeypatch.setattr(Limit, "run_fenced", lambda self: found)
    assert not sim.run_limit(LIMIT, FENCED).is_good


def test_a_mutant_that_survives_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mutant, "hunt", lambda self: Report("m", "none"))
    line = sim.run_mutant(0)
    assert not line.is_good
    assert line.verdict == f"SURVIVED {'/'.join(MUTANTS[0].must_violate)}"
    found = LIMITS[LIMIT].run()
    monkeypatch.setattr(Mutant, "hunt", lambda self: found)
    assert sim.run_mutant(0).verdict.startswith("killed by")


def test_seeds_that_break_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sim.run_swarm((7, 8), LOCKED).verdict == "no violation"
    limit = LIMITS[LIMIT]
    whole = sim.run_seed

    def run_seed(seed: int, bounds: Bounds) -> Trace:
        if seed != 8:
            return whole(seed, bounds)
        return replay(limit.build(), limit.run().decisions, stop_at=limit.is_it)

    monkeypatch.setattr(sim, "run_seed", run_seed)
    monkeypatch.setattr(Bounds, "swarm", lambda self, seed: limit.build())
    line = sim.run_swarm((8,), LOCKED)
    assert line.verdict == "VIOLATED, seeds [8]"
    assert line.trace


def test_fenced_runs_leave_out_mutants_which_bring_their_own_tables() -> None:
    locked, fenced = (len(list(sim.jobs("short", range(250), b))) for b in (LOCKED, FENCED))
    assert locked - fenced == len(MUTANTS)


def test_limits_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim, "LIMITS", [LIMITS[LIMIT]])
    assert sim.main(["--record", str(tmp_path)]) == 0
    (file,) = tmp_path.iterdir()
    assert file.name.startswith(LIMITS[LIMIT].invariant)
