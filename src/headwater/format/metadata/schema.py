"""The Avro schema of the metadata table's records (format rule 8.4), without Hudi's comments.

Values are kept as version 9 of the table writes them. Version 8 has column statistics without a
value type, and fewer branches at the end of a union; its records become ours by one byte.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import IntEnum, unique
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.format.avro.rows import RowReader
from headwater.format.avro.vectors import Longs
from headwater.format.timeline.schemas import NAMESPACE, STRING, Schema

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)


@unique
class RecordType(IntEnum):
    """The field `type` of a record."""

    PARTITION_LIST = 1
    FILE_LIST = 2
    COLUMN_STATS = 3
    BLOOM_FILTER = 4
    RECORD_INDEX = 5
    PARTITION_STATS = 6
    SECONDARY_INDEX = 7


@unique
class Wrapper(IntEnum):
    """Branches of the union that holds the bounds of a column."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    STRING = 7
    DATE = 8
    DECIMAL = 9
    TIME_MICROS = 10
    TIMESTAMP_MICROS = 11
    LOCAL_DATE = 12
    ARRAY = 13


def _optional(schema: Schema) -> Schema:
    return ["null", schema]


def _field(name: str, schema: Schema, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "type": schema, **attributes}


def _nullable(name: str, schema: Schema) -> dict[str, Any]:
    return _field(name, _optional(schema), default=None)


def _record(name: str, fields: Sequence[dict[str, Any]]) -> Schema:
    return {"type": "record", "name": name, "fields": list(fields)}


_DECIMAL: Schema = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
_WRAPPED: Sequence[tuple[str, Schema]] = (
    ("BooleanWrapper", "boolean"),
    ("IntWrapper", "int"),
    ("LongWrapper", "long"),
    ("FloatWrapper", "float"),
    ("DoubleWrapper", "double"),
    ("BytesWrapper", "bytes"),
    ("StringWrapper", STRING),
    ("DateWrapper", "int"),
    ("DecimalWrapper", _DECIMAL),
    ("TimeMicrosWrapper", {"type": "long", "logicalType": "time-micros"}),
    ("TimestampMicrosWrapper", "long"),
    ("LocalDateWrapper", "int"),
)


def _column_stats(*, is_current: bool) -> Schema:
    names = [name for name, _ in _WRAPPED]
    declared: list[Any] = [_record(name, [_field("value", value)]) for name, value in _WRAPPED]
    value_type = []
    if is_current:
        items = {"type": "array", "items": ["null", *names]}
        declared.append(_record("ArrayWrapper", [_nullable("wrappedValues", items)]))
        names.append("ArrayWrapper")
        info = [_field("typeOrdinal", "int"), _nullable("additionalInfo", STRING)]
        value_type = [_nullable("valueType", _record("HoodieValueTypeInfo", info))]
    return _record(
        "HoodieMetadataColumnStats",
        [
            _nullable("fileName", STRING),
            _nullable("columnName", STRING),
            _field("minValue", ["null", *declared], default=None),
            _field("maxValue", ["null", *names], default=None),
            _nullable("valueCount", "long"),
            _nullable("nullCount", "long"),
            _nullable("totalSize", "long"),
            _nullable("totalUncompressedSize", "long"),
            _field("isDeleted", "boolean"),
            _field("isTightBound", "boolean", default=False),
            *value_type,
        ],
    )


def _schema(*, is_current: bool) -> str:
    file_info = _record(
        "HoodieMetadataFileInfo", [_field("size", "long"), _field("isDeleted", "boolean")]
    )
    files = {"type": "map", "values": file_info, "avro.java.string": "String"}
    bloom = _record(
        "HoodieMetadataBloomFilter",
        [
            _field("type", STRING),
            _field("timestamp", STRING),
            _field("bloomFilter", "bytes"),
            _field("isDeleted", "boolean"),
        ],
    )
    location = _record(
        "HoodieRecordIndexInfo",
        [
            _nullable("partitionName", STRING),
            _nullable("fileIdHighBits", "long"),
            _nullable("fileIdLowBits", "long"),
            _nullable("fileIndex", "int"),
            _nullable("fileId", STRING),
            _nullable("instantTime", "long"),
            _field("fileIdEncoding", "int", default=0),
            _nullable("position", "long"),
        ],
    )
    secondary = _record("HoodieSecondaryIndexInfo", [_field("isDeleted", "boolean")])
    whole = {
        "type": "record",
        "name": "HoodieMetadataRecord",
        "namespace": NAMESPACE,
        "fields": [
            *(_nullable(name, "string") for name in META_COLUMNS),
            _field("key", STRING),
            _field("type", "int"),
            _field("filesystemMetadata", _optional(files)),
            _nullable("BloomFilterMetadata", bloom),
            _nullable("ColumnStatsMetadata", _column_stats(is_current=is_current)),
            _nullable("recordIndexMetadata", location),
            _nullable("SecondaryIndexMetadata", secondary),
        ],
    }
    return json.dumps(whole, separators=(",", ":"))


METADATA_SCHEMA = _schema(is_current=True)
"""What we write, table version 9."""
METADATA_SCHEMA_V8 = _schema(is_current=False)


def as_current(values: pa.BinaryArray, schema: str | None) -> pa.BinaryArray:
    """Return records of any schema as `METADATA_SCHEMA` has them.

    Raises:
        MalformedAvroError: a value is no record.
    """
    if schema is None or "HoodieValueTypeInfo" in schema or len(values) == 0:
        return values
    # The value type is the last field but two, and those two are null in column statistics: three
    # zeros instead of two.
    types = read_record_types(values)
    is_stats = np.isin(types, [RecordType.COLUMN_STATS, RecordType.PARTITION_STATS])
    ends = pc.if_else(pa.array(is_stats), pa.scalar(b"\0"), pa.scalar(b""))
    return pc.binary_join_element_wise(values, ends, b"")


def read_record_types(values: pa.BinaryArray) -> Longs:
    """Return the type of each record.

    Raises:
        MalformedAvroError: a value is no record.
    """
    reader = RowReader(values)
    for _ in META_COLUMNS:
        reader.optional_texts()
    reader.texts()
    return reader.longs()
