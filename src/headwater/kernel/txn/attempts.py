"""Attempts: who works on an instant, and for the how-manieth time (M2, M3).

Whoever writes, executes, aborts or rolls back an instant P first claims an attempt: it creates
`.hoodie/.attempts/<P>/<k>.json` with put-if-absent, k one above every number there. That object is
three things at once:

- the claim: of two processes that want the same k one gets it, whatever became of the lock;
- the proof: only the newest attempt may write to the timeline, so starting attempt k + 1 declares
  all earlier ones dead for good (fencing);
- the heartbeat: its owner, and nobody else, overwrites it with a growing beat count.

A finished owner deletes its object, an unsuccessful one leaves it behind marked as released, so
that numbers are never used twice while P can still be executed (H-30). Whoever archives P or
cleans up after it removes the folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum, unique
from typing import Any

from headwater.errors import CorruptTableError, NotFoundError
from headwater.format.own_json import decode_own, encode_own, unknown_fields
from headwater.kernel.journal.storage import find_journal
from headwater.kernel.layout import ATTEMPTS, attempt_folder, attempt_path
from headwater.model.instant import InstantTime, parse_instant_time
from headwater.seams.ids import Owner
from headwater.seams.storage import ObjectInfo, Storage, both_at_once


@unique
class Purpose(StrEnum):
    WRITE = "write"
    EXECUTE = "execute"
    ABORT = "abort"
    ROLLBACK = "rollback"
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt, as its object in storage says."""

    instant: InstantTime
    attempt: int
    token: str  # Random, so that an owner recognises its own claim after a lost reply (M4).
    owner: Owner
    purpose: Purpose
    started_ms: int
    interval_ms: int
    tolerable_misses: int
    beat: int = 0
    is_released: bool = False
    unknown: str = ""
    """What a newer release says besides, as text: written back with each beat."""
    unknown_of_owner: str = ""

    @property
    def expiry_ms(self) -> int:
        """How long the object may stay unchanged before others call its owner dead."""
        return self.interval_ms * self.tolerable_misses

    @property
    def path(self) -> str:
        return attempt_path(self.instant, self.attempt)

    @property
    def was_begun(self) -> bool:
        """Whether somebody set to work; the claim of a plan for anybody is released at once."""
        return self.attempt > 1 or self.beat > 0 or not self.is_released

    def next_beat(self) -> Attempt:
        return replace(self, beat=self.beat + 1)

    def released(self) -> Attempt:
        return replace(self, beat=self.beat + 1, is_released=True)

    def is_alive_in(self, stored: Attempt) -> bool:
        """Whether its object, as found in storage, is still its own and not released."""
        return stored.token == self.token and not stored.is_released

    def __str__(self) -> str:
        return f"attempt {self.attempt} by {self.owner} ({self.purpose})"


_UNKNOWN = ("unknown", "unknown_of_owner")
_FIELDS = frozenset(each.name for each in fields(Attempt)).difference(_UNKNOWN)
_OWNER_FIELDS = frozenset(each.name for each in fields(Owner))


def encode_attempt(attempt: Attempt) -> bytes:
    said = {name: value for name, value in asdict(attempt).items() if name not in _UNKNOWN}
    if attempt.unknown_of_owner:
        said["owner"] = {**json.loads(attempt.unknown_of_owner), **said["owner"]}
    return encode_own(said, attempt.unknown)


def decode_attempt(data: bytes, *, path: str) -> Attempt:
    """Raises:
    CorruptTableError: the bytes are no attempt of ours.
    UnsupportedError: kind UNSUPPORTED_FILE_VERSION; a newer release wrote it.
    """
    try:
        said = decode_own(data, path=path)
        owner: dict[str, Any] = said["owner"]
        known = {name: value for name, value in said.items() if name in _FIELDS}
        known["owner"] = Owner(**{name: owner[name] for name in owner if name in _OWNER_FIELDS})
        known["purpose"] = Purpose(said["purpose"])
        known["instant"] = parse_instant_time(said["instant"])
        return Attempt(
            **known,
            unknown=unknown_fields(said, _FIELDS),
            unknown_of_owner=unknown_fields(owner, _OWNER_FIELDS),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptTableError(
            f"This heartbeat is unreadable ({error}); delete it if no job of yours is running",
            path=path,
        ) from error


def list_attempts(storage: Storage) -> list[ObjectInfo]:
    """Return where the attempts of a table are, and when each of them has beaten last.

    The file of a claim follows the slot that decided it. One that is not there yet is listed all
    the same, with the time at which its owner started.

    Raises:
        CorruptTableError: a claim in the journal is unreadable.
        StorageError: storage failed.
    """
    journaled, folder = find_journal(storage)
    if journaled is None:
        return storage.list_tree(ATTEMPTS)
    found, state = both_at_once(storage, lambda: storage.list_tree(ATTEMPTS), journaled.state)
    there = {info.path for info in found}
    above = f"{folder}/" if folder else ""
    for whole, known in state.paths.within(f"{above}{ATTEMPTS}/"):
        path = whole.removeprefix(above)
        if known.data is not None and path not in there:
            started_ms = decode_attempt(known.data, path=path).started_ms
            found.append(ObjectInfo(path, len(known.data), started_ms))
    return found


def newest_number(names: Iterable[str]) -> int:
    """Return the largest attempt number among the names of an attempt folder, or 0."""
    numbers = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def load_newest_number(storage: Storage, time: InstantTime) -> int:
    return newest_number(storage.list_names(attempt_folder(time)))


def load_attempt(storage: Storage, time: InstantTime, attempt: int) -> Attempt | None:
    """Return one attempt, or None if its owner has finished and deleted it meanwhile."""
    path = attempt_path(time, attempt)
    try:
        return decode_attempt(storage.read(path), path=path)
    except NotFoundError:
        return None
