"""Instants that another engine put onto the timeline of a fenced table.

Apache Hudi knows nothing of the journal: it lists the timeline and puts files there. So every
decision lists them too, and compares them with what the journal has. A file that it does not have
is one of five things:

    ours      a slot has erased it, and a process that stood still put it again, or nobody has
              deleted it yet; it means nothing
    live      an instant of another engine that has not completed; for readers it is pending
    left      one that its engine will not complete: a write that is dead by its engine's own rules,
              or a plan that was requested and that nobody executes; a slot takes it into the
              journal, and from there on it is rolled back, or executed, like one of ours
    overlap   one that completed while something of ours was decided: neither knew of the other
    adopted   one that completed while nothing of ours was: a slot takes it into the journal

What is live or overlaps is refused, for no slot can undo what both have written; readers go on.
Ours are told from others by their names, which the journal remembers for `ERASED_KEPT` slots, and
after that by the archived timeline. Nothing of ours is ever adopted, whatever was forgotten: each
of our times was given out by a slot, and only what was requested after all of these is adopted, or
what completes a plan that the journal has.

That its time is later than ours does not show that the other engine saw ours: files follow their
slots, perhaps much later. So an instant is adopted only if the store wrote its first file after
the last of ours that its engine had to see, both told by the store's own clock. Writes of ours that
were pending meanwhile do not hinder it, but can never complete: the slot bars them.

What such an engine has changed in table config and in the definitions of indexes is taken over by
the same slot, if it is made of the newest that slots have put there, which table config says
(`CONFIG_SLOT`). Else the engine overwrote, or never saw, what was decided: that overlaps too. Where
nothing completed, but something was left, both are put back. New indexes that were made before
something of ours lack it, and are not taken over.

Files that other engines took off the timeline leave the journal by the same slot, if they are on
the archived timeline, if an instant that is adopted with it says that it took them back, or if they
are a savepoint's, which leaves no trace.

What a crash leaves behind, by the last write that landed:

    after         state                                       who repairs
    -             nothing is adopted, all is as it was        the next decision looks again
    slot          adopted, for all readers of ours. Others    the next decision writes what it
                  read table config as their engine left it   puts back or leaves out
    files         adopted                                     nobody needs to
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from headwater.config.table import TableConfig
from headwater.config.table_options import (
    CONFIG_SLOT,
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
)
from headwater.errors import ConflictError, CorruptTableError, ErrorKind, Retry
from headwater.format.metadata.index_definitions import parse_index_definitions
from headwater.kernel.journal.journal import Appended, Journal, Look
from headwater.kernel.journal.slots import Entry, Slot, Verb, Wave
from headwater.kernel.journal.state import BARRED, Areas, JournalState
from headwater.kernel.layout import (
    INDEX_DEFINITIONS,
    METADATA,
    METADATA_TIMELINE,
    PROPERTIES,
    TableLayout,
)
from headwater.kernel.table_config import (
    encode_table_config,
    load_config_object,
    parse_table_config,
)
from headwater.kernel.timeline.active import instant_path, parse_timeline
from headwater.kernel.timeline.names import TIME_LENGTH, parse_file_name
from headwater.kernel.txn.foreign import PendingElsewhere
from headwater.kernel.txn.index_births import births_changed, births_of
from headwater.kernel.txn.others_found import (
    PLANS,
    Findings,
    barred_by_adoption,
    find_others,
    had_to_be_seen,
)
from headwater.model.instant import Action, Instant, InstantTime, State

log = logging.getLogger(__name__)

_BOOTSTRAP = "0000"
"""The metadata table begins with instants of no date."""
_TAKE_BACK = (Action.ROLLBACK, Action.RESTORE)
_NAMED_MAX = 3


class Seen(NamedTuple):
    """A look at the journal, and a listing of the timeline that is not older than the call."""

    look: Look
    names: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What a slot takes over of other engines."""

    completed: tuple[Instant, ...]
    pending: tuple[Instant, ...]
    names: Mapping[InstantTime, tuple[str, ...]]
    """The files of these that the journal does not have, by requested time."""
    gone: frozenset[str]
    """Files that the journal has, and that they took off the timeline."""
    strays: tuple[str, ...]
    """Files of ours that were put again after a slot had erased them."""

    @property
    def instants(self) -> tuple[Instant, ...]:
        return (*self.completed, *self.pending)


class OtherEngines:
    """Looks for instants of other engines, and takes them into the journal, for one process."""

    def __init__(
        self, journal: Journal, layout: TableLayout, elsewhere: PendingElsewhere | None = None
    ) -> None:
        """`layout` is that of the table which has the journal.

        Args:
            elsewhere: tells what is pending from what its engine has left; by default nothing is
                left.
        """
        self._journal = journal
        self._layout = layout
        self._elsewhere = elsewhere
        self._foreseen: tuple[tuple[str, frozenset[str]], Look | None] | None = None
        """What a reader was shown last, and by what state and names."""

    def adopt(self, found: Findings, seen: Seen) -> Appended | None:
        """Put a slot that takes over what others did; None if somebody decided meanwhile.

        Args:
            found: what `seen` shows.

        Raises:
            ConflictError: kind FOREIGN_WRITER.
            CommitUnknownError: storage did not say whether the slot landed.
            CorruptTableError, StorageError: storage failed, or has something damaged.
        """
        look, listed = seen
        # The listing may be newer than the look. It is older than this one.
        if self._journal.look().state.digest != look.state.digest:
            return None
        adoption, entries = self._adoption(found, look.state, listed)
        self._check_left(adoption, look.state, listed)
        log.info(
            "instants of another engine are adopted table=%s instants=%s gone=%s",
            self._journal.storage.uri,
            ", ".join(map(str, adoption.instants)) or "none",
            ", ".join(sorted(adoption.gone)) or "none",
        )
        times = [time for i in adoption.instants for time in (i.requested_time, i.completion_time)]
        return self._journal.append(look, [entries], max(filter(None, times), default=None))

    def _adoption(
        self, found: Findings, state: JournalState, listed: frozenset[str]
    ) -> tuple[Adoption, Wave]:
        """Return what is taken over, and what a slot says of it.

        Raises:
            ConflictError: kind FOREIGN_WRITER.
            NotFoundError: kind NOT_A_TABLE; they are of another table that is there by now.
            CorruptTableError, StorageError: what is stored cannot be read.
        """
        self._journal.check_same(state)
        adoption = self._judge(found, state, listed)
        entries = self._entries(adoption, state, listed)
        return adoption, (*entries, *self._config_entries(adoption, state))

    def foresee(self, look: Look, names: frozenset[str]) -> Look:
        """Return a look with what the next decision will adopt. Readers need not wait for one.

        What another engine has not completed is pending for them, whether it is live or not. What
        overlaps with a decision of ours is not there: it is not adopted, but refused.

        Args:
            names: on the timeline, listed at the same time as the journal.

        Raises:
            CorruptTableError, StorageError: storage failed, or has something damaged.
        """
        state = look.state
        if not state.has_begun:
            return look
        found = replace(find_others(state, names), strays=())
        if found.is_nothing:
            return look
        asked = (state.digest, names)
        if self._foreseen is not None and self._foreseen[0] == asked:
            return self._foreseen[1] or look
        newest = self._journal.look()
        if newest.state.digest != state.digest:
            return newest  # The listing may show more than the look: what is in the journal by now.
        try:
            _, entries = self._adoption(found, state, names)
        except ConflictError as refusal:
            # Once: who watches a table asks every second.
            log.warning("reads leave out what another engine wrote: %s", refusal)
            self._foreseen = (asked, None)
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

    def refusal(self, look: Look, names: frozenset[str]) -> ConflictError | None:
        """Return why every decision is refused as long as the timeline has these names; or None.

        What is live refuses them too, but ends by itself, and is not looked for.

        Args:
            names: on the timeline, listed at the same time as the journal.

        Raises:
            CorruptTableError, StorageError: storage failed, or has something damaged.
        """
        found = replace(find_others(look.state, names), strays=())
        if not look.state.has_begun or found.is_nothing:
            return None
        try:
            self._adoption(found, look.state, names)
        except ConflictError as refusal:
            return refusal
        return None

    @property
    def _areas(self) -> Areas:
        return self._journal.known.areas

    def _judge(self, found: Findings, state: JournalState, listed: frozenset[str]) -> Adoption:
        """Tell what can be taken over.

        Raises:
            ConflictError: kind FOREIGN_WRITER; something overlaps with ours.
            CorruptTableError, StorageError: what is stored cannot be read.
        """
        ended = [each for name in found.gone | found.missing if (each := _completed_by(name))]
        archived = self._archived((*found.pending, *found.overlapping, *ended))

        def is_ours(instant: Instant) -> bool:
            """A file that overlaps may be one that we archived so long ago that it is forgotten."""
            time = instant.requested_time
            is_old = state.issued is not None and time <= state.issued
            return is_old and _is_part_of(instant, archived.get(time))

        late = [one for one in (*found.pending, *found.overlapping) if is_ours(one)]
        gone = self._taken_off(found, state, archived)
        lost = [each for name in found.gone - gone if (each := _completed_by(name))]
        adoption = Adoption(
            completed=found.completed,
            pending=tuple(one for one in found.pending if one not in late),
            names=found.names,
            gone=gone,
            # Erased once more, they are remembered again.
            strays=(*found.strays, *(name for i in late for name in found.names[i.requested_time])),
        )
        overlapping = [*(one for one in found.overlapping if one not in late), *lost]
        if not overlapping and not self._are_after_ours(found.completed, adoption, state, listed):
            overlapping = list(found.completed)
        self._check_apart(overlapping)
        return adoption

    def _check_left(self, adoption: Adoption, state: JournalState, listed: frozenset[str]) -> None:
        """Check that nobody goes on with what is pending, and that plans are made of all of ours.

        Raises:
            ConflictError: kind FOREIGN_WRITER.
        """
        if live := [one for one in adoption.pending if not self._is_left(one, state)]:
            raise foreign_writer(
                self._journal.storage.uri,
                live,
                "not completed. Let that job end; then try again. A write that is dead is rolled "
                "back once its heartbeat has stood still for as long as it may, or nothing of it "
                "has changed for a day; its engine can do it at once",
            )
        plans = [one for one in adoption.pending if one.action in PLANS]
        if not self._are_after_ours(plans, adoption, state, listed):
            self._check_apart(plans)

    def _archived(self, doubtful: Collection[Instant]) -> Mapping[InstantTime, Instant]:
        if not doubtful:
            return {}
        # Opening a table needs none of it.
        from headwater.kernel.view.commits import CommitReader

        reader = CommitReader(self._journal.storage, self._layout)
        return reader.history.find_all(one.requested_time for one in doubtful)

    def _is_left(self, pending: Instant, state: JournalState) -> bool:
        """Whether an engine will not go on with what it began, so that somebody else may."""
        if self._elsewhere is None:
            return False
        if pending.action in PLANS:
            # One that was planned while we decided cannot be known to be made of what we decided.
            is_old = state.issued is not None and pending.requested_time <= state.issued
            if is_old or pending.state is not State.REQUESTED:
                return False
        elif not pending.action.is_ingestion and pending.action is not Action.ROLLBACK:
            return False
        return self._elsewhere.is_left(self._journal.storage, self._areas.timeline, pending)

    def _taken_off(
        self, found: Findings, state: JournalState, archived: Mapping[InstantTime, Instant]
    ) -> frozenset[str]:
        """Return the files of the journal that other engines took off the timeline by right."""
        absent = found.gone | found.missing
        archives = {
            each.requested_time
            for name in absent
            if (each := _completed_by(name)) and each.requested_time in archived
        }
        taken_back = self._taken_back(found.completed)
        # The deletion of a savepoint leaves no trace; it takes the pending file with it.
        points = {
            name[:TIME_LENGTH] for name in found.gone if name.endswith(f".{Action.SAVEPOINT}")
        }
        pending_points = {f"{time}.{Action.SAVEPOINT}.{State.INFLIGHT}" for time in points}
        return frozenset(
            name
            for name in state.names(self._areas.timeline)
            if name[:TIME_LENGTH] in archives
            or (name in absent and name[:TIME_LENGTH] in taken_back)
            or (name in found.gone and name.endswith(f".{Action.SAVEPOINT}"))
            or (name in absent and name in pending_points)
        )

    def _taken_back(self, completed: Iterable[Instant]) -> frozenset[str]:
        """Return the times of the instants that rollbacks and restores say they took back."""
        undoing = [one for one in completed if one.action in _TAKE_BACK]
        if not undoing:
            return frozenset()
        # Opening a table needs none of it.
        from headwater.format.timeline.records import decode_record
        from headwater.model.service_metadata import RestoreMetadata, RollbackMetadata

        times: set[str] = set()
        paths = [instant_path(self._areas.timeline, one) for one in undoing]
        for one, path, data in zip(
            undoing, paths, self._journal.storage.read_many(paths), strict=True
        ):
            if data is None:
                continue  # Its engine took it back in turn.
            if one.action is Action.ROLLBACK:
                times |= set(decode_record(RollbackMetadata, data, path=path).commits_rollback)
            else:
                times |= set(decode_record(RestoreMetadata, data, path=path).instants_to_rollback)
        return frozenset(times)

    def _check_apart(self, overlapping: Collection[Instant]) -> None:
        if overlapping:
            raise foreign_writer(
                self._journal.storage.uri,
                overlapping,
                "written or removed while decisions of this table were made, so that neither side "
                "knew of the other. Look at what both changed; its engine can roll it back",
            )

    def _are_after_ours(
        self,
        instants: Iterable[Instant],
        adoption: Adoption,
        state: JournalState,
        listed: frozenset[str],
    ) -> bool:
        """Whether another engine must have seen all of ours before it began with these."""
        theirs = {name for one in instants for name in adoption.names[one.requested_time]}
        if not theirs:
            return True
        ours = had_to_be_seen(state)
        pending = parse_timeline(state.names(self._areas.timeline)).pending
        # What these take back shows on the timeline until its files are deleted.
        if ours - listed - adoption.gone or any(one.action in _TAKE_BACK for one in pending):
            return False
        written_ms = self._written_ms()
        last_ms = max((written_ms[name] for name in ours if name in written_ms), default=0)
        # Whole seconds of a store may hide which of two came first; then it is taken for ours.
        return all(written_ms.get(name, 0) > last_ms for name in theirs)

    def _entries(
        self, adoption: Adoption, state: JournalState, listed: frozenset[str]
    ) -> Iterator[Entry]:
        start = f"{self._areas.timeline}/"
        for name in (*adoption.strays, *sorted(adoption.gone)):
            yield Entry(Verb.ERASE, start + name)
        for instant in adoption.instants:
            for name in adoption.names[instant.requested_time]:
                yield Entry(Verb.ADOPT, start + name)
        if adoption.completed:
            for time in barred_by_adoption(state):
                yield Entry(Verb.NOTE, f"{BARRED}/{time}")
        if adoption.completed or adoption.gone:
            yield from self._metadata_entries(adoption, state, listed)

    def _config_entries(self, adoption: Adoption, state: JournalState) -> Iterable[Entry]:
        """Take over what the other engine changed beside the timelines.

        Raises:
            ConflictError: kind FOREIGN_WRITER; a change of ours would be undone by it.
            CorruptTableError, StorageError: what is stored cannot be read.
        """
        storage = self._journal.storage
        known = state.paths.get(PROPERTIES)
        if known is None or known.data is None:
            return  # No slot speaks of it, so that files do.
        ours = parse_table_config(known.data, PROPERTIES)
        if not adoption.completed:
            if adoption.pending:
                yield from self._undone_config(ours, state)
            return
        data, theirs = load_config_object(storage, self._journal.clock)
        properties = self._without_stale(self._without_births(theirs, adoption), ours, state)
        if properties != theirs.raw:
            data = encode_table_config(properties, self._journal.clock)
        if not properties == ours.raw == theirs.raw:
            if theirs.config_slot != ours.config_slot:
                raise foreign_writer(
                    storage.uri,
                    adoption.completed,
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

    def _undone_config(self, ours: TableConfig, state: JournalState) -> Iterator[Entry]:
        """Put back what was changed by what its engine has left, if anything was (N-183).

        It may have made indexes and said that they can be used. No commit of ours would tell them.
        """
        try:
            theirs = load_config_object(self._journal.storage, self._journal.clock).config
            is_changed = theirs.raw != ours.raw
        except CorruptTableError:
            is_changed = True  # It was killed while it wrote the file.
        if not is_changed:
            return
        stamped = {**ours.raw, CONFIG_SLOT.key: CONFIG_SLOT.encode(state.number + 1)}
        yield Entry(Verb.SET, PROPERTIES, encode_table_config(stamped, self._journal.clock))
        defined = state.paths.get(INDEX_DEFINITIONS)
        if defined is not None and defined.data is not None:
            yield Entry(Verb.SET, INDEX_DEFINITIONS, defined.data)

    def _without_stale(
        self, theirs: Mapping[str, str], ours: TableConfig, state: JournalState
    ) -> Mapping[str, str]:
        """Return table config without new indexes if one was begun before something of ours.

        Nobody told them of it. An engine makes them together, and anew where it finds none named.
        """
        config = TableConfig.from_properties(theirs, path=PROPERTIES)
        known = {*ours.metadata_partitions, *ours.metadata_partitions_inflight}
        named = {*config.metadata_partitions, *config.metadata_partitions_inflight}
        stale = named - known
        last_ms = self._last_of_ours_ms(state) if stale else 0
        if all(self._begun_ms(name) > last_ms for name in stale):
            return theirs
        log.warning(
            "indexes of another engine are not taken over, for they lack commits table=%s "
            "indexes=%s",
            self._journal.storage.uri,
            ", ".join(sorted(stale)),
        )
        left = {
            METADATA_PARTITIONS: config.metadata_partitions,
            METADATA_PARTITIONS_INFLIGHT: config.metadata_partitions_inflight,
        }
        return {
            **theirs,
            **{
                option.key: option.encode(tuple(name for name in names if name not in stale))
                for option, names in left.items()
                if option.key in theirs
            },
        }

    def _begun_ms(self, index: str) -> float:
        """When the first file of an index was written; one without files lacks nothing."""
        infos = self._journal.storage.list_tree(f"{METADATA}/{index}")
        return min((info.modified_ms for info in infos), default=math.inf)

    def _last_of_ours_ms(self, state: JournalState) -> int:
        written_ms = self._written_ms()
        return max((written_ms.get(name, 0) for name in had_to_be_seen(state)), default=0)

    def _written_ms(self) -> Mapping[str, int]:
        """Return when each file of the timeline was written, by the clock of the store."""
        start = f"{self._areas.timeline}/"
        infos = self._journal.storage.list_tree(self._areas.timeline)
        return {info.path.removeprefix(start): info.modified_ms for info in infos}

    def _without_births(self, config: TableConfig, adoption: Adoption) -> Mapping[str, str]:
        """Return table config without what slots said of indexes that are gone, or not ours now.

        Of those that the other engine built no plan of ours tells which files count.
        """
        is_indexed = any(one.action is Action.INDEXING for one in adoption.completed)
        there = {*config.metadata_partitions, *config.metadata_partitions_inflight}
        others = [name for name in births_of(config) if is_indexed or name not in there]
        changes = births_changed(config, {}, removed=others)
        return {k: text for k, text in {**config.raw, **changes}.items() if text is not None}

    def _metadata_entries(
        self, adoption: Adoption, state: JournalState, on_timeline: frozenset[str]
    ) -> Iterable[Entry]:
        """Take over what the other engine did to the timeline of the metadata table."""
        # Their commits to the metadata table were in files before they were.
        ended = {name[:TIME_LENGTH] for name in on_timeline if name[TIME_LENGTH:][:1] == "_"}
        ended |= {name[:TIME_LENGTH] for name in adoption.gone}
        adopted = {one.requested_time for one in adoption.completed}
        listed = frozenset(self._journal.storage.list_names(METADATA_TIMELINE))
        start = f"{METADATA_TIMELINE}/"
        issued = state.issued or ""
        for name in sorted(listed):
            time = name[:TIME_LENGTH]
            # A plan that was executed has the time at which it was planned.
            is_new = time > issued or time in adopted or time.startswith(_BOOTSTRAP)
            if start + name not in state.paths and is_new and parse_file_name(name):
                yield Entry(Verb.ADOPT, start + name)
        for name in sorted(state.names(METADATA_TIMELINE)):
            is_written = state.paths[start + name].data is None or name[:TIME_LENGTH] in ended
            if name not in listed and is_written:
                yield Entry(Verb.ERASE, start + name)


def _completed_by(name: str) -> Instant | None:
    """Return the instant that a file says has completed. A savepoint is none."""
    file = parse_file_name(name)
    if file is None or file.state is not State.COMPLETED or file.action is Action.SAVEPOINT:
        return None
    return Instant(file.requested_time, file.action, file.state, file.completion_time)


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
