"""What the slots of a journal add up to: which paths there are, and what is not in files yet.

The state after slot n is the authority on the paths that are journaled: a file that it does not
have means nothing, whoever put it there late. Pure: the same slots give the same state.

Journaled are the timelines of the table and of its metadata table, the cancellations, the claims of
attempts, the few objects that are overwritten, which are table config, the definitions of indexes
and the count of cancellations, and which instants are being archived. Heartbeats are not: a claim's
object is its owner's heartbeat as well, so its *path* is journaled, and what is in storage is newer
than what its slot says.

A journal can be closed, by a slot like any other. From there on files say what there is, as before
the first slot; the next slot opens it again and adopts them. Slot numbers go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headwater.format.own_json import decode_own, encode_own
from headwater.kernel.journal.paths import Known, Paths, PathsDraft, paths_of, time_of
from headwater.kernel.journal.slots import (
    Entry,
    Slot,
    Verb,
    checkpoint_path,
    corrupt_journal,
    decode_entries,
    encode_entries,
    slot_path,
)
from headwater.kernel.layout import (
    ATTEMPTS,
    CANCEL_COUNT,
    CANCELS,
    INDEX_DEFINITIONS,
    JOURNAL,
    METADATA,
    METADATA_TIMELINE,
    PROPERTIES,
)
from headwater.model.instant import Action, InstantTime, State

CLAIMS = (f"{ATTEMPTS}/", f"{METADATA}/{ATTEMPTS}/")
BEING_ARCHIVED = f"{JOURNAL}/archived"
"""Below it are names that only the journal has, no files: instants whose archival is decided."""
BARRED = f"{JOURNAL}/barred"
"""The same: writes that were pending when an instant of another engine was adopted. None of them
can complete."""
CLOSED = f"{JOURNAL}/closed"
"""A name that only the journal has: it is there while the journal is closed."""
ERASED_KEPT = 256
"""For how many slots the journal remembers the names of timeline files that it has erased."""
_PENDING = tuple(f".{state}" for state in (State.REQUESTED, State.INFLIGHT))
_EXECUTED = tuple(f".{action}.{State.INFLIGHT}" for action in Action if not action.is_ingestion)
SHARED = (PROPERTIES, CANCEL_COUNT, INDEX_DEFINITIONS)


@dataclass(frozen=True, slots=True)
class Areas:
    """Which paths of a table are journaled."""

    timeline: str

    @property
    def folders(self) -> tuple[str, ...]:
        """Those whose names the state knows, all of them."""
        return (self.timeline, CANCELS, METADATA_TIMELINE)

    def has(self, path: str) -> bool:
        """Whether the journal says if there is such a path."""
        folder = folder_of(path)
        return (
            self.is_shared(path)
            or self.is_claim(path)
            or folder in self.folders
            or folder in (BEING_ARCHIVED, BARRED)
            or path == CLOSED
        )

    @property
    def timelines(self) -> tuple[str, ...]:
        """The folders that other engines put files into."""
        return (self.timeline, METADATA_TIMELINE)

    def is_claim(self, path: str) -> bool:
        return path.startswith(CLAIMS)

    def is_used_again(self, path: str) -> bool:
        """Whether a file may be erased and created again: it says that a plan is being executed.

        So may those of commits to the metadata table, each time that such a plan completes. All of
        them are empty.
        """
        folder, _, name = path.rpartition("/")
        if folder == METADATA_TIMELINE:
            return name.endswith(_PENDING)
        return folder == self.timeline and name.endswith(_EXECUTED)

    def is_shared(self, path: str) -> bool:
        """Whether the path holds one content after the other, so that a late put could undo one."""
        return path in SHARED


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    """The table after a slot."""

    areas: Areas
    number: int = 0
    digest: str = ""
    issued: InstantTime | None = None
    paths: Paths = field(default_factory=Paths)
    erased: Mapping[str, int] = field(default_factory=dict)
    """Timeline files that slots have erased lately, by the last such slot, oldest first. A process
    that stood still may put one of them again."""
    settled: int = 0
    """The contents of slots up to this one are in files, and not held here."""

    @property
    def has_begun(self) -> bool:
        """Whether the journal is the authority; before its first slot and once it is closed files
        say what there is."""
        return self.number > 0 and not self.is_closed

    @property
    def is_closed(self) -> bool:
        return CLOSED in self.paths

    def names(self, folder: str) -> list[str]:
        return list(self.paths.below(folder))

    def was_erased(self, path: str) -> bool:
        """Whether a file of this name, if there is one, is what a slot has erased for good."""
        return path in self.erased and not self.areas.is_used_again(path)

    def after(self, slot: Slot, digest: str) -> JournalState:
        """Return the state after the next slot.

        Raises:
            CorruptTableError: kind CORRUPT_JOURNAL; it does not follow this one.
        """
        if slot.number != self.number + 1 or slot.follows != self.digest:
            reason = f"slot {slot.number} does not follow slot {self.number}"
            raise corrupt_journal(slot_path(slot.number), reason)
        paths, erased = PathsDraft(self.paths), dict(self.erased)
        for entry in slot.entries():
            if not self.areas.has(entry.path):
                continue
            erased.pop(entry.path, None)
            if entry.verb is Verb.ERASE:
                paths.drop(entry.path)
                _forget_instant(paths, entry.path, self.areas)
                if folder_of(entry.path) in self.areas.timelines:
                    erased[entry.path] = slot.number
            else:
                is_stored = entry.verb in (Verb.ADOPT, Verb.NOTE)
                data = None if is_stored else entry.data
                paths.put(entry.path, Known(slot.number, data))
                if _ends_instant(entry.path):
                    _forget_claims(paths, entry.path, self.areas)
        if CLOSED in paths:
            # What was erased is remembered, for those who stood still and put it again.
            paths = PathsDraft(Paths())
            paths.put(CLOSED, Known(slot.number, None))
        while erased and next(iter(erased.values())) <= slot.number - ERASED_KEPT:
            del erased[next(iter(erased))]  # The oldest is the first.
        issued = max(filter(None, (self.issued, slot.issued)), default=None)
        return replace(
            self,
            number=slot.number,
            digest=digest,
            issued=issued,
            paths=paths.finish(),
            erased=erased,
        )

    def without_data(self, up_to: int) -> JournalState:
        """Return the state without the contents that are in files, which a checkpoint says."""
        if up_to <= self.settled:
            return self
        paths = PathsDraft(self.paths)
        for path, known in self.paths.with_data():
            if known.slot <= up_to and not self.areas.is_shared(path):
                paths.put(path, Known(known.slot, None))
        return replace(self, paths=paths.finish(), settled=up_to)


def _forget_instant(paths: PathsDraft, erased: str, areas: Areas) -> None:
    """Forget claims and notes of an instant whose last file left the timeline: it has ended.

    Its time stays taken, for no time at or below the largest one issued is given out again.
    """
    timeline, _, name = erased.rpartition("/")
    if timeline not in areas.timelines:
        return
    time, is_main = time_of(name), timeline == areas.timeline
    if not paths.has_time(timeline, time):
        _forget_claims(paths, erased, areas)
        if is_main:
            paths.drop(f"{BEING_ARCHIVED}/{time}")
            paths.drop(f"{BARRED}/{time}")


def _forget_claims(paths: PathsDraft, path: str, areas: Areas) -> None:
    """Forget the claims of the instant of a timeline file; their files are their owners' to tidy.

    Who resumes a write that has ended must not find them.
    """
    timeline, _, name = path.rpartition("/")
    claims = {areas.timeline: CLAIMS[0], METADATA_TIMELINE: CLAIMS[1]}.get(timeline)
    if claims is not None:
        paths.drop_folder(f"{claims}{time_of(name)}")


def _ends_instant(path: str) -> bool:
    """Whether a timeline file is the last of its instant; a savepoint has the time of another."""
    name = path.rpartition("/")[2]
    is_completed = "_" in name.partition(".")[0] and not name.endswith(".savepoint")
    return is_completed or name.endswith(".aborted")


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def encode_checkpoint(state: JournalState) -> bytes:
    """The same state gives the same bytes, whoever writes them."""
    shared = [
        Entry(Verb.SET, path, known.data or b"")
        for path, known in state.paths.items()
        if state.areas.is_shared(path)
    ]
    return encode_own(
        {
            "checkpoint": state.number,
            "digest": state.digest,
            "issued": state.issued,
            "paths": sorted(path for path in state.paths if not state.areas.is_shared(path)),
            "shared": encode_entries(sorted(shared)),
            "erased": sorted([number, path] for path, number in state.erased.items()),
        }
    )


def decode_checkpoint(data: bytes, areas: Areas, *, number: int) -> JournalState:
    """Raises:
    CorruptTableError: kind CORRUPT_JOURNAL.
    UnsupportedError: kind UNSUPPORTED_FILE_VERSION; a newer release wrote it.
    """
    path = checkpoint_path(number)
    try:
        said = decode_own(data, path=path)
        if said["checkpoint"] != number:
            raise ValueError(f"it says that it is checkpoint {said['checkpoint']}")
        paths = {each: Known(number, None) for each in said["paths"]}
        shared = {e.path: Known(number, e.data) for e in decode_entries(said["shared"])}
        return JournalState(
            areas=areas,
            number=number,
            digest=said["digest"],
            issued=said["issued"],
            paths=paths_of({**paths, **shared}),
            erased={path: slot for slot, path in said.get("erased", ())},
            settled=number,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise corrupt_journal(path, str(error)) from error
