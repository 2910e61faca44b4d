"""What follows from the fields of a config."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import warnings
from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Any

import pytest

import headwater.config
from headwater.config.option import Option, OptionAliasWarning, OptionReader, integer, seconds
from headwater.config.option_config import OptionConfig, inferred, option_fields, setting
from headwater.config.registry import ALL_OPTIONS, CONFIGS
from headwater.config.source import SOURCE_OPTIONS
from headwater.config.table import TableConfig
from headwater.errors import InvalidInputError

LEAST = Option("hoodie.least", integer(minimum=1), default=2, aliases=("hoodie.old",), doc="X.")
MOST = Option("hoodie.most", integer(minimum=1), default=None, doc="X.")
PAUSE = Option("hoodie.pause", seconds(minimum=1), default=None, doc="X.")
FOREIGN = Option("hoodie.foreign", bool, default=False, doc="X.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeConfig(OptionConfig):
    least: int = setting(LEAST)
    most: int = inferred(MOST, lambda reader: 2 * reader.read(LEAST))
    pause_ms: int | None = setting(PAUSE)
    is_foreign: bool = setting(FOREIGN, is_own=False)

    def _check(self, reader: OptionReader) -> None:
        reader.require(self.least <= self.most, f"{self.least} exceeds {self.most}")


def test_absent_options_mean_their_defaults_or_what_others_imply() -> None:
    assert SomeConfig.from_options({}) == SomeConfig() == SomeConfig(least=2, most=4)
    assert SomeConfig.from_options({"hoodie.least": "5"}).most == 10
    assert SomeConfig.from_options({"hoodie.least": "5", "hoodie.most": "7"}).most == 7


def test_a_config_lists_the_options_that_are_its_own() -> None:
    assert SomeConfig.options() == (LEAST, MOST, PAUSE)
    assert option_fields(SomeConfig)["is_foreign"] is FOREIGN


@pytest.mark.parametrize(
    "config", [SomeConfig(), SomeConfig(least=3, most=3, pause_ms=9_000, is_foreign=True)]
)
def test_a_config_survives_its_options(config: SomeConfig) -> None:
    assert SomeConfig.from_options(config.to_options()) == config


def test_every_problem_is_named_once_in_one_error() -> None:
    with pytest.raises(InvalidInputError) as caught:
        SomeConfig.from_options({"hoodie.least": "few", "hoodie.most": "1", "hoodie.pause": "0"})
    assert caught.value.message == (
        "Invalid options: hoodie.least must be a whole number, at least 1, got 'few'; "
        "hoodie.pause must be a whole number of seconds, at least 1, got '0'; 2 exceeds 1"
    )


def test_an_alias_is_warned_about_once_where_the_options_were_given() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SomeConfig.from_options({"hoodie.old": "5"})
    assert [each.category for each in caught] == [OptionAliasWarning]
    assert caught[0].filename == __file__


def test_every_declared_option_is_known_to_the_registry() -> None:
    declared = {
        option.key
        for module in pkgutil.iter_modules(headwater.config.__path__, "headwater.config.")
        for option in vars(importlib.import_module(module.name)).values()
        if isinstance(option, Option)
    }
    assert declared == {option.key for option in (*ALL_OPTIONS, *SOURCE_OPTIONS)}


def test_every_field_of_a_config_is_an_option() -> None:
    for config in CONFIGS.values():
        assert {each.name for each in fields(config)} == option_fields(config).keys(), config
    assert {each.name for each in fields(TableConfig)} - {"raw"} == option_fields(
        TableConfig
    ).keys()


@pytest.mark.parametrize("config", CONFIGS.values())
def test_configs_are_frozen_slotted_values_that_cross_to_executors(config: Any) -> None:
    default = config()
    assert config.from_options({}) == default
    assert config.from_options(default.to_options()) == default
    assert pickle.loads(pickle.dumps(default)) == default
    assert not hasattr(default, "__dict__")
    with pytest.raises(FrozenInstanceError):
        setattr(default, fields(config)[0].name, None)
    with pytest.raises(TypeError):
        config(None)
