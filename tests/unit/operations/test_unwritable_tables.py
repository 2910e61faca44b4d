"""Tables with what every write has to keep up to date: what this release does, and does not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import ErrorKind, UnsupportedError
from headwater.kernel.table_config import update_table_config

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

ROWS = pa.table({"id": ["a"], "n": [1]})


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("hoodie.table.metadata.partitions", "expr_index_n,files", "Drop it with the engine"),
        ("hoodie.table.metadata.partitions.inflight", "expr_index_n", "has the index expr_index_n"),
        ("hoodie.table.cdc.enabled", "true", "which this release reads but does not write"),
        ("hoodie.populate.meta.fields", "false", "which this release reads but cannot write"),
    ],
)
def test_a_write_is_refused_before_it_begins(
    tmp_path: Path, key: str, value: str, sentence: str
) -> None:
    table = hw.create_table(tmp_path / "t", schema="id string, n long", record_key="id")
    table.insert(ROWS)
    locks = table.context.components.locks
    update_table_config(
        table.storage, locks, table.context.clock, {key: value}, lock_timeout_ms=1_000
    )
    table = hw.open_table(tmp_path / "t")
    before = table.inspect.timeline()
    for write in (table.upsert, table.insert, table.delete, table.overwrite):
        with pytest.raises(UnsupportedError, match=sentence) as refused:
            write(ROWS)
        assert refused.value.kind is ErrorKind.UNSUPPORTED_OPTION
    assert table.inspect.timeline() == before
    assert table.read_arrow().to_pylist() == ROWS.to_pylist()


INDEXES = "bloom_filters,column_stats,files,partition_stats,record_index"


def test_a_table_with_every_other_index_is_written_and_the_indexes_are_kept(tmp_path: Path) -> None:
    options = {
        "hoodie.metadata.index.column.stats.enable": "true",
        "hoodie.metadata.index.partition.stats.enable": "true",
        "hoodie.metadata.index.bloom.filter.enable": "true",
        "hoodie.metadata.global.record.level.index.enable": "true",
    }
    created = hw.create_table(
        tmp_path / "t",
        schema="id string, n long",
        record_key="id",
        partition_by="n",
        options=options,
    )
    assert ",".join(created.config.metadata_partitions) == INDEXES
    created.insert(ROWS)
    table = hw.open_table(tmp_path / "t")
    table.upsert(pa.table({"id": ["a", "b"], "n": [1, 2]}))
    table.delete(pa.table({"id": ["b"], "n": [2]}))
    table.insert(pa.table({"id": ["c"], "n": [3]}))
    table.overwrite(ROWS)
    assert table.read_arrow().to_pylist() == ROWS.to_pylist()
    # Statistics of partitions are only ever widened by writes.
    problems = table.inspect.validate_metadata().to_pylist()
    assert {(row["partition"], row["problem"]) for row in problems} <= {
        ("partition_stats", "stale")
    }
    assert ",".join(hw.open_table(tmp_path / "t").config.metadata_partitions) == INDEXES
