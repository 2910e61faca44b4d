"""What the properties of version 6 mean, and what they become."""

from __future__ import annotations

import pytest

from headwater.config.older_versions import KEY_GENERATOR_CLASS, as_read, upgraded
from headwater.config.table import TableConfig
from headwater.config.table_options import MergeMode

MODEL = "org.apache.hudi.common.model."
EVENT_TIME, COMMIT_TIME = "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"


def six(payload: str = "", *, table_type: str = "MERGE_ON_READ", **more: str) -> dict[str, str]:
    return {
        "hoodie.table.name": "trips",
        "hoodie.table.type": table_type,
        "hoodie.table.version": "6",
        "hoodie.timeline.layout.version": "1",
        "hoodie.table.precombine.field": "ts",
        "hoodie.table.checksum": "1",
        "hoodie.table.metadata.partitions": "files,column_stats",
        KEY_GENERATOR_CLASS: "org.apache.hudi.keygen.SimpleKeyGenerator",
        **({"hoodie.compaction.payload.class": f"{MODEL}{payload}"} if payload else {}),
        **more,
    }


@pytest.mark.parametrize(
    ("payload", "read", "afterwards"),
    [
        ("", EVENT_TIME, EVENT_TIME),
        ("OverwriteWithLatestAvroPayload", COMMIT_TIME, EVENT_TIME),
        ("DefaultHoodieRecordPayload", EVENT_TIME, EVENT_TIME),
        ("EventTimeAvroPayload", EVENT_TIME, EVENT_TIME),
        ("PartialUpdateAvroPayload", "CUSTOM", EVENT_TIME),
        ("OverwriteNonDefaultsWithLatestAvroPayload", "CUSTOM", COMMIT_TIME),
        ("AWSDmsAvroPayload", "CUSTOM", COMMIT_TIME),
        ("OurOwnPayload", "CUSTOM", "CUSTOM"),
    ],
)
def test_merge_modes_of_merge_on_read_tables(payload: str, read: str, afterwards: str) -> None:
    stored = six(payload)
    before = TableConfig.from_properties(stored, path="p")
    assert before.merge_mode is MergeMode(read)
    after = TableConfig.from_properties(upgraded(stored), path="p")
    assert after.merge_mode is MergeMode(afterwards)
    if payload == "OurOwnPayload":
        assert after.payload_class == f"{MODEL}{payload}"
    elif payload:
        assert after.payload_class is None
        assert after.legacy_payload_class == f"{MODEL}{payload}"


def test_copy_on_write_tables_keep_the_rule_of_their_payload_class() -> None:
    stored = six("OverwriteWithLatestAvroPayload", table_type="COPY_ON_WRITE")
    after = TableConfig.from_properties(upgraded(stored), path="p")
    assert after.merge_mode is MergeMode.COMMIT_TIME_ORDERING
    assert after.legacy_payload_class == f"{MODEL}OverwriteWithLatestAvroPayload"
    assert after.payload_class is None
    assert after.merge_strategy_id is None


def test_everything_else_of_version_6_gets_the_names_of_version_9() -> None:
    stored = six("DefaultHoodieRecordPayload")
    after = upgraded(stored)
    assert after["hoodie.table.version"] == "9"
    assert after["hoodie.table.initial.version"] == "6"
    assert after["hoodie.timeline.layout.version"] == "2"
    assert after["hoodie.table.keygenerator.type"] == "SIMPLE"
    assert after["hoodie.table.ordering.fields"] == "ts"
    assert "hoodie.table.precombine.field" not in after
    assert "hoodie.table.metadata.partitions" not in after
    assert after["hoodie.table.checksum"] == "1"
    assert stored["hoodie.table.version"] == "6"


def test_the_metadata_table_of_version_6_is_not_asked() -> None:
    assert "hoodie.table.metadata.partitions" not in as_read(six())


def test_version_8_has_its_mode_already() -> None:
    stored = {
        **six("OverwriteWithLatestAvroPayload"),
        "hoodie.table.version": "8",
        "hoodie.table.initial.version": "8",
        "hoodie.record.merge.mode": COMMIT_TIME,
    }
    after = upgraded(stored)
    assert after["hoodie.record.merge.mode"] == COMMIT_TIME
    assert after["hoodie.table.initial.version"] == "8"
    assert after["hoodie.table.legacy.payload.class"].endswith("OverwriteWithLatestAvroPayload")
