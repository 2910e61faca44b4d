"""Tables of other writers with `hoodie.populate.meta.fields=false`: logs merge all the same.

No file stores record keys but delete blocks. Such a table is made of one of ours by emptying the
meta columns of its files.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headwater as hw
from headwater.arrow.meta_columns import META_COLUMNS, RECORD_KEY
from headwater.config.files import LogBlockFormat
from headwater.format.log.blocks import decode_rows, encode_data_block, instant_time_of
from headwater.format.log.frames import BlockType, HeaderKey, encode_block, iter_blocks
from headwater.kernel.table_config import update_table_config
from headwater.table import Table

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")


def without_meta(rows: pa.Table) -> pa.Table:
    for name in META_COLUMNS:
        nothing = pa.nulls(rows.num_rows, pa.string())
        rows = rows.set_column(rows.schema.get_field_index(name), name, nothing)
    return rows


def empty_meta_columns(table: Table, folder: Path, block_format: LogBlockFormat) -> Table:
    for path in folder.glob("*.parquet"):
        rows = pq.read_table(path)
        schema = rows.schema.remove_metadata()  # It holds the checksum of the file as it was.
        pq.write_table(without_meta(rows).cast(schema), path)
    for path in folder.glob(".*.log.*"):
        blocks = []
        for block in iter_blocks(path.read_bytes(), path=path.name):
            if block.type is BlockType.DELETE:
                blocks.append(encode_block(block.type, block.header, block.content))
                continue
            rows = without_meta(decode_rows(block, path=path.name))
            blocks.append(
                encode_data_block(
                    rows,
                    instant_time=instant_time_of(block, path=path.name),
                    avro_schema_json=block.header[HeaderKey.SCHEMA],
                    block_format=block_format,
                )
            )
        path.write_bytes(b"".join(blocks))
    locks = table.context.components.locks
    changes = {"hoodie.populate.meta.fields": "false"}
    update_table_config(table.storage, locks, table.context.clock, changes, lock_timeout_ms=1_000)
    return hw.open_table(folder)


@pytest.mark.parametrize("block_format", LogBlockFormat)
@pytest.mark.parametrize("record_key", ["id", "id,zone"])
def test_records_meet_by_the_keys_of_their_columns(
    tmp_path: Path, block_format: LogBlockFormat, record_key: str
) -> None:
    folder = tmp_path / "t"
    keys = record_key.split(",")
    made = hw.create_table(
        folder,
        schema="id string, zone string, n long",
        record_key=keys,
        table_type="MERGE_ON_READ",
        buckets=1,
        options={"hoodie.logfile.data.block.format": block_format},
    )
    first = pa.table({"id": ["a", "b", "c"], "zone": ["x", "x", None], "n": [1, 2, 3]})
    made.bulk_insert(first)
    made.upsert(pa.table({"id": ["a", "d"], "zone": ["x", "y"], "n": [10, 4]}))
    made.delete(first.slice(1, 1).select(keys))
    expected = sorted(made.read_arrow().to_pylist(), key=lambda row: str(row["id"]))
    assert [row["n"] for row in expected] == [10, 3, 4]

    table = empty_meta_columns(made, folder, block_format)
    found = sorted(table.read_arrow().to_pylist(), key=lambda row: str(row["id"]))
    assert found == expected
    assert sorted(table.read_arrow(["n"])["n"].to_pylist()) == [3, 4, 10]
    assert table.read_arrow([RECORD_KEY])[RECORD_KEY].to_pylist() == [None, None, None]
