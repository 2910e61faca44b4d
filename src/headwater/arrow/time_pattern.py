"""Date patterns of Java (`yyyy/MM/dd/HH`), as far as partition paths use them.

The letters `yyyy MM dd HH mm ss SSS` and quoted or other text. Everything else that Java has,
such as names of months or zones, is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError

_FIELDS = ("yyyy", "MM", "dd", "HH", "mm", "ss", "SSS")
_UNITS: Mapping[str, str] = {
    "SSS": "millisecond",
    "ss": "second",
    "mm": "minute",
    "HH": "hour",
}
_TOKEN = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'])")


@dataclass(frozen=True, slots=True)
class TimePattern:
    """One pattern: a list of fields, such as `yyyy`, and of text between them."""

    text: str
    tokens: tuple[tuple[str, bool], ...]
    """Each with whether it is a field."""

    @classmethod
    def parse(cls, text: str, *, key: str) -> Self:
        """Return the pattern that the option `key` gives.

        Raises:
            InvalidInputError: it is no pattern.
            UnsupportedError: kind UNSUPPORTED_OPTION, if it uses other letters.
        """
        tokens, place = [], 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise InvalidInputError(
                    f"{key}={text!r} has a quote that does not end", kind=ErrorKind.INVALID_OPTION
                )
            place = found.end()
            letters = found["letters"]
            if letters is None:
                quoted = found["quoted"]
                literal = found["other"] if quoted is None else quoted.replace("''", "'") or "'"
                tokens.append((literal, False))
            elif letters in _FIELDS:
                tokens.append((letters, True))
            else:
                raise UnsupportedError(
                    f"{key}={text!r} has the letters {letters}; this release knows "
                    f"{', '.join(_FIELDS)} and quoted text",
                    kind=ErrorKind.UNSUPPORTED_OPTION,
                )
        fields = [token for token, is_field in tokens if is_field]
        if not fields or len(set(fields)) != len(fields):
            raise InvalidInputError(
                f"{key}={text!r} must have each part of a time at most once, and one at least",
                kind=ErrorKind.INVALID_OPTION,
            )
        return cls(text, tuple(tokens))

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(token for token, is_field in self.tokens if is_field)

    @property
    def finest_unit(self) -> str:
        """The unit below which the pattern shows nothing; days at the coarsest."""
        return next((unit for field, unit in _UNITS.items() if field in self.fields), "day")

    @property
    def slash_count(self) -> int:
        """How many `/` a formatted time has, each of which opens a folder."""
        return sum(token.count("/") for token, is_field in self.tokens if not is_field)

    def format(self, wall_times: pa.Array) -> pa.Array:
        """Return naive timestamps as text."""
        parts = [
            _digits(wall_times, token) if is_field else pa.scalar(token)
            for token, is_field in self.tokens
        ]
        return pc.binary_join_element_wise(*parts, pa.scalar(""))

    def parse_text(self, texts: pa.Array) -> pa.Array:
        """Return text as naive timestamps in milliseconds; what does not match becomes null.

        Raises:
            pa.ArrowInvalid: some text has the right shape but is no time, such as February 30th.
        """
        found = pc.extract_regex(texts, pattern=self._regex())
        is_match = pc.is_valid(found)
        defaults = {"yyyy": "1970", "MM": "01", "dd": "01", "HH": "00", "mm": "00", "ss": "00"}

        def part(field: str) -> pa.Array | pa.Scalar:
            if field not in self.fields:
                return pa.scalar(defaults.get(field, "000"))
            return pc.utf8_lpad(pc.struct_field(found, field), width=len(field), padding="0")

        date = pc.binary_join_element_wise(part("yyyy"), part("MM"), part("dd"), "-")
        clock = pc.binary_join_element_wise(part("HH"), part("mm"), part("ss"), ":")
        iso = pc.binary_join_element_wise(
            date, pa.scalar("T"), clock, pa.scalar("."), part("SSS"), ""
        )
        # A constant pattern gives scalars, and rows without a match hold empty groups.
        iso = pc.if_else(is_match, iso, pa.scalar(None, pa.string()))
        return pc.cast(iso, pa.timestamp("ms"))

    def _regex(self) -> str:
        parts = []
        for place, (token, is_field) in enumerate(self.tokens):
            if not is_field:
                parts.append(re.escape(token))
                continue
            follower = self.tokens[place + 1 : place + 2]
            # Java reads `2024-1-5` by `yyyy-MM-dd` too, where no digits follow each other.
            is_loose = len(token) == 2 and not (follower and follower[0][1])
            digits = r"\d{1,2}" if is_loose else rf"\d{{{len(token)}}}"
            parts.append(f"(?P<{token}>{digits})")
        return f"^{''.join(parts)}$"


def _digits(wall_times: pa.Array, field: str) -> pa.Array:
    number = {
        "yyyy": pc.year,
        "MM": pc.month,
        "dd": pc.day,
        "HH": pc.hour,
        "mm": pc.minute,
        "ss": pc.second,
        "SSS": pc.millisecond,
    }[field](wall_times)
    return pc.utf8_lpad(pc.cast(number, pa.string()), width=len(field), padding="0")
