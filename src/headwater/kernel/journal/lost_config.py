"""Table config of a fenced table that is lost or damaged: the journal has it.

Nobody can open the table then, so nothing of it is known here but where journals are.
"""

from __future__ import annotations

from headwater.errors import CorruptTableError
from headwater.kernel.journal.journal import Journal
from headwater.kernel.journal.materialise import Materialiser
from headwater.kernel.journal.state import Areas
from headwater.kernel.layout import PROPERTIES, TableLayout
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids
from headwater.seams.storage import Storage


class LostConfig:
    """What the journal of a table says of its config."""

    def __init__(self, storage: Storage, clock: Clock, ids: Ids) -> None:
        # What is asked for is at the same place in every table, wherever its timeline is.
        self._journal = Journal(storage, clock, ids, Areas(TableLayout().timeline))

    @property
    def slot(self) -> int | None:
        """The decision that table config is of; None if no journal says, or one that is damaged.

        Raises:
            StorageError: the journal cannot be read now.
        """
        try:
            state = self._journal.look().state
        except CorruptTableError:
            return None
        known = state.paths.get(PROPERTIES)
        is_known = state.has_begun and known is not None and known.data is not None
        return known.slot if known is not None and is_known else None

    def write_again(self) -> None:
        """Write it as it was decided.

        Raises:
            StorageError, CommitUnknownError: storage failed; it may be as it was.
        """
        Materialiser(self._journal).write_again([PROPERTIES])
