"""Planted bugs in early detection and in what must not depend on it."""

from __future__ import annotations

from headwater.config.detection import DetectionStrategy
from headwater.markers.candidate_instants import Candidate, CandidateWatch
from headwater.model.instant import InstantTime
from headwater.testing.faults import Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.early_conflict import ecd
from headwater.testing.simulation import Scenario


def _anybody_else(other: InstantTime, mine: InstantTime) -> bool:
    return other != mine


def _is_always_active(watch: CandidateWatch, rival: Candidate) -> bool:
    return True


def _writers() -> Scenario:
    return ecd(DetectionStrategy.DIRECT, 2, Faults())


def _three_writers() -> Scenario:
    return ecd(DetectionStrategy.DIRECT, 3, Faults())


def _writers_without_final_check() -> Scenario:
    return ecd(DetectionStrategy.DIRECT, 2, Faults(), has_final_check=False)


MUTANTS = (
    Mutant(
        name="detection ignores instant order",
        scenario=_writers,
        patches=(
            ("headwater.markers.early_conflict.is_ahead", _anybody_else),
            ("headwater.markers.candidate_instants.is_ahead", _anybody_else),
        ),
        must_violate=("INV-68",),
    ),
    Mutant(
        name="final OCC check skipped when detection is on",
        scenario=_writers_without_final_check,
        must_violate=("INV-66",),
    ),
    Mutant(
        name="markers count without an active heartbeat",
        scenario=_three_writers,
        patches=(
            ("headwater.markers.candidate_instants.CandidateWatch.is_active", _is_always_active),
        ),
        must_violate=("INV-70",),
    ),
)
