"""Options of the data source, as Spark hands them over."""

from __future__ import annotations

import pytest

from headwater.config.option import OptionAliasWarning
from headwater.config.source import IncrementalFormat, QueryType, SourceConfig, SourceOperation
from headwater.errors import InvalidInputError


def test_keys_about_the_table_get_the_names_they_have_there() -> None:
    config = SourceConfig.from_options(
        {
            "path": "/t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "city",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.datasource.write.table.name": "trips",
            "hoodie.datasource.write.keygenerator.class": (
                "org.apache.hudi.keygen.SimpleKeyGenerator"
            ),
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.datasource.write.operation": "BULK_INSERT",
            "hoodie.index.type": "BUCKET",
        }
    )
    assert config.path == "/t"
    assert config.operation is SourceOperation.BULK_INSERT
    assert config.table_options == {
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "city",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.name": "trips",
        "hoodie.table.keygenerator.type": "SIMPLE",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.index.type": "BUCKET",
    }


def test_what_a_read_says() -> None:
    with pytest.warns(OptionAliasWarning, match=r"read\.start\.commit is an older name"):
        config = SourceConfig.from_options(
            {
                "path": "/t",
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.query.incremental.format": "cdc",
                "hoodie.datasource.read.start.commit": "20260101000000000",
                "checkpointlocation": "/c",
            }
        )
    assert config.query_type is QueryType.INCREMENTAL
    assert config.incremental_format is IncrementalFormat.CDC
    assert config.after == "20260101000000000"
    assert config.until is None
    assert config.checkpoint_location == "/c"
    assert config.table_options == {}


def test_two_names_of_one_option_may_agree() -> None:
    config = SourceConfig.from_options(
        {
            "path": "/t",
            "hoodie.table.name": "trips",
            "hoodie.datasource.write.table.name": "trips",
        }
    )
    assert config.table_options == {"hoodie.table.name": "trips"}


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(InvalidInputError) as raised:
        SourceConfig.from_options(
            {
                "hoodie.datasource.query.type": "fast",
                "hoodie.datasource.write.operation": "merge",
                "hoodie.datasource.read.end.instanttime": "20260101000000000",
                "hoodie.table.name": "trips",
                "hoodie.datasource.write.table.name": "rides",
            }
        )
    message = raised.value.message
    for problem in (
        "the path of the table is missing",
        "hoodie.datasource.query.type must be one of snapshot",
        "hoodie.datasource.write.operation must be one of upsert",
        "need hoodie.datasource.query.type=incremental",
        "another name of the same option says 'trips'",
    ):
        assert problem in message


def test_what_the_catalog_of_spark_says_is_no_option() -> None:
    config = SourceConfig.from_options(
        {
            "location": "file:/t",
            "provider": "headwater",
            "owner": "somebody",
            "comment": "ours",
            "team": "a property of the user's own",
            "primarykey": "id",
            "type": "mor",
            "hoodie.clean.commits.retained": "3",
        }
    )
    assert config.path == "file:/t"
    assert config.table_options == {
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.clean.commits.retained": "3",
    }


def test_merge_schema_is_what_happens_anyway() -> None:
    assert SourceConfig.from_options({"path": "/t", "mergeschema": "true"}).table_options == {}
    with pytest.raises(InvalidInputError, match="mergeSchema=false is not supported"):
        SourceConfig.from_options({"path": "/t", "mergeschema": "false"})
