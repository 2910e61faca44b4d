"""Turns: who lost too often asks the others to wait for its next decision (LIV-15).

It asks by a slot, which takes no more than a moment, so that it wins some time. Whoever sees the
note in the journal waits until its author has decided, or for as long as the note says: by its own
clock, from when it saw the note first. A planner that reads a whole table on each try gets its plan
made so, however busy the table is. It is politeness and nothing else: no decision depends on it.

What a crash leaves behind, by the last write that landed:

    after    state                                      who repairs
    note     others wait for a while, each of them      the first that decides afterwards erases it
"""

from __future__ import annotations

from headwater.kernel.journal.journal import Look
from headwater.kernel.journal.slots import Entry, Verb, Wave
from headwater.kernel.journal.state import TURNS, JournalState
from headwater.kernel.journal.storage import JournaledStorage
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids

_POLL_MS = 10  # Doubled with every look.
_POLL_MS_MAX = 200
_PATIENCE_MS_MIN = 500
_PATIENCE_MS_MAX = 30_000


class Turns:
    """The turns of one table, as one process sees them."""

    def __init__(self, journaled: JournaledStorage, clock: Clock, ids: Ids) -> None:
        self._journaled = journaled
        self._clock = clock
        self._ids = ids
        self._first_seen_ms: dict[str, int] = {}

    def ask(self, took_ms: int) -> str:
        """Ask for the next turn, for a decision that takes so long; return the note.

        Raises:
            CommitUnknownError, StorageError: as for every decision.
        """
        patience_ms = min(max(3 * took_ms, _PATIENCE_MS_MIN), _PATIENCE_MS_MAX)
        note = f"{TURNS}/{self._ids.new_uuid()}.{patience_ms}"
        self._decide((Entry(Verb.NOTE, note),))
        return note

    def wait(self, look: Look, own: str | None) -> Look:
        """Wait for the turns of others; return the look to go on with.

        Raises:
            StorageError: storage failed.
        """
        there = set(_others(look.state, None))
        self._first_seen_ms = {n: ms for n, ms in self._first_seen_ms.items() if n in there}
        pause_ms = _POLL_MS
        while any(self._is_waited_for(each) for each in _others(look.state, own)):
            self._clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, _POLL_MS_MAX)
            look = self._journaled.journal.peek()
        return look

    def ended_by(self, state: JournalState, own: str | None) -> Wave:
        """Return what the slot of a decision erases: its own note, and those waited for in vain."""
        waited_for = [each for each in _others(state, own) if not self._is_waited_for(each)]
        mine = [own] if own is not None and own in state.paths else []
        return tuple(Entry(Verb.ERASE, note) for note in (*mine, *waited_for))

    def give_back(self, note: str) -> None:
        """Let the others go on if no decision was made.

        Raises:
            CommitUnknownError, StorageError: they go on after a while.
        """
        if note in self._journaled.journal.look().state.paths:
            self._decide((Entry(Verb.ERASE, note),), own=note)

    def _decide(self, wave: Wave, own: str | None = None) -> None:
        journal = self._journaled.journal
        while True:
            look = self.wait(journal.peek(), own)
            put = journal.append(look, [wave])
            if put is not None and self._journaled.files.begin(put):
                return

    def _is_waited_for(self, note: str) -> bool:
        now_ms = self._clock.monotonic_ms()
        first_ms = self._first_seen_ms.setdefault(note, now_ms)
        patience = note.rpartition(".")[2]
        is_number = patience.isdecimal()
        return is_number and now_ms - first_ms < min(int(patience), _PATIENCE_MS_MAX)


def _others(state: JournalState, own: str | None) -> list[str]:
    notes = (f"{TURNS}/{name}" for name in state.names(TURNS))
    return [note for note in notes if note != own]
