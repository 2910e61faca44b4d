"""Reading file slices into a Spark DataFrame.

    base file alone    Spark's own Parquet scan, with its pruning of columns and row groups
    base and logs      tasks that merge in Arrow, a few slices each

A base file goes to the tasks as well where Spark could not read it: in a store that the session
cannot reach by itself, or with a column of integers that has become a double since, or text, which
Spark refuses to convert.

Spark does not tell tasks in Python which columns a query uses: name them in `columns`. A filter
applies after the merge; before it, only what its text proves about partitions, buckets and row
groups is left out.

The session keeps its settings. One is changed while the scan is planned, and put back: above 32
files Spark would list them with a job, although it has been told every one of them. Over Spark
Connect plans are made later, so there the session should be started with
`spark.sql.sources.parallelPartitionDiscovery.threshold=100000`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession

from headwater.arrow.input_schema import normalise_rows
from headwater.arrow.meta_columns import schema_with_meta_columns
from headwater.config.registry import STORAGE_PREFIX
from headwater.config.spark import SparkConfig
from headwater.files.base_files import open_base_file
from headwater.model.files import FileSlice
from headwater.model.instant import InstantTime
from headwater.queries.slice_query import SliceQuery, read_slices
from headwater.queries.snapshot import SnapshotPlan
from headwater.seams.open_storage import open_storage
from headwater.seams.store_address import StoreAddress
from headwater.seams.store_settings import is_same_for_hadoop
from headwater.spark.schemas import frame_schema_of
from headwater.spark.session import core_count, gateway_of
from headwater.spark.shares import balanced_shares
from headwater.spark.worker import warm

TASKS_PER_CORE = 2

BATCH_ROWS = 65_536
"""Rows that a task hands to Spark at a time, which holds them outside of its heap."""

CLAIMED_ROWS_MAX = 10_000_000
"""Rows of the range below the tasks: Spark counts these in a few milliseconds."""

_DISCOVERY_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_VERIFY_PAGES = "parquet.page.verify-checksum.enabled"
_BY_DICTIONARY = "parquet.filter.dictionary.enabled"
_SCAN_OPTIONS = {
    # A file that is missing or damaged is an error whatever the session says.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # Dates are those of the calendar that everybody uses, without a shift before 1582.
    "datetimeRebaseMode": "CORRECTED",
}
_KEY_GENERATORS_OF_TIMES = ("TIMESTAMP", "TIMESTAMP_AVRO", "CUSTOM", "CUSTOM_AVRO")
_HADOOP_SCHEMES = {"s3": "s3a"}
_PATTERN_SIGNS = re.compile(r"[{}\[\]*?\\]")
"""What Spark takes for a pattern in the name of a file, unless a backslash comes before it. Its own
switch to turn patterns off reads files twice if there are several."""


def read_snapshot(
    spark: SparkSession,
    plan: SnapshotPlan,
    where: str | Column | None = None,
    spark_config: SparkConfig | None = None,
) -> DataFrame:
    """Return a DataFrame of the rows of a plan that satisfy `where`. Nothing is read yet.

    Raises:
        CorruptTableError: a base file is missing or damaged.
    """
    query = replace(plan.query, columns=_columns_to_read(plan.query, where))
    scanned, merged = _split(spark, query, plan.slices)
    frames = []
    if scanned:
        frames.append(_scan(spark, query, scanned))
    if merged:
        warms = (spark_config or SparkConfig()).warms_workers
        frames.append(_merge(spark, query, merged, warms=warms))
    if not frames:
        frames.append(spark.createDataFrame([], frame_schema_of(query.result_schema)))
    frame = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    if where is not None:
        frame = frame.where(where)
    if query.columns != plan.query.columns:
        frame = frame.select(*plan.query.columns)
    return frame


def _columns_to_read(query: SliceQuery, where: str | Column | None) -> tuple[str, ...]:
    """Return the columns of the answer and those that the filter may name."""
    if where is None:
        return query.columns
    text = (where if isinstance(where, str) else repr(where)).casefold()
    known = schema_with_meta_columns(query.schema).names
    # A name within another name costs a column too many; a name that was cut off would be missed.
    is_cut = not isinstance(where, str) and "..." in text
    named = (name for name in known if is_cut or name.casefold() in text)
    return tuple(dict.fromkeys((*query.columns, *named)))


def _split(
    spark: SparkSession, query: SliceQuery, slices: Sequence[FileSlice]
) -> tuple[list[FileSlice], list[FileSlice]]:
    """Return the slices for Spark's scan, and those for tasks."""
    bare = [s for s in slices if not s.logs and s.base is not None and _is_parquet(s)]
    if not bare or not _reaches(spark, query):
        return [], list(slices)
    unconvertible = _unconvertible(query, bare)
    scanned = [s for s in bare if s.base_instant not in unconvertible]
    chosen = {s.group for s in scanned}
    return scanned, [s for s in slices if s.group not in chosen]


def _is_parquet(file_slice: FileSlice) -> bool:
    return file_slice.base is not None and file_slice.base.extension == "parquet"


def _reaches(spark: SparkSession, query: SliceQuery) -> bool:
    """Whether the session can read the table's files by itself, as far as one can tell.

    Settings of our own storage client are not Spark's, so with any of them only tasks read; so they
    do where Spark has no client for the store, as it comes from PyPI.
    """
    scheme, separator, _ = query.storage_uri.partition("://")
    if not separator or scheme == "file":
        return True
    jvm = gateway_of(spark)
    if jvm is None or any(key.startswith(STORAGE_PREFIX.prefix) for key in query.storage_options):
        return False
    configured = spark.sparkContext._jsc.hadoopConfiguration()
    if not is_same_for_hadoop(
        StoreAddress.parse(query.storage_uri), query.storage_options, configured.get
    ):
        return False
    try:  # Hadoop has names for clients whose classes a session need not have.
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(
            _HADOOP_SCHEMES.get(scheme, scheme), configured
        )
    except Py4JJavaError:
        return False
    return True


def _unconvertible(query: SliceQuery, slices: Sequence[FileSlice]) -> set[InstantTime]:
    """Return the instants whose files hold what Spark does not convert into what the query wants.

    That is integers where it wants doubles; and where partition paths are made of times, anything
    but text where it wants text: once Hudi has read such a table, its writes say that the column is
    text, whatever earlier files hold. Files of one instant have one schema, so one footer of each
    tells; and only of tables that have such a column.
    """
    doubles = {path for path, kind in _leaves(query.result_schema) if kind == pa.float64()}
    texts = {(name,) for name in _text_of_times(query)}
    if not doubles and not texts:
        return set()
    storage = open_storage(query.storage_uri, query.storage_options)
    found = set()
    for base in {s.base_instant: s.base for s in slices}.values():
        assert base is not None
        with open_base_file(storage, base) as file:
            stored = _leaves(file.schema)
            if any(
                (path in doubles and pa.types.is_integer(kind))
                or (path in texts and kind != pa.string())
                for path, kind in stored
            ):
                found.add(base.instant_time)
    return found


def _text_of_times(query: SliceQuery) -> list[str]:
    """Return the partition columns that the query wants as text and that may have been times."""
    if query.config.key_generator_type not in _KEY_GENERATORS_OF_TIMES:
        return []
    schema = query.result_schema
    names = [name for name in query.config.partition_columns if name in schema.names]
    return [name for name in names if schema.field(name).type == pa.string()]


def _leaves(fields: pa.Schema) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """Give the path and type of every column that is not nested, also inside of others."""
    for field in fields:
        yield from _leaves_of_type(field.type, (field.name,))


def _leaves_of_type(
    kind: pa.DataType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    if pa.types.is_list(kind):
        yield from _leaves_of_type(kind.value_type, (*path, "element"))
    elif pa.types.is_map(kind):
        yield from _leaves_of_type(kind.item_type, (*path, "value"))
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves_of_type(field.type, (*path, field.name))
    else:
        yield path, kind


def _scan(spark: SparkSession, query: SliceQuery, slices: Sequence[FileSlice]) -> DataFrame:
    paths = [_hadoop_path(query.storage_uri, s.base.path) for s in slices if s.base is not None]
    options = {**_SCAN_OPTIONS, _VERIFY_PAGES: str(query.verifies).lower()}
    if any(pa.types.is_floating(kind) for _, kind in _leaves(query.result_schema)):
        # Spark would look 0.0 up among the values of a file by its bits, and pass over -0.0.
        options[_BY_DICTIONARY] = "false"
    reader = spark.read.schema(frame_schema_of(query.result_schema)).options(**options)
    with _planning_many_files(spark):
        return reader.parquet(*paths)


def _hadoop_path(table_uri: str, path: str) -> str:
    scheme, separator, rest = table_uri.partition("://")
    if not separator:
        scheme, rest = "file", table_uri
    name = _PATTERN_SIGNS.sub(r"\\\g<0>", f"{rest}/{path}")
    return f"{_HADOOP_SCHEMES.get(scheme, scheme)}://{name}"


@contextmanager
def _planning_many_files(spark: SparkSession) -> Iterator[None]:
    is_ours = gateway_of(spark) is not None and spark.conf.get(_DISCOVERY_THRESHOLD, None) is None
    if is_ours:
        spark.conf.set(_DISCOVERY_THRESHOLD, "100000")
    try:
        yield
    finally:
        if is_ours:
            spark.conf.unset(_DISCOVERY_THRESHOLD)


def _merge(
    spark: SparkSession, query: SliceQuery, slices: Sequence[FileSlice], *, warms: bool
) -> DataFrame:
    task_count = TASKS_PER_CORE * core_count(spark)
    shares = balanced_shares(slices, task_count, lambda file_slice: file_slice.size_bytes)
    size_bytes = sum(file_slice.size_bytes for file_slice in slices)
    # Spark takes the size of the range for the size of the rows, and would send a large table to
    # every executor to join it. So the range claims about as many bytes, and one row of each task
    # passes the filter, whose effect Spark does not estimate.
    step = max(1, min(size_bytes // 8, CLAIMED_ROWS_MAX) // len(shares))
    numbers = spark.range(0, len(shares) * step, 1, len(shares)).where(f"id % {step} = 0")
    read = partial(_read_shares, query, shares, step, warms)
    return numbers.mapInArrow(read, frame_schema_of(query.result_schema))


def _read_shares(
    query: SliceQuery,
    shares: Sequence[list[FileSlice]],
    step: int,
    warms: bool,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    if warms:
        warm()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for rows in read_slices(query, shares[number // step]):
                for start in range(0, rows.num_rows, BATCH_ROWS):
                    yield normalise_rows(rows.slice(start, BATCH_ROWS))
