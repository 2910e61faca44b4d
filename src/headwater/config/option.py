"""Options: every setting is declared once, and code sees typed values only.

An `Option` ties a key to a type, a default and a sentence of documentation. An absent key means
the default; a malformed value is a problem that names key, value and expectation. `OptionReader`
gathers the problems of a whole mapping, so that one error reports all of them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Any, Generic, TypeVar, cast

from headwater.errors import ErrorKind, InvalidInputError

T = TypeVar("T")
D = TypeVar("D")

_DIGITS = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
"""Java's long without its last digit: no setting needs more, and int() takes far too much."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?", re.ASCII)


class HeadwaterWarning(UserWarning):
    """Something works, but not as its caller may believe."""


class OptionAliasWarning(HeadwaterWarning):
    """An option was given under an older name."""


class UnknownOptionWarning(HeadwaterWarning):
    """A key was kept although nothing here reads it."""


class HarmlessOptionWarning(HeadwaterWarning):
    """A key of Hudi's has no effect here, and needs none."""


@dataclass(frozen=True, slots=True)
class ValueType(Generic[T]):
    """How the text of an option becomes a value and back."""

    expectation: str
    parse: Callable[[str], T]
    """Raises ValueError for text that does not meet the expectation."""
    encode: Callable[[T], str]


def _parse_bool(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError(text)


def _parse_int(text: str) -> int:
    if not _DIGITS.fullmatch(text.strip()):
        raise ValueError(text)
    return int(text)


def _parse_float(text: str) -> float:
    # Python's float() also takes "nan", "inf" and "1_0", which are no settings.
    if not _NUMBER.fullmatch(text.strip()):
        raise ValueError(text)
    return float(text)


def _parse_rate(text: str) -> float:
    value = _parse_float(text)
    if not 0 < value < 1:
        raise ValueError(text)
    return value


def _parse_non_blank(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text.strip()


def _parse_text_list(text: str) -> tuple[str, ...]:
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)


def _bounded(minimum: int | None, unit: int, expectation: str) -> ValueType[int]:
    def parse(text: str) -> int:
        value = _parse_int(text)
        if minimum is not None and value < minimum:
            raise ValueError(text)
        return value * unit

    def encode(value: int) -> str:
        whole, rest = divmod(value, unit)
        if rest:
            raise ValueError(value)
        return str(whole)

    bound = "" if minimum is None else f", at least {minimum}"
    return ValueType(expectation + bound, parse, encode)


def integer(*, minimum: int) -> ValueType[int]:
    """A whole number with a lower bound."""
    return _bounded(minimum, 1, "a whole number")


def milliseconds(*, minimum: int) -> ValueType[int]:
    return _bounded(minimum, 1, "a whole number of milliseconds")


def seconds(*, minimum: int) -> ValueType[int]:
    """A duration whose text counts seconds and whose value counts milliseconds."""
    return _bounded(minimum, 1_000, "a whole number of seconds")


def minutes(*, minimum: int) -> ValueType[int]:
    """A duration whose text counts minutes and whose value counts milliseconds."""
    return _bounded(minimum, 60_000, "a whole number of minutes")


TEXT_LIST: ValueType[tuple[str, ...]] = ValueType(
    "a comma-separated list", _parse_text_list, ",".join
)
RATE: ValueType[float] = ValueType("a number between 0 and 1, both excluded", _parse_rate, repr)
NON_BLANK: ValueType[str] = ValueType("text that is not blank", _parse_non_blank, str)
_BOOL = ValueType("true or false", _parse_bool, lambda value: "true" if value else "false")
_INT = _bounded(None, 1, "a whole number")
_FLOAT = ValueType("a number", _parse_float, repr)
_TEXT = ValueType("text", str, str)


def _choice(choices: type[Enum]) -> ValueType[Any]:
    # Hudi's own enums are upper case in the properties file and lower case in many examples.
    by_name = {str(choice.value).upper(): choice for choice in choices}

    def parse(text: str) -> Enum:
        if text.strip().upper() not in by_name:
            raise ValueError(text)
        return by_name[text.strip().upper()]

    return ValueType(
        "one of " + ", ".join(str(choice.value) for choice in choices),
        parse,
        lambda choice: str(choice.value),
    )


def _value_type(declared: type[T] | ValueType[T]) -> ValueType[T]:
    if isinstance(declared, ValueType):
        return declared
    if issubclass(declared, Enum):
        return _choice(declared)
    plain: dict[type, ValueType[Any]] = {bool: _BOOL, int: _INT, float: _FLOAT, str: _TEXT}
    return cast(ValueType[T], plain[declared])


@dataclass(frozen=True, slots=True)
class Option(Generic[T, D]):
    """One setting. `D` is the type of the default: `None` where absence means something."""

    key: str
    type: type[T] | ValueType[T]
    _: KW_ONLY
    default: D
    doc: str
    aliases: tuple[str, ...] = ()
    is_managed: bool = False
    """Whether Headwater alone decides the value, so that nobody may pass it as an option."""

    @property
    def expectation(self) -> str:
        return _value_type(self.type).expectation

    def parse(self, text: str) -> T:
        """Return the value of `text`.

        Raises:
            InvalidInputError: kind INVALID_OPTION, if the text is malformed.
        """
        try:
            return _value_type(self.type).parse(text)
        except ValueError:
            raise InvalidInputError(
                f"{self.key} must be {self.expectation}, got {text!r}",
                kind=ErrorKind.INVALID_OPTION,
            ) from None

    def encode(self, value: T) -> str:
        """Return the text of `value`.

        Raises:
            InvalidInputError: kind INVALID_OPTION, if the option's unit cannot express the value.
        """
        try:
            return _value_type(self.type).encode(value)
        except ValueError:
            raise InvalidInputError(
                f"{self.key} is {self.expectation}, which cannot express {value!r}",
                kind=ErrorKind.INVALID_OPTION,
            ) from None

    def find(self, given: Mapping[str, str]) -> tuple[str, str] | None:
        """Return the key and text that set this option; the key itself goes before its aliases."""
        for key in (self.key, *self.aliases):
            if key in given:
                return key, given[key]
        return None


@dataclass(frozen=True, slots=True)
class OptionPrefix:
    """A family of keys whose ends are not ours to list; their values are kept as text."""

    prefix: str
    doc: str


class OptionReader:
    """Read typed values from one mapping and gather all that is wrong with it.

    An option may be read again; what is wrong with it is noted once.
    """

    def __init__(self, given: Mapping[str, str], *, warns_about_aliases: bool = True) -> None:
        self._given = given
        self._warns_about_aliases = warns_about_aliases
        self._values: dict[str, Any] = {}
        self.problems: list[str] = []

    def read(self, option: Option[T, D]) -> T | D:
        """Return the option's value, or its default if it is absent or malformed."""
        value = self._stated(option)
        return option.default if value is None else value

    def read_or(self, option: Option[T, Any], infer: Callable[[OptionReader], D]) -> T | D:
        """Return the option's value; if absent or malformed, what `infer` makes of the others."""
        value = self._stated(option)
        return infer(self) if value is None else value

    def _stated(self, option: Option[T, Any]) -> T | None:
        if option.key not in self._values:
            self._values[option.key] = self._parsed(option)
        return cast(T | None, self._values[option.key])

    def _parsed(self, option: Option[T, Any]) -> T | None:
        found = option.find(self._given)
        if found is None:
            return None
        key, text = found
        if key != option.key and self._warns_about_aliases:
            # From here over `read`, `read_fields` and `from_options` to who gave the options.
            warnings.warn(
                f"{key} is an older name; use {option.key}", OptionAliasWarning, stacklevel=6
            )
        try:
            return option.parse(text)
        except InvalidInputError as problem:
            self.problems.append(problem.message)
            return None

    def require(self, claim: bool, problem: str) -> None:
        """Note `problem` unless `claim` holds."""
        if not claim:
            self.problems.append(problem)

    def finish(self) -> None:
        """Raise if there was any problem.

        Raises:
            InvalidInputError: kind INVALID_OPTION, with every problem in one message.
        """
        if self.problems:
            raise InvalidInputError(
                problem_list("Invalid options", self.problems), kind=ErrorKind.INVALID_OPTION
            )


def problem_list(title: str, problems: Sequence[str]) -> str:
    """Return one message that holds every problem."""
    return f"{title}: " + "; ".join(problems)
