"""a1_dropped: what mode L does not survive, kept so that nobody believes otherwise.

Mode L is safe only while the lock never expires under a holder that still acts (A1), and while a
write whose writer died does not land later. Each scenario here drops one of the two, and a
violation must be found.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.testing.faults import Fate, Faults
from headwater.testing.scenarios.guard import WORLD, guard_2
from headwater.testing.scenarios.unknown import unknown
from headwater.testing.simulation import Scenario

_LEASE = replace(WORLD, lock="lease")


def guard_with_expiring_lock() -> Scenario:
    """The lease of the table lock ends once under a live holder."""
    faults = Faults(lock_expiries=1, ticks=1)
    return replace(guard_2(faults), name="guard_with_expiring_lock", world=_LEASE, marks={})


def writers_with_expiring_lock() -> Scenario:
    """The same for two writers."""
    scenario = unknown(Faults(lock_expiries=1))
    return replace(scenario, name="writers_with_expiring_lock", world=_LEASE, marks={})


def guard_with_late_landing() -> Scenario:
    """A process dies while it writes, and the write lands after its successor has begun."""
    faults = Faults(crashes=1, fates=(Fate.LIMBO,), limbos=1, ticks=1)
    return replace(guard_2(faults), name="guard_with_late_landing", marks={})
