"""Instants that another engine put onto the timeline of a fenced table.

Apache Hudi knows nothing of the journal: it lists the timeline and puts files there. So every
decision lists them too, and compares them with what the journal has. A file that it does not have
is one of four things:

    ours      a slot has erased it, and a process that stood still put it again, or nobody has
              deleted it yet; it means nothing
    live      an instant of another engine that has not completed
    overlap   one that completed while something of ours was decided: neither knew of the other
    adopted   one that completed while nothing of ours was: a slot takes it into the journal

What is live or overlaps is refused, for no slot can undo what both have written; readers go on.
Ours are told from others by their names, which the journal remembers for `ERASED_KEPT` slots, and
after that by the archived timeline. Nothing of ours is ever adopted, whatever was forgotten: each
of our times was given out by a slot, and only what was requested after all of these is adopted.

That its time is later than ours does not show that the other engine saw ours: files follow their
slots, perhaps much later. So an instant is adopted only if the store wrote its first file after
the last of ours that its engine had to see, both told by the store's own clock. Writes of ours that
were pending meanwhile do not hinder it, but can never complete: the slot bars them.

What such an engine has changed in table config and in the definitions of indexes is taken over by
the same slot, if it is made of the newest that slots have put there, which table config says
(`CONFIG_SLOT`). Else the engine overwrote, or never saw, what was decided: that overlaps too.

Files that other engines took off the timeline leave the journal by the same slot, if they are on
the archived timeline, or if the instant that took them back is adopted with it.

What a crash leaves behind, by the last write that landed:

    after         state                                       who repairs
    -             nothing is adopted, all is as it was        the next decision looks again
    slot          adopted; no file is to be written for it    nobody needs to
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headwater.config.table import TableConfig
from headwater.errors import ConflictError, ErrorKind, Retry
from headwater.format.metadata.index_definitions import parse_index_definitions
from headwater.kernel.journal.journal import Appended, Journal, Look
from headwater.kernel.journal.slots import Entry, Slot, Verb, Wave
from headwater.kernel.journal.state import BARRED, ERASED_KEPT, Areas, JournalState
from headwater.kernel.layout import (
    INDEX_DEFINITIONS,
    METADATA_TIMELINE,
    PROPERTIES,
    TableLayout,
)
from headwater.kernel.table_config import (
    encode_table_config,
    load_config_object,
    parse_table_config,
)
from headwater.kernel.timeline.active import parse_timeline
from headwater.kernel.timeline.names import TIME_LENGTH, parse_file_name
from headwater.kernel.txn.index_births import births_changed, births_of
from headwater.model.instant import Action, Instant, InstantTime, State

log = logging.getLogger(__name__)

_BOOTSTRAP = "0000"
"""The metadata table begins with instants of no date."""
_TAKE_BACK = (Action.ROLLBACK, Action.RESTORE)
_NAMED_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a listing of the timeline shows that the journal does not."""

    live: tuple[Instant, ...] = ()
    overlapping: tuple[Instant, ...] = ()
    completed: tuple[Instant, ...] = ()
    """Those of other engines that nothing of ours overlaps with, by their times."""
    names: Mapping[InstantTime, tuple[str, ...]] = field(default_factory=dict)
    """The files of all these, by requested time."""
    gone: tuple[Instant, ...] = ()
    """Completed ones that the journal has, and whose files were written and are not there."""
    missing: tuple[Instant, ...] = ()
    """Others whose files are not there: not written yet, or gone as well."""
    strays: tuple[str, ...] = ()
    """Files of ours that the journal is about to forget that it erased them."""

    @property
    def is_nothing(self) -> bool:
        found = (self.live, self.overlapping, self.completed, self.gone, self.strays)
        return not any(found)


class Seen(NamedTuple):
    """A look at the journal, and a listing of the timeline that is not older than the call."""

    look: Look
    names: frozenset[str]


def find_others(state: JournalState, listed: Collection[str]) -> Findings:
    """Return what a listing shows of other engines. Pure.

    Raises:
        CorruptTableError: a timeline file without an instant time.
    """
    start = f"{state.areas.timeline}/"
    known = state.paths.below(state.areas.timeline)
    unknown = [name for name in listed if name not in known]
    others = [name for name in unknown if start + name not in state.erased and _is_file(name)]
    # Half of the time is left to refresh what the journal remembers.
    old = state.number - ERASED_KEPT // 2
    strays = [name for name in unknown if state.erased.get(start + name, old + 1) <= old]
    gone, missing = _not_there(state, listed)
    if not others:
        return Findings(gone=gone, missing=missing, strays=tuple(strays))
    timeline = parse_timeline(others, folder=state.areas.timeline)
    own = {name[:TIME_LENGTH] for name in state.names(state.areas.timeline)}
    live, overlapping, completed = [], [], []
    for instant in (*timeline.instants, *timeline.savepoints):
        is_savepoint = instant.action is Action.SAVEPOINT  # It has the time of what it protects.
        began = instant.completion_time if is_savepoint else instant.requested_time
        is_taken_over = instant.requested_time in own and not is_savepoint
        if instant.is_pending:
            live.append(instant)
        elif is_taken_over or began is None or (state.issued is not None and began <= state.issued):
            overlapping.append(instant)
        else:
            completed.append(instant)
    names: dict[InstantTime, tuple[str, ...]] = {}
    for name in sorted(others):
        time = InstantTime(name[:TIME_LENGTH])
        names[time] = (*names.get(time, ()), name)
    return Findings(
        live=tuple(live),
        overlapping=tuple(overlapping),
        completed=tuple(completed),
        names=names,
        gone=gone,
        missing=missing,
        strays=tuple(strays),
    )


def shows_others(state: JournalState, listed: Iterable[str]) -> bool:
    """Whether a listing that may be older than the state shows files that it does not know. Pure.

    What such a listing lacks says nothing.
    """
    start, known = f"{state.areas.timeline}/", state.paths.below(state.areas.timeline)
    unknown = (name for name in listed if name not in known)
    return any(start + name not in state.erased and _is_file(name) for name in unknown)


def had_to_be_seen(state: JournalState) -> frozenset[str]:
    """Return the names on the timeline that whoever writes after us must have seen. Pure.

    Pending writes are not among them: they can never complete if others wrote meanwhile.
    """
    names = state.names(state.areas.timeline)
    pending = {i.requested_time for i in parse_timeline(names).pending if i.action.is_ingestion}
    return frozenset(name for name in names if name[:TIME_LENGTH] not in pending)


def barred_by_adoption(state: JournalState) -> tuple[InstantTime, ...]:
    """Return the pending instants of ours that can never complete after an adoption. Pure.

    They may have read, and are about to replace, what the other engine has changed. Compactions are
    not among them: what completes after their request is no part of what they rewrite. Nor is a
    plan that nobody executes, for the other engine has seen it.
    """
    pending = parse_timeline(state.names(state.areas.timeline)).pending
    return tuple(
        instant.requested_time
        for instant in pending
        if instant.action.is_ingestion
        or (instant.action is Action.CLUSTERING and instant.state is State.INFLIGHT)
    )


def _is_file(name: str) -> bool:
    return parse_file_name(name) is not None


def _not_there(
    state: JournalState, listed: Collection[str]
) -> tuple[tuple[Instant, ...], tuple[Instant, ...]]:
    """Return the completed instants of the journal that left the timeline, and that may have.

    What was in a file for sure has left: then the state holds no content of it. Pending files and
    savepoints are left out, for their names may be used again.
    """
    there = frozenset(listed)
    gone: list[Instant] = []
    missing: list[Instant] = []
    for name, known in state.paths.below(state.areas.timeline).items():
        file = None if name in there else parse_file_name(name)
        if file is not None and file.completion_time and file.action is not Action.SAVEPOINT:
            time, completion = file.requested_time, file.completion_time
            instant = Instant(time, file.action, State.COMPLETED, completion)
            (gone if known.data is None else missing).append(instant)
    return tuple(gone), tuple(missing)


class OtherEngines:
    """Looks for instants of other engines, and takes them into the journal, for one process."""

    def __init__(self, journal: Journal, layout: TableLayout) -> None:
        """`layout` is that of the table which has the journal."""
        self._journal = journal
        self._layout = layout
        self._foreseen: tuple[tuple[str, frozenset[str]], Look] | None = None
        """What a reader was shown last, and by what state and names."""

    def are_known(self, seen: Seen) -> bool:
        """Whether a listing shows nothing that the journal does not have."""
        return find_others(seen.look.state, seen.names).is_nothing

    def adopt(self, seen: Seen) -> Appended | None:
        """Put a slot that takes over what others did; None if somebody decided meanwhile.

        Raises:
            ConflictError: kind FOREIGN_WRITER.
            CommitUnknownError: storage did not say whether the slot landed.
            StorageError: storage failed.
        """
        look, listed = seen
        found = find_others(look.state, listed)
        # The listing may be newer than the look. It is older than this one.
        if self._journal.look().state.digest != look.state.digest:
            return None
        found, entries = self._adoption(found, look.state, listed)
        log.info(
            "instants of another engine are adopted table=%s instants=%s left=%s",
            self._journal.storage.uri,
            ", ".join(map(str, found.completed)) or "none",
            ", ".join(map(str, found.gone)) or "none",
        )
        times = [time for i in found.completed for time in (i.requested_time, i.completion_time)]
        return self._journal.append(look, [entries], max(filter(None, times), default=None))

    def _adoption(
        self, found: Findings, state: JournalState, listed: frozenset[str]
    ) -> tuple[Findings, Wave]:
        """Return the findings without what is ours, and what a slot says of them.

        Raises:
            ConflictError: kind FOREIGN_WRITER.
            CorruptTableError, StorageError: what is stored cannot be read.
        """
        found = self._without_archived(found, state)
        self._check(found, state, listed)
        entries = self._entries(found, state, listed)
        return found, (*entries, *self._config_entries(found, state))

    def foresee(self, look: Look, names: frozenset[str]) -> Look:
        """Return a look with what the next decision will adopt. Readers need not wait for one.

        What another engine has not completed is not there for them, and what overlaps with a
        decision of ours neither: that is not adopted, but refused.

        Args:
            names: on the timeline, listed at the same time as the journal.

        Raises:
            CorruptTableError, StorageError: storage failed, or has something damaged.
        """
        state = look.state
        if not state.has_begun:
            return look
        found = replace(find_others(state, names), live=(), strays=())
        if not (found.completed or found.gone or found.overlapping):
            return look
        asked = (state.digest, names)
        if self._foreseen is not None and self._foreseen[0] == asked:
            return self._foreseen[1]
        newest = self._journal.look()
        if newest.state.digest != state.digest:
            return newest  # The listing may show more than the look: what is in the journal by now.
        try:
            _, entries = self._adoption(found, state, names)
        except ConflictError as refusal:
            log.warning("reads leave out what another engine wrote: %s", refusal)
            return look
        slot = Slot(
            number=state.number + 1,
            follows=state.digest,
            operation="",
            owner="",
            issued=None,
            waves=(entries,),
        )
        seen = Look(state.after(slot, ""), look.slots)
        self._foreseen = (asked, seen)
        return seen

    @property
    def _areas(self) -> Areas:
        return self._journal.known.areas

    def _without_archived(self, found: Findings, state: JournalState) -> Findings:
        """Leave out what the archived timeline tells to be ours, and what it tells to be at home.

        A file that overlaps may be one that we archived so long ago that it is forgotten.
        """
        doubtful = (*found.live, *found.overlapping, *found.gone, *found.missing)
        if not doubtful:
            return found
        # Opening a table needs none of it.
        from headwater.kernel.view.commits import CommitReader

        reader = CommitReader(self._journal.storage, self._layout)
        archived = reader.history.find_all(one.requested_time for one in doubtful)

        def is_ours(instant: Instant) -> bool:
            time = instant.requested_time
            is_old = state.issued is not None and time <= state.issued
            return is_old and _is_part_of(instant, archived.get(time))

        late = [one for one in (*found.live, *found.overlapping) if is_ours(one)]
        is_taken_back = any(one.action in _TAKE_BACK for one in found.completed)
        lost = [i for i in found.gone if not is_taken_back and i.requested_time not in archived]
        return Findings(
            live=tuple(one for one in found.live if one not in late),
            overlapping=(*(one for one in found.overlapping if one not in late), *lost),
            completed=found.completed,
            names=found.names,
            gone=(
                *(one for one in found.gone if one not in lost),
                *(one for one in found.missing if one.requested_time in archived),
            ),
            # Erased once more, they are remembered again.
            strays=(*found.strays, *(name for i in late for name in found.names[i.requested_time])),
        )

    def _check(self, found: Findings, state: JournalState, listed: frozenset[str]) -> None:
        table = self._journal.storage.uri
        if found.live:
            raise foreign_writer(
                table,
                found.live,
                "not completed. Let that job end, or let its engine roll it back if it is dead; "
                "then try again",
            )
        overlapping = found.overlapping
        if not overlapping and found.completed and not self._is_after_ours(found, state, listed):
            overlapping = found.completed
        if overlapping:
            raise foreign_writer(
                table,
                overlapping,
                "written or removed while decisions of this table were made, so that neither side "
                "knew of the other. Look at what both changed; its engine can roll it back",
            )

    def _is_after_ours(self, found: Findings, state: JournalState, listed: frozenset[str]) -> bool:
        """Whether another engine must have seen all of ours before it began."""
        ours = had_to_be_seen(state)
        pending = parse_timeline(state.names(self._areas.timeline)).pending
        unseen = {name for name in ours - listed if not self._has_left(name, found)}
        # What these take back shows on the timeline until its files are deleted.
        if unseen or any(one.action in _TAKE_BACK for one in pending):
            return False
        start = f"{self._areas.timeline}/"
        infos = self._journal.storage.list_tree(self._areas.timeline)
        written_ms = {info.path.removeprefix(start): info.modified_ms for info in infos}
        theirs = {name for i in found.completed for name in found.names[i.requested_time]}
        last_ms = max((written_ms[name] for name in ours if name in written_ms), default=0)
        # Whole seconds of a store may hide which of two came first; then it is taken for ours.
        return all(written_ms.get(name, 0) > last_ms for name in theirs)

    def _has_left(self, name: str, found: Findings) -> bool:
        return any(name.startswith(one.requested_time) for one in found.gone)

    def _entries(self, found: Findings, state: JournalState, listed: frozenset[str]) -> list[Entry]:
        start = f"{self._areas.timeline}/"
        entries = [Entry(Verb.ERASE, start + name) for name in found.strays]
        if not found.completed and not found.gone:
            return entries
        left = tuple(one.requested_time for one in found.gone)
        entries += [
            Entry(Verb.ERASE, start + name)
            for name in state.names(self._areas.timeline)
            if name.startswith(left)
        ]
        entries += [
            Entry(Verb.ADOPT, start + name)
            for instant in found.completed
            for name in found.names[instant.requested_time]
        ]
        if found.completed:
            entries += [Entry(Verb.NOTE, f"{BARRED}/{time}") for time in barred_by_adoption(state)]
        return [*entries, *self._metadata_entries(found, state, listed)]

    def _config_entries(self, found: Findings, state: JournalState) -> Iterable[Entry]:
        """Take over what the other engine changed beside the timelines.

        Raises:
            ConflictError: kind FOREIGN_WRITER; a change of ours would be undone by it.
            CorruptTableError, StorageError: what is stored cannot be read.
        """
        storage = self._journal.storage
        known = state.paths.get(PROPERTIES)
        if not found.completed or known is None or known.data is None:
            return  # Nobody changed it; or no slot speaks of it, so that files do.
        ours = parse_table_config(known.data, PROPERTIES)
        data, theirs = load_config_object(storage, self._journal.clock)
        properties = self._without_births(theirs, found)
        if properties != theirs.raw:
            data = encode_table_config(properties, self._journal.clock)
        if properties != ours.raw:
            if theirs.config_slot != ours.config_slot:
                raise foreign_writer(
                    storage.uri,
                    found.completed,
                    f"and {PROPERTIES} is not made of what decision {ours.config_slot} of this "
                    "table put there. Look at what both changed",
                )
            yield Entry(Verb.SET, PROPERTIES, data)
        (definitions,) = storage.read_many([INDEX_DEFINITIONS])
        defined = state.paths.get(INDEX_DEFINITIONS)
        if definitions is not None and (defined is None or defined.data != definitions):
            parse_index_definitions(
                definitions, table_version=theirs.version, path=INDEX_DEFINITIONS
            )
            yield Entry(Verb.SET, INDEX_DEFINITIONS, definitions)

    def _without_births(self, config: TableConfig, found: Findings) -> Mapping[str, str]:
        """Return table config without what slots said of indexes that are gone, or not ours now.

        Of those that the other engine built no plan of ours tells which files count.
        """
        is_indexed = any(one.action is Action.INDEXING for one in found.completed)
        there = {*config.metadata_partitions, *config.metadata_partitions_inflight}
        others = [name for name in births_of(config) if is_indexed or name not in there]
        changes = births_changed(config, {}, removed=others)
        return {k: text for k, text in {**config.raw, **changes}.items() if text is not None}

    def _metadata_entries(
        self, found: Findings, state: JournalState, on_timeline: frozenset[str]
    ) -> Iterable[Entry]:
        """Take over what the other engine did to the timeline of the metadata table."""
        # Their commits to the metadata table were in files before they were.
        ended = {name[:TIME_LENGTH] for name in on_timeline if name[TIME_LENGTH:][:1] == "_"}
        ended |= {one.requested_time for one in found.gone}
        listed = frozenset(self._journal.storage.list_names(METADATA_TIMELINE))
        start = f"{METADATA_TIMELINE}/"
        issued = state.issued or ""
        for name in sorted(listed):
            is_new = name[:TIME_LENGTH] > issued or name.startswith(_BOOTSTRAP)
            if start + name not in state.paths and is_new and _is_file(name):
                yield Entry(Verb.ADOPT, start + name)
        for name in sorted(state.names(METADATA_TIMELINE)):
            is_written = state.paths[start + name].data is None or name[:TIME_LENGTH] in ended
            if name not in listed and is_written:
                yield Entry(Verb.ERASE, start + name)


def _is_part_of(instant: Instant, archived: Instant | None) -> bool:
    """Whether files show an instant that is archived, or what it was before it completed."""
    if archived is None:
        return False
    is_same = instant.action.completed_name is archived.action.completed_name
    is_later = instant.is_completed and instant.completion_time != archived.completion_time
    return is_same and not is_later


def foreign_writer(table: str, instants: Collection[Instant], what: str) -> ConflictError:
    """Return why nothing is decided beside another engine."""
    named = ", ".join(str(one) for one in list(instants)[:_NAMED_MAX])
    more = len(instants) - _NAMED_MAX
    return ConflictError(
        f"Another engine has put {named}{f' and {more} more' if more > 0 else ''} onto the "
        f"timeline of this fenced table, {what}. Nothing was changed, and reads go on. If both are "
        "to write at once, `headwater table upgrade --no-fenced` gives the table back to a lock; "
        "use one that both know",
        kind=ErrorKind.FOREIGN_WRITER,
        retry=Retry.SAME_CALL,
        table=table,
        instant=next(iter(instants)).requested_time,
    )
