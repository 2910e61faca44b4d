"""The Spark session: which one, how large, and whether its JVM is within reach."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as classic_functions

from headwater.errors import InvalidInputError
from headwater.seams.network import LOOPBACK
from headwater.seams.worker_python import offered_interpreter

CORES_UNKNOWN = 4
"""Cores to plan for where nothing tells: a Spark Connect server does not say how many it has."""

_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_BATCH_BYTES_UNLIMITED = "2147483647"
_ALIKE_MASTERS = ("local", "spark://")
_PYTHON_UNNAMED = "python3"
"""What PySpark takes if the environment named none when the session started."""
_PARALLELISM = ("spark.default.parallelism", "spark.sql.leafNodeDefaultParallelism")


def session_of(given: SparkSession | None) -> SparkSession:
    """Return the given session, or else the active one.

    Raises:
        InvalidInputError: there is none.
    """
    session = given or SparkSession.getActiveSession()
    if session is None:
        raise InvalidInputError(
            "There is no active Spark session. Start one with SparkSession.builder.getOrCreate(), "
            "or pass the one to use as spark=..., or read without Spark through read_arrow()"
        )
    return with_our_interpreter(session)


def with_our_interpreter(spark: SparkSession) -> SparkSession:
    """Let jobs of a session that was started before Headwater was imported run this interpreter.

    Only where nobody chose another one, and its workers are where this process is, or on machines
    that are set up alike (`seams.worker_python`).
    """
    context = getattr(spark, "sparkContext", None) if gateway_of(spark) is not None else None
    if context is None or not str(context.master).startswith(_ALIKE_MASTERS):
        return spark
    ours = offered_interpreter()
    if ours is not None and context.pythonExec == _PYTHON_UNNAMED:
        context.pythonExec = ours
    return spark


def time_zone_of(spark: SparkSession) -> str:
    """Return the zone of times that do not say theirs."""
    return spark.conf.get("spark.sql.session.timeZone", None) or "UTC"


def core_count(spark: SparkSession) -> int:
    """Return how many tasks the session runs at once, as far as it tells."""
    for key in _PARALLELISM:
        stated = spark.conf.get(key, None)
        if stated is not None:
            return max(1, int(stated))
    context = getattr(spark, "sparkContext", None)
    return CORES_UNKNOWN if context is None else max(1, int(context.defaultParallelism))


def driver_host(spark: SparkSession) -> str | None:
    """Return where executors reach this process; None over Spark Connect, where they may not."""
    context = getattr(spark, "sparkContext", None) if gateway_of(spark) is not None else None
    if context is None:
        return None
    if str(context.master).startswith("local"):
        return LOOPBACK
    host: str | None = context.getConf().get("spark.driver.host")
    return host


@contextmanager
def batches_bound_by_rows(spark: SparkSession) -> Iterator[None]:
    """Let Arrow batches of jobs started within end by their number of rows alone.

    With a limit of bytes, Spark 4.1 measures the batch anew after every row, and that takes more
    than half of the JVM's time in a write. A limit that the session was given is kept.
    """
    if spark.conf.get(_BATCH_BYTES, None) is not None:
        yield
        return
    spark.conf.set(_BATCH_BYTES, _BATCH_BYTES_UNLIMITED)
    try:
        yield
    finally:
        spark.conf.unset(_BATCH_BYTES)


def gateway_of(spark: SparkSession) -> Any | None:
    """Return the way into the session's JVM; None over Spark Connect.

    Everything must work without it. It only makes some things faster.
    """
    return getattr(spark, "_jvm", None)


def functions_of(spark: SparkSession) -> Any:
    """Return the functions that make columns for this session.

    `pyspark.sql.functions` makes those of one kind of session, and a process may have both.
    """
    if gateway_of(spark) is not None:
        return classic_functions
    # Of an optional package, which is there if such a session is.
    from pyspark.sql.connect import functions as connect_functions

    return connect_functions
