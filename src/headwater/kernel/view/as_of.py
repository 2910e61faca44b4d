"""Times in queries: the forms that Hudi's time travel understands, as instant times.

    20240131093000123         itself
    20240131093000            the last millisecond of that second
    2024-01-31 09:30:00.123   that millisecond
    2024-01-31 09:30:00       the last millisecond of that second
    2024-01-31                midnight, when that day begins

The digits are those of the table's timeline, in its zone; none is converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from headwater.errors import ErrorKind, InvalidInputError
from headwater.model.instant import INSTANT_TIME_FORMAT, InstantTime

_LAST_MILLISECOND = "999"
_SECOND_LENGTH = 19

# By length, because strptime alone would also take digits that are missing.
_FORMATS: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        14: (INSTANT_TIME_FORMAT, _LAST_MILLISECOND),
        _SECOND_LENGTH: ("%Y-%m-%d %H:%M:%S", _LAST_MILLISECOND),
        10: ("%Y-%m-%d", "000"),
    }
)


def parse_as_of(text: str) -> InstantTime:
    """Return the instant time that a query means.

    Raises:
        InvalidInputError: kind INVALID_INSTANT_TIME, if the text has none of the forms.
    """
    if not text.isascii():
        raise _malformed(text)
    if len(text) == 17 and text.isdigit():
        return InstantTime(text)
    millisecond = ""
    if len(text) == 23 and text[_SECOND_LENGTH] == "." and text[_SECOND_LENGTH + 1 :].isdigit():
        text, millisecond = text[:_SECOND_LENGTH], text[_SECOND_LENGTH + 1 :]
    if len(text) not in _FORMATS:
        raise _malformed(text)
    form, ending = _FORMATS[len(text)]
    try:
        moment = datetime.strptime(text, form)
    except ValueError:
        raise _malformed(text) from None
    if moment.strftime(form) != text:
        raise _malformed(text)
    return InstantTime(moment.strftime(INSTANT_TIME_FORMAT) + (millisecond or ending))


def _malformed(text: str) -> InvalidInputError:
    return InvalidInputError(
        f"A time to query as of is yyyy-MM-dd, yyyy-MM-dd HH:mm:ss[.SSS] or yyyyMMddHHmmss[SSS], "
        f"got {text!r}",
        kind=ErrorKind.INVALID_INSTANT_TIME,
    )
