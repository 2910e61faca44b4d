"""The world of a fenced table: what its journal says, over a store that holds it.

Processes work on `disk`, a store that has the journal and the files that are made of it. Checkers
look at what the journal says: a decision shows the moment its slot is there, all of it, and files
that come late mean nothing. That is what a reader of ours sees. What other engines see is on the
disk alone: a file of a timeline that is written or erased there is a change below `FILES`. Before
the first slot, and while the journal is closed, files say what there is to both.

Actors may stand for another engine, which knows nothing of the journal. What they put on the
timeline shows once a slot has adopted it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from headwater.kernel.journal.slots import Listing, Slot, Verb, decode_slot, digest_of
from headwater.kernel.journal.state import Areas, JournalState, folder_of
from headwater.kernel.layout import HOODIE, JOURNAL, METADATA_TIMELINE
from headwater.kernel.timeline.names import parse_file_name
from headwater.model.instant import State
from headwater.testing.operation import STORAGE_READS, STORAGE_WRITES, Kind, Op
from headwater.testing.table import TIMELINE
from headwater.testing.world import Change, World

AREAS = Areas(TIMELINE)
FILES = f"{HOODIE}/.files"
"""Below it checkers see what happens to the files of other engines; no object has such a path."""
_TIMELINES = (TIMELINE, METADATA_TIMELINE)
_ENDS = (State.COMPLETED, State.ABORTED)


class FencedWorld(World):
    """What the journal says, over a store that holds it."""

    __slots__ = (
        "_author",
        "adopted",
        "disk",
        "foreign",
        "has_stood_still",
        "others",
        "prefixes",
        "state",
        "unsettled",
    )

    _author: str | None
    disk: World
    state: JournalState
    prefixes: tuple[frozenset[str], ...]
    """The files that say which instants have ended, after each slot, the set-up first."""
    unsettled: dict[str, int]
    """The slot that a process has put, until it goes on: it looks what became of it."""
    has_stood_still: bool
    """Whether others deleted a slot, or the one behind it, before its author had looked. What
    became of it then is unknown, although no call has failed."""
    others: frozenset[str]
    """The actors that stand for another engine."""
    foreign: frozenset[str]
    """The files of timelines that these have put."""
    adopted: frozenset[str]
    """The files that slots have adopted."""

    @classmethod
    def over(cls, world: World, others: frozenset[str] = frozenset()) -> FencedWorld:
        """Return a world whose journal has not begun."""
        fenced = cls(world.rules)
        for name in World.__slots__:
            setattr(fenced, name, getattr(world, name))
        fenced.disk = world.fork()
        fenced._is_shared = True
        fenced.state = JournalState(areas=AREAS)
        fenced.others = others
        fenced.foreign = frozenset()
        fenced.adopted = frozenset()
        fenced.prefixes = (fenced.ended_files(),)
        fenced.unsettled = {}
        fenced.has_stood_still = False
        fenced._author = None
        return fenced

    @property
    def author(self) -> str | None:
        return self._author

    def fork(self) -> FencedWorld:
        twin = super().fork()
        assert isinstance(twin, FencedWorld)
        twin.disk = self.disk.fork()
        twin.state = self.state
        twin.prefixes = self.prefixes
        twin.unsettled = self.unsettled
        twin.has_stood_still = self.has_stood_still
        twin.others = self.others
        twin.foreign = self.foreign
        twin.adopted = self.adopted
        twin._author = self._author
        return twin

    def key(self) -> tuple[object, ...]:
        unsettled = sorted(self.unsettled.items())
        return (*super().key(), self.disk.digest, unsettled, self.has_stood_still)

    def act(self, actor: str, op: Op) -> tuple[Any, list[Change]]:
        self._watch(actor, op)
        if op.kind in STORAGE_WRITES:
            self.disk.now_ms = self.now_ms
            answer, changes = self.disk.act(actor, op)
            if actor in self.others and folder_of(op.target) in _TIMELINES:
                self.foreign |= {op.target}
                if self.state.has_begun:
                    return answer, []
            return answer, self._follow(op, changes)
        if op.kind in STORAGE_READS:
            return self.disk.apply(actor, op), []
        return super().act(actor, op)

    def _watch(self, actor: str, op: Op) -> None:
        """Notice who stands still behind a slot that it has put, while others delete slots."""
        is_journal = folder_of(op.target) == JOURNAL or op.target == JOURNAL
        if actor in self.unsettled and op.kind in STORAGE_WRITES:
            self.unsettled = {by: slot for by, slot in self.unsettled.items() if by != actor}
        numbers = Listing([op.target.rpartition("/")[2]]).slots if is_journal else ()
        for number in numbers:
            if op.kind is Kind.DELETE:
                is_missed = {number, number - 1} & set(self.unsettled.values())
                self.has_stood_still = self.has_stood_still or bool(is_missed)
            elif op.kind is Kind.PUT_IF_ABSENT and op.target not in self.disk.objects:
                self.unsettled = {**self.unsettled, actor: number}
                self.has_stood_still = self.has_stood_still or number <= self.state.number

    def ended_files(self) -> frozenset[str]:
        """Return the files on disk that say which instants have ended, as far as slots tell."""
        unknown = self.foreign.difference(self.state.paths)
        return frozenset(filter(says_end, self.disk.paths)) - unknown

    def _follow(self, op: Op, changes: list[Change]) -> list[Change]:
        """Let what a process did to the store show, as far as it means something."""
        path = op.target
        if folder_of(path) == JOURNAL:
            return self._decide(op) if op.kind is not Kind.DELETE else []
        is_file_of_slot = op.kind is Kind.PUT_IF_ABSENT or not AREAS.is_claim(path)
        # While files say what there is, one that a slot has erased is still none of theirs.
        is_late = self.state.was_erased(path)
        if AREAS.has(path) and is_file_of_slot and (self.state.has_begun or is_late):
            shown = changes if state_said_by(path) is not None else []
            return [change._replace(path=f"{FILES}/{path}") for change in shown]
        # Also if the store has not changed: a slot shows such an object before it is there.
        found = self.disk.objects.get(path)
        return self._show(path, None if found is None else found.data)

    def _decide(self, op: Op) -> list[Change]:
        (number,) = Listing([op.target.rpartition("/")[2]]).slots or (0,)
        if number != self.state.number + 1:
            return []  # A checkpoint, or a slot that was put too late.
        slot = decode_slot(op.data, number=number)
        if slot.follows != self.state.digest:
            return []  # Nobody takes it for a decision.
        known = self.state.paths
        self.state = self.state.after(slot, digest_of(op.data))
        self._author = slot.owner
        if self.state.is_closed:
            return self._uncover(known)
        self.prefixes = (*self.prefixes, frozenset(filter(says_end, self.state.paths)))
        return self._changes_of(slot)

    def _uncover(self, known: Iterable[str]) -> list[Change]:
        """Let files say what there is from now on. They should say the same."""
        changes = []
        for path in sorted({*known, *self.disk.paths}):
            if folder_of(path) in AREAS.folders and not self.state.was_erased(path):
                found = self.disk.objects.get(path)
                changes += self._show(path, None if found is None else found.data)
        return changes

    def _changes_of(self, slot: Slot) -> list[Change]:
        changes = []
        for entry in slot.entries():
            if entry.verb is Verb.ADOPT:
                self.adopted |= {entry.path}
                found = self.disk.objects.get(entry.path)
                changes += [] if found is None else self._show(entry.path, found.data)
            else:
                data = None if entry.verb is Verb.ERASE else entry.data
                changes += self._show(entry.path, data)
        return changes

    def _show(self, path: str, data: bytes | None) -> list[Change]:
        old = self.objects.get(path)
        if (None if old is None else old.data) == data:
            return []
        if data is None:
            self._delete(path)
        else:
            self._write(path, data)
        return [Change(path, None if old is None else old.data, data)]


def says_end(path: str) -> bool:
    """Whether other engines learn from this file of a timeline how an instant ended."""
    return state_said_by(path) in _ENDS


@lru_cache(maxsize=10_000)
def state_said_by(path: str) -> State | None:
    """Return what other engines learn from a file; None if it is no timeline's."""
    folder, _, name = path.rpartition("/")
    file = parse_file_name(name, folder=folder) if folder in _TIMELINES else None
    return None if file is None else file.state
