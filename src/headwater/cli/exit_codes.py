"""What the command ends with; scripts match on these numbers, so they stay."""

from __future__ import annotations

from headwater.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    CorruptTableError,
    FencedError,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)

PROBLEMS_FOUND = 1
"""A check ran to its end and the table did not pass, or a service failed in one of some rounds. 2
is a wrong command line."""

INTERRUPTED = 130
"""Somebody pressed Ctrl-C, as shells count it."""

TERMINATED = 143
"""SIGTERM came, as shells count it."""

_INTERNAL = 70

# The first class that fits decides.
_BY_CLASS: tuple[tuple[type[HeadwaterError], int], ...] = (
    (InvalidInputError, 2),
    (NotFoundError, 3),
    (AlreadyExistsError, 4),
    (ConflictError, 5),
    (FencedError, 6),
    (CommitUnknownError, 7),
    (UnsupportedError, 8),
    (CorruptTableError, 9),
    (StorageError, 10),
)


def exit_code_of(error: HeadwaterError) -> int:
    """Return the exit code of a command that failed with an error."""
    return next((code for kind, code in _BY_CLASS if isinstance(error, kind)), _INTERNAL)
