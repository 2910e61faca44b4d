"""Table config as values: from properties to typed fields and back."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from headwater.config.table import TableConfig, table_checksum
from headwater.config.table_options import (
    BaseFileFormat,
    MergeMode,
    TableType,
    TimelineTimezone,
)
from headwater.errors import CorruptTableError, ErrorKind, UnsupportedError

PATH = "s3://lake/trips/.hoodie/hoodie.properties"
SMALLEST = {
    "hoodie.table.name": "trips",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "9",
    "hoodie.table.checksum": str(table_checksum(None, "trips")),
}


def config_of(**changes: str | None) -> TableConfig:
    """Build a config from the smallest properties, with `hoodie.` left out of the keys."""
    properties = {**SMALLEST, **{f"hoodie.{key}": text for key, text in changes.items() if text}}
    for key, text in changes.items():
        if text is None:
            del properties[f"hoodie.{key}"]
    return TableConfig.from_properties(properties, path=PATH)


def test_the_smallest_table_means_the_formats_defaults() -> None:
    config = config_of()
    assert config.name == "trips"
    assert config.database is None
    assert config.table_type is TableType.MERGE_ON_READ
    assert config.timeline_layout_version == 2
    assert (config.timeline_path, config.timeline_history_path) == ("timeline", "history")
    assert config.timeline_timezone is TimelineTimezone.LOCAL
    assert not config.is_utc
    assert config.base_file_format is BaseFileFormat.PARQUET
    assert config.has_meta_fields
    assert config.record_key_fields == config.partition_fields == config.ordering_fields == ()
    assert config.merge_mode is MergeMode.COMMIT_TIME_ORDERING


@pytest.mark.parametrize("key", ["table.ordering.fields", "table.precombine.field"])
def test_both_names_of_the_ordering_key_are_read_without_a_warning(key: str) -> None:
    config = config_of(**{key: "ts"})
    assert config.ordering_fields == ("ts",)
    assert config.merge_mode is MergeMode.EVENT_TIME_ORDERING
    assert config.to_properties()[f"hoodie.{key}"] == "ts"


def test_a_stored_merge_mode_is_not_inferred() -> None:
    config = config_of(
        **{"table.ordering.fields": "ts", "record.merge.mode": "COMMIT_TIME_ORDERING"}
    )
    assert config.merge_mode is MergeMode.COMMIT_TIME_ORDERING


def test_a_custom_key_generators_fields_lose_their_types() -> None:
    config = config_of(**{"table.partition.fields": "city:SIMPLE,day:TIMESTAMP"})
    assert config.partition_columns == ("city", "day")


def test_keys_and_texts_that_nobody_changed_stay_as_they_are() -> None:
    properties = {
        **SMALLEST,
        "hoodie.table.metadata.partitions.inflight": "",
        "hoodie.table.recordkey.fields": "id, part",
        "hoodie.populate.meta.fields": "TRUE",
        "hoodie.vendor.setting": "a=b",
        "hoodie.keygen.timebased.timezone": "UTC",
    }
    config = TableConfig.from_properties(properties, path=PATH)
    assert config.to_properties() == properties


def test_a_changed_field_is_stored_and_an_emptied_one_removed() -> None:
    config = config_of(**{"table.metadata.partitions.inflight": "files"})
    changed = replace(config, metadata_partitions=("column_stats", "files"))
    changed = replace(changed, metadata_partitions_inflight=())
    assert changed.to_properties() == {
        **SMALLEST,
        "hoodie.table.metadata.partitions": "column_stats,files",
    }


def test_the_checksum_follows_the_name() -> None:
    renamed = replace(config_of(), name="rides", database="city")
    assert renamed.to_properties()["hoodie.table.checksum"] == str(table_checksum("city", "rides"))


@pytest.mark.parametrize(
    ("database", "name", "checksum"),
    [
        ("default", "v9_txns_mor_simple_meta", 1101448031),
        (None, "v9_txns_mor_simple_meta_metadata", 2022389452),
    ],
)
def test_the_checksum_is_that_of_format_1_3(database: str | None, name: str, checksum: int) -> None:
    assert table_checksum(database, name) == checksum


def test_a_config_survives_its_properties() -> None:
    config = config_of(**{"table.partition.fields": "city", "index.type": "BUCKET"})
    again = TableConfig.from_properties(config.to_properties(), path=PATH)
    assert again == config


def test_it_crosses_to_other_processes() -> None:
    config = config_of()
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize("missing", ["table.name", "table.type", "table.version", "table.checksum"])
def test_a_missing_required_key_is_damage(missing: str) -> None:
    with pytest.raises(CorruptTableError) as caught:
        config_of(**{missing: None})
    assert caught.value.kind is ErrorKind.CORRUPT_PROPERTIES
    assert f"hoodie.{missing} is missing" in str(caught.value)
    assert PATH in str(caught.value)


def test_all_damage_is_reported_at_once() -> None:
    with pytest.raises(CorruptTableError) as caught:
        config_of(**{"table.type": "HEAP", "populate.meta.fields": "maybe"})
    assert "hoodie.table.type must be one of" in str(caught.value)
    assert "'HEAP'" in str(caught.value)
    assert "hoodie.populate.meta.fields must be true or false" in str(caught.value)


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        ("5", "Upgrade the table to version 6 with Apache Hudi"),
        ("10", "newer release of Headwater"),
    ],
)
def test_another_version_is_refused_by_name_with_advice(version: str, advice: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        config_of(**{"table.version": version})
    assert caught.value.kind is ErrorKind.UNSUPPORTED_TABLE_VERSION
    for part in ("trips", f"version {version}", advice, PATH):
        assert part in str(caught.value)


@pytest.mark.parametrize("version", ["6", "8"])
def test_older_versions_are_read_but_not_written(version: str) -> None:
    config = config_of(**{"table.version": version})
    with pytest.raises(UnsupportedError, match="headwater table upgrade") as caught:
        config.check_writable(PATH)
    assert caught.value.kind is ErrorKind.UNSUPPORTED_TABLE_VERSION
    config_of().check_writable(PATH)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("table.base.file.format", "ORC"),
        ("table.base.file.format", "LANCE"),
        ("datasource.write.drop.partition.columns", "true"),
        ("table.multiple.base.file.formats.enable", "true"),
        ("partition.metafile.use.base.format", "true"),
        ("bootstrap.base.path", "s3://old"),
        ("table.format", "iceberg"),
    ],
)
def test_a_feature_that_would_be_read_wrongly_is_refused(key: str, text: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        config_of(**{key: text})
    assert caught.value.kind is ErrorKind.UNSUPPORTED_OPTION
    assert f"hoodie.{key}" in str(caught.value)
    assert PATH in str(caught.value)
