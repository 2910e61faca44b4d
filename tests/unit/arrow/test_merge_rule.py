"""Merge rules from table configs (format rule 7.3)."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pyarrow as pa
import pytest

from headwater.arrow.merge_rule import (
    MergeMode,
    MergeRule,
    PartialUpdate,
    check_mergeable,
    merge_rule_of,
    resolve_custom,
)
from headwater.config.table import TableConfig, table_checksum
from headwater.errors import InvalidInputError, UnsupportedError

PACKAGE = "org.apache.hudi.common.model."


def config_of(properties: Mapping[str, str], version: int = 9) -> TableConfig:
    stored = {
        "hoodie.table.name": "t",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": str(version),
        "hoodie.table.checksum": str(table_checksum(None, "t")),
    }
    return TableConfig.from_properties({**stored, **properties}, path="t")


def test_a_table_that_states_nothing_keeps_the_later_write() -> None:
    assert merge_rule_of(config_of({})) == MergeRule(mode=MergeMode.COMMIT_TIME_ORDERING)


def test_ordering_fields_alone_mean_event_time() -> None:
    rule = merge_rule_of(config_of({"hoodie.table.ordering.fields": "ts,seq"}))
    assert rule == MergeRule(mode=MergeMode.EVENT_TIME_ORDERING, ordering_fields=("ts", "seq"))
    assert rule.merges_by_ordering


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("OverwriteWithLatestAvroPayload", MergeRule()),
        ("DefaultHoodieRecordPayload", MergeRule(mode=MergeMode.EVENT_TIME_ORDERING)),
        ("EventTimeAvroPayload", MergeRule(mode=MergeMode.EVENT_TIME_ORDERING)),
        (
            "PartialUpdateAvroPayload",
            MergeRule(mode=MergeMode.EVENT_TIME_ORDERING, partial=PartialUpdate.IGNORE_DEFAULTS),
        ),
        (
            "OverwriteNonDefaultsWithLatestAvroPayload",
            MergeRule(partial=PartialUpdate.IGNORE_DEFAULTS),
        ),
        (
            "debezium.PostgresDebeziumAvroPayload",
            MergeRule(
                mode=MergeMode.EVENT_TIME_ORDERING,
                ordering_fields=("_event_lsn",),
                partial=PartialUpdate.FILL_UNAVAILABLE,
                unavailable_marker="__debezium_unavailable_value",
                delete_field="_change_operation_type",
                delete_marker="d",
            ),
        ),
        (
            "debezium.MySqlDebeziumAvroPayload",
            MergeRule(
                mode=MergeMode.EVENT_TIME_ORDERING,
                ordering_fields=("_event_bin_file", "_event_pos"),
                delete_field="_change_operation_type",
                delete_marker="d",
            ),
        ),
        ("AWSDmsAvroPayload", MergeRule(delete_field="Op", delete_marker="D")),
    ],
)
def test_rule_7_3_the_payload_class_of_a_version_8_table_is_its_rule(
    payload: str, expected: MergeRule
) -> None:
    properties = {
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.compaction.payload.class": f"{PACKAGE}{payload}",
    }
    config = config_of(properties, version=8)
    assert merge_rule_of(config) == expected
    check_mergeable(expected)


@pytest.mark.parametrize("prefix", ["", "hoodie.record.merge.property."])
def test_rule_7_2_the_delete_field_is_found_in_both_spellings(prefix: str) -> None:
    rule = merge_rule_of(
        config_of(
            {
                f"{prefix}hoodie.payload.delete.field": "op",
                f"{prefix}hoodie.payload.delete.marker": "x",
            }
        )
    )
    assert (rule.delete_field, rule.delete_marker) == ("op", "x")


def test_what_the_table_states_goes_before_its_payload_class() -> None:
    rule = merge_rule_of(
        config_of(
            {
                "hoodie.table.legacy.payload.class": f"{PACKAGE}AWSDmsAvroPayload",
                "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
                "hoodie.table.ordering.fields": "ts",
                "hoodie.record.merge.property.hoodie.payload.delete.marker": "gone",
                "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
                "hoodie.record.merge.property.partial.update.unavailable.value": "?",
            }
        )
    )
    assert rule == MergeRule(
        mode=MergeMode.EVENT_TIME_ORDERING,
        ordering_fields=("ts",),
        partial=PartialUpdate.FILL_UNAVAILABLE,
        unavailable_marker="?",
        delete_field="Op",
        delete_marker="gone",
    )


@pytest.mark.parametrize(
    "key", ["hoodie.write.partial.update.unavailable.value", "partial.update.unavailable.value"]
)
def test_the_unavailable_marker_is_known_by_the_names_of_hudi_and_of_hudi_rs(key: str) -> None:
    rule = merge_rule_of(
        config_of(
            {
                "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
                f"hoodie.record.merge.property.{key}": "?",
            }
        )
    )
    assert rule.unavailable_marker == "?"


def test_an_unknown_payload_class_is_refused_by_name_once_something_is_merged() -> None:
    rule = merge_rule_of(
        config_of(
            {
                "hoodie.record.merge.mode": "CUSTOM",
                "hoodie.compaction.payload.class": "com.example.Mine",
            }
        )
    )
    with pytest.raises(UnsupportedError, match=r"com\.example\.Mine"):
        check_mergeable(rule)


def newer(old: pa.Table, new: pa.Table) -> pa.Table:
    return new


def test_whoever_opens_a_custom_table_names_the_function() -> None:
    name = f"{__name__}:newer"
    rule = merge_rule_of(config_of({"hoodie.record.merge.mode": "CUSTOM"}), custom=name)
    check_mergeable(rule)
    assert resolve_custom(rule.custom) is newer
    with pytest.raises(InvalidInputError, match="takes no merge function"):
        merge_rule_of(config_of({}), custom=name)


@pytest.mark.parametrize("name", ["no_such_module:f", f"{__name__}:no_such_function"])
def test_a_function_that_is_not_there_is_an_error_of_the_input(name: str) -> None:
    with pytest.raises(InvalidInputError, match="no_such"):
        resolve_custom(name)


def test_a_name_that_is_no_function_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no function but a str"):
        resolve_custom(f"{__name__}:PACKAGE")


def test_a_custom_table_with_a_partial_update_mode_is_refused() -> None:
    rule = MergeRule(
        mode=MergeMode.CUSTOM, custom=f"{__name__}:newer", partial=PartialUpdate.IGNORE_DEFAULTS
    )
    with pytest.raises(UnsupportedError, match="IGNORE_DEFAULTS"):
        check_mergeable(rule)


def test_rules_cross_to_executors() -> None:
    rule = MergeRule(mode=MergeMode.EVENT_TIME_ORDERING, ordering_fields=("a", "b"))
    assert pickle.loads(pickle.dumps(rule)) == rule
