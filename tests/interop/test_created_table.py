"""New tables as hudi-rs sees them, and tables of Hudi as `open_table` sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.config.table_options import MergeMode, TableType
from headwater.kernel.table_config import update_table_config
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks

hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("fare", pa.decimal128(15, 2)),
        pa.field("stops", pa.list_(pa.struct([("at", pa.date32()), ("note", pa.string())]))),
        pa.field("counts", pa.map_(pa.string(), pa.int32())),
    ]
)


@pytest.mark.usefixtures("tables_with_a_lock")
def test_hudi_rs_opens_a_new_table_and_knows_its_columns(tmp_path: Path) -> None:
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type="MERGE_ON_READ",
        buckets=4,
    )
    locks = InProcessLockProvider(
        InProcessLocks(), table.context.clock, table.context.ids, table=table.uri
    )
    update_table_config(
        table.storage,
        locks,
        table.context.clock,
        {"hoodie.vendor": "é: # = \\ "},
        lock_timeout_ms=table.context.lock_config.acquire_timeout_ms,
    )
    theirs = hudi.HudiTableBuilder.from_base_uri(str(tmp_path / "trips")).build()
    assert theirs.table_name == "trips"
    assert theirs.is_mor
    assert theirs.timezone.upper() == "UTC"
    columns = pa.schema(theirs.get_schema())
    assert columns.names == SCHEMA.names
    assert columns.field("fare").type == SCHEMA.field("fare").type
    assert theirs.get_partition_schema().names == ["city"]
    assert theirs.get_file_slices() == []


@pytest.mark.parametrize(
    ("name", "table_type", "merge_mode", "ordering"),
    [
        ("cow-v8_empty", TableType.COPY_ON_WRITE, MergeMode.COMMIT_TIME_ORDERING, ()),
        ("mor-avro-v8_trips_8i3u1d", TableType.MERGE_ON_READ, None, ("ts",)),
        ("mor-avro-v9_txns_simple_meta", TableType.MERGE_ON_READ, None, ("txn_ts",)),
    ],
)
def test_a_table_of_hudi_is_opened(
    hudi_table: Callable[[str], Path],
    name: str,
    table_type: TableType,
    merge_mode: MergeMode | None,
    ordering: tuple[str, ...],
) -> None:
    config = hw.open_table(hudi_table(name)).config
    assert config.table_type is table_type
    assert config.merge_mode is (merge_mode or MergeMode.EVENT_TIME_ORDERING)
    assert config.ordering_fields == ordering
    assert config.index_type is None


def test_a_metadata_table_is_a_table(hudi_table: Callable[[str], Path]) -> None:
    metadata = hudi_table("cow-v9_txns_simple_meta") / ".hoodie" / "metadata"
    config = hw.open_table(metadata).config
    assert config.name == "v9_txns_cow_simple_meta_metadata"
    assert config.merge_mode is MergeMode.CUSTOM
    assert not config.has_meta_fields
