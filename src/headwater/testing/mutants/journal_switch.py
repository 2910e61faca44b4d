"""Planted bugs in the switch between a journal and the lock."""

from __future__ import annotations

from headwater.seams.lock import HeldLock
from headwater.services.switch import Switch
from headwater.testing.faults import Fate, Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.journal_switch import (
    switch_and_back,
    switch_to_journal,
    switch_to_lock,
)

_SWITCH = "headwater.services.switch.Switch"
_SCENARIO = "headwater.testing.scenarios.journal_switch"


def _say_before_it_is_closed(switch: Switch, held: HeldLock) -> bool:
    switch._say(held, is_fenced=False)
    while not (look := switch.journal.look()).state.is_closed:
        switch.journaled.files.settle(look)
        switch._finish(switch.journal.close(look))
    return True


def _open_before_it_is_said(switch: Switch, held: HeldLock) -> bool:
    while (look := switch.journal.look()).state.is_closed:
        switch._finish(switch.journal.reopen(look))
    switch._say(held, is_fenced=True)
    return True


MUTANTS = (
    Mutant(
        name="table config trusts the lock before the journal is closed",
        scenario=lambda: switch_to_lock(Faults(crashes=1, fates=(Fate.DROP,))),
        patches=((f"{_SWITCH}.to_lock", _say_before_it_is_closed),),
        must_violate=("INV-84", "INV-134"),
        preemptions_max=1,
    ),
    Mutant(
        name="journal opened before table config says so",
        scenario=lambda: switch_and_back(Faults()),
        patches=((f"{_SWITCH}.to_journal", _open_before_it_is_said),),
        must_violate=("INV-84", "INV-134"),
        states_max=60_000,
        preemptions_max=2,
    ),
    Mutant(
        name="who trusts the lock does not ask whether there is a journal by now",
        scenario=lambda: switch_to_journal(Faults()),
        patches=((f"{_SCENARIO}.check_mode", lambda _: None),),
        must_violate=("INV-84", "INV-134"),
        preemptions_max=1,
    ),
    Mutant(
        name="journal closed before its files are there",
        scenario=lambda: switch_to_lock(Faults(crashes=1, fates=(Fate.DROP,))),
        patches=(("headwater.kernel.journal.materialise.Materialiser.settle", lambda *_: None),),
        must_violate=("INV-01", "INV-03"),
        preemptions_max=1,
    ),
)
