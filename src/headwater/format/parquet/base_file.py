"""Parquet base files: large row groups, and a footer that other engines know.

Footer keys (format rule 6.1): the smallest and largest record key, the bloom filter with its type
if there is one, and the Avro schema. They are known when the last row was seen, and Parquet writes
the footer last, so a file of any size is written in one pass with one row group in memory.

One key is our own: which columns of floating point numbers hold NaN. Statistics leave it out,
although it is larger than every number, so that bounds alone would pass rows over. Other engines do
not know the key, so of row groups with NaN in a column there are no bounds, as in Spark's files.

Every page has a checksum, and so has the footer (`footer`). They are verified by every read, but
for one that is asked not to; the files of others are verified as far as they have checksums.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.config.files import Compression
from headwater.format.bloom import (
    BloomFilter,
    BloomFilterBuilder,
    MalformedBloomError,
    parse_bloom_filter,
)
from headwater.format.parquet.columns import (
    codec_name,
    compression_level,
    encoded_as,
    low_cardinality_columns,
    low_cardinality_in_footer,
    with_dictionaries,
)
from headwater.format.parquet.footer import (
    UNKNOWN_CHECKSUM,
    check_row_count,
    corrupt_base_file,
    naming_damage,
    parse_file_end,
    read_file_end,
    stamp_checksum,
)
from headwater.format.parquet.nan_columns import (
    columns_with_nan,
    nan_entries,
    noted_nan_columns,
    real_columns,
)
from headwater.format.parquet.row_group_copy import without_bounds

ROW_GROUP_ROWS = 262_144
"""Smaller groups cost time (10,000 rows: 1.9 times), larger ones memory."""
ROW_GROUP_BYTES = 64 * 1024 * 1024
"""How much a group takes in memory, about, whatever the width of its rows. To decode texts takes
three times as much again, because Arrow lets their room grow by doubling it."""

BATCH_ROWS = 262_144
BATCH_BYTES = ROW_GROUP_BYTES
"""How much a batch takes, about, of a group of somebody else's that is much larger than ours."""
RECORD_KEY = "_hoodie_record_key"

_MIN_KEY = "hoodie_min_record_key"
_MAX_KEY = "hoodie_max_record_key"
_BLOOM = "org.apache.hudi.bloomfilter"
_BLOOM_TYPE = "hoodie_bloom_filter_type_code"
_AVRO_SCHEMA = "parquet.avro.schema"
_MODEL = "writer.model.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFileStats:
    """What is known of a file that was just written. `footer` has the statistics of its columns."""

    row_count: int
    size_bytes: int
    min_key: str | None
    max_key: str | None
    footer: pq.FileMetaData


def write_base_file(
    batches: Iterable[pa.RecordBatch | pa.Table],
    schema: pa.Schema,
    *,
    sink: BinaryIO,
    avro_schema_json: str | None = None,
    codec: Compression = Compression.ZSTD,
    bloom: BloomFilterBuilder | None = None,
    row_group_rows: int = ROW_GROUP_ROWS,
) -> BaseFileStats:
    """Write rows to `sink`, normally what `Storage.open_output` gives.

    `schema` has the meta columns first. A batch has these columns in this order; text may come as
    dictionaries, which are written as they are.

    Raises:
        InvalidInputError: a batch lacks a column, or has values that do not fit its type.
    """
    with ExitStack() as stack:
        writer: _Writer | None = None
        for group in _row_groups(batches, schema, row_group_rows):
            writer = writer or stack.enter_context(_Writer(group, sink, codec, bloom))
            writer.write(group)
        empty = schema.empty_table()
        writer = writer or stack.enter_context(_Writer(empty, sink, codec, bloom))
        return writer.finish(avro_schema_json)


def read_base_file(source: BinaryIO, path: str, *, verifies: bool = True) -> BaseFileReader:
    """Read the footer of an open base file; the reader closes the source, or this does if it fails.

    Args:
        verifies: whether checksums are compared, as far as the file has them.

    Raises:
        CorruptTableError: it is no Parquet file.
    """
    with ExitStack() as stack:
        stack.callback(source.close)
        with naming_damage(path):
            file_end = read_file_end(source, verifies=verifies)
            reader = BaseFileReader(source, parse_file_end(file_end), path, verifies=verifies)
        stack.pop_all()  # From here on the reader closes it.
        return reader


# Below, to wake threads takes longer than to decode.
_BYTES_WORTH_THREADS = 1024 * 1024


class BaseFileReader:
    """A base file that is open for reading."""

    def __init__(
        self, source: BinaryIO, footer: pq.FileMetaData, path: str, *, verifies: bool = True
    ) -> None:
        self._source = source
        self._path = path
        self._verifies = verifies
        self.footer = footer
        self.schema: pa.Schema = footer.schema.to_arrow_schema().remove_metadata()
        # Arrow does not look whether names are text until it is asked for them.
        self._columns = [footer.schema.column(at).path for at in range(footer.num_columns)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._source.close()

    @property
    def row_count(self) -> int:
        count: int = self.footer.num_rows
        return count

    @property
    def key_range(self) -> tuple[str, str] | None:
        """The smallest and the largest record key, if the writer noted them."""
        low, high = self._footer_text(_MIN_KEY), self._footer_text(_MAX_KEY)
        return None if low is None or high is None else (low, high)

    def bloom_filter(self) -> BloomFilter | None:
        """Return the filter over the record keys, if the file has one.

        Raises:
            CorruptTableError: it is malformed.
        """
        stored = self.bloom_text()
        if stored is None:
            return None
        type_code, text = stored
        try:
            return parse_bloom_filter(text, type_code)
        except MalformedBloomError as error:
            raise corrupt_base_file(self._path, str(error)) from error

    def bloom_text(self) -> tuple[str, str] | None:
        """Return the type and the text of the filter, as they stand in the footer."""
        text, type_code = self._footer_text(_BLOOM), self._footer_text(_BLOOM_TYPE)
        return None if text is None or type_code is None else (type_code, text)

    def nan_columns(self) -> frozenset[str] | None:
        """Return the columns that hold NaN, dotted inside of structs; None if nobody noted them."""
        with naming_damage(self._path):
            return noted_nan_columns(self.footer.metadata)

    def row_groups_overlapping(self, column: str, low: Any, high: Any) -> list[int]:
        """Return the row groups that may hold values of a top-level column from low to high.

        A bound of None is open. Groups without statistics are among them, groups of nulls not.

        Raises:
            CorruptTableError: the footer is malformed.
        """
        groups = range(self.footer.num_row_groups)
        if column not in self._columns:
            return list(groups)
        at = self._columns.index(column)
        with self.naming_damage():
            chunks = (self.footer.row_group(group).column(at) for group in groups)
            return [group for group, chunk in enumerate(chunks) if _may_hold(chunk, low, high)]

    def naming_damage(self) -> AbstractContextManager[None]:
        """Look at the footer: an error of Arrow's about it then names the file."""
        return naming_damage(self._path)

    def iter_batches(
        self,
        columns: Collection[str] | None = None,
        *,
        batch_rows: int = BATCH_ROWS,
        row_groups: Iterable[int] | None = None,
        keeps_dictionaries: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, with the columns that are asked for and there, in file order.

        With `keeps_dictionaries`, text that repeats comes as dictionaries, which makes copying a
        file a third cheaper.

        Raises:
            CorruptTableError: a page does not decode, or does not match its checksum.
            StorageError: the file cannot be read.
        """
        names = [name for name in self.schema.names if columns is None or name in columns]
        groups = range(self.footer.num_row_groups) if row_groups is None else row_groups
        with naming_damage(self._path):
            repeated = low_cardinality_in_footer(self.footer) if keeps_dictionaries else []
            file = pq.ParquetFile(
                self._source,
                metadata=self.footer,
                read_dictionary=[name for name in repeated if name in names],
                coerce_int96_timestamp_unit="us",
                pre_buffer=True,
                page_checksum_verification=self._verifies,
            )
            # One group at a time: what is read ahead is then bounded by a group.
            for group in groups:
                row_count, described = 0, self.footer.row_group(group)
                batches = file.iter_batches(
                    min(batch_rows, self._batch_rows_max(described, names)),
                    row_groups=[group],
                    columns=names,
                    use_threads=described.total_byte_size >= _BYTES_WORTH_THREADS,
                )
                for batch in batches:
                    row_count += batch.num_rows
                    yield batch
                check_row_count(row_count, described.num_rows)

    def _batch_rows_max(self, group: pq.RowGroupMetaData, names: Collection[str]) -> int:
        """Return how many rows of a group, with some columns, are about as large as a batch."""
        if group.total_byte_size <= 2 * ROW_GROUP_BYTES:
            return BATCH_ROWS
        read = (at for at, path in enumerate(self._columns) if path.split(".")[0] in names)
        size_bytes: int = sum(group.column(at).total_uncompressed_size for at in read)
        batch_count = max(1, round(size_bytes / BATCH_BYTES))
        row_count: int = group.num_rows
        return max(1, -(-row_count // batch_count))

    def read(
        self, columns: Collection[str] | None = None, *, row_groups: Iterable[int] | None = None
    ) -> pa.Table:
        """Return the rows as one table.

        Raises:
            CorruptTableError: as `iter_batches`.
        """
        kept = [field for field in self.schema if columns is None or field.name in columns]
        batches = self.iter_batches(columns, row_groups=row_groups)
        return pa.Table.from_batches(
            (batch.cast(pa.schema(kept)) for batch in batches), pa.schema(kept)
        )

    def _footer_text(self, key: str) -> str | None:
        found: bytes | None = (self.footer.metadata or {}).get(key.encode())
        with naming_damage(self._path):
            return None if found is None else found.decode()


class _Writer:
    """One file being written. How its columns are encoded follows from the first row group.

    Use as a context manager: Arrow would write the footer of a file that was not finished whenever
    it comes to be collected, to a sink that is closed by then.
    """

    def __init__(
        self, first: pa.Table, sink: BinaryIO, codec: Compression, bloom: BloomFilterBuilder | None
    ) -> None:
        self._sink = sink
        self._bloom = bloom
        self._footers: list[pq.FileMetaData] = []
        self._min_key: str | None = None
        self._max_key: str | None = None
        self._real_columns = list(real_columns(first.schema))
        self._nan_columns: set[str] = set()
        self._nan_chunks: set[tuple[int, str]] = set()
        self._group_count = 0
        self._output = _HeldTail(sink)
        self._writer = pq.ParquetWriter(
            self._output,
            first.schema,
            compression=codec_name(codec),
            compression_level=compression_level(codec),
            use_dictionary=low_cardinality_columns(first),
            write_page_checksum=True,
            store_schema=False,
            metadata_collector=self._footers,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer.is_open:
            with suppress(Exception):  # The caller has an error already, perhaps the sink's own.
                self._writer.close()
            self._writer.is_open = False

    def write(self, group: pa.Table) -> None:
        """Write one row group."""
        self._writer.write_table(group, row_group_size=group.num_rows)
        if RECORD_KEY in group.schema.names:
            self._note_keys(group[RECORD_KEY])
        self._note_nans(group)
        self._group_count += 1

    def finish(self, avro_schema_json: str | None) -> BaseFileStats:
        self._writer.add_key_value_metadata(self._footer_values(avro_schema_json))
        self._output.hold()
        self._writer.close()
        file_end = self._output.held
        (footer,) = self._footers
        if self._nan_chunks:
            file_end = without_bounds(file_end, self._nan_chunks)
            footer = parse_file_end(file_end)
        stamp_checksum(file_end)
        self._sink.write(file_end)
        return BaseFileStats(
            row_count=footer.num_rows,
            size_bytes=self._sink.tell(),
            min_key=self._min_key,
            max_key=self._max_key,
            footer=footer,
        )

    def _note_keys(self, keys: pa.ChunkedArray) -> None:
        found = pc.min_max(keys).as_py()
        low, high = found["min"], found["max"]
        if low is None:
            return
        self._min_key = low if self._min_key is None else min(self._min_key, low)
        self._max_key = high if self._max_key is None else max(self._max_key, high)
        if self._bloom is not None:
            for chunk in keys.chunks:
                self._bloom.add(chunk)

    def _note_nans(self, group: pa.Table) -> None:
        for name in columns_with_nan(group, self._real_columns):
            self._nan_columns.add(name)
            self._nan_chunks.add((self._group_count, name))

    def _footer_values(self, avro_schema_json: str | None) -> dict[str, str]:
        values: dict[str, str] = {}
        if avro_schema_json is not None:
            values |= {_AVRO_SCHEMA: avro_schema_json, _MODEL: "avro"}
        values |= nan_entries(self._real_columns, self._nan_columns)
        values |= key_entries(self._min_key, self._max_key, self._bloom)
        return values | UNKNOWN_CHECKSUM


class _HeldTail:
    """A sink that can keep back the end of a file, to be changed before it is written."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._is_holding = False
        self.held = bytearray()
        self.closed = False

    def hold(self) -> None:
        """Keep what comes from now on."""
        self._is_holding = True

    def write(self, data: bytes) -> int:
        if self._is_holding:
            self.held += data
        else:
            self._sink.write(data)
        return len(data)

    def tell(self) -> int:
        return self._sink.tell() + len(self.held)

    def flush(self) -> None:
        """Nothing of it is kept but what is held."""

    def close(self) -> None:
        self.closed = True


def key_entries(
    min_key: str | None, max_key: str | None, bloom: BloomFilterBuilder | None
) -> dict[str, str]:
    """Return what a footer says of the record keys of its file."""
    values: dict[str, str] = {}
    if min_key is not None and max_key is not None:
        values |= {_MIN_KEY: min_key, _MAX_KEY: max_key}
    if bloom is not None:
        built = bloom.build()
        values |= {_BLOOM: built.to_text(), _BLOOM_TYPE: built.type}
    return values


def without_key_entries(entries: Mapping[str, str]) -> dict[str, str]:
    """Return what a footer says but for the record keys of its file."""
    dropped = (_MIN_KEY, _MAX_KEY, _BLOOM, _BLOOM_TYPE)
    return {key: value for key, value in entries.items() if key not in dropped}


def _row_groups(
    batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, row_group_rows: int
) -> Iterator[pa.Table]:
    """Gather batches, and cut tables, into row groups."""
    written: pa.Schema | None = None
    gathered: list[pa.Table] = []
    row_count = size_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        written = written or with_dictionaries(schema, rows)
        gathered.append(encoded_as(rows, written))
        row_count += rows.num_rows
        size_bytes += rows.nbytes
        if row_count >= row_group_rows or size_bytes >= ROW_GROUP_BYTES:
            yield from _cut(gathered, row_count, size_bytes, row_group_rows)
            gathered, row_count, size_bytes = [], 0, 0
    if gathered:
        yield from _cut(gathered, row_count, size_bytes, row_group_rows)


def _cut(
    gathered: list[pa.Table], row_count: int, size_bytes: int, row_group_rows: int
) -> Iterator[pa.Table]:
    """Yield groups. The last one takes the remainder, unless the rows are wide."""
    whole = pa.concat_tables(gathered).unify_dictionaries()
    group_count = max(1, row_count // row_group_rows, round(size_bytes / ROW_GROUP_BYTES))
    group_rows = min(row_group_rows, -(-row_count // group_count))
    for at in range(group_count):
        is_last = at == group_count - 1
        yield whole.slice(at * group_rows, None if is_last else group_rows)


def _may_hold(chunk: pq.ColumnChunkMetaData, low: Any, high: Any) -> bool:
    statistics = chunk.statistics
    if statistics is None:
        return True
    if not statistics.has_min_max:
        # Without bounds, only a group that is known to be all null is out of the question.
        return not (statistics.has_null_count and statistics.null_count == chunk.num_values)
    try:
        is_below = low is not None and statistics.max < low
        is_above = high is not None and statistics.min > high
    except (ValueError, OverflowError):
        # Years that Python does not know, or text that a writer cut within a character.
        return True
    return not (is_below or is_above)
