"""Show a failing run as a list of steps a person can follow.

One line per step, a blank line at each switch, the results of the actors last.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from headwater.testing.explore import Trace
from headwater.testing.operation import CLOCK_READS
from headwater.testing.shrink import switches


def show(
    scenario: str, trace: Trace, *, before: Trace | None = None, seed: int | None = None
) -> str:
    """Return the run as text; `before` is what it was shrunk from."""
    lines = [_title(scenario, trace, before, seed)]
    last = None
    for number, step in enumerate(trace.steps, start=1):
        if step.op is not None and step.op.kind in CLOCK_READS and step.action.move == "run":
            continue
        who = step.actor or "clock"
        if last is not None and who != last:
            lines.append("")
        last = who
        lines.append(f"{number:4}  {who:6} {step.describe()}")
        lines.extend(f"      {who:6}   = {note.name} {note.values}" for note in step.notes)
    lines.append("")
    lines.append("results: " + ", ".join(f"{name} {word}" for name, word in trace.results.items()))
    return "\n".join(lines)


def _title(scenario: str, trace: Trace, before: Trace | None, seed: int | None) -> str:
    violation = trace.violation
    parts = [f"{violation.invariant} {violation.message}" if violation else "no violation"]
    parts.append(scenario)
    if seed is not None:
        parts.append(f"seed {seed}")
    if before is not None:
        parts.append(
            f"{len(before.steps)} -> {len(trace.steps)} steps, "
            f"{switches(before)} -> {switches(trace)} switches"
        )
    return "        ".join(parts)


class Regression(NamedTuple):
    """A run that once broke, or must still break, an invariant."""

    scenario: str
    invariant: str
    why: str
    decisions: tuple[str, ...]


def load_regression(path: Path) -> Regression:
    fields = json.loads(path.read_text())
    return Regression(
        fields["scenario"], fields["invariant"], fields["why"], tuple(fields["decisions"])
    )


def save_regression(path: Path, regression: Regression) -> None:
    fields = regression._asdict() | {"decisions": list(regression.decisions)}
    path.write_text(json.dumps(fields, indent=1) + "\n")
