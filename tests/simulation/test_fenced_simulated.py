"""The scenarios of lock-trusting tables on fenced ones: no lock, the same steps, the same rules.

What must break where a lock is trusted and fails (A1), holds here. Files are checked against the
journal all the while (INV-134). `python -m headwater.testing.sim --fenced` goes further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from headwater.testing.catalog import LIMITS, Limit, Proof, fenced_proof, proofs
from headwater.testing.explore import exhaust, run
from headwater.testing.faults import Fate, Faults
from headwater.testing.fenced import fenced
from headwater.testing.scenarios.beside_hudi import (
    hudi_beside,
    hudi_beside_two,
    hudi_clustered,
    hudi_dead,
    hudi_eager,
)
from headwater.testing.scenarios.index import index_outrun
from headwater.testing.scenarios.journal import (
    journal_again,
    journal_archive,
    journal_cancel,
    journal_files,
    journal_floor,
)
from headwater.testing.scenarios.journal_index import (
    journal_built,
    journal_definitions,
    journal_dropped,
    journal_index,
)
from headwater.testing.scenarios.journal_switch import MARKS as SWITCH_MARKS
from headwater.testing.scenarios.journal_switch import (
    switch_both_ways,
    switch_to_journal,
    switch_to_lock,
)
from headwater.testing.scenarios.swarm import fenced_swarm
from headwater.testing.scenarios.upkeep import beside
from headwater.testing.schedule import Pct, Rarely
from headwater.testing.simulation import Scenario

STATES_MAX = 100


def searched() -> list[Proof]:
    return [proof for proof in proofs("short") if proof.strategy is None]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.build.__name__)
def test_what_breaks_without_a1_holds_without_a_lock(limit: Limit) -> None:
    report = exhaust(fenced(limit.build()), states_max=2_000)
    assert report.violation is None


def test_liv_16_a_build_ends_however_slow_its_builder_is() -> None:
    trace = run(fenced(index_outrun()), Rarely("X", 10))
    assert trace.violation is None


@pytest.mark.parametrize("proof", searched(), ids=lambda proof: proof.label)
def test_no_run_breaks_an_invariant(proof: Proof) -> None:
    report = fenced_proof(proof, checkpoint_every=3).run(STATES_MAX)
    assert report.violation is None


def test_a_slot_that_is_put_below_the_floor_means_nothing() -> None:
    marks = ("slot put below the floor", "slot deleted")
    report = exhaust(journal_floor(Faults(), marks=marks), preemptions_max=1)
    assert report.violation is None
    assert report.is_complete
    assert not report.missing_marks


@pytest.mark.parametrize("faults", [Faults(), Faults(crashes=1, fates=(Fate.DROP, Fate.APPLY))])
def test_who_reads_slots_of_a_distant_store_ahead_decides_on_what_there_is(faults: Faults) -> None:
    scenario = journal_floor(faults)
    scenario = replace(scenario, processes=replace(scenario.processes, is_distant=True))
    report = exhaust(scenario, preemptions_max=0 if faults.crashes else 1)
    assert report.violation is None
    assert report.is_complete


def test_who_deletes_a_file_late_puts_it_back() -> None:
    """Its name is used again, by whoever executes the plan once more."""
    late = "file deleted that was created again"
    report = exhaust(journal_again(Faults(ticks=1), marks=(late,)), preemptions_max=1)
    assert report.violation is None
    assert report.is_complete
    assert not report.missing_marks


@pytest.mark.parametrize("build", [journal_files, journal_archive, journal_cancel, journal_again])
def test_files_show_a_prefix_wherever_a_process_dies(build: Callable[[Faults], Scenario]) -> None:
    scenario = build(Faults(crashes=1, fates=(Fate.DROP,)))
    report = exhaust(scenario, preemptions_max=0)
    assert report.violation is None
    assert report.is_complete


def test_writers_that_announce_their_files_commit_on_fenced_tables() -> None:
    """They would all fail if what marks files hid the journal, and nothing would be shown."""
    report = exhaust(fenced(beside("archive", "write", Faults())), preemptions_max=0)
    assert report.results == {(("X", "done"), ("Y", "committed"))}


def test_who_stood_still_while_an_index_was_replaced_harms_nothing() -> None:
    """It stands still before any of its calls, while the other goes through with all it does."""
    report = exhaust(journal_index(Faults(), marks=("file group put late",)), preemptions_max=1)
    assert report.violation is None
    assert report.is_complete
    assert not report.missing_marks


def test_who_stood_still_while_it_dropped_an_index_harms_no_later_one() -> None:
    report = exhaust(journal_dropped(Faults(), marks=("wiped late",)), preemptions_max=1)
    assert report.violation is None
    assert report.is_complete
    assert not report.missing_marks


@pytest.mark.parametrize("build", [journal_built, journal_definitions])
def test_definitions_and_indexes_are_those_that_were_decided(
    build: Callable[[Faults], Scenario],
) -> None:
    report = exhaust(build(Faults()), preemptions_max=1)
    assert report.violation is None
    assert report.is_complete


@pytest.mark.parametrize("build", [journal_index, journal_built, journal_dropped])
def test_an_index_is_right_wherever_a_process_dies(build: Callable[[Faults], Scenario]) -> None:
    report = exhaust(build(Faults(crashes=1, fates=(Fate.DROP,))), preemptions_max=0)
    assert report.violation is None
    assert report.is_complete


@pytest.mark.parametrize("build", [switch_to_journal, switch_to_lock, switch_both_ways])
def test_what_writers_are_told_is_so_whenever_a_table_is_switched(
    build: Callable[..., Scenario],
) -> None:
    report = exhaust(build(Faults(), marks=tuple(SWITCH_MARKS)), preemptions_max=1)
    assert report.violation is None
    assert report.is_complete
    assert not report.missing_marks


@pytest.mark.parametrize("build", [switch_to_journal, switch_to_lock, switch_both_ways])
def test_a_switch_may_die_at_any_call(build: Callable[[Faults], Scenario]) -> None:
    report = exhaust(build(Faults(crashes=1, fates=(Fate.DROP,))), preemptions_max=0)
    assert report.violation is None
    assert report.is_complete


@pytest.mark.parametrize("seed", range(20))
def test_no_seed_of_the_swarm_breaks_an_invariant(seed: int) -> None:
    assert run(fenced_swarm(seed), Pct(seed)).violation is None


def test_a_listing_that_fails_after_the_slot_does_not_make_a_failure_of_a_commit() -> None:
    """Seed 5375 found it: the writer took it for one, and deleted files of its own commit."""
    report = exhaust(journal_floor(Faults(failures=1)), preemptions_max=0)
    assert report.violation is None


@pytest.mark.parametrize(
    "scenario",
    [
        hudi_beside(Faults(), marks=("adopted", "refused")),
        hudi_beside_two(Faults(), marks=("adopted", "refused")),
        hudi_dead(Faults(ticks=1), marks=("adopted", "refused")),
        hudi_eager(Faults(), marks=("adopted", "refused")),
        hudi_clustered(Faults(), marks=("adopted",)),
    ],
    ids=lambda scenario: scenario.name,
)
def test_what_hudi_writes_is_taken_over_or_refused(scenario: Scenario) -> None:
    report = exhaust(scenario, preemptions_max=1)
    assert report.violation is None
    assert report.is_complete
    assert not report.missing_marks


@pytest.mark.parametrize("build", [hudi_beside, hudi_eager, hudi_clustered])
def test_who_takes_over_what_hudi_wrote_may_die_at_any_call(
    build: Callable[..., Scenario],
) -> None:
    report = exhaust(build(Faults(crashes=1, fates=(Fate.DROP,))), preemptions_max=1)
    assert report.violation is None
    assert report.is_complete
