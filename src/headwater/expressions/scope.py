"""The names that an expression may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that an expression may name, each under one or more names.

    Names are found whatever their case, as Spark does; the exact one goes first.
    """

    columns: pa.Schema
    """The rows that the expression is evaluated on."""
    qualified: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Alias -> name -> the column of the rows, such as `s` -> `id` -> `s.id`."""
    hidden: frozenset[str] = frozenset()
    """Columns that messages do not offer."""

    def find(self, parts: Sequence[str]) -> tuple[str, ...] | None:
        """Return the path of the column or field that a dotted name means.

        Raises:
            LookupError: several columns have the name.
        """
        if len(parts) > 1:
            alias = match_name(parts[0], list(self.qualified))
            if alias is not None:
                name = match_name(parts[1], list(self.qualified[alias]))
                return None if name is None else (self.qualified[alias][name], *parts[2:])
        if self.qualified:
            owners = {
                column
                for names in self.qualified.values()
                if (name := match_name(parts[0], list(names))) is not None
                for column in (names[name],)
            }
            if len(owners) > 1:
                raise LookupError(f"{parts[0]} may be {' or '.join(sorted(owners))}")
            return (owners.pop(), *parts[1:]) if owners else None
        name = match_name(parts[0], self.columns.names)
        return None if name is None else (name, *parts[1:])

    @property
    def names(self) -> set[str]:
        """The names that need nothing before them."""
        if not self.qualified:
            return set(self.columns.names)
        return {name for names in self.qualified.values() for name in names}

    @property
    def shown(self) -> str:
        return ", ".join(name for name in self.columns.names if name not in self.hidden)


def match_name(name: str, names: Sequence[str]) -> str | None:
    """Return the name that is meant: the same, or the only one that differs by case alone.

    Raises:
        LookupError: several differ by case alone.
    """
    if name in names:
        return name
    folded = [known for known in names if known.casefold() == name.casefold()]
    if len(folded) > 1:
        raise LookupError(f"{name} may be {' or '.join(folded)}")
    return folded[0] if folded else None
