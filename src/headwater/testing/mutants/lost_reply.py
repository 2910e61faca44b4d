"""Planted bugs in how unknown outcomes are treated."""

from __future__ import annotations

from headwater.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    StorageError,
)
from headwater.seams.clock import Clock
from headwater.seams.storage import Storage
from headwater.testing.faults import Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.unknown import unknown, unknown_exhausted

_TRIES_MAX = 5


def _put_once_or_fail(storage: Storage, clock: Clock, path: str, data: bytes) -> None:
    """Take a lost reply for a failure, after which the writer tidies up."""
    try:
        storage.put_if_absent(path, data)
    except StorageError as error:
        raise ConflictError("The write failed", path=path) from error


def _put_once_with_leak(storage: Storage, clock: Clock, path: str, data: bytes) -> None:
    """Let an error of the read-back out, as if it proved that nothing was written."""
    for _ in range(_TRIES_MAX):
        try:
            storage.put_if_absent(path, data)
            return
        except AlreadyExistsError:
            if storage.read(path) == data:
                return
        except StorageError:
            continue
    raise CommitUnknownError("It is not known whether this write landed", path=path)


MUTANTS = (
    Mutant(
        name="lost reply treated as failure with clean-up",
        scenario=lambda: unknown(Faults(lost_replies=1)),
        patches=(("headwater.kernel.txn.transaction.put_once", _put_once_or_fail),),
        must_violate=("INV-84", "INV-59"),
    ),
    Mutant(
        name="failed read-back treated as failure with clean-up",
        scenario=unknown_exhausted,
        patches=(("headwater.kernel.txn.transaction.put_once", _put_once_with_leak),),
        must_violate=("INV-84", "INV-59"),
    ),
)
