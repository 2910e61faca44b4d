"""Which results may stand together when plans are cancelled, over all interleavings of a few."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.testing.check import ABORTED, COMMITTED, REFUSED, RETURNED
from headwater.testing.explore import exhaust
from headwater.testing.faults import Fate, Faults
from headwater.testing.scenarios.cancel import (
    CANCELLED,
    cancel_archive,
    cancel_archived,
    cancel_commit,
    cancel_two_aborters,
    cleaner,
    executor,
    run_the_service,
)
from headwater.testing.scenarios.occ import IDLE
from headwater.testing.scenarios.removable import NEVER_MS, removable
from headwater.testing.scenarios.rollback import ROLLED_BACK
from headwater.testing.scenarios.writes import LOST
from headwater.testing.simulation import Scenario

_CRASH = Faults(crashes=1, fates=(Fate.DROP,))


def _results(scenario: Scenario, preemptions_max: int | None = 2) -> set[tuple[str, ...]]:
    report = exhaust(scenario, preemptions_max=preemptions_max)
    assert report.violation is None
    assert report.is_complete
    return {tuple(word for _, word in sorted(ends)) for ends in report.results}


def test_5_6_a_write_and_a_plan_never_both_have_their_way() -> None:
    # Executor, write. Both commit only one after the other: the write on the result of the plan.
    assert _results(cancel_commit(Faults())) == {
        (COMMITTED, LOST),
        (COMMITTED, COMMITTED),
        (ABORTED, COMMITTED),
    }


def test_5_6_a_write_never_fails_because_its_executor_died() -> None:
    results = _results(replace(cancel_commit(_CRASH), marks={}), preemptions_max=1)
    assert {written for _, written in results} == {COMMITTED, LOST, "crashed"}


def test_5_4_of_two_aborters_and_an_executor_somebody_ends_the_plan() -> None:
    results = _results(cancel_two_aborters(Faults()), preemptions_max=1)
    assert all(ABORTED in words for words in results)
    assert {word for words in results for word in words} <= {
        ABORTED,
        IDLE,
        REFUSED,
        CANCELLED,
    }


def test_5_4_the_service_that_clean_runs_ends_as_the_bare_abort_does() -> None:
    scenario = cancel_two_aborters(Faults())
    actors = {"C": cleaner(clean=run_the_service), "E": executor(rounds=1)}
    scenario = replace(scenario, actors=actors, twins=())
    assert all(ABORTED in words for words in _results(scenario, preemptions_max=1))


def test_h_02_a_completed_plan_is_never_cancelled_also_while_it_is_archived() -> None:
    results = _results(cancel_archived(Faults()))
    assert {words[-1] for words in results} == {REFUSED}


def test_h_06_an_aborted_plan_is_archived_after_its_entry_is_gone() -> None:
    results = _results(cancel_archive(Faults()), preemptions_max=1)
    assert ("archived", ABORTED, COMMITTED) in results


@pytest.mark.parametrize("delay_ms", [0, NEVER_MS])
def test_5_2_a_removable_plan_is_completed_or_rolled_back(delay_ms: int) -> None:
    # Cleaner, two executors.
    results = _results(removable(Faults(), delay_ms=delay_ms), preemptions_max=1)
    for words in results:
        assert [words[0] == ROLLED_BACK, COMMITTED in words].count(True) == 1
        assert set(words[1:]) <= {COMMITTED, RETURNED, REFUSED}
    assert any(words[0] == ROLLED_BACK for words in results) is (delay_ms == 0)
