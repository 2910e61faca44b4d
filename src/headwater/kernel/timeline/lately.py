"""Timelines that were parsed lately: one that differs from them by a few names is made of them.

Looks, decisions and listings of one process follow each other, and each finds a handful of files
more than the one before, among thousands. What is about an instant lies in names that begin with
its time, so only those times are parsed again whose names have changed. Pure: the same names give
the same timeline, whatever was parsed before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.kernel.timeline.active import Timeline

KEPT = 4
"""Of how many tables the last one is kept."""
FEW = 32
"""By how many names two may differ. With more of them it is faster to parse all."""

Parse = Callable[[tuple[str, ...]], "Timeline"]


@dataclass(frozen=True)
class Known:
    """A timeline, and the names that it was made of."""

    names: frozenset[str]
    timeline: Timeline

    @cached_property
    def by_time(self) -> Mapping[str, frozenset[str]]:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for name in self.names:
            found[time_in(name)].add(name)
        return {time: frozenset(names) for time, names in found.items()}

    def followed(self, names: frozenset[str], parse: Parse) -> Known | None:
        """Return what other names say; None if they differ by more than a few.

        Raises: whatever `parse` does.
        """
        if abs(len(names) - len(self.names)) > FEW:
            return None
        changed = names ^ self.names
        if len(changed) > FEW:
            return None
        if not changed:
            return self
        times = {time_in(name) for name in changed}
        by_time = dict(self.by_time)
        about = {time: by_time.pop(time, frozenset()) & names for time in times}
        for name in changed & names:
            about[time_in(name)] |= {name}
        by_time.update({time: found for time, found in about.items() if found})
        told = parse(tuple(name for found in about.values() for name in found))
        fresh = Known(names, self.timeline.replaced(times, told))
        vars(fresh)["by_time"] = by_time
        return fresh


class LatelyParsed:
    """The timelines that this process has parsed last. Threads may share it."""

    def __init__(self, parse: Parse) -> None:
        self._parse = parse
        self._kept: tuple[Known, ...] = ()

    def parse(self, names: tuple[str, ...]) -> Timeline:
        """Return what the names say.

        Raises: whatever `parse` does.
        """
        now, kept = frozenset(names), self._kept
        for before in kept:
            if (known := before.followed(now, self._parse)) is not None:
                self._kept = (known, *(one for one in kept if one is not before))
                return known.timeline
        known = Known(now, self._parse(names))
        self._kept = (known, *kept)[:KEPT]
        return known.timeline


def time_in(name: str) -> str:
    """Return what stands in a name where a requested time does."""
    return name.partition(".")[0].partition("_")[0]
