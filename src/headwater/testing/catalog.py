"""What is run, how far, and under which name: the proofs, the mutants, the swarm.

short   what fits into every run of the tests
sim     one to two minutes on two cores
full    every budget of the design, without reductions; for the night
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Unpack

from headwater.config.detection import DetectionStrategy
from headwater.testing.explore import Report, exhaust, hunt, replay
from headwater.testing.faults import Fate, Faults
from headwater.testing.fenced import FencedWays, fenced
from headwater.testing.mutants import beside_hudi as beside_hudi_mutants
from headwater.testing.mutants import cancel as cancel_mutants
from headwater.testing.mutants import early_conflict as early_conflict_mutants
from headwater.testing.mutants import guard as guard_mutants
from headwater.testing.mutants import index as index_mutants
from headwater.testing.mutants import journal as journal_mutants
from headwater.testing.mutants import journal_index as journal_index_mutants
from headwater.testing.mutants import journal_switch as journal_switch_mutants
from headwater.testing.mutants import logcompact as logcompact_mutants
from headwater.testing.mutants import lost_reply as lost_reply_mutants
from headwater.testing.mutants import many_writers as many_writers_mutants
from headwater.testing.mutants import rollback as rollback_mutants
from headwater.testing.mutants import time as time_mutants
from headwater.testing.mutants import upkeep as upkeep_mutants
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.operation import Op
from headwater.testing.report import Regression
from headwater.testing.scenarios.a1_dropped import (
    guard_with_expiring_lock,
    guard_with_late_landing,
    writers_with_expiring_lock,
)
from headwater.testing.scenarios.cancel import (
    cancel_archive,
    cancel_archived,
    cancel_commit,
    cancel_stall,
    cancel_two_aborters,
    is_entry,
)
from headwater.testing.scenarios.early_conflict import ecd, is_look_at_markers
from headwater.testing.scenarios.guard import (
    guard_2,
    guard_3,
    guard_skewed,
    guard_with_tickers,
)
from headwater.testing.scenarios.index import (
    index_again,
    index_builders,
    index_clean,
    index_compacted,
    index_hole,
    index_outrun,
    index_skipped,
    index_toctou,
    index_used,
    slow_builder,
)
from headwater.testing.scenarios.logcompact import logcompact
from headwater.testing.scenarios.nbcc import REPLACERS, nbcc_columns, nbcc_replace, nbcc_slice
from headwater.testing.scenarios.occ import occ_3
from headwater.testing.scenarios.occ_redo import occ_append, occ_keys, occ_rebase, occ_redo
from headwater.testing.scenarios.removable import NEVER_MS, removable
from headwater.testing.scenarios.rollback import rollback_own, rollback_two
from headwater.testing.scenarios.unknown import (
    is_writers_creation,
    is_writers_own,
    unknown,
    unknown_exhausted,
)
from headwater.testing.scenarios.upkeep import (
    BASES,
    LOGS,
    Kept,
    archive_write,
    archive_writes,
    beside,
    clean_write,
    may_land_late,
    pairs,
    restore_clean,
    restore_unprotected,
    savepoint_clean,
    savepoint_undo,
    sweep_claim,
    undo_clean,
    undo_sweep,
)
from headwater.testing.schedule import Strategy
from headwater.testing.shrink import shrink
from headwater.testing.simulation import Scenario, Violation

Extent = Literal["short", "sim", "full"]

MUTANTS: tuple[Mutant, ...] = (
    *guard_mutants.MUTANTS,
    *time_mutants.MUTANTS,
    *lost_reply_mutants.MUTANTS,
    *rollback_mutants.MUTANTS,
    *many_writers_mutants.MUTANTS,
    *early_conflict_mutants.MUTANTS,
    *cancel_mutants.MUTANTS,
    *logcompact_mutants.MUTANTS,
    *index_mutants.MUTANTS,
    *upkeep_mutants.MUTANTS,
    *journal_mutants.MUTANTS,
    *journal_index_mutants.MUTANTS,
    *journal_switch_mutants.MUTANTS,
    *beside_hudi_mutants.MUTANTS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A scenario beyond what mode L promises: the invariant must break, and is seen to."""

    build: Callable[[], Scenario]
    invariant: str
    why: str

    def run(self) -> Report:
        return exhaust(self.build(), states_max=_LIMIT_STATES_MAX, stop_at=self.is_it)

    def run_fenced(self) -> Report:
        """Search the same on a fenced table, where nothing must break."""
        return exhaust(fenced(self.build()), states_max=_LIMIT_STATES_MAX)

    def is_it(self, violation: Violation) -> bool:
        return violation.invariant == self.invariant

    def record(self) -> Regression:
        """Return the shortest run that shows the limit, as far as shrinking finds it."""
        scenario = self.build()
        trace = replay(scenario, self.run().decisions, stop_at=self.is_it)
        small = shrink(scenario, trace)
        return Regression(scenario.name, self.invariant, self.why, small.decisions)


_LIMIT_STATES_MAX = 30_000

LIMITS: tuple[Limit, ...] = (
    Limit(
        build=guard_with_expiring_lock,
        invariant="INV-59",
        why="A1 dropped: the lease ends between the proof and the completed file, and the successor"
        " deletes files that the completed file lists.",
    ),
    Limit(
        build=writers_with_expiring_lock,
        invariant="INV-41",
        why="A1 dropped: a commit becomes visible below a time that was given out meanwhile.",
    ),
    Limit(
        build=guard_with_late_landing,
        invariant="INV-59",
        why="F2, lands later: the completed file of a dead process lands after its successor has"
        " deleted its files.",
    ),
)

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A scenario to search to the end."""

    label: str
    build: Callable[[], Scenario]
    preemptions_max: int | None = None
    strategy: Callable[[int], Strategy] | None = None
    """Where a search cannot go: one run for each seed, as this chooses it."""
    seeds: range = range(1)

    def run(self, states_max: int | None = None) -> Report:
        if self.strategy is not None:
            report = hunt(self.build(), self.strategy, self.seeds)
            report.is_complete = report.violation is None
            report.missing_marks = tuple(sorted(set(self.build().marks) - report.marks))
        else:
            report = exhaust(
                self.build(), preemptions_max=self.preemptions_max, states_max=states_max
            )
        report.scenario = self.label
        return report


def fenced_proof(proof: Proof, **ways: Unpack[FencedWays]) -> Proof:
    """Return the proof on a fenced table; its marks are situations of mode L."""
    return replace(
        proof,
        label=f"{proof.label}, fenced",
        build=lambda: replace(fenced(proof.build(), **ways), marks={}),
    )


def proofs(extent: Extent) -> list[Proof]:
    """Return the searches of an extent; each larger one contains what the smaller ones prove."""
    return list({"short": _short, "sim": _sim, "full": _full}[extent]())


def _short() -> Iterator[Proof]:
    yield _guard_2("guard_2: crash, tick", False, crashes=1, ticks=1)
    yield _guard_2("guard_2: lost reply", False, lost_replies=1)
    yield _guard_2("guard_2: crash, restart", False, crashes=1, restarts=1)
    yield _guard_2("guard_2, exact clocks: tick", False, False, ticks=1)
    yield _guard_2("guard_2 after death: lost reply", True, lost_replies=1)
    yield _guard_2("guard_2 after death: crash, tick", True, crashes=1, ticks=1)
    yield Proof(label="guard_3: no fault", build=lambda: guard_3(Faults()))
    yield from _skews(_drop(ticks=1), clock_steps=1)
    yield _unknown("unknown: lost reply", lost_replies=1)
    yield Proof(label="unknown_exhausted", build=unknown_exhausted, preemptions_max=0)
    yield _rollback("rollback_two: crash, tick", rollback_two, preemptions_max=0)
    yield _rollback("rollback_own: crash, tick", rollback_own, preemptions_max=0)
    for strategy in DetectionStrategy:
        yield _ecd(strategy, 2, preemptions_max=1, crashes=1)
        yield _ecd(strategy, 3, preemptions_max=0)
    yield _occ_3("occ_3: no fault", preemptions_max=1)
    yield _writers(occ_keys, "no fault", preemptions_max=1)
    yield _writers(occ_redo, "no fault", preemptions_max=2)
    yield _writers(occ_append, "no fault", preemptions_max=2)
    yield _writers(occ_rebase, "no fault", preemptions_max=1)
    yield _nbcc_slice("nbcc_slice: no fault", preemptions_max=1)
    for by in REPLACERS:
        yield _nbcc_replace(by, "2 writers", writers=2, preemptions_max=1)
    yield _cancel(cancel_commit, "no fault", preemptions_max=1)
    yield _cancel(cancel_stall, "tick", preemptions_max=0, ticks=1)
    yield _cancel(cancel_two_aborters, "no fault", preemptions_max=1)
    yield _cancel(cancel_archive, "no fault", preemptions_max=0)
    yield _cancel(cancel_archived, "no fault", preemptions_max=1)
    yield _removable("no fault", preemptions_max=1)
    yield _logcompact("no fault", preemptions_max=1)
    yield _index(index_toctou, "no fault", preemptions_max=1)
    yield _index(_early, "no fault", preemptions_max=1)
    yield _index(index_again, "no fault", preemptions_max=1)
    yield _index(index_clean, "crash", preemptions_max=0, crashes=1)
    yield _index(index_hole, "no fault", preemptions_max=0)
    yield _index(index_used, "crash", crashes=1)
    yield _outrun(range(1))
    for first, second in pairs():
        if second in ("write", "compaction", "archive"):
            yield _beside(first, second, "no fault", preemptions_max=1)
    for upkeep in (undo_clean, savepoint_clean, undo_sweep):
        yield _upkeep(upkeep, "crash", preemptions_max=0, crashes=1)


def _sim() -> Iterator[Proof]:
    yield _guard_2("guard_2: crash, 2 ticks, lost reply", False, crashes=1, ticks=2, lost_replies=1)
    label = "guard_2 after death: crash, tick, lost reply"
    yield _guard_2(label, True, crashes=1, ticks=1, lost_replies=1)
    yield _guard_2("guard_2, exact clocks: crash, tick", False, False, crashes=1, ticks=1)
    yield Proof(
        label="guard_3: crash, tick",
        build=lambda: guard_3(_drop(crashes=1, ticks=1)),
        preemptions_max=1,
    )
    yield Proof(
        label="guard_with_tickers: tick",
        build=lambda: guard_with_tickers(_drop(ticks=1)),
        preemptions_max=1,
    )
    yield Proof(
        label="guard_with_tickers: ticker failure, tick",
        build=lambda: _eager(guard_with_tickers(_drop(ticker_failures=1, ticks=1))),
        preemptions_max=0,
    )
    yield from _skews(_drop(crashes=1, ticks=1), clock_steps=2)
    yield _unknown("unknown: 2 lost replies", lost_replies=2)
    yield _unknown("unknown: lost reply, limbo", lost_replies=1, limbos=1, preemptions_max=1)
    yield _unknown(
        "unknown: 2 lost replies, limbo on creations",
        lost_replies=2,
        limbos=1,
        may_fail=is_writers_creation,
        preemptions_max=1,
    )
    yield Proof(label="unknown_exhausted", build=unknown_exhausted, preemptions_max=1)
    yield _rollback("rollback_two: crash, tick", rollback_two, preemptions_max=1)
    yield _rollback("rollback_own: crash, tick", rollback_own, preemptions_max=0)
    yield _ecd(DetectionStrategy.DIRECT, 2, preemptions_max=2)
    yield _ecd(DetectionStrategy.DIRECT, 2, preemptions_max=1, crashes=1, ticks=1)
    for strategy in DetectionStrategy:
        yield _ecd(strategy, 2, preemptions_max=1, crashes=1)
        yield _ecd(strategy, 3, preemptions_max=1)
        yield _ecd(strategy, 3, preemptions_max=0, crashes=1)
        yield _unreadable_markers(strategy)
    yield _occ_3("occ_3: no fault", preemptions_max=1)
    yield _writers(occ_keys, "no fault", preemptions_max=1)
    yield _writers(occ_redo, "no fault", preemptions_max=2)
    yield _writers(occ_append, "no fault", preemptions_max=2)
    yield _writers(occ_rebase, "no fault", preemptions_max=2)
    yield _occ_3("occ_3: tick", preemptions_max=0, ticks=1)
    yield _nbcc_slice("nbcc_slice: no fault", preemptions_max=2)
    yield _writers(nbcc_columns, "no fault", preemptions_max=2)
    yield _writers(nbcc_columns, "crash", preemptions_max=0, crashes=1)
    yield _nbcc_slice("nbcc_slice: crash", preemptions_max=1, crashes=1)
    yield _nbcc_slice("nbcc_slice: tick", preemptions_max=1, ticks=1)
    yield _nbcc_slice("nbcc_slice: crash, tick", preemptions_max=0, crashes=1, ticks=1)
    yield _nbcc_replace("deletion", "2 writers", writers=2, preemptions_max=2)
    for by in REPLACERS:
        yield _nbcc_replace(by, "tick", preemptions_max=1, ticks=1)
    yield _cancel(cancel_commit, "no fault", preemptions_max=2)
    yield _cancel(cancel_commit, "crash", preemptions_max=1, crashes=1)
    yield _cancel(cancel_commit, "tick, lost reply", preemptions_max=0, ticks=1, lost_replies=1)
    yield _cancel(cancel_stall, "tick", preemptions_max=1, ticks=1)
    yield _cancel(cancel_stall, "crash, tick", preemptions_max=0, crashes=1, ticks=1)
    yield _cancel(cancel_two_aborters, "crash", preemptions_max=1, crashes=1)
    yield _cancel(cancel_two_aborters, "crash, tick", preemptions_max=0, crashes=1, ticks=1)
    yield _cancel(cancel_archive, "crash", preemptions_max=1, crashes=1)
    yield _late_entry("crash, limbo", preemptions_max=0, crashes=1)
    yield _cancel(cancel_archived, "no fault", preemptions_max=2)
    yield _removable("crash, tick", preemptions_max=0, crashes=1, ticks=1)
    yield _removable("never due: crash, tick", NEVER_MS, preemptions_max=0, crashes=1, ticks=1)
    yield _logcompact("no fault", preemptions_max=1)
    yield _logcompact("crash", preemptions_max=0, crashes=1)
    for build in (index_toctou, _early):
        yield _index(build, "no fault", preemptions_max=2)
        yield _index(build, "crash", preemptions_max=1, crashes=1)
        yield _index(build, "crash, tick", preemptions_max=0, crashes=1, ticks=1)
    for build in (index_again, _first):
        yield _index(build, "no fault", preemptions_max=1)
        yield _index(build, "crash", preemptions_max=0, crashes=1)
    yield _index(index_clean, "no fault", preemptions_max=1)
    yield _index(index_clean, "crash", preemptions_max=0, crashes=1)
    yield _index(index_hole, "no fault", preemptions_max=1)
    yield _index(index_builders, "no fault", preemptions_max=1)
    yield _index(index_compacted, "no fault", preemptions_max=1)
    yield _index(index_compacted, "crash", preemptions_max=0, crashes=1)
    yield _index(index_skipped, "no fault", preemptions_max=0)
    yield _outrun(range(4))
    yield _index(index_used, "crash", crashes=1)
    for first, second in pairs():
        yield _beside(first, second, "no fault", preemptions_max=1)
        if second not in ("log compaction", "clustering"):
            yield _beside(first, second, "crash", preemptions_max=0, crashes=1)
    yield _beside("restore", "write", "lost reply", preemptions_max=0, lost_replies=1)
    undo = "rollback of a commit"
    yield _beside(undo, "write", "no fault", preemptions_max=2)
    yield _beside(undo, "write", "crash, tick", preemptions_max=0, crashes=1, ticks=1)
    yield _beside(undo, "compaction", "late landing", preemptions_max=0, limbos=1)
    for upkeep in _UPKEEP:
        yield _upkeep(upkeep, "no fault", preemptions_max=1)
        yield _upkeep(upkeep, "crash", preemptions_max=0, crashes=1)
        yield _upkeep(upkeep, "lost reply", preemptions_max=0, lost_replies=1)


def _full() -> Iterator[Proof]:
    for after, suffix in ((False, ""), (True, " after death")):
        label = f"guard_2{suffix}, exact clocks: crash, 2 ticks, lost reply"
        yield _guard_2(label, after, False, crashes=1, ticks=2, lost_replies=1)
    label = "guard_2 after death: crash, 2 ticks, lost reply"
    yield _guard_2(label, True, crashes=1, ticks=2, lost_replies=1)
    yield Proof(
        label="guard_3: crash, 2 ticks, lost reply",
        build=lambda: _eager(guard_3(_drop(crashes=1, ticks=2, lost_replies=1))),
        preemptions_max=3,
    )
    yield Proof(
        label="guard_with_tickers: crash, ticker failure, 2 ticks",
        build=lambda: _eager(guard_with_tickers(_drop(crashes=1, ticker_failures=1, ticks=2))),
    )
    yield from _skews(Faults(crashes=1, ticks=2), clock_steps=3)
    yield _unknown("unknown: 2 lost replies, limbo", lost_replies=2, limbos=1)
    yield Proof(label="unknown_exhausted", build=unknown_exhausted)
    yield _rollback("rollback_two: crash, tick", rollback_two)
    yield _rollback("rollback_own: crash, tick", rollback_own, preemptions_max=3)
    for strategy in DetectionStrategy:
        yield _ecd(strategy, 2)
        yield _ecd(strategy, 2, crashes=1)
        yield _ecd(strategy, 2, preemptions_max=2, crashes=1, ticks=1)
        yield _ecd(strategy, 3, preemptions_max=2, crashes=1)
    yield _occ_3("occ_3: no fault", preemptions_max=2)
    yield _occ_3("occ_3: tick", preemptions_max=2, ticks=1)
    yield _writers(occ_keys, "crash, tick", preemptions_max=2, crashes=1, ticks=1)
    yield _writers(occ_redo, "crash", preemptions_max=2, crashes=1)
    yield _writers(occ_append, "crash", preemptions_max=2, crashes=1)
    yield _writers(occ_rebase, "crash", preemptions_max=2, crashes=1)
    yield _nbcc_slice("nbcc_slice: crash, tick", preemptions_max=3, crashes=1, ticks=1)
    for by in REPLACERS:
        yield _nbcc_replace(by, "2 writers, tick", writers=2, preemptions_max=3, ticks=1)
        yield _nbcc_replace(by, "tick", ticks=1)
    yield _cancel(cancel_commit, "no fault")
    yield _cancel(cancel_commit, "crash, tick, lost reply", preemptions_max=1, **_ONE_OF_EACH)
    yield _cancel(cancel_stall, "crash, tick", preemptions_max=1, crashes=1, ticks=1)
    yield _cancel(cancel_two_aborters, "crash, tick", preemptions_max=2, crashes=1, ticks=1)
    yield _late_entry("crash, limbo", preemptions_max=1, crashes=1)
    yield _cancel(cancel_archived, "no fault")
    yield _removable("crash, 2 ticks", preemptions_max=1, crashes=1, ticks=2)
    yield _removable("never due: crash, 2 ticks", NEVER_MS, preemptions_max=1, crashes=1, ticks=2)
    yield _logcompact("no fault", preemptions_max=2)
    yield _logcompact("crash", preemptions_max=1, crashes=1)
    yield _logcompact("tick", preemptions_max=1, ticks=1)
    for build in (index_toctou, _early):
        yield _index(build, "no fault")
        yield _index(build, "crash, tick", preemptions_max=1, crashes=1, ticks=1)
        yield _index(build, "crash, restart", preemptions_max=1, crashes=1, restarts=1)
    yield _index(index_again, "crash", preemptions_max=2, crashes=1)
    yield _index(index_clean, "crash", preemptions_max=1, crashes=1)
    yield _index(index_hole, "crash", preemptions_max=1, crashes=1)
    yield _index(index_builders, "crash, tick", preemptions_max=0, crashes=1, ticks=1)
    yield _index(index_compacted, "crash", preemptions_max=1, crashes=1)
    yield _index(index_skipped, "no fault", preemptions_max=2)
    yield _outrun(range(12))
    for kept in (LOGS, BASES):
        for first, second in pairs():
            if kept is BASES and second in ("compaction", "log compaction", "clustering"):
                continue  # There are no logs.
            yield _beside(first, second, "no fault", kept, preemptions_max=2)
            yield _beside(first, second, "crash", kept, preemptions_max=1, crashes=1)
            faults = {"crashes": 1, "ticks": 1}
            yield _beside(first, second, "crash, tick", kept, preemptions_max=0, **faults)
            yield _beside(first, second, "lost reply", kept, preemptions_max=0, lost_replies=1)
            yield _beside(first, second, "late landing", kept, preemptions_max=0, limbos=1)
    for upkeep in _UPKEEP:
        yield _upkeep(upkeep, "no fault", preemptions_max=2)
        yield _upkeep(upkeep, "crash", preemptions_max=1, crashes=1)
        yield _upkeep(upkeep, "crash, tick", preemptions_max=0, crashes=1, ticks=1)
        yield _upkeep(upkeep, "late landing", preemptions_max=0, limbos=1)


_UPKEEP: tuple[Callable[[Faults], Scenario], ...] = (
    restore_unprotected,
    restore_clean,
    undo_clean,
    undo_sweep,
    sweep_claim,
    savepoint_clean,
    savepoint_undo,
    clean_write,
    archive_write,
    archive_writes,
)

_ONE_OF_EACH = {"crashes": 1, "ticks": 1, "lost_replies": 1}


def _drop(
    *,
    crashes: int = 0,
    ticks: int = 0,
    lost_replies: int = 0,
    ticker_failures: int = 0,
    restarts: int = 0,
) -> Faults:
    return Faults(
        crashes=crashes,
        fates=(Fate.DROP,),  # A crash after a write leaves what one before the next write does.
        ticks=ticks,
        has_long_ticks=False,
        lost_replies=lost_replies,
        ticker_failures=ticker_failures,
        restarts=restarts,
    )


def _eager(scenario: Scenario) -> Scenario:
    return replace(scenario, has_eager_clocks=True)


def _guard_2(label: str, after: bool, is_eager: bool = True, **budgets: int) -> Proof:
    return Proof(
        label=label,
        build=lambda: replace(
            guard_2(_drop(**budgets), is_after_death=after), has_eager_clocks=is_eager
        ),
    )


def _skews(faults: Faults, *, clock_steps: int) -> Iterator[Proof]:
    yield Proof(
        label="guard_skewed: clocks three hours apart",
        build=lambda: _eager(guard_skewed(faults, {"X": -_HOUR_MS, "Y": 2 * _HOUR_MS})),
    )
    yield Proof(
        label="guard_skewed: a clock steps back and forth",
        build=lambda: guard_skewed(Faults(clock_steps=clock_steps), {}),
    )


def _unknown(
    label: str,
    *,
    lost_replies: int,
    limbos: int = 0,
    may_fail: Callable[[str, Op], bool] = is_writers_own,
    preemptions_max: int | None = None,
) -> Proof:
    faults = Faults(lost_replies=lost_replies, limbos=limbos, may_fail=may_fail)
    return Proof(label=label, build=lambda: unknown(faults), preemptions_max=preemptions_max)


def _rollback(
    label: str, build: Callable[[Faults], Scenario], preemptions_max: int | None = None
) -> Proof:
    def scenario() -> Scenario:
        built = _eager(build(_drop(crashes=1, ticks=1)))
        # Some situations come about only where a process is interrupted.
        return built if preemptions_max != 0 else replace(built, marks={})

    return Proof(label=label, build=scenario, preemptions_max=preemptions_max)


def _ecd(
    strategy: DetectionStrategy, writers: int, preemptions_max: int | None = None, **budgets: int
) -> Proof:
    def scenario() -> Scenario:
        built = ecd(strategy, writers, _drop(**budgets))
        # Who is never interrupted never meets another at work.
        return built if preemptions_max != 0 else replace(built, marks={})

    names = {"crashes": "crash", "ticks": "tick"}
    faults = ", ".join(names[name] for name in budgets) or "no fault"
    label = f"ecd_{writers} {strategy}: {faults}"
    return Proof(label=label, build=scenario, preemptions_max=preemptions_max)


def _unreadable_markers(strategy: DetectionStrategy) -> Proof:
    faults = Faults(failures=1, may_fail=is_look_at_markers)
    return Proof(
        label=f"ecd_2 {strategy}: unreadable markers",
        build=lambda: ecd(strategy, 2, faults),
        preemptions_max=1,
    )


def _occ_3(label: str, *, preemptions_max: int, **budgets: int) -> Proof:
    def scenario() -> Scenario:
        # Writers overtake each other, and the archiver them, where two are interrupted.
        deep = ("lost to a straggler", "lost to an archived instant")
        built = occ_3(_drop(**budgets), marks=deep if preemptions_max > 1 else ())
        return built if preemptions_max else replace(built, marks={})

    return Proof(label=label, build=scenario, preemptions_max=preemptions_max)


def _writers(
    build: Callable[[Faults], Scenario], label: str, *, preemptions_max: int, **budgets: int
) -> Proof:
    name = f"{build.__name__}: {label}"
    return Proof(label=name, build=lambda: build(_drop(**budgets)), preemptions_max=preemptions_max)


def _nbcc_slice(label: str, *, preemptions_max: int, **budgets: int) -> Proof:
    def scenario() -> Scenario:
        built = nbcc_slice(_drop(**budgets))
        return built if preemptions_max else replace(built, marks={})

    return Proof(label=label, build=scenario, preemptions_max=preemptions_max)


def _nbcc_replace(
    by: str, what: str, *, writers: int = 1, preemptions_max: int | None = None, **budgets: int
) -> Proof:
    return Proof(
        label=f"nbcc_replace by {by}: {what}",
        build=lambda: nbcc_replace(_drop(**budgets), by=by, writers=writers),
        preemptions_max=preemptions_max,
    )


def _cancel(
    build: Callable[[Faults], Scenario],
    what: str,
    *,
    preemptions_max: int | None = None,
    **budgets: int,
) -> Proof:
    def scenario() -> Scenario:
        built = build(_drop(**budgets))
        # Who is never interrupted overtakes nobody.
        return built if preemptions_max != 0 else replace(built, marks={})

    label = f"{build.__name__}: {what}"
    return Proof(label=label, build=scenario, preemptions_max=preemptions_max)


def _late_entry(what: str, *, preemptions_max: int, crashes: int) -> Proof:
    faults = Faults(crashes=crashes, fates=(Fate.DROP, Fate.LIMBO), limbos=1, may_fail=is_entry)
    return Proof(
        label=f"cancel_archive: {what}",
        build=lambda: replace(cancel_archive(faults), marks={}),
        preemptions_max=preemptions_max,
    )


def _removable(
    what: str, delay_ms: int = 0, *, preemptions_max: int | None = None, **budgets: int
) -> Proof:
    return Proof(
        label=f"removable: {what}",
        build=lambda: removable(_drop(**budgets), delay_ms=delay_ms),
        preemptions_max=preemptions_max,
    )


def _logcompact(what: str, *, preemptions_max: int, **budgets: int) -> Proof:
    def scenario() -> Scenario:
        built = logcompact(_drop(**budgets))
        return built if preemptions_max else replace(built, marks={})

    return Proof(label=f"logcompact: {what}", build=scenario, preemptions_max=preemptions_max)


def _first(faults: Faults) -> Scenario:
    return index_again(faults, is_first=True)


def _early(faults: Faults) -> Scenario:
    return index_toctou(faults, is_early=True)


def _outrun(seeds: range) -> Proof:
    return Proof(
        label="index_outrun: a slow builder",
        build=index_outrun,
        strategy=slow_builder,
        seeds=seeds,
    )


def _index(
    build: Callable[[Faults], Scenario],
    faults: str,
    *,
    preemptions_max: int | None = None,
    **budgets: int,
) -> Proof:
    def scenario() -> Scenario:
        built = build(_drop(**budgets))
        # Who is never interrupted never meets another at work.
        return built if preemptions_max != 0 else replace(built, marks={})

    return Proof(
        label=f"{build(Faults()).name}: {faults}",
        build=scenario,
        preemptions_max=preemptions_max,
    )


def _beside(
    first: str,
    second: str,
    what: str,
    kept: Kept = LOGS,
    *,
    preemptions_max: int,
    **budgets: int,
) -> Proof:
    table = "" if kept is LOGS else ", copy on write"
    return Proof(
        label=f"{first} beside {second}{table}: {what}",
        build=lambda: _kept(beside(first, second, _late(**budgets), kept), preemptions_max),
        preemptions_max=preemptions_max,
    )


def _upkeep(
    build: Callable[[Faults], Scenario], what: str, *, preemptions_max: int, **budgets: int
) -> Proof:
    return Proof(
        label=f"{build.__name__}: {what}",
        build=lambda: _kept(build(_late(**budgets)), preemptions_max),
        preemptions_max=preemptions_max,
    )


def _kept(scenario: Scenario, preemptions_max: int) -> Scenario:
    """Who is never interrupted may find that all is done already."""
    return scenario if preemptions_max else replace(scenario, marks={})


def _late(*, limbos: int = 0, **budgets: int) -> Faults:
    faults = _drop(**budgets)
    return replace(faults, limbos=limbos, may_fail=may_land_late) if limbos else faults
