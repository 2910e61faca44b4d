"""`python -m headwater.testing.sim`: run the simulator and print what it found.

    --short         what the tests run; --full: every budget, for the night
    --seeds 7,8,9   replay these seeds of the swarm and print what breaks (HEADWATER_SIM_SEEDS too)
    --count N       how many seeds of the swarm to run
    --swarm         run the swarm and nothing else
    --workers N     processes to use
    --fenced        all of it on fenced tables: the same scenarios and seeds, no lock; what breaks
                    where a lock is trusted must hold there
    --states N      end each search after so many states, which proves less
    --record DIR    write the decision lists of the known limits to DIR, and run nothing else

Exit code 1: something was violated, a mark was not reached, a mutant survived, a known limit of
mode L did not show, or one of a fenced table did.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time

from headwater.testing.catalog import LIMITS, MUTANTS, Extent, fenced_proof, proofs
from headwater.testing.explore import Report, Trace, replay, run
from headwater.testing.report import save_regression, show
from headwater.testing.scenarios.swarm import fenced_swarm, swarm
from headwater.testing.schedule import Pct, Random, Sticky, Strategy
from headwater.testing.shrink import shrink
from headwater.testing.simulation import Scenario

_STRATEGIES: tuple[Callable[[int], Strategy], ...] = (Pct, Pct, Sticky, Random)
_SWARM_COUNTS = {"short": 100, "sim": 500, "full": 100_000}
_CHUNK = 100


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    report: Report
    is_good: bool
    verdict: str
    trace: str = ""

    def __str__(self) -> str:
        report = self.report
        per_second = report.steps / report.seconds if report.seconds else 0
        return (
            f"{report.scenario:58} {report.strategy:30} {report.runs:8} {report.states:8} "
            f"{per_second:9.0f} {report.seconds:7.1f}  {self.verdict}"
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """On which tables scenarios run, and how far."""

    is_fenced: bool = False
    states_max: int | None = None

    def swarm(self, seed: int) -> Scenario:
        return fenced_swarm(seed) if self.is_fenced else swarm(seed)


LOCKED = Bounds()

HEADER = (
    f"{'scenario':58} {'strategy':30} {'runs':>8} {'states':>8} {'steps/s':>9} {'cpu s':>7}  result"
)


def run_proof(extent: Extent, index: int, bounds: Bounds) -> Line:
    """Search one scenario to its end, or to the bound."""
    proof = proofs(extent)[index]
    if bounds.is_fenced:
        proof = fenced_proof(proof)
    report = proof.run(bounds.states_max)
    if report.violation is not None:
        trace = replay(proof.build(), report.decisions)
        small = shrink(proof.build(), trace)
        text = show(proof.label, small, before=trace)
        return Line(report, False, f"VIOLATED {report.violation.invariant}", text)
    if report.missing_marks:
        return Line(report, False, f"NOT REACHED: {', '.join(report.missing_marks)}")
    if not report.is_complete and bounds.states_max is not None:
        return Line(report, True, "no violation so far")
    return Line(report, report.is_complete, "proved" if report.is_complete else "INCOMPLETE")


def run_mutant(index: int) -> Line:
    """Plant one bug and look whether it is noticed."""
    mutant = MUTANTS[index]
    report = mutant.hunt()
    report.scenario = f"mutant: {mutant.name}"
    if report.violation is None:
        return Line(report, False, f"SURVIVED {'/'.join(mutant.must_violate)}")
    return Line(report, True, f"killed by {report.violation.invariant}")


def run_limit(index: int, bounds: Bounds) -> Line:
    """Show that mode L breaks where it says it does, and that a fenced table does not."""
    limit = LIMITS[index]
    if bounds.is_fenced:
        report = limit.run_fenced()
        report.scenario = f"limit: {report.scenario}"
        if report.violation is not None:
            return Line(report, False, f"VIOLATED {report.violation.invariant}")
        return Line(report, True, "holds without a lock")
    report = limit.run()
    report.scenario = f"limit: {report.scenario}"
    if report.violation is None:
        return Line(report, False, f"HOLDS {limit.invariant}: is this no limit any more?")
    return Line(report, True, f"breaks {report.violation.invariant}, as documented")


def record_limits(folder: Path) -> None:
    """Write the decision lists that show the limits, after the product's calls have changed."""
    for limit in LIMITS:
        regression = limit.record()
        save_regression(folder / f"{limit.invariant}-{regression.scenario}.json", regression)


def run_swarm(seeds: tuple[int, ...], bounds: Bounds) -> Line:
    """Run a chunk of seeds."""
    report = Report("", "pct, sticky, random")
    failed: list[int] = []
    text = ""
    for seed in seeds:
        began = process_time()
        trace = run_seed(seed, bounds)
        report.seconds += process_time() - began
        report.runs += 1
        report.steps += len(trace.steps)
        if trace.violation is not None:
            failed.append(seed)
            small = shrink(bounds.swarm(seed), trace)
            text = text or show("swarm", small, before=trace, seed=seed)
    report.scenario = f"swarm: seeds {seeds[0]} to {seeds[-1]}"
    verdict = f"VIOLATED, seeds {failed}" if failed else "no violation"
    return Line(report, not failed, verdict, text)


def run_seed(seed: int, bounds: Bounds = LOCKED) -> Trace:
    """Run the scenario of one seed with the strategy of that seed."""
    return run(bounds.swarm(seed), _STRATEGIES[seed % len(_STRATEGIES)](seed))


def jobs(extent: Extent, seeds: Iterable[int], bounds: Bounds) -> Iterator[Callable[[], Line]]:
    """Return everything there is to do, the long searches first."""
    yield from (partial(run_proof, extent, index, bounds) for index in range(len(proofs(extent))))
    yield from swarm_jobs(seeds, bounds)
    if not bounds.is_fenced:  # Mutants bring the table that they show on.
        yield from (partial(run_mutant, index) for index in range(len(MUTANTS)))
    yield from (partial(run_limit, index, bounds) for index in range(len(LIMITS)))


def swarm_jobs(seeds: Iterable[int], bounds: Bounds) -> Iterator[Callable[[], Line]]:
    """Return the seeds of the swarm in chunks."""
    seeds = tuple(seeds)
    for start in range(0, len(seeds), _CHUNK):
        yield partial(run_swarm, seeds[start : start + _CHUNK], bounds)


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    if options.record is not None:
        record_limits(options.record)
        return 0
    out = sys.stdout.write
    bounds = Bounds(options.fenced, options.states)
    if options.seeds:
        chosen = tuple(int(seed) for seed in options.seeds.split(","))
        work: list[Callable[[], Line]] = [partial(run_swarm, (seed,), bounds) for seed in chosen]
    else:
        count = _SWARM_COUNTS[options.extent] if options.count is None else options.count
        work = list(
            swarm_jobs(range(count), bounds)
            if options.swarm
            else jobs(options.extent, range(count), bounds)
        )
    out(f"{HEADER}\n")
    with ProcessPoolExecutor(max_workers=options.workers) as pool:
        lines = []
        for pending in [pool.submit(job) for job in work]:
            lines.append(pending.result())
            out(f"{lines[-1]}\n")
            sys.stdout.flush()
    for line in lines:
        if line.trace:
            out(f"\n{line.trace}\n")
    bad = sum(not line.is_good for line in lines)
    out(f"\n{len(lines)} jobs, {bad} bad\n")
    return 1 if bad else 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m headwater.testing.sim")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--short", dest="extent", action="store_const", const="short")
    extent.add_argument("--full", dest="extent", action="store_const", const="full")
    parser.add_argument("--seeds", default=os.environ.get("HEADWATER_SIM_SEEDS", ""))
    parser.add_argument("--count", type=int)
    parser.add_argument("--swarm", action="store_true")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--fenced", action="store_true")
    parser.add_argument("--states", type=int)
    parser.set_defaults(extent="sim")
    options = parser.parse_args(arguments)
    options.extent = options.extent or "sim"
    return options


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
