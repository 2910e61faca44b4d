"""Slots: one object for all events of one decision.

    .hoodie/.journal/<number>.slot         dense numbers from 1; created with put-if-absent
    .hoodie/.journal/<number>.checkpoint   what the slots up to that number add up to
    .hoodie/.journal/<asked>-<id>.<ms>.turn  somebody asks for its turn, for so long; see `turns`

A slot names what it puts and erases in waves: what is in one wave counts for nothing alone and may
be written in any order (see `events.Together`). It also says which slot it follows, by a digest of
that slot's bytes, and carries the id of the operation, so that its author knows it again after a
lost reply (M4): two slots never have the same bytes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum, unique
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.own_json import decode_own, encode_own
from headwater.kernel.layout import JOURNAL
from headwater.model.instant import InstantTime

_SLOT, _CHECKPOINT, _TURN = ".slot", ".checkpoint", ".turn"
_DIGITS = 12


@unique
class Verb(StrEnum):
    CREATE = "create"
    """The path is new; nobody else ever puts it."""
    SET = "set"
    """The path may be there, and holds this from now on."""
    ERASE = "erase"
    NOTE = "note"
    """The path is known from now on, but no file is made of it."""
    ADOPT = "adopt"
    """The path was there before the journal, or is another engine's; its file has the content."""


class Entry(NamedTuple):
    """One path that a slot changes."""

    verb: Verb
    path: str
    data: bytes = b""


Wave = tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One decision."""

    number: int
    follows: str
    """The digest of the slot before; empty for the first."""
    operation: str
    owner: str
    issued: InstantTime | None
    """The time that the decision may have given out; none at or below it is given out again."""
    waves: tuple[Wave, ...]

    def entries(self) -> Iterable[Entry]:
        return (entry for wave in self.waves for entry in wave)


def slot_path(number: int) -> str:
    return f"{JOURNAL}/{number:0{_DIGITS}d}{_SLOT}"


def checkpoint_path(number: int) -> str:
    return f"{JOURNAL}/{number:0{_DIGITS}d}{_CHECKPOINT}"


def names_from(number: int) -> str:
    """Return what the names of a number, those of later ones and those of turns sort behind."""
    return f"{number:0{_DIGITS}d}"


class Listing:
    """The numbers of the journal's objects. Every look makes one, and most ask it for two.

    Args:
        names: those from some number on.
        floor: the newest checkpoint below that number.
    """

    def __init__(self, names: Iterable[str], floor: int = 0) -> None:
        self._names = tuple(names)
        self._floor = floor

    @cached_property
    def slots(self) -> frozenset[int]:
        return self._numbers(_SLOT)

    @cached_property
    def checkpoints(self) -> frozenset[int]:
        return self._numbers(_CHECKPOINT)

    def _numbers(self, kind: str) -> frozenset[int]:
        found = (_number_in(name, kind) for name in self._names if name.endswith(kind))
        return frozenset(number for number in found if number is not None)

    @property
    def floor(self) -> int:
        """The newest checkpoint: a slot at or below it means nothing any more (M5)."""
        return max(self.checkpoints, default=self._floor)

    @property
    def deleted(self) -> int:
        """The checkpoint before that, if all are listed: slots above it were never deleted."""
        return max(self.checkpoints - {self.floor}, default=0)

    def has_reached(self, number: int) -> bool:
        """Whether a slot is there, or a checkpoint that it went into. The listing begins there."""
        is_there = f"{names_from(number)}{_SLOT}" in self._names
        return is_there or any(each >= number for each in self.checkpoints)

    @property
    def turns(self) -> tuple[str, ...]:
        """The names of those who ask for their turn."""
        return tuple(name for name in self._names if name.endswith(_TURN))

    @cached_property
    def tail(self) -> int:
        # Numbers have one length, so the names are in the order of the numbers.
        newest_first = (_number_in(name, _SLOT) for name in sorted(self._names, reverse=True))
        return next((number for number in newest_first if number is not None), self.floor)


def turn_name(now_ms: int, unique: str, patience_ms: int) -> str:
    """Return the name of an object that asks for a turn. Names are in the order of their times."""
    return f"{now_ms:015d}-{unique}.{patience_ms}{_TURN}"


def turn_patience_ms(name: str) -> int:
    """Return for how long others wait for it; none for a name that does not say."""
    patience = name.removesuffix(_TURN).rpartition(".")[2]
    return int(patience) if patience.isascii() and patience.isdecimal() else 0


def _number_in(name: str, kind: str) -> int | None:
    number = name[:_DIGITS]
    return int(number) if name[_DIGITS:] == kind and number.isdecimal() else None


def digest_of(data: bytes) -> str:
    return sha256(data).hexdigest()


def encode_slot(slot: Slot) -> bytes:
    return encode_own(
        {
            "slot": slot.number,
            "follows": slot.follows,
            "operation": slot.operation,
            "owner": slot.owner,
            "issued": slot.issued,
            "waves": [[_encode_entry(entry) for entry in wave] for wave in slot.waves],
        }
    )


def decode_slot(data: bytes, *, number: int) -> Slot:
    """Raises:
    CorruptTableError: kind CORRUPT_JOURNAL.
    UnsupportedError: kind UNSUPPORTED_FILE_VERSION; a newer release wrote it.
    """
    path = slot_path(number)
    try:
        said = decode_own(data, path=path)
        if said["slot"] != number:
            raise ValueError(f"it says that it is slot {said['slot']}")
        return Slot(
            number=number,
            follows=said["follows"],
            operation=said["operation"],
            owner=said["owner"],
            issued=said["issued"],
            waves=tuple(tuple(map(_decode_entry, wave)) for wave in said["waves"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise corrupt_journal(path, str(error)) from error


def encode_entries(entries: Iterable[Entry]) -> list[list[str]]:
    return [_encode_entry(entry) for entry in entries]


def decode_entries(said: Any) -> list[Entry]:
    return [_decode_entry(one) for one in said]


def _encode_entry(entry: Entry) -> list[str]:
    said = [str(entry.verb), entry.path]
    if entry.data:
        said.append(b64encode(entry.data).decode())
    return said


def _decode_entry(said: list[str]) -> Entry:
    verb, path, *data = said
    return Entry(Verb(verb), path, b64decode(data[0], validate=True) if data else b"")


def corrupt_journal(path: str, reason: str) -> CorruptTableError:
    return CorruptTableError(
        f"This object of the journal is damaged: {reason}. Nothing was changed. Bring it back from "
        "a copy; the files on the timeline are whole without it",
        kind=ErrorKind.CORRUPT_JOURNAL,
        path=path,
    )
