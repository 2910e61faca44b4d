"""Where the files of the timeline and the journal differ, of a table that has one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from headwater.context import TableContext
from headwater.errors import CorruptTableError
from headwater.format.metadata.index_definitions import (
    VERSIONED_SINCE_TABLE_VERSION,
    IndexDefinition,
    parse_index_definitions,
)
from headwater.format.properties import parse_properties
from headwater.inspect.damage.problem import FROM_JOURNAL, Problem, Repair
from headwater.kernel.journal.state import JournalState, folder_of
from headwater.kernel.journal.storage import find_journal
from headwater.kernel.layout import INDEX_DEFINITIONS, METADATA_TIMELINE, PROPERTIES
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.names import TIME_LENGTH, parse_file_name
from headwater.kernel.txn.other_engines import OtherEngines
from headwater.kernel.txn.others_found import find_others
from headwater.model.instant import InstantTime, State
from headwater.seams.storage import both_at_once

_STAKES = {
    INDEX_DEFINITIONS: "what other engines take the indexes for",
    PROPERTIES: "what processes that open the table from now on take it for",
}
"""What is overwritten as it changes, and who reads it."""


def of_journal(table: TableContext) -> Iterator[Problem]:
    """Look for files that other engines read, and that are not what the journal says."""
    journaled, _ = find_journal(table.storage)
    if journaled is None:
        return
    state = journaled.journal.look().state
    own = state.areas.timeline
    held = {
        f"{folder}/{name}": known
        for folder in state.areas.timelines
        for name, known in state.paths.below(folder).items()
        if known.data is not None
    }
    stored = dict(zip(held, journaled.stored.read_many(held), strict=True))
    # Files that say how instants ended follow in the order of the slots, and in a slot the table's
    # own comes last, so what comes before the last that shows was there. Others may be written
    # later, by who decided them.
    place = {path: (known.slot, folder_of(path) == own) for path, known in held.items()}
    ends = [path for path in stored if _says_end(path)]
    shown = max((place[path] for path in ends if stored[path] is not None), default=(0, False))
    lost = {path for path in ends if stored[path] is None and place[path] < shown}
    lost -= _archived(table, lost)
    for path, data in stored.items():
        is_lost = path in lost
        if is_lost or data not in (None, held[path].data):
            yield Problem(
                check="timeline",
                subject=path,
                problem=f"the file {'is lost' if is_lost else 'was changed'}: the journal says "
                f"what is in it since slot {held[path].slot}",
                at_stake="what other engines read; Headwater itself reads the journal",
                advice=FROM_JOURNAL,
                instant=_time_of(path),
                repair=Repair.WRITE_FILES,
            )


def of_others(table: TableContext) -> Iterator[Problem]:
    """Look for what is there and no slot has put: instants, table config, definitions of indexes.

    Instants that the journal cannot take in refuse all. Table config and definitions are compared
    unless another engine is at work: it changes them before it completes.
    """
    journaled, _ = find_journal(table.storage)
    if journaled is None:
        return
    journal, folder = journaled.journal, table.layout.timeline
    (look, names), stored = both_at_once(
        journaled.stored,
        lambda: both_at_once(
            journaled.stored, journal.look, lambda: journaled.stored.list_names(folder)
        ),
        lambda: journaled.stored.read_many(_STAKES),
    )
    others = OtherEngines(journal, table.layout)
    refusal = others.refusal(look, frozenset(names))
    if refusal is not None:
        yield Problem(
            check="timeline",
            subject=folder,
            problem=str(refusal),
            at_stake="what those instants did, which reads leave out; every write is refused",
            advice="if a slot of the journal was lost, restore it from a copy. Otherwise let the "
            "other engine roll back what it wrote, or run `headwater table upgrade --no-fenced`, "
            "from when on the files of the timeline count",
        )
    elif not find_others(look.state, names).pending:
        state = others.foresee(look, frozenset(names)).state  # With what they completed.
        yield from _of_shared(state, dict(zip(_STAKES, stored, strict=True)))


def _of_shared(state: JournalState, stored: Mapping[str, bytes | None]) -> Iterator[Problem]:
    for path, data in stored.items():
        known = state.paths.get(path)
        if known is None or known.data is None or _says_the_same(path, data, known.data):
            continue
        is_config = path == PROPERTIES
        meant = "; if the change was meant, run `headwater table upgrade --no-fenced`, change it "
        yield Problem(
            check="table",
            subject=path,
            problem=f"the file {'is lost' if data is None else 'is another'}: the journal says "
            f"what is in it since slot {known.slot}",
            at_stake=_STAKES[path],
            advice=f"{FROM_JOURNAL}{meant}again and run `--fenced`" if is_config else FROM_JOURNAL,
            repair=Repair.WRITE_FILES,
        )


def _says_the_same(path: str, stored: bytes | None, known: bytes) -> bool:
    if stored is None or stored == known:
        return stored is not None
    # Other engines write them anew without a change, in another order and under another time.
    parse = parse_properties if path == PROPERTIES else _parse_definitions
    try:
        return parse(stored, path=path) == parse(known, path=path)
    except CorruptTableError:
        return False


def _parse_definitions(data: bytes, *, path: str) -> Mapping[str, IndexDefinition]:
    return parse_index_definitions(data, table_version=VERSIONED_SINCE_TABLE_VERSION, path=path)


def ended_in_files(table: TableContext) -> set[InstantTime]:
    """Return what completed by the files of the timeline, whatever a journal says; {} without."""
    journaled, _ = find_journal(table.storage)
    if journaled is None:
        return set()
    names = journaled.stored.list_names(table.layout.timeline)
    return {_time_of(name) for name in names if _says_end(name)}


def _archived(table: TableContext, paths: Collection[str]) -> set[str]:
    """Return those of some files of the timelines that another engine has archived."""
    found: set[str] = set()
    for timeline, history in (
        (table.layout.timeline, table.layout.history),
        (METADATA_TIMELINE, f"{METADATA_TIMELINE}/history"),
    ):
        times = {path: _time_of(path) for path in paths if folder_of(path) == timeline}
        if times:
            archived = HistoryTimeline(table.storage, history).find_all({*times.values()})
            found.update(path for path, time in times.items() if time in archived)
    return found


def _time_of(path: str) -> InstantTime:
    return InstantTime(path.rpartition("/")[2][:TIME_LENGTH])


def _says_end(path: str) -> bool:
    file = parse_file_name(path.rpartition("/")[2])
    return file is not None and file.state is State.COMPLETED
