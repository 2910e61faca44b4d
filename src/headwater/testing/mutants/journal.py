"""Planted bugs in the journal of fenced tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headwater.errors import AlreadyExistsError, ConflictError, NotFoundError, StorageError
from headwater.kernel.journal.journal import Appended, Journal, Look
from headwater.kernel.journal.materialise import Materialiser
from headwater.kernel.journal.slots import Slot, Wave, checkpoint_path, slot_path
from headwater.kernel.journal.state import JournalState, encode_checkpoint
from headwater.kernel.write_once import put_if_missing
from headwater.model.instant import InstantTime
from headwater.seams.clock import Clock
from headwater.seams.storage import Storage
from headwater.testing.faults import Fate, Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.journal import journal_again, journal_files, journal_floor

_JOURNAL = "headwater.kernel.journal.journal"
_STATE = "headwater.kernel.journal.state"
_MATERIALISER = "headwater.kernel.journal.materialise.Materialiser"
_append = Journal.append
_split = Materialiser._split


def _put_anyway(
    storage: Storage, clock: Clock, path: str, data: bytes, *, read_back: object = None
) -> None:
    storage.put(path, data)


def _put_and_look_for_the_name(
    storage: Storage, clock: Clock, path: str, data: bytes, *, read_back: object = None
) -> None:
    """After a reply that got lost, take whatever has the name for what was put."""
    try:
        storage.put_if_absent(path, data)
    except AlreadyExistsError as error:
        raise ConflictError("Another writer took this name first", path=path) from error
    except StorageError:
        try:
            storage.read(path)
        except NotFoundError:
            _put_and_look_for_the_name(storage, clock, path, data)


def _backwards(
    files: Materialiser, unsure: Sequence[Slot], there: Collection[str]
) -> tuple[Sequence[Slot], Sequence[Slot]]:
    shown, missing = _split(files, unsure, there)
    return shown, missing[::-1]


def _checkpoint_last(journal: Journal, state: JournalState) -> None:
    """Delete the slots that a checkpoint will stand for, and write it afterwards."""
    if state.number % 2 == 0:
        journal.storage.delete_many(slot_path(each) for each in range(1, state.number))
        path = checkpoint_path(state.number)
        put_if_missing(journal.storage, journal.clock, path, encode_checkpoint(state))


def _always_counts(journal: Journal, put: Appended) -> bool:
    journal._note(put.look)
    return True


def _counts_if_followed(journal: Journal, put: Appended) -> bool:
    """Take any slot behind one's own for a proof, whichever it follows."""
    listing, number = journal._list(), put.slot.number
    if listing.floor < number:
        journal._note(put.look)
    return listing.floor < number or number + 1 in listing.slots


def _append_what_was_decided(
    journal: Journal, look: Look, waves: Sequence[Wave], issued: InstantTime | None = None
) -> Appended | None:
    """Put a decision behind whatever has come meanwhile."""
    done = _append(journal, look, waves, issued)
    while done is None:
        done = _append(journal, journal.look(), waves, issued)
    return done


MUTANTS = (
    Mutant(
        name="slot put without condition",
        scenario=lambda: journal_files(Faults()),
        patches=((f"{_JOURNAL}.put_once", _put_anyway),),
        must_violate=("INV-84", "INV-134"),
        preemptions_max=1,
    ),
    Mutant(
        name="files of slots written out of order",
        scenario=lambda: journal_files(Faults(crashes=1, fates=(Fate.DROP,))),
        patches=((f"{_MATERIALISER}._split", _backwards),),
        must_violate=("INV-134",),
        preemptions_max=1,
    ),
    Mutant(
        name="floor recorded after slots are deleted",
        scenario=lambda: journal_floor(Faults()),
        patches=((f"{_JOURNAL}.Journal.checkpoint", _checkpoint_last),),
        must_violate=("INV-84", "INV-134"),
        preemptions_max=2,
    ),
    Mutant(
        name="floor not looked at after a slot",
        scenario=lambda: journal_floor(Faults()),
        patches=((f"{_JOURNAL}.Journal._counts", _always_counts),),
        must_violate=("INV-84", "INV-134"),
        preemptions_max=1,
    ),
    Mutant(
        name="slot behind a late one not asked which it follows",
        scenario=lambda: journal_floor(Faults()),
        patches=((f"{_JOURNAL}.Journal._counts", _counts_if_followed),),
        must_violate=("INV-84", "INV-134"),
        preemptions_max=2,
    ),
    Mutant(
        name="slot read back by name only",
        scenario=lambda: journal_floor(Faults(failures=1)),
        patches=((f"{_JOURNAL}.put_once", _put_and_look_for_the_name),),
        must_violate=("INV-84", "INV-134"),
        preemptions_max=1,
    ),
    Mutant(
        name="decision put behind a state that it was not made on",
        scenario=lambda: journal_floor(Faults()),
        patches=((f"{_JOURNAL}.Journal.append", _append_what_was_decided),),
        must_violate=("INV-02", "INV-06", "INV-40", "INV-41"),
        preemptions_max=1,
    ),
    Mutant(
        name="file that was deleted late not put again",
        scenario=lambda: journal_again(Faults(ticks=1)),
        patches=((f"{_STATE}.Areas.is_used_again", lambda *_: False),),
        must_violate=("INV-134",),
        preemptions_max=1,
    ),
)
