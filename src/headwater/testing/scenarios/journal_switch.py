"""journal_switch: tables that get a journal, or lose it, beside processes that had them open.

    switch_to_journal   two writers under the lock, and a switch that gives the table a journal
    switch_to_lock      two writers by the journal, and a switch that takes it away
    switch_both_ways    a writer, and two switches that want the opposite of each other
    switch_and_back     two writers, and one that takes the journal away and gives it back

A writer opens the table as table config says, and does so once more when it is told that the table
was switched. Whatever it was told must be so, whoever is the authority by then: a commit counts
from its slot on, or from its completed file on while files say what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa

from headwater.config.table_options import FENCED as IS_FENCED
from headwater.errors import CommitUnknownError, HeadwaterError
from headwater.format.properties import encode_properties
from headwater.kernel.journal.journal import table_switched
from headwater.kernel.journal.storage import JournaledStorage
from headwater.kernel.layout import PROPERTIES
from headwater.kernel.new_table import NewTable, plan_table_config
from headwater.kernel.table_config import load_table_config
from headwater.kernel.txn.fenced import transaction_on
from headwater.seams.components import Components
from headwater.seams.lock import TABLE
from headwater.services.switch import Switch
from headwater.testing.actor import Body, Process
from headwater.testing.check import BEGUN, COMMITTED, ENDED, FAILED, FENCED, UNKNOWN
from headwater.testing.faults import Faults
from headwater.testing.fenced import fenced
from headwater.testing.fenced_world import FencedWorld
from headwater.testing.history import Step
from headwater.testing.operation import Kind, Op
from headwater.testing.scenarios.ingest import ingest
from headwater.testing.scenarios.plan import LOCK_TIMEOUT_MS
from headwater.testing.scenarios.unknown import check_visible, unknown
from headwater.testing.simulation import Scenario, Simulation, Violation
from headwater.testing.table import LAYOUT
from headwater.testing.world import World

SCHEMA = pa.schema([("id", pa.string())])
SWITCHED = "switched"
AS_IT_WAS = "as it was"
_OPENED_MAX = 3
_EVERY = 3


def switch_to_journal(faults: Faults, *, marks: tuple[str, ...] = ()) -> Scenario:
    actors = {"W": _writer(), "V": _writer(), "S": _switch(to_fenced=True)}
    return _switched("switch_to_journal", faults, actors, marks, is_fenced=False)


def switch_to_lock(faults: Faults, *, marks: tuple[str, ...] = ()) -> Scenario:
    actors = {"W": _writer(), "V": _writer(), "S": _switch(to_fenced=False)}
    return _switched("switch_to_lock", faults, actors, marks, is_fenced=True)


def switch_both_ways(faults: Faults, *, marks: tuple[str, ...] = ()) -> Scenario:
    actors = {"W": _writer(), "S": _switch(to_fenced=False), "T": _switch(to_fenced=True)}
    return _switched("switch_both_ways", faults, actors, marks, is_fenced=True)


def switch_and_back(faults: Faults, *, marks: tuple[str, ...] = ()) -> Scenario:
    def there_and_back(process: Process) -> str:
        _switch(to_fenced=False)(process)
        return str(_switch(to_fenced=True)(process))

    actors = {"W": _writer(), "V": _writer(), "S": there_and_back}
    return _switched("switch_and_back", faults, actors, marks, is_fenced=True)


def _switched(
    name: str,
    faults: Faults,
    actors: Mapping[str, Body],
    marks: tuple[str, ...],
    *,
    is_fenced: bool,
) -> Scenario:
    def set_up(world: World) -> None:
        new = NewTable(location="t", schema=SCHEMA, record_key=("id",))
        config = plan_table_config(new, {IS_FENCED.key: IS_FENCED.encode(is_fenced)})
        data = encode_properties(config.to_properties(), comment="set up")
        world.apply("set-up", Op(Kind.PUT, PROPERTIES, data))

    scenario = replace(
        unknown(faults, name=name), actors=actors, set_up=set_up, check_end=_check_outcome
    )
    wrapped = fenced(scenario, checkpoint_every=_EVERY, has_private_files=False)
    return replace(wrapped, marks={mark: MARKS[mark] for mark in marks})


def _journaled(process: Process) -> JournaledStorage:
    assert isinstance(process.storage, JournaledStorage)
    return process.storage


def _open(process: Process) -> Components:
    journaled = _journaled(process)
    config = load_table_config(journaled.stored, process.clock)
    storage = journaled if config.is_fenced else journaled.stored
    return Components(storage, process.clock, process.ids, process.lock)


def check_mode(process: Process) -> None:
    """Tell who trusts the lock that the table has a journal by now, as a table context does."""
    stored = _journaled(process).stored
    if load_table_config(stored, process.clock).is_fenced:
        raise table_switched(stored.uri, "it has a journal now")


def _writer() -> Body:
    """Return an actor that ingests one file, and opens the table again if it was switched."""

    def body(process: Process) -> str:
        word = FAILED
        for _ in range(_OPENED_MAX):
            try:
                components = _open(process)
            except HeadwaterError:
                return FAILED
            txn = transaction_on(
                components,
                LAYOUT,
                lock_timeout_ms=LOCK_TIMEOUT_MS,
                check_mode=partial(check_mode, process),
            )
            process.note(BEGUN)
            word, time = ingest(process, components, txn)
            process.note(ENDED, word, time)
            if word != FAILED:
                return word
        return word

    return body


def _switch(*, to_fenced: bool) -> Body:
    def body(process: Process) -> str:
        journaled = _journaled(process)
        switch = Switch(journaled.stored, process.clock, journaled)
        try:
            held = process.lock.acquire(TABLE, timeout_ms=LOCK_TIMEOUT_MS)
            try:
                is_changed = switch.to_journal(held) if to_fenced else switch.to_lock(held)
            finally:
                held.release()
        except CommitUnknownError:
            return UNKNOWN
        except HeadwaterError:
            return FAILED
        return SWITCHED if is_changed else AS_IT_WAS

    return body


def _check_outcome(simulation: Simulation) -> Iterator[Violation]:
    # A writer may open the table three times before a switch has written table config, and stand
    # still until others are two checkpoints further.
    allowed = {COMMITTED, FAILED, UNKNOWN, SWITCHED, AS_IT_WAS, "crashed"}
    if simulation.budgets != simulation.scenario.faults.budgets():
        allowed |= {FENCED}
    for actor, result in simulation.results().items():
        if result not in allowed:
            yield Violation("INV-84", f"{actor} ended {result}")
    yield from check_visible(simulation)


# Situations that the search must have met, or it proves nothing.


def _is_told(step: Step, simulation: Simulation) -> bool:
    return any(note.name == ENDED and note.values[:1] == (FAILED,) for note in step.notes)


def _has_committed_by(is_fenced: bool) -> Callable[[Step, Simulation], bool]:
    def has_committed(step: Step, simulation: Simulation) -> bool:
        world = simulation.world
        assert isinstance(world, FencedWorld)
        is_done = step.outcome is not None and step.outcome.value == COMMITTED
        return is_done and world.state.has_begun is is_fenced

    return has_committed


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "writer told that the table was switched": _is_told,
    "committed by the journal": _has_committed_by(True),
    "committed under the lock": _has_committed_by(False),
}
