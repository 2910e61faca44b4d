"""What every storage refuses, whatever it keeps its objects in.

One rule for all of them: a path that one implementation takes and another refuses, or reads as a
different object, would make a table depend on where it happens to live.
"""

from __future__ import annotations

import re

from headwater.errors import InvalidInputError

# Object stores that speak XML cannot list a control character, and no file name holds a NUL.
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_FORBIDDEN_SEGMENTS = frozenset(("", ".", ".."))


def check_path(path: str) -> None:
    """Refuse a path that does not name an object below the base.

    Raises:
        InvalidInputError: it is empty or absolute, has an empty, `.` or `..` segment, or a
            control character.
    """
    if not _FORBIDDEN_SEGMENTS.isdisjoint(path.split("/")):
        raise InvalidInputError(
            f"{path!r} does not name an object. Give a path relative to the base of the table, "
            "with single slashes between its parts and without '.' and '..'"
        )
    if _CONTROL_CHARACTER.search(path):
        raise InvalidInputError(
            f"{path!r} holds a control character, which not every store can keep. "
            "Escape it, for example as %0A"
        )


def check_folder(folder: str) -> None:
    """Refuse a folder that is neither the base, written as the empty text, nor a path below it.

    Raises:
        InvalidInputError: as `check_path`.
    """
    if folder:
        check_path(folder)


def check_range(path: str, start: int, length: int) -> None:
    """Refuse a range of bytes that begins before the object or has a negative length.

    Raises:
        InvalidInputError: a number is negative.
    """
    if start < 0 or length < 0:
        raise InvalidInputError(
            f"A range of {path} begins at 0 or later and has no negative length, "
            f"got start {start} and length {length}"
        )
