"""Every option that Hudi declares has a fate here, and nothing happens to it in silence."""

from __future__ import annotations

import warnings

import pytest

from headwater.config.harmless import HARMLESS_OPTIONS
from headwater.config.hudi_keys import load_hudi_keys
from headwater.config.hudi_options import MAPPED_VALUES, RENAMED_OPTIONS, Fate
from headwater.config.option import HarmlessOptionWarning, UnknownOptionWarning
from headwater.config.registry import ALL_OPTIONS, check_options, fate_of
from headwater.config.unsupported import UNSUPPORTED_OPTIONS
from headwater.errors import InvalidInputError, UnsupportedError

KEYS = [
    name
    for keys in load_hudi_keys().values()
    for key in keys
    for name in (key.key, *key.older_names)
]


def test_the_pages_of_hudi_are_all_here() -> None:
    pages = load_hudi_keys()
    assert {"Data source: reads", "Data source: writes", "Write", "Clustering"} < pages.keys()
    assert {"Compaction", "Clean", "Archival", "Common Lock", "Metadata"} < pages.keys()
    assert sum(len(keys) for keys in pages.values()) > 650


def test_no_option_of_hudi_is_unread() -> None:
    assert not [key for key in KEYS if fate_of(key)[0] is Fate.UNREAD]


def test_every_fate_that_is_no_plain_yes_says_why() -> None:
    assert not [
        key for key in KEYS if (fate := fate_of(key))[0] is not Fate.HONOURED and not fate[1]
    ]


def test_case_does_not_matter_since_spark_gives_keys_in_lower_case() -> None:
    assert not [key for key in KEYS if fate_of(key.lower())[0] is not fate_of(key)[0]]


def test_nothing_is_ignored_in_silence() -> None:
    """A value that no option has is refused, warned about or, of a text, kept under a known key."""
    for key in KEYS:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                checked = check_options({key: "no such value"})
            except (InvalidInputError, UnsupportedError):
                checked = None
        said = [warning.category for warning in caught]
        if checked is None:
            assert fate_of(key)[0] in (Fate.HONOURED, Fate.MAPPED, Fate.REFUSED), key
        elif fate_of(key)[0] is Fate.HARMLESS:
            assert said == [HarmlessOptionWarning], key
        else:
            assert checked.known or said == [UnknownOptionWarning], key


def test_values_that_are_what_happens_anyway_are_taken_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for option in UNSUPPORTED_OPTIONS:
            for value in option.honoured:
                if fate_of(option.key)[0] is Fate.REFUSED and not option.key.endswith("*"):
                    check_options({option.key: value})


def test_a_key_is_meant_before_its_family() -> None:
    check_options({"hoodie.metadata.index.expression.enable": "false"})
    with pytest.raises(UnsupportedError, match="Expressions are not indexed"):
        check_options({"hoodie.metadata.index.expression.column": "a"})


def test_every_rule_is_about_an_option_that_there_is() -> None:
    lowered = [key.lower() for key in KEYS]
    for option in UNSUPPORTED_OPTIONS:
        assert any(option.is_meant(key) for key in lowered), option.key
    known = {name for option in ALL_OPTIONS for name in (option.key, *option.aliases)}
    assert not known & {*RENAMED_OPTIONS, *MAPPED_VALUES}
    assert not [why for why in HARMLESS_OPTIONS if why.endswith(".") or why[0].isspace()]


def test_names_of_writers_mean_options_of_the_table() -> None:
    given = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.bucket.index.hash.field": "id",
        "hoodie.datasource.write.table.type": "mor",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
    }
    assert check_options(given).known == {
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.keygenerator.type": "SIMPLE",
    }
    with pytest.raises(InvalidInputError, match=r"means hoodie\.table\.recordkey\.fields=city"):
        check_options({**given, "hoodie.bucket.index.hash.field": "city"})


@pytest.mark.parametrize(
    ("key", "value", "known"),
    [
        (
            "hoodie.datasource.write.insert.drop.duplicates",
            True,
            {"hoodie.datasource.insert.dup.policy": "drop"},
        ),
        ("hoodie.datasource.write.insert.drop.duplicates", "false", {}),
        ("hoodie.sql.insert.mode", "strict", {"hoodie.datasource.insert.dup.policy": "fail"}),
        (
            "hoodie.sql.insert.mode",
            "upsert",
            {"hoodie.spark.sql.insert.into.operation": "upsert"},
        ),
    ],
)
def test_older_ways_to_say_a_thing_mean_the_same(
    key: str, value: object, known: dict[str, str]
) -> None:
    assert check_options({key: value}).known == known


def test_a_mapped_option_takes_its_own_values_only() -> None:
    with pytest.raises(InvalidInputError, match="must be one of true, false, got 'maybe'"):
        check_options({"hoodie.datasource.write.insert.drop.duplicates": "maybe"})
