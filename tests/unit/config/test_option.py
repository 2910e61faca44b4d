"""Options: typed parsing, and one error for all that is wrong."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from headwater.config.option import (
    NON_BLANK,
    TEXT_LIST,
    Option,
    OptionAliasWarning,
    OptionReader,
    integer,
    milliseconds,
    minutes,
    seconds,
)
from headwater.errors import ErrorKind, InvalidInputError


class Colour(StrEnum):
    RED = "RED"
    BLUE = "blue"


def an_option(declared: Any, **changes: Any) -> Option[Any, Any]:
    return Option("hoodie.x", declared, **{"default": None, "doc": "Some doc.", **changes})


@pytest.mark.parametrize(
    ("declared", "text", "value"),
    [
        (bool, "true", True),
        (bool, " False ", False),
        (int, "-12", -12),
        (float, "1.5", 1.5),
        (float, "2e3", 2000.0),
        (str, " kept as it is ", " kept as it is "),
        (NON_BLANK, " name ", "name"),
        (Colour, "red", Colour.RED),
        (Colour, "BLUE", Colour.BLUE),
        (TEXT_LIST, "a, b,,c ", ("a", "b", "c")),
        (TEXT_LIST, "", ()),
        (integer(minimum=3), "3", 3),
        (milliseconds(minimum=0), "7", 7),
        (seconds(minimum=1), "30", 30_000),
        (minutes(minimum=0), "2", 120_000),
    ],
)
def test_text_becomes_a_value_of_the_declared_type(declared: Any, text: str, value: Any) -> None:
    parsed = an_option(declared).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (bool, True),
        (int, -4),
        (float, 0.1),
        (str, "x y"),
        (Colour, Colour.BLUE),
        (TEXT_LIST, ("a", "b")),
        (seconds(minimum=1), 5_000),
        (minutes(minimum=0), 0),
    ],
)
def test_a_value_survives_encoding(declared: Any, value: Any) -> None:
    option = an_option(declared)
    assert option.parse(option.encode(value)) == value


@pytest.mark.parametrize(
    ("declared", "text", "expectation"),
    [
        (bool, "yes", "true or false"),
        (int, "1_0", "a whole number"),
        (int, "1.0", "a whole number"),
        (int, "٣", "a whole number"),
        (int, "9" * 19, "a whole number"),
        (float, "nan", "a number"),
        (float, "1_0", "a number"),
        (Colour, "green", "one of RED, blue"),
        (NON_BLANK, " ", "text that is not blank"),
        (integer(minimum=1), "0", "a whole number, at least 1"),
        (seconds(minimum=10), "9", "a whole number of seconds, at least 10"),
    ],
)
def test_malformed_text_names_key_value_and_expectation(
    declared: Any, text: str, expectation: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        an_option(declared).parse(text)
    assert str(caught.value) == f"hoodie.x must be {expectation}, got {text!r}"
    assert caught.value.kind is ErrorKind.INVALID_OPTION


def test_a_duration_that_its_unit_cannot_express_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="whole number of minutes"):
        an_option(minutes(minimum=0)).encode(90_000)


def test_an_absent_option_means_its_default() -> None:
    reader = OptionReader({})
    assert reader.read(an_option(int, default=5)) == 5
    reader.finish()


def test_a_malformed_option_never_passes_for_its_default() -> None:
    reader = OptionReader({"hoodie.x": "many"})
    assert reader.read(an_option(int, default=5)) == 5
    with pytest.raises(InvalidInputError, match=r"hoodie\.x must be a whole number, got 'many'"):
        reader.finish()


def test_all_problems_come_in_one_error() -> None:
    first = an_option(int)
    second = Option("hoodie.y", bool, default=False, doc="Another.")
    reader = OptionReader({"hoodie.x": "a", "hoodie.y": "b"})
    reader.read(first)
    reader.read(second)
    reader.require(False, "the two do not fit")
    with pytest.raises(InvalidInputError) as caught:
        reader.finish()
    for part in ("hoodie.x", "'a'", "hoodie.y", "'b'", "the two do not fit"):
        assert part in str(caught.value)


def test_an_alias_is_read_and_warned_about() -> None:
    option = an_option(int, aliases=("hoodie.old",))
    with pytest.warns(OptionAliasWarning, match=r"hoodie\.old is an older name; use hoodie\.x"):
        assert OptionReader({"hoodie.old": "3"}).read(option) == 3


def test_the_own_key_goes_before_an_alias() -> None:
    option = an_option(int, aliases=("hoodie.old",))
    assert OptionReader({"hoodie.old": "3", "hoodie.x": "4"}).read(option) == 4
