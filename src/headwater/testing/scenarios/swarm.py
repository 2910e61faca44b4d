"""swarm: executors, writers and cleaners on one table, with whatever faults a seed switches on.

Every seed is another configuration: who takes part, which faults are possible, how clocks disagree,
how long a page of a listing is. A random subset of features finds more than all of them at once.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from headwater.model.instant import State
from headwater.testing.actor import Body, ProcessRules
from headwater.testing.faults import Fate, Faults
from headwater.testing.operation import Op
from headwater.testing.scenarios.ingest import writer
from headwater.testing.scenarios.plan import (
    CHECKS,
    executor,
    heartbeat_deadlines_ms,
    request_plan,
    request_plan_with_dead_attempt,
)
from headwater.testing.scenarios.rollback import cleaner, run_the_service
from headwater.testing.simulation import Scenario
from headwater.testing.table import place_of
from headwater.testing.world import WorldRules

_HOUR_MS = 3_600_000


def swarm(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    source = Random(seed)
    executors, writers = source.randint(1, 3), source.randint(0, 3)
    actors: dict[str, Body] = {f"E{n}": executor(rounds=3) for n in range(1, executors + 1)}
    actors |= {f"W{n}": writer() for n in range(1, writers + 1)}
    page_size = source.choice((1, 2, 3, 1000))
    has_lease = source.random() < 0.3
    offsets_ms = {}
    if source.random() < 0.5:
        offsets_ms = {actor: source.randint(-_HOUR_MS, _HOUR_MS) for actor in actors}
    scenario = Scenario(
        name="swarm",
        actors=actors,
        set_up=source.choice((request_plan, request_plan_with_dead_attempt)),
        invariants=CHECKS.all(),
        learn=CHECKS.learn,
        hear=CHECKS.hear,
        faults=_faults(source),
        world=WorldRules(page_size=page_size, lock="lease" if has_lease else "session"),
        processes=ProcessRules(page_size=page_size, has_tickers=source.random() < 0.5),
        offsets_ms=offsets_ms,
        deadlines_ms=heartbeat_deadlines_ms,
        steps_max=10_000,
    )
    cleaners = source.randint(0, 2)
    actors |= {f"C{n}": cleaner(rounds=3, clean=run_the_service) for n in range(1, cleaners + 1)}
    return replace(scenario, actors=actors)


def _faults(source: Random) -> Faults:
    def some(largest: int) -> int:
        return source.randint(1, largest) if source.random() < 0.5 else 0

    return Faults(
        crashes=some(2),
        fates=(Fate.DROP, Fate.APPLY),
        lost_replies=some(3),
        failures=some(3),
        limbos=some(1),
        ticks=some(6),
        clock_steps=some(3),
        ticker_failures=some(2),
        restarts=some(2),
        may_fail=_may_fail,
    )


def _may_fail(actor: str, op: Op) -> bool:
    # Mode L does not survive an inflight file that comes or goes after its writer gave up; nothing
    # but the displayed state suffers. Completed files and attempts are written again until known.
    file = place_of(op.target).file
    return file is None or file.state is not State.INFLIGHT
