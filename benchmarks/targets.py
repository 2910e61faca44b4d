"""Figures beside their targets, and whether they are held."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """One figure beside its target."""

    name: str
    value: float
    unit: str
    target: float
    is_least: bool = False
    """Whether the target is the least that is good, and not the most."""

    @property
    def is_held(self) -> bool:
        return self.value >= self.target if self.is_least else self.value <= self.target

    def __str__(self) -> str:
        bound = "at least" if self.is_least else "at most"
        verdict = "held" if self.is_held else "missed"
        return f"{self.name:50}{self.value:>9.2f} {self.unit:16}{bound} {self.target:g}: {verdict}"
