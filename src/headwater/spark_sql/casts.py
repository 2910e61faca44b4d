"""Values take on the types of a table, and none is changed on its way.

Where `spark.sql.ansi.enabled` is false Spark's casts wrap large numbers, and make null of what they
cannot read. Its own INSERT refuses that whatever the mode (`spark.sql.storeAssignmentPolicy`).
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def stored_as(value: Column, given: DataType, wanted: DataType, path: str) -> Column:
    """Return a value of one type as another one; the query fails where it has no such value.

    Args:
        path: the column, for the message.
    """
    if given.simpleString() == wanted.simpleString():
        return value
    match given, wanted:
        case StructType(), StructType() if len(given) == len(wanted):
            parts = [
                stored_as(value.getField(old.name), old.dataType, new.dataType, path).alias(
                    new.name
                )
                for old, new in zip(given, wanted, strict=True)
            ]
            return F.when(value.isNotNull(), F.struct(*parts))
        case ArrayType(), ArrayType():
            return F.transform(
                value, lambda one: stored_as(one, given.elementType, wanted.elementType, path)
            )
        case MapType(), MapType():
            keyed = F.transform_keys(
                value, lambda key, _: stored_as(key, given.keyType, wanted.keyType, path)
            )
            return F.transform_values(
                keyed, lambda _, one: stored_as(one, given.valueType, wanted.valueType, path)
            )
    cast = value.try_cast(wanted)
    misfit = F.concat(
        value.cast("string"), F.lit(f" does not fit {wanted.simpleString()} of column {path}")
    )
    return F.when(value.isNotNull() & cast.isNull(), F.raise_error(misfit)).otherwise(cast)
