"""What is known of the rows that a query wants, in the form that files can be skipped by.

A `Predicate` holds conditions on single columns that all wanted rows satisfy, and alternatives of
which they satisfy at least one. It may know less than the query says: then it skips less, and is
never wrong. The whole of the query's filter, if it is known, stands beside it as an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum, unique
from typing import TypeAlias, TypeVar

from headwater.expressions.nodes import Node, columns_of

T = TypeVar("T", bound=Hashable)

Literal: TypeAlias = bool | int | float | Decimal | str | date | datetime
"""A timestamp without a zone is a naive `datetime`."""


@unique
class Comparison(StrEnum):
    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    IN = "IN"
    BETWEEN = "BETWEEN"
    IS_NULL = "IS NULL"
    IS_NOT_NULL = "IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Condition:
    """One conjunct. IN has any number of literals, BETWEEN two, those about null none."""

    column: str
    comparison: Comparison
    literals: tuple[Literal, ...] = ()

    @property
    def is_equality(self) -> bool:
        return self.comparison in (Comparison.EQUAL, Comparison.IN)


@dataclass(frozen=True, slots=True)
class Predicate:
    """Conditions that a row has to satisfy all of.

    A comparison with a null is neither true nor false (SQL's third value), and only rows for which
    all conditions are true are kept.
    """

    conditions: tuple[Condition, ...] = ()
    alternatives: tuple[tuple[Predicate, ...], ...] = ()
    """Of each of them a row satisfies at least one predicate; these hold no expression."""
    expression: Node | None = None
    """All that a row has to satisfy. None: nothing but the conditions, as far as is known here."""

    @property
    def is_known(self) -> bool:
        """Whether there is anything to skip files by."""
        return bool(self.conditions or self.alternatives)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that tell whether a row satisfies it."""
        if self.expression is not None:
            return frozenset(column.path[0] for column in columns_of(self.expression))
        return frozenset(condition.column for condition in self.conditions)

    def all_conditions(self) -> Iterator[Condition]:
        """Give the conditions, those of alternatives too."""
        yield from self.conditions
        for branches in self.alternatives:
            for branch in branches:
                yield from branch.all_conditions()

    def restricted(self, keeps: Callable[[Condition], bool]) -> Predicate:
        """Return what some of the conditions say by themselves."""
        alternatives = []
        for branches in self.alternatives:
            kept = tuple(branch.restricted(keeps) for branch in branches)
            if all(branch.is_known for branch in kept):
                alternatives.append(kept)
        conditions = tuple(condition for condition in self.conditions if keeps(condition))
        return replace(
            self, conditions=conditions, alternatives=tuple(alternatives), expression=None
        )


def may_satisfy(
    items: Sequence[T],
    where: Predicate,
    by_conditions: Callable[[Sequence[T], Sequence[Condition]], Sequence[T]],
) -> list[T]:
    """Return the items that may have rows which satisfy a predicate, in their order.

    Args:
        by_conditions: returns those of some items that may have rows which satisfy all of some
            conditions, each by itself.
    """
    kept = list(by_conditions(items, where.conditions) if where.conditions else items)
    for branches in where.alternatives:
        found: set[T] = set()
        for branch in branches:
            left = [item for item in kept if item not in found]
            found.update(may_satisfy(left, branch, by_conditions) if left else ())
        kept = [item for item in kept if item in found]
    return kept
