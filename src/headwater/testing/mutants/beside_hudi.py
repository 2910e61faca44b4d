"""Planted bugs in what a fenced table takes over of another engine."""

from __future__ import annotations

from headwater.kernel.txn.others_found import Findings
from headwater.testing.faults import Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.beside_hudi import hudi_beside, hudi_clustered, hudi_dead

_OTHERS = "headwater.kernel.txn.other_engines"


MUTANTS = (
    Mutant(
        name="instant of another engine adopted whatever it has seen",
        scenario=lambda: hudi_beside(Faults()),
        patches=((f"{_OTHERS}.OtherEngines._are_after_ours", lambda *_: True),),
        must_violate=("INV-61",),
        preemptions_max=2,
    ),
    Mutant(
        name="files of other engines not looked for",
        scenario=lambda: hudi_beside(Faults()),
        patches=(("headwater.kernel.txn.fenced.find_others", lambda *_: Findings()),),
        must_violate=("INV-137",),
        preemptions_max=2,
    ),
    Mutant(
        name="write of another engine taken for dead at once",
        scenario=lambda: hudi_dead(Faults(ticks=1)),
        patches=(("headwater.kernel.txn.foreign.PendingElsewhere.is_left", lambda *_: True),),
        must_violate=("INV-137",),
        preemptions_max=2,
    ),
    Mutant(
        name="clustering overtaken by another engine",
        scenario=lambda: hudi_clustered(Faults()),
        patches=(("headwater.kernel.txn.cancel_steps._overtaken", lambda *_: None),),
        must_violate=("INV-61", "INV-63", "INV-81"),
        preemptions_max=2,
    ),
)
