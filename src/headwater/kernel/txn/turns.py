"""Turns: who lost too often asks the others to wait for its next decision (LIV-15).

It asks by an object beside the slots, for which there is no race: a process that is much slower
than the others would lose that one as well (N-170). Whoever lists the journal sees it, and each
decision is confirmed by a listing. They wait until the object is gone, or for as long as its name
says: by their own clock, from when they saw it first. Of several who ask, the one that asked first
is the first. So a planner that reads a whole table on each try gets its plan made, however busy the
table is. It is politeness and nothing else: no decision depends on it.

What a crash leaves behind, by the last write that landed:

    after     state                                      who repairs
    object    others wait for a while, each of them      who has waited in vain deletes it
"""

from __future__ import annotations

import logging

from headwater.errors import StorageError
from headwater.kernel.journal.journal import Journal, Look
from headwater.kernel.journal.slots import turn_name, turn_patience_ms
from headwater.kernel.layout import JOURNAL
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids

log = logging.getLogger(__name__)

_POLL_MS = 10  # Doubled with every look.
_POLL_MS_MAX = 200
_PATIENCE_MS_MIN = 500
_PATIENCE_MS_MAX = 30_000
_DOUBLED_MAX = 6


class Turns:
    """The turns of one table, as one process sees them."""

    def __init__(self, journal: Journal, clock: Clock, ids: Ids) -> None:
        self._journal = journal
        self._clock = clock
        self._ids = ids
        self._table = journal.storage.uri
        self._first_seen_ms: dict[str, int] = {}

    def ask(self, took_ms: int, asked_before: int = 0) -> str:
        """Ask for a turn, for a decision that takes so long; return its name, to give it back.

        Args:
            asked_before: how often the others have waited for the same decision, in vain.
        """
        patience_ms = max(3 * took_ms, _PATIENCE_MS_MIN) << min(asked_before, _DOUBLED_MAX)
        patience_ms = min(patience_ms, _PATIENCE_MS_MAX)
        name = turn_name(self._clock.now_ms(), self._ids.new_uuid(), patience_ms)
        try:
            self._journal.storage.put_if_absent(f"{JOURNAL}/{name}", b"")
        except StorageError as error:
            # It would only have helped, and may have landed: it is given back all the same.
            log.warning("no turn was to be had table=%s error=%s", self._table, error)
        return name

    def wait(self, look: Look, own: str | None) -> Look:
        """Wait for the turns of others that come first; return the look to go on with.

        Raises:
            StorageError: storage failed.
        """
        pause_ms = _POLL_MS
        while self._is_anybody_first(own):
            self._clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, _POLL_MS_MAX)
            look = self._journal.look()
        return look

    def give_back(self, name: str) -> None:
        """Let the others go on, if only after a while."""
        self._delete_quietly([name])

    def _is_anybody_first(self, own: str | None) -> bool:
        seen = self._journal.turns
        now_ms = self._clock.monotonic_ms()
        first_ms = {name: self._first_seen_ms.get(name, now_ms) for name in seen}
        self._first_seen_ms = first_ms
        others = [name for name in seen if name != own]
        in_vain = [
            name
            for name in others
            if now_ms - first_ms[name] >= min(turn_patience_ms(name), _PATIENCE_MS_MAX)
        ]
        self._delete_quietly(in_vain)
        return any(name not in in_vain and (own is None or name < own) for name in others)

    def _delete_quietly(self, names: list[str]) -> None:
        try:
            self._journal.storage.delete_many([f"{JOURNAL}/{name}" for name in names])
        except StorageError as error:
            log.warning("others wait for a moment table=%s error=%s", self._table, error)
