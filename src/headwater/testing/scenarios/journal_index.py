"""journal_index: indexes of one name on a fenced table, planned and dropped by who knows nothing.

    journal_index        one builds an index; another gives that plan up or drops the index, and
                         builds it on another column, over another number of file groups
    journal_built        one builds an index, another drops it as soon as it can be used
    journal_dropped      an index is in use: one drops it, another drops it and builds it anew
    journal_definitions  two plan different indexes at once

There is no lock, so a process may stand still before any call while another goes through with all
it does. Definitions, file groups and contents must be those of the index that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from headwater.format.metadata.index_definitions import (
    IndexDefinition,
    IndexVersion,
    encode_index_definitions,
)
from headwater.kernel.layout import METADATA
from headwater.kernel.table_config import load_table_config
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.index_births import births_of
from headwater.kernel.txn.index_plan import PlannedIndex, pending_indexings
from headwater.metadata.indexing import Indexing
from headwater.metadata.partition_files import is_initial_log, is_of_birth
from headwater.metadata.partition_kinds import RECORD_INDEX
from headwater.model.files import parse_data_file
from headwater.testing.actor import Body, Process
from headwater.testing.check import BEGUN
from headwater.testing.check_index import BUILT, DROPPED, check_index_end, config_in
from headwater.testing.faults import Faults
from headwater.testing.fenced import fenced
from headwater.testing.history import Step
from headwater.testing.operation import Kind
from headwater.testing.scenarios.index import (
    PLANNED,
    _scenario,
    _word,
    builder,
    commit_before_and_build,
    indexing_of,
    writer,
)
from headwater.testing.simulation import Scenario, Simulation, Violation
from headwater.testing.table import TIMELINE
from headwater.testing.toy_index import INDEX

GONE = "gone"
_CRASHED = "crashed"


def planned_on(column: str, groups: int, partition: str = INDEX) -> PlannedIndex:
    definition = IndexDefinition(
        index_name=partition,
        index_type=partition,
        source_fields=(column,),
        version=IndexVersion.V2,
    )
    text = encode_index_definitions({partition: definition}).decode()
    return replace(PLANNED, partition=partition, group_count=groups, definition=text)


FIRST = planned_on("a", 2)
SECOND = planned_on("b", 1)
OTHER = planned_on("c", 1, RECORD_INDEX)


def journal_index(
    faults: Faults, *, has_writer: bool = False, marks: tuple[str, ...] = ()
) -> Scenario:
    """One builds an index, another takes it away and builds another of the same name."""
    actors: dict[str, Body] = {"X": builder(FIRST), "Y": _replacer}
    if has_writer:
        actors["W"] = writer
    return _on_journal("journal_index", actors, faults, marks)


def journal_built(faults: Faults) -> Scenario:
    """One builds an index, another drops it."""
    return _on_journal("journal_built", {"X": builder(FIRST), "Y": _dropper}, faults, ())


def journal_dropped(faults: Faults, *, marks: tuple[str, ...] = ()) -> Scenario:
    """One drops an index, another drops it and builds it anew."""
    scenario = _on_journal("journal_dropped", {"X": _dropper, "Y": _replacer}, faults, marks)
    return replace(scenario, set_up=commit_before_and_build)


def journal_definitions(faults: Faults) -> Scenario:
    """Two plan different indexes at once."""
    actors = {"X": _planner(FIRST), "Y": _planner(OTHER)}
    return _on_journal("journal_definitions", actors, faults, (), has_private_files=False)


def _on_journal(
    name: str,
    actors: Mapping[str, Body],
    faults: Faults,
    marks: tuple[str, ...],
    *,
    has_private_files: bool = True,
) -> Scenario:
    scenario = replace(_scenario(name, actors, faults, marks=()), check_end=_check_end)
    wrapped = fenced(scenario, has_private_files=has_private_files)
    return replace(wrapped, marks={mark: MARKS[mark] for mark in marks})


def _check_end(simulation: Simulation) -> Iterator[Violation]:
    """Look at the end of those who are all there: one may be done before another's plan begins."""
    if _CRASHED not in simulation.results().values():
        yield from check_index_end(simulation)


def _planner(planned: PlannedIndex) -> Body:
    def body(process: Process) -> str:
        process.note(BEGUN)
        return _word(lambda: str(indexing_of(process).schedule([planned]) is not None))

    return body


def _dropper(process: Process) -> str:
    process.note(BEGUN)
    return _word(lambda: _drop(indexing_of(process), process))


def _replacer(process: Process) -> str:
    """Give up what others have planned, drop what they have built, and build the index anew."""
    indexing = indexing_of(process)
    process.note(BEGUN)

    def again() -> str:
        for plan in pending_indexings(load_active(process.storage, TIMELINE)):
            indexing.cancel(plan.requested_time)
        indexing.finish()
        if INDEX in load_table_config(process.storage, process.clock).metadata_partitions:
            _drop(indexing, process)
        planned = indexing.schedule([SECOND])
        if planned is not None:
            indexing.run(planned.requested_time)
        return BUILT

    return _word(again)


def _drop(indexing: Indexing, process: Process) -> str:
    process.note(DROPPED, INDEX)
    indexing.drop(INDEX)
    return GONE


# Situations that the search must have met, or it proves nothing.


def _is_group_late(step: Step, simulation: Simulation) -> bool:
    """Whether a file group appears that the index of this name does not have any more."""
    file = parse_data_file(step.path.removeprefix(f"{METADATA}/")) if step.path else None
    if file is None or step.after is None or not is_initial_log(file):
        return False
    birth = births_of(config_in(simulation.world)).get(INDEX)
    return birth is not None and not is_of_birth(file, birth)


def _is_wiped_late(step: Step, simulation: Simulation) -> bool:
    """Whether somebody deletes files of an index that has been planned anew, and wiped, since."""
    op = step.op
    if op is None or op.kind is not Kind.DELETE or not op.target.startswith(f"{METADATA}/"):
        return False
    file = parse_data_file(op.target.removeprefix(f"{METADATA}/"))
    if file is None:
        return False
    birth = births_of(config_in(simulation.world)).get(INDEX)
    return birth is not None and file.instant_time < birth.plan


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "file group put late": _is_group_late,
    "wiped late": _is_wiped_late,
}
