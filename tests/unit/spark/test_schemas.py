"""Columns of DataFrames and of Arrow, as every Spark that we admit converts them."""

from __future__ import annotations

import pyarrow as pa

from headwater.spark.schemas import arrow_schema_of, batch_schema_of, frame_schema_of

AT = pa.timestamp("us", "UTC")


def test_timestamps_are_in_utc_wherever_they_are() -> None:
    table = pa.schema(
        [
            ("at", AT),
            ("local", pa.timestamp("us")),
            ("all", pa.list_(pa.field("element", AT))),
            ("box", pa.struct([("at", AT), ("word", pa.string())])),
        ]
    )
    frame = frame_schema_of(table)
    for columns in (batch_schema_of(frame), arrow_schema_of(frame)):
        assert columns.field("at").type == AT
        assert columns.field("local").type == pa.timestamp("us")
        assert columns.field("all").type.value_type == AT
        assert columns.field("box").type.field("at").type == AT
