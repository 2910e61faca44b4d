"""Tables with what every write has to keep up to date, and this release does not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import ErrorKind, UnsupportedError
from headwater.kernel.table_config import update_table_config

ROWS = pa.table({"id": ["a"], "n": [1]})


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("hoodie.table.metadata.partitions", "column_stats,files", "Let Hudi remove it first"),
        ("hoodie.table.metadata.partitions.inflight", "files", "has a metadata table"),
        ("hoodie.table.cdc.enabled", "true", "which this release reads but does not write"),
        ("hoodie.populate.meta.fields", "false", "which this release reads but cannot write"),
    ],
)
def test_a_write_is_refused_before_it_begins(
    tmp_path: Path, key: str, value: str, sentence: str
) -> None:
    table = hw.create_table(tmp_path / "t", schema="id string, n long", record_key="id")
    table.insert(ROWS)
    locks = table.components.locks
    update_table_config(table.storage, locks, table.clock, {key: value}, lock_timeout_ms=1_000)
    table = hw.open_table(tmp_path / "t")
    before = table.inspect.timeline()
    for write in (table.upsert, table.insert, table.delete, table.overwrite):
        with pytest.raises(UnsupportedError, match=sentence) as refused:
            write(ROWS)
        assert refused.value.kind is ErrorKind.UNSUPPORTED_OPTION
    assert table.inspect.timeline() == before
    assert table.read_arrow().to_pylist() == ROWS.to_pylist()
