"""Columns of DataFrames and columns of Arrow."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    GeographyType,
    GeometryType,
    MapType,
    StructField,
    StructType,
    VariantType,
)

from headwater.arrow.input_schema import stored_schema
from headwater.arrow.spark_schema import schema_from_spark_json
from headwater.errors import InvalidInputError

_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
)
"""Since 4.2 Spark wants to be told the zone of timestamps, which is UTC in all of its batches."""


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """Return the columns of a DataFrame with the types that tables store.

    Raises:
        InvalidInputError: a column comes twice, or has a type that cannot be stored.
    """
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise InvalidInputError(f"Column {name} comes twice; rename one")
    for field in schema.fields:
        _check_type(field.dataType, (field.name,))
    return stored_schema(batch_schema_of(schema))


def batch_schema_of(schema: StructType) -> pa.Schema:
    """Return the types that Spark's own batches have for the columns of a DataFrame."""
    return to_arrow_schema(schema, **_IN_UTC)


def frame_schema_of(schema: pa.Schema) -> StructType:
    """Return the columns that Spark has for those of a table.

    All are nullable, as Spark has it for files, so that every part of a read has the same type.
    """
    return StructType([_nullable_field(field) for field in schema])


def nullable_columns(schema: StructType) -> StructType:
    """Return the columns of a DataFrame as those of the table that it makes, all nullable.

    What Spark knows not to be null in this one, such as literals, may be null in the next.
    """
    return StructType(
        [StructField(one.name, _nullable(one.dataType), True, one.metadata) for one in schema]
    )


def declared_schema(given: Any) -> Any:
    """Return a `StructType` as an Arrow schema, and anything else as it is.

    Raises:
        InvalidInputError: a type cannot be stored.
    """
    return schema_from_spark_json(given.json()) if isinstance(given, StructType) else given


def _check_type(spark: DataType, path: tuple[str, ...]) -> None:
    """Refuse types that Arrow shows as the structs they are made of inside."""
    if isinstance(spark, VariantType | GeometryType | GeographyType):
        raise InvalidInputError(
            f"Column {'.'.join(path)} has the type {spark.simpleString()}, which tables cannot "
            "store; store it as text"
        )
    if isinstance(spark, ArrayType):
        _check_type(spark.elementType, (*path, "element"))
    elif isinstance(spark, MapType):
        _check_type(spark.keyType, (*path, "key"))
        _check_type(spark.valueType, (*path, "value"))
    elif isinstance(spark, StructType):
        for field in spark.fields:
            _check_type(field.dataType, (*path, field.name))


def _nullable_field(field: pa.Field) -> StructField:
    return StructField(field.name, _nullable(from_arrow_type(field.type, True)), True)


def _nullable(spark: DataType) -> DataType:
    if isinstance(spark, ArrayType):
        return ArrayType(_nullable(spark.elementType), True)
    if isinstance(spark, MapType):
        return MapType(_nullable(spark.keyType), _nullable(spark.valueType), True)
    if isinstance(spark, StructType):
        return nullable_columns(spark)
    return spark
