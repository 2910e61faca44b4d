"""Switch: a table gets a journal for its decisions, or goes back to trusting its lock.

No row and no file of the timeline changes. Who opened the table before finds out at the next
decision and is told to open it again (kind TABLE_SWITCHED); nothing of it is lost, for nothing of
it was decided. Writes that were at work meanwhile stay pending and are rolled back like those of
any dead process. Readers go on.

To the journal, with the table lock held, which keeps everybody out that trusts it:

1. if a switch back died on its way, finish that first: then table config says `false`;
2. table config says `headwater.timeline.fenced=true`;
3. if the journal was closed, a slot opens it again and adopts the files that there are. One that
   has no slot yet is begun by the first decision, in the same way.

    after     the table is                             who repairs
    1         trusting its lock                        the next switch begins anew
    2         fenced. A journal without slots begins   the next switch, either way; until then a
              by itself; a closed one refuses every    closed journal has every writer told to run
              decision                                 it again
    3         fenced                                   nothing to repair

Config comes before the slot: a process that had the table open when it was last fenced must not
decide by an open journal while others trust the lock.

Back to the lock:

1. write all files that slots have and that are missing, and delete those that slots have erased;
2. put a slot that closes the journal. It is refused if anything was decided since 1: again from 1.
   So all is in files once it is there;
3. table config says `headwater.timeline.fenced=false`, and no longer which plans indexes are of.

    after     the table is                             who repairs
    1         fenced                                   nothing to repair
    2         closed: nobody decides, whatever it      the next switch, either way
              trusts; files say what there is
    3         trusting its lock                        nothing to repair

A switch that stood still for so long that others did the opposite meanwhile does nothing: its slot
is taken, or table config is not what it read before it looked at the journal. On stores without
compare-and-swap the latter depends on the lock, like every change of table config (A1).

What no switch can prevent: a process that stood still while it wrote the files of a slot, wakes up
when the table trusts its lock, and dies before it takes a file back that was erased long ago. Its
file counts then, as it does wherever files are the authority, until the table has a journal again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.config.table import TableConfig
from headwater.config.table_options import FENCED, INDEXES_PLANNED
from headwater.context import TableContext
from headwater.kernel.journal.journal import Appended, Journal, table_switched
from headwater.kernel.journal.state import Areas
from headwater.kernel.journal.storage import JournaledStorage
from headwater.kernel.layout import attempt_folder
from headwater.kernel.table_config import (
    change_table_config_in_lock,
    load_table_config,
    mark_history,
    table_layout,
    update_table_config_in_lock,
)
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.locks.select import chosen_provider
from headwater.kernel.txn.other_engines import foreign_writer
from headwater.model.instant import Instant, State
from headwater.seams.clock import Clock
from headwater.seams.lock import TABLE, HeldLock
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)


def run_switch(table: TableContext, *, to_fenced: bool) -> bool:
    """Give a table a journal, or take it away; return whether anything was to be done.

    Raises:
        ConflictError: the lock was not to be had in time; kind FOREIGN_WRITER, another engine is
            at work on a table that is to be fenced; kind TABLE_SWITCHED, somebody did the opposite
            meanwhile.
        FencedError: the lock was lost; run it again.
        UnsupportedError: the table has an older version, or its store creates one object twice.
        InvalidInputError: kind INVALID_OPTION; the table is to trust its lock, and there would be
            several writers by the options, which name no lock that these can share.
        CommitUnknownError, StorageError: storage failed; run it again.
    """
    switch = Switch.of(table)
    if not to_fenced:
        chosen_provider(table.lock_config, switch.storage)
    held = table.components.locks.acquire(TABLE, timeout_ms=table.lock_config.acquire_timeout_ms)
    try:
        is_changed = switch.to_journal(held) if to_fenced else switch.to_lock(held)
    finally:
        held.release()
    if is_changed:
        log.info("table switched table=%s fenced=%s", table.storage.uri, to_fenced)
    return is_changed


@dataclass(frozen=True, slots=True)
class Switch:
    """One table as it is stored, with the journal that it has or may have."""

    storage: Storage
    clock: Clock
    journaled: JournaledStorage

    @classmethod
    def of(cls, table: TableContext) -> Switch:
        table.stored_config.check_writable(table.storage.uri)
        if isinstance(table.storage, JournaledStorage):
            return cls(table.storage.stored, table.clock, table.storage)
        areas = Areas(table.layout.timeline)
        journal = Journal(table.storage, table.clock, table.ids, areas)
        return cls(table.storage, table.clock, JournaledStorage(journal))

    @property
    def journal(self) -> Journal:
        return self.journaled.journal

    def to_journal(self, held: HeldLock) -> bool:
        config = self._config()
        if config.is_fenced:
            if not self.journal.look().state.is_closed:
                return False
            self._say_unfenced(held)
        self._check_nobody_else()
        if self.storage.is_distant:
            mark_history(self.storage, self.clock, config)
        self._say(held, is_fenced=True)
        while (look := self.journal.look()).state.is_closed:
            self._finish(self.journal.reopen(look))
        return True

    def to_lock(self, held: HeldLock) -> bool:
        if not self._config().is_fenced:
            return False
        while not (look := self.journal.look()).state.is_closed:
            self.journaled.files.settle(look)
            self._finish(self.journal.close(look))
        self._say_unfenced(held)
        return True

    def _finish(self, put: Appended | None) -> None:
        if put is not None and self.journaled.files.write(put):
            self.journaled.files.finish(put)

    def _config(self) -> TableConfig:
        return load_table_config(self.storage, self.clock)

    def _say(self, held: HeldLock, *, is_fenced: bool) -> None:
        changes = {FENCED.key: FENCED.encode(is_fenced)}
        update_table_config_in_lock(self.storage, held, self.clock, changes)

    def _say_unfenced(self, held: HeldLock) -> None:
        """Let table config say that the journal is closed, if it still is."""

        def change(config: TableConfig) -> dict[str, str]:
            # Config was read before this look, so nobody has opened the journal for it since.
            if not self.journal.look().state.is_closed:
                raise table_switched(self.storage.uri, "its journal was opened again")
            # Another engine may build its indexes anew from here on, and says nothing of plans.
            kept = {key: each for key, each in config.raw.items() if key != INDEXES_PLANNED.key}
            return {**kept, FENCED.key: FENCED.encode(False)}

        change_table_config_in_lock(self.storage, held, self.clock, change)

    def _check_nobody_else(self) -> None:
        """Refuse while another engine is at work: it would complete without the journal."""
        pending = load_active(self.storage, table_layout(self._config()).timeline).pending
        theirs = self._without_attempts(pending)
        if theirs:
            raise foreign_writer(
                self.storage.uri,
                theirs,
                "which is to be fenced, and they have not completed. Let that job end, or roll "
                "them back, and run this again",
            )

    def _without_attempts(self, pending: Sequence[Instant]) -> list[Instant]:
        """Return those that no process of ours has begun. A plan that nobody executes is fine."""
        begun = [i for i in pending if i.action.is_ingestion or i.state is State.INFLIGHT]
        folders = [attempt_folder(instant.requested_time) for instant in begun]
        claims = self.storage.at_once(self.storage.list_names, folders)
        return [one for one, names in zip(begun, claims, strict=True) if not names]
