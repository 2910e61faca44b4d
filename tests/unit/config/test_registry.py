"""The check that every mapping of options goes through."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.config.harmless import harmless_reason
from headwater.config.hudi_options import Fate
from headwater.config.option import (
    HarmlessOptionWarning,
    OptionAliasWarning,
    UnknownOptionWarning,
)
from headwater.config.registry import (
    ALL_OPTIONS,
    OPTION_PREFIXES,
    CheckedOptions,
    check_options,
    check_supported,
    fate_of,
)
from headwater.config.unsupported import UNSUPPORTED_OPTIONS
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError


def test_no_options_are_fine() -> None:
    assert check_options(None) == CheckedOptions(known={}, unknown={})


def test_every_name_is_declared_once() -> None:
    names = [name for option in ALL_OPTIONS for name in (option.key, *option.aliases)]
    assert sorted(names) == sorted(set(names))
    assert not [n for n in names if any(n.startswith(f.prefix) for f in OPTION_PREFIXES)]


def test_every_default_meets_its_own_expectation() -> None:
    for option in ALL_OPTIONS:
        if option.default is not None:
            assert option.parse(option.encode(option.default)) == option.default, option.key


def test_every_option_says_what_it_means() -> None:
    assert not [o.key for o in ALL_OPTIONS if not o.doc.endswith(".")]
    assert not [u.key for u in UNSUPPORTED_OPTIONS if not u.advice]


@pytest.mark.parametrize(
    ("value", "text"), [("60", "60"), (60, "60"), (True, "true"), (False, "false"), (1.5, "1.5")]
)
def test_values_may_be_text_numbers_or_booleans(value: Any, text: str) -> None:
    key = "headwater.storage.some_setting"
    assert check_options({key: value}).known == {key: text}


def test_an_alias_is_kept_under_the_options_own_name() -> None:
    given = {"hoodie.write.lock.storage.heartbeat.poll.secs": "5"}
    with pytest.warns(OptionAliasWarning, match=r"use hoodie\.write\.lock\.storage\.renew"):
        checked = check_options(given)
    assert checked.known == {"hoodie.write.lock.storage.renew.interval.secs": "5"}


def test_one_option_under_two_names_must_agree_with_itself() -> None:
    given = {
        "hoodie.write.lock.storage.renew.interval.secs": "5",
        "hoodie.write.lock.storage.heartbeat.poll.secs": "6",
    }
    with pytest.raises(InvalidInputError, match="one option, but were given different values"):
        check_options(given)


PAYLOAD = "hoodie.datasource.write.payload.class"


@pytest.mark.parametrize("package", ["", "org.apache.hudi.common.model."])
def test_payloads_that_say_no_more_than_a_merge_mode_become_one(package: str) -> None:
    def known(name: str, **more: str) -> dict[str, str]:
        return dict(check_options({PAYLOAD: package + name, **more}).known)

    mode, partial = "hoodie.record.merge.mode", "hoodie.table.partial.update.mode"
    assert known("OverwriteWithLatestAvroPayload") == {mode: "COMMIT_TIME_ORDERING"}
    assert known("DefaultHoodieRecordPayload") == {mode: "EVENT_TIME_ORDERING"}
    assert known("PartialUpdateAvroPayload") == {
        mode: "EVENT_TIME_ORDERING",
        partial: "IGNORE_DEFAULTS",
    }
    agreed = {mode: "commit_time_ordering"}
    assert known("OverwriteWithLatestAvroPayload", **agreed) == agreed


def test_a_payload_must_agree_with_a_merge_mode_and_be_known() -> None:
    other = {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"}
    with pytest.raises(InvalidInputError, match=r"means hoodie\.record\.merge\.mode=COMMIT_TIME"):
        check_options({PAYLOAD: "OverwriteWithLatestAvroPayload", **other})
    with pytest.raises(UnsupportedError, match="Java payloads cannot run here"):
        check_options({PAYLOAD: "com.example.OurPayload"})


def test_options_without_effect_say_why_once() -> None:
    given = {
        "hoodie.datasource.hive_sync.enable": "true",
        "hoodie.datasource.hive_sync.database": "default",
        "hoodie.upsert.shuffle.parallelism": "2",
    }
    with pytest.warns(HarmlessOptionWarning) as caught:
        checked = check_options(given)
    assert checked.unknown == given
    assert len(caught) == 2
    assert "hive_sync.enable has no effect here: tables are not registered" in str(
        caught[0].message
    )


@pytest.mark.parametrize(
    ("key", "fate"),
    [
        ("hoodie.clean.commits.retained", Fate.HONOURED),
        ("hoodie.cleaner.commits.retained", Fate.HONOURED),
        (PAYLOAD, Fate.MAPPED),
        ("hoodie.insert.shuffle.parallelism", Fate.HARMLESS),
        ("hoodie.datasource.write.insert.drop.duplicates", Fate.MAPPED),
        ("hoodie.combine.before.insert", Fate.REFUSED),
        ("hoodie.no.such.option", Fate.UNREAD),
    ],
)
def test_what_becomes_of_a_key(key: str, fate: Fate) -> None:
    assert fate_of(key)[0] is fate


def test_nothing_is_declared_and_without_effect() -> None:
    names = [name for option in ALL_OPTIONS for name in (option.key, *option.aliases)]
    assert not [name for name in names if harmless_reason(name) is not None]


def test_unknown_hudi_options_are_kept_listed_and_warned_about() -> None:
    given = {"hoodie.some.setting": "true", "hoodie.write.concurrency.mod": "single_writer"}
    with pytest.warns(UnknownOptionWarning) as caught:
        checked = check_options(given)
    assert checked.unknown == given
    assert checked.all == given
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "hoodie.some.setting" in message
    assert "did you mean hoodie.write.concurrency.mode?" in message


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("hodie.table.name", "did you mean hoodie.table.name?"),
        ("headwater.writer.ids", "did you mean headwater.writer.id?"),
        ("spark.executor.memory", "options begin with hoodie. or headwater."),
    ],
)
def test_a_key_of_no_family_is_an_error_with_the_nearest_key(key: str, advice: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_options({key: "x"})
    assert f"{key} is no option" in str(caught.value)
    assert advice in str(caught.value)
    assert caught.value.kind is ErrorKind.INVALID_OPTION


def test_what_headwater_sets_cannot_be_passed() -> None:
    with pytest.raises(InvalidInputError, match=r"hoodie\.table\.checksum is set by Headwater"):
        check_options({"hoodie.table.checksum": "1"})


def test_a_value_that_is_no_setting_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="must be text, a number or a boolean"):
        check_options({"hoodie.table.name": None})


def test_all_problems_come_in_one_error() -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_options(
            {
                "hoodie.client.heartbeat.interval_in_ms": "soon",
                "hoodie.write.lock.wait_time_ms": -1,
                "nonsense": "1",
                "hoodie.table.version": 6,
                "hoodie.table.base.file.format": "ORC",
            }
        )
    for part in (
        "hoodie.client.heartbeat.interval_in_ms must be",
        "'soon'",
        "hoodie.write.lock.wait_time_ms must be",
        "'-1'",
        "nonsense is no option",
        "hoodie.table.version is set by Headwater",
        "hoodie.table.base.file.format=ORC is not supported",
    ):
        assert part in str(caught.value)


def test_rules_that_bind_several_options_are_checked_too() -> None:
    with pytest.raises(InvalidInputError, match="must be at least 10 times"):
        check_options(
            {
                "hoodie.write.lock.storage.renew.interval.secs": "31",
                "hoodie.write.lock.storage.validity.timeout.secs": "300",
            }
        )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.base.file.format", "ORC"),
        ("hoodie.datasource.write.drop.partition.columns", "true"),
        ("hoodie.populate.meta.fields", "false"),
        ("hoodie.bootstrap.base.path", "s3://old"),
        ("hoodie.schema.on.read.enable", "true"),
        ("hoodie.table.cdc.enabled", "true"),
        ("hoodie.index.type", "FLINK_STATE"),
        ("hoodie.write.table.version", "8"),
    ],
)
def test_a_known_option_that_is_not_implemented_is_refused(key: str, value: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        check_options({key: value})
    assert f"{key}={value} is not supported" in str(caught.value)
    assert caught.value.kind is ErrorKind.UNSUPPORTED_OPTION
    with pytest.raises(UnsupportedError):
        check_supported({key: value})


@pytest.mark.parametrize(
    "option", [u for u in UNSUPPORTED_OPTIONS if u.honoured], ids=lambda u: u.key
)
def test_values_that_change_nothing_are_accepted(option: Any) -> None:
    check_supported({option.key: option.honoured[0].lower()})
