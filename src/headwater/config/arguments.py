"""Arguments of other types than a function takes, which are refused by a sentence.

Python finds out late that an argument is none of those that were announced, and then says what went
wrong inside. So what people pass is looked at where it comes in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from reprlib import repr as shortened

from headwater.errors import InvalidInputError


def text_of(given: object, what: str) -> str:
    """Return a text that was passed.

    Args:
        what: what it is, as the beginning of a sentence.

    Raises:
        InvalidInputError: it is no text, or none that can be stored.
    """
    if not isinstance(given, str):
        raise InvalidInputError(f"{what} is text, got {shortened(given)}")
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{what} has {given[error.start]!r} at position {error.start}, which is half of a "
            f"character: {shortened(given)}. Correct the text"
        ) from error
    return given


def texts_of(given: object, what: str) -> tuple[str, ...]:
    """Return texts that were passed as a list.

    Args:
        what: what each of them is, as the beginning of a sentence.

    Raises:
        InvalidInputError: it is no list, or not all of it is text.
    """
    if isinstance(given, str):
        raise InvalidInputError(f"{what} comes in a list: [{given!r}], not {given!r}")
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise InvalidInputError(f"{what} comes in a list of texts, got {shortened(given)}")
    return tuple(text_of(each, what) for each in given)


def location_of(given: object) -> str:
    """Return the location of a table that was passed.

    Raises:
        InvalidInputError: it is no path that a table can have.
    """
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    location = text_of(path, "The path of a table")
    if "\0" in location:
        raise InvalidInputError(f"The path of a table has no zero byte, got {location!r}")
    return location
