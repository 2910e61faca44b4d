"""Configs whose fields name their options, so that everything else follows from the fields.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class CleanConfig(OptionConfig):
        commits_retained: int = setting(COMMITS_RETAINED)

The type checker compares the field with the option. What an absent option means beyond a plain
default is a function of the other options, named by its field (`inferred`); rules that bind several
options are in `_check`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeVar

from headwater.config.option import Option, OptionReader

T = TypeVar("T")
D = TypeVar("D")

_OPTION = "option"
_IS_OWN = "is_own"
_INFER = "infer"


def setting(option: Option[T, D], *, is_own: bool = True) -> T | D:
    """A field that holds an option's value, or its default.

    `is_own` is false for an option of another subject that this one needs as well.
    """
    return field(default=option.default, metadata={_OPTION: option, _IS_OWN: is_own})


def inferred(option: Option[T, Any], infer: Callable[[OptionReader], T]) -> T:
    """A field that holds an option's value, or what `infer` makes of the other options."""
    return field(
        default=infer(OptionReader({})),
        metadata={_OPTION: option, _IS_OWN: True, _INFER: infer},
    )


def stored(option: Option[Any, Any]) -> Mapping[str, Any]:
    """The metadata of a field that must be given and is stored as the option."""
    return {_OPTION: option, _IS_OWN: True}


def option_fields(config: type[Any]) -> dict[str, Option[Any, Any]]:
    """Return the options of a dataclass by the names of its fields."""
    return {
        each.name: each.metadata[_OPTION] for each in fields(config) if _OPTION in each.metadata
    }


def read_fields(config: type[Any], reader: OptionReader) -> dict[str, Any]:
    """Return the values of all fields that are options."""
    values = {}
    for each in fields(config):
        if _INFER in each.metadata:
            values[each.name] = reader.read_or(each.metadata[_OPTION], each.metadata[_INFER])
        elif _OPTION in each.metadata:
            values[each.name] = reader.read(each.metadata[_OPTION])
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionConfig:
    """The options of one subject, as typed values."""

    @classmethod
    def options(cls) -> tuple[Option[Any, Any], ...]:
        """The options of this subject, in the order of the fields."""
        return tuple(each.metadata[_OPTION] for each in fields(cls) if each.metadata[_IS_OWN])

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the config that `options` describe; keys of other subjects are left alone.

        Raises:
            InvalidInputError: kind INVALID_OPTION, naming every malformed option, and those that
                do not fit together.
        """
        reader = OptionReader(options)
        config = cls(**read_fields(cls, reader))
        config._check(reader)
        reader.finish()
        return config

    def to_options(self) -> dict[str, str]:
        """Return the options that `from_options` turns into this config."""
        values = {option: getattr(self, name) for name, option in option_fields(type(self)).items()}
        return {
            option.key: option.encode(value)
            for option, value in values.items()
            if value is not None
        }

    def _check(self, reader: OptionReader) -> None:
        """Note with `reader.require` what does not fit together."""
