"""One section of a job file: its keys are taken one by one, and what nobody took is a problem."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from headwater.config.secrets import HIDDEN, is_secret

T = TypeVar("T")
D = TypeVar("D")


class Section:
    """The keys of a section, and the problems that were found with them, all of them."""

    def __init__(self, given: Any, title: str, problems: list[str]) -> None:
        self._title = title
        self._problems = problems
        self._known: set[str] = set()
        self._given: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        if not isinstance(given, Mapping):
            problems.append(f"{title} must be a section, got {given!r}")

    def text(self, key: str, default: str | None = None) -> str | None:
        return self._take(key, default, _as_text, "text")

    def needed_text(self, key: str) -> str:
        found = self.text(key)
        if found is None and key not in self._given:
            self.problem(key, "is missing")
        return found or ""

    def flag(self, key: str, default: bool) -> bool:
        return self._take(key, default, _as_flag, "true or false")

    def integer(self, key: str, default: int, *, minimum: int = 0) -> int:
        return self._take(key, default, lambda v: _as_integer(v, minimum), f"a number >= {minimum}")

    def character(self, key: str, default: str) -> str:
        return self._take(
            key,
            default,
            _as_character,
            "one character of ASCII that is no quotation mark and no end of a line",
        )

    def share(self, key: str, default: float) -> float:
        return self._take(key, default, _as_share, "a number from 0 to 1")

    def choice(self, key: str, choices: Mapping[str, T], default: T | None) -> T | None:
        return self._take(
            key, default, lambda v: choices[_as_text(v)], f"one of {', '.join(choices)}"
        )

    def parsed(self, key: str, parse: Callable[[str], T], default: T) -> T:
        """Return what `parse` makes of a text; its ValueError says what is wrong with it."""
        text = self.text(key)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.problem(key, f"is wrong: {error}")
            return default

    def texts(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        return self._take(key, default, _as_texts, "a text or a list of texts")

    def options(self) -> dict[str, str]:
        """Return the options of the section, all as text."""
        inner = Section(self._inner("options"), f"{self._title}.options", self._problems)
        return {
            key: text
            for key in inner._given
            if (text := inner._take(key, None, _as_option, "text, a number or a boolean"))
            is not None
        }

    def section(self, key: str) -> Section | None:
        self._known.add(key)
        if key not in self._given:
            return None
        return Section(self._given[key], self._name(key), self._problems)

    def finish(self, also: Iterable[str] = ()) -> None:
        """Note the keys that nobody took."""
        known = [*self._known, *also]
        for key in self._given:
            if key not in known:
                nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
                advice = f"did you mean {nearest[0]}?" if nearest else f"there are {_list(known)}"
                self.problem(key, f"is no key of a job ({advice})")

    def problem(self, key: str, what: str) -> None:
        self._problems.append(f"{self._name(key)} {what}")

    def _inner(self, key: str) -> Any:
        self._known.add(key)
        return self._given.get(key, {})

    def _take(self, key: str, default: D, convert: Callable[[Any], T], expected: str) -> T | D:
        self._known.add(key)
        if key not in self._given:
            return default
        value = self._given[key]
        try:
            return convert(value)
        except (ValueError, KeyError):
            shown = HIDDEN if is_secret(key) else repr(value)
            self.problem(key, f"must be {expected}, got {shown}")
            return default

    def _name(self, key: str) -> str:
        return f"{self._title}.{key}" if self._title else key


def _list(known: Iterable[str]) -> str:
    return ", ".join(sorted(known))


def _as_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value


def _as_character(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in '"\n\r\0':
        raise ValueError
    return value


def _as_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _as_integer(value: Any, minimum: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ValueError
    return value


def _as_share(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError
    return float(value)


def _as_texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_as_text, value)) if isinstance(value, list) and value else (_as_text(value),)


def _as_option(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ValueError
    return str(value)
