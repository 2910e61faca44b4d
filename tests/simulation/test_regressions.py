"""Decision lists of runs that broke something, replayed.

Those kept so far are the limits of mode L: they must still break, or the documentation is wrong.
When the product makes other calls than it did, `python -m headwater.testing.sim --record` with the
folder of this file writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.testing.catalog import LIMITS, Limit
from headwater.testing.explore import run
from headwater.testing.report import load_regression
from headwater.testing.schedule import Replay

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))


def _limit(scenario: str, invariant: str) -> Limit:
    return next(
        limit for limit in LIMITS if limit.build().name == scenario and limit.invariant == invariant
    )


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_a_recorded_run_still_breaks_what_it_broke(path: Path) -> None:
    regression = load_regression(path)
    limit = _limit(regression.scenario, regression.invariant)
    strategy = Replay(regression.decisions)
    trace = run(limit.build(), strategy, stop_at=limit.is_it)
    assert trace.violation is not None
    assert strategy.skipped == []


def test_every_limit_is_recorded() -> None:
    recorded = {(r.scenario, r.invariant) for r in map(load_regression, REGRESSIONS)}
    assert recorded == {(limit.build().name, limit.invariant) for limit in LIMITS}


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.build().name)
def test_a_search_finds_the_limit(limit: Limit) -> None:
    assert limit.run().violation is not None, f"{limit.invariant} holds: is this no limit any more?"
