"""swarm: processes of every kind on one table, with whatever faults a seed switches on.

Every seed is another configuration: who takes part, which faults are possible, how clocks disagree,
how long a page of a listing is. A random subset of features finds more than all of them at once.
A seed draws one of three crowds:

    kept     writers of both controls, compaction, log compaction, clustering, and whoever keeps the
             table: restore, rollback of a commit, savepoints and their deletion, clean with sweep,
             archive, readers
    plan     executors of one plan, writers that fail, and cleaners that roll them back
    small    the actors of a small scenario, with more faults than a search could exhaust:
             cancellation, index builds, early conflicts, removable plans, replacing writes

On a fenced table the same crowds have faults that mode L does not survive: any write may land late,
also one of a dead process, and locks expire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from headwater.config.detection import DetectionStrategy
from headwater.model.instant import State
from headwater.testing.actor import Body, ProcessRules
from headwater.testing.faults import Fate, Faults, any_call
from headwater.testing.fenced import NO_CHECKPOINT, fenced
from headwater.testing.operation import Op
from headwater.testing.scenarios.cancel import (
    cancel_archive,
    cancel_archived,
    cancel_commit,
    cancel_stall,
    cancel_two_aborters,
)
from headwater.testing.scenarios.early_conflict import ecd
from headwater.testing.scenarios.index import (
    index_again,
    index_clean,
    index_compacted,
    index_hole,
    index_toctou,
)
from headwater.testing.scenarios.ingest import writer
from headwater.testing.scenarios.logcompact import logcompact
from headwater.testing.scenarios.nbcc import REPLACERS, nbcc_replace, nbcc_slice
from headwater.testing.scenarios.occ import occ_3
from headwater.testing.scenarios.plan import (
    CHECKS,
    executor,
    heartbeat_deadlines_ms,
    request_plan,
    request_plan_with_dead_attempt,
)
from headwater.testing.scenarios.removable import removable
from headwater.testing.scenarios.rollback import cleaner, run_the_service
from headwater.testing.scenarios.upkeep import (
    BASES,
    KEEPERS,
    LOGS,
    REWRITERS,
    SAVED,
    Kept,
    may_land_late,
    reader,
    unprotector,
    upkeep,
)
from headwater.testing.scenarios.upkeep import writer as kept_writer
from headwater.testing.simulation import Scenario, no_call
from headwater.testing.table import place_of
from headwater.testing.world import WorldRules

_HOUR_MS = 3_600_000

_SMALL: tuple[Callable[[Faults], Scenario], ...] = (
    cancel_commit,
    cancel_stall,
    cancel_two_aborters,
    cancel_archive,
    cancel_archived,
    index_toctou,
    lambda faults: index_toctou(faults, is_early=True),
    index_again,
    index_clean,
    index_compacted,
    index_hole,
    *(lambda faults, by=by: nbcc_replace(faults, by=by, writers=2) for by in REPLACERS),
    # Who cannot announce its file fails there, and 5.9 has no row for that.
    *(
        lambda faults, how=how: ecd(how, 3, replace(faults, lost_replies=0))
        for how in DetectionStrategy
    ),
    nbcc_slice,
    logcompact,
    occ_3,
    removable,
)


def swarm(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    source = Random(seed)
    crowd = source.choice((_kept_crowd, _kept_crowd, plan_crowd, _small_crowd))
    return crowd(source)


def fenced_swarm(seed: int) -> Scenario:
    """Return the scenario of a seed on a fenced table, with checkpoints near and far."""
    source = Random(f"fenced {seed}")
    scenario = swarm(seed)
    # Who cannot announce its file fails, and 5.9 has no row for that.
    if source.random() < 0.3 and not scenario.name.startswith("ecd_"):
        scenario = _with_late_landings(scenario)
    if source.random() < 0.3:
        faults = replace(scenario.faults, lock_expiries=2)
        scenario = replace(scenario, faults=faults, world=replace(scenario.world, lock="lease"))
    return fenced(
        scenario,
        checkpoint_every=source.choice((2, 3, 5, NO_CHECKPOINT)),
        has_private_files=source.random() < 0.5,
        is_distant=source.random() < 0.5,
    )


def _with_late_landings(scenario: Scenario) -> Scenario:
    faults = scenario.faults
    fates = (*faults.fates, Fate.LIMBO) if Fate.LIMBO not in faults.fates else faults.fates
    faults = replace(faults, limbos=faults.limbos + 1, fates=fates, may_fail=any_call)
    return replace(scenario, faults=faults)


def _kept_crowd(source: Random) -> Scenario:
    kept = source.choice((LOGS, LOGS, BASES))
    drawn = source.sample(_kept_actors(kept), source.randint(2, 5))
    actors = {f"{letter}": body for letter, body in zip("ABCDE", drawn, strict=False)}
    lands_late = source.random() < 0.3
    faults = replace(
        _some_faults(source, most=2),
        limbos=source.randint(0, 2) if lands_late else 0,
        fates=(Fate.DROP, Fate.APPLY),
    )
    if lands_late:
        faults = replace(faults, may_fail=may_land_late)
    scenario = upkeep("swarm", kept, actors, faults, saved=SAVED if source.random() < 0.6 else None)
    page_size = source.choice((2, 3, 1000, 1000))
    return replace(
        scenario,
        world=replace(scenario.world, page_size=page_size),
        processes=ProcessRules(page_size=page_size, has_tickers=source.random() < 0.3),
        is_private=no_call,
        steps_max=20_000,
    )


def _kept_actors(kept: Kept) -> list[Body]:
    keepers = [make(kept) for make in KEEPERS.values()]
    writers = [kept_writer(kept), kept_writer(kept), kept_writer(kept, is_optimistic=True)]
    others = [unprotector(kept), reader(kept)]
    return [*keepers, *keepers, *writers, *others, *(REWRITERS.values() if kept is LOGS else ())]


def _small_crowd(source: Random) -> Scenario:
    scenario = source.choice(_SMALL)(_some_faults(source, most=1))
    return replace(scenario, marks={}, steps_max=20_000)


def _some_faults(source: Random, *, most: int) -> Faults:
    def some(largest: int) -> int:
        return source.randint(1, largest) if source.random() < 0.5 else 0

    return Faults(
        crashes=some(most), fates=(Fate.DROP,), ticks=some(2 * most), lost_replies=some(most)
    )


def plan_crowd(source: Random) -> Scenario:
    """Return executors of one plan, writers and cleaners, under a world of any kind."""
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
