"""The table behind the data source: the same as the facade makes and opens."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.config.source import SourceConfig
from headwater.context import TableContext
from headwater.errors import ErrorKind, InvalidInputError
from headwater.spark.source_table import open_or_create_source_table, open_source_table, writing

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("value", pa.int64())])
KEYED = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
}


def by_source(path: Path, options: dict[str, str]) -> TableContext:
    config = SourceConfig.from_options({"path": str(path), **KEYED, **options})
    return open_or_create_source_table(config, SCHEMA)


def objects(table: TableContext) -> list[str]:
    return sorted(info.path for info in table.storage.list_tree(""))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hoodie.index.type": "RECORD_INDEX"},
        {"hoodie.index.type": "RECORD_LEVEL_INDEX"},
        {"hoodie.index.type": "BLOOM", "hoodie.metadata.index.bloom.filter.enable": "true"},
        {"hoodie.metadata.index.column.stats.enable": "true"},
        {"hoodie.metadata.enable": "false"},
    ],
    ids=lambda options: ",".join(f"{key}={value}" for key, value in options.items()) or "default",
)
def test_both_doors_create_the_same_table(tmp_path: Path, options: dict[str, str]) -> None:
    theirs = by_source(tmp_path / "source", options)
    ours = hw.create_table(
        tmp_path / "facade",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        name="trips",
        options=options,
    ).context
    assert theirs.config == ours.config
    assert objects(theirs) == objects(ours)


def test_what_would_fail_every_write_is_refused_when_a_source_opens(tmp_path: Path) -> None:
    by_source(tmp_path / "t", {})
    config = SourceConfig.from_options(
        {
            "path": str(tmp_path / "t"),
            "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
            "hoodie.write.lock.provider": "filesystem",
        }
    )
    with pytest.raises(InvalidInputError, match="needs a MERGE_ON_READ table") as raised:
        open_source_table(config)
    assert raised.value.kind is ErrorKind.INVALID_OPTION


def test_nobody_may_beat_for_a_while_unless_the_options_say_otherwise(tmp_path: Path) -> None:
    table = by_source(tmp_path / "t", {})
    assert table.write_config.heartbeat_tolerable_misses == 30
    given = {"hoodie.client.heartbeat.tolerable.misses": "4"}
    assert by_source(tmp_path / "t", given).write_config.heartbeat_tolerable_misses == 4


def test_a_lock_of_one_process_is_refused(tmp_path: Path) -> None:
    table = by_source(tmp_path / "t", {"hoodie.write.lock.provider": "in_process"})
    with pytest.raises(InvalidInputError, match="different processes"), writing(table):
        pass
