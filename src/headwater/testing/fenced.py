"""Scenarios of lock-trusting tables, run on fenced ones: the same steps, and no lock at all.

Processes work on a store that has the journal and the files that are made of it. Checkers look at
what the journal says: a decision shows the moment its slot is there, all of it, and files that come
late mean nothing. That is what a reader of ours sees; nothing here looks at what other engines see.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headwater.kernel.journal.slots import Verb, decode_slot, digest_of, parse_listing
from headwater.kernel.journal.state import Areas, JournalState, folder_of
from headwater.kernel.layout import JOURNAL
from headwater.testing.operation import STORAGE_READS, STORAGE_WRITES, Kind, Op
from headwater.testing.simulation import Scenario
from headwater.testing.table import TIMELINE
from headwater.testing.world import Change, World

AREAS = Areas(TIMELINE)


class FencedWorld(World):
    """What the journal says, over a store that holds it."""

    __slots__ = ("disk", "state")

    disk: World
    state: JournalState

    @classmethod
    def over(cls, world: World) -> FencedWorld:
        """Return a world whose journal has not begun."""
        fenced = cls(world.rules)
        for name in World.__slots__:
            setattr(fenced, name, getattr(world, name))
        fenced.disk = world.fork()
        fenced._is_shared = True
        fenced.state = JournalState(areas=AREAS)
        return fenced

    def fork(self) -> FencedWorld:
        twin = super().fork()
        assert isinstance(twin, FencedWorld)
        twin.disk = self.disk.fork()
        twin.state = self.state
        return twin

    def key(self) -> tuple[object, ...]:
        return (*super().key(), self.disk.digest)

    def act(self, actor: str, op: Op) -> tuple[Any, list[Change]]:
        if op.kind in STORAGE_WRITES:
            self.disk.now_ms = self.now_ms
            answer = self.disk.apply(actor, op)
            return answer, self._follow(op)
        if op.kind in STORAGE_READS:
            return self.disk.apply(actor, op), []
        return super().act(actor, op)

    def _follow(self, op: Op) -> list[Change]:
        """Let what a process did to the store show, as far as it means something."""
        path = op.target
        if folder_of(path) == JOURNAL:
            return self._decide(op) if op.kind is Kind.PUT_IF_ABSENT else []
        is_file_of_slot = op.kind is Kind.PUT_IF_ABSENT or not AREAS.is_claim(path)
        if AREAS.has(path) and is_file_of_slot:
            return []
        found = self.disk.objects.get(path)
        return self._show(path, None if found is None else found.data)

    def _decide(self, op: Op) -> list[Change]:
        (number,) = parse_listing([op.target.rpartition("/")[2]]).slots or (0,)
        if number != self.state.number + 1:
            return []  # A checkpoint, or a slot that was put too late.
        slot = decode_slot(op.data, number=number)
        self.state = self.state.after(slot, digest_of(op.data))
        changes = []
        for entry in slot.entries():
            if entry.verb is not Verb.ADOPT:
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


def fenced(scenario: Scenario, *, checkpoint_every: int = 1000) -> Scenario:
    """Return the scenario on a fenced table.

    Files of slots are written at once: no process of ours looks at them, so it does not matter
    when, and a crash among them is one right after the slot.
    """

    def is_private(actor: str, op: Op) -> bool:
        is_file = AREAS.has(op.target) and not AREAS.is_claim(op.target)
        return (is_file and op.kind is not Kind.LIST_NAMES) or scenario.is_private(actor, op)

    return replace(
        scenario,
        name=f"{scenario.name}, fenced",
        world=replace(scenario.world, make=FencedWorld.over),
        processes=replace(scenario.processes, checkpoint_every=checkpoint_every),
        is_private=is_private,
    )
