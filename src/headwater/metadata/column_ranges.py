"""The range of a column's values in one file, from the footer of a base file or a log's rows.

    base file   the statistics of its row groups. Where a writer left them out, as Arrow does for
                long texts, the column is read; so every range is known
    log file    the footers of its data blocks, which are Parquet files; of blocks of Avro, and of
                columns that have another type in the table by now, the rows. Deletes bring no
                values, so a log of deletes alone has ranges over nothing: value count 0, no bounds,
                no type

Bounds are held as Parquet stores them ("raw"): numbers for dates and times, unscaled numbers for
decimals, bytes for text. They compare as the values do, and a footer has them without conversion.

- NaN is the largest value, as it is in Spark. Statistics leave it out, so a footer of ours notes it
  apart; in files of others columns of floating point numbers are read.
- A column that a file lacks has no range there, but rows of a log block lack it as null.
- Columns inside of structs have dotted names. Those inside of lists and maps have no range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.arrow.log_parts import DataPart
from headwater.arrow.meta_columns import (
    COMMIT_TIME,
    META_COLUMNS,
    OPERATION,
    PARTITION_PATH,
    RECORD_KEY,
    schema_with_meta_columns,
)
from headwater.errors import CorruptTableError, UnsupportedError
from headwater.files.base_files import open_base_file
from headwater.files.log_files import read_data_blocks
from headwater.format.avro.vectors import decimal_matrix
from headwater.format.log.blocks import decode_part, is_partial_block, open_rows
from headwater.format.log.frames import BlockType, LogBlock
from headwater.format.metadata.wrapped_values import RawBound
from headwater.format.parquet.base_file import BaseFileReader
from headwater.model.files import BaseFile, DataFile
from headwater.seams.storage import Storage

META_COLUMNS_INDEXED = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)
COLUMNS_MAX = 32
"""How many data columns have statistics when nobody names them, as in Hudi."""


class ColumnRange(NamedTuple):
    """What is known of the values of one column in one file, or in several.

    A tuple, because a commit may have a hundred thousand of them.
    """

    column: str
    type: pa.DataType
    """Null where there are no values."""
    low: RawBound | None
    high: RawBound | None
    """None where all values are null. With other values they are not known."""
    value_count: int
    """Nulls are counted."""
    null_count: int
    size_bytes: int = 0
    uncompressed_bytes: int = 0

    @property
    def has_bounds(self) -> bool:
        return self.low is not None and self.high is not None

    @property
    def is_known(self) -> bool:
        """Whether the bounds hold for all values."""
        return self.has_bounds or self.null_count == self.value_count


def indexed_columns(
    schema: pa.Schema,
    *,
    named: Sequence[str] = (),
    columns_max: int = COLUMNS_MAX,
    has_meta_fields: bool = True,
) -> tuple[str, ...]:
    """Return the columns that get statistics: those named, or else the first ones.

    Three meta columns come before them, in a table that has these. A column whose type has no
    order, or that does not exist, is left out.

    Args:
        schema: the table's data columns.
    """
    metas = META_COLUMNS_INDEXED if has_meta_fields else ()
    if named:
        data = [name for name in named if name not in META_COLUMNS_INDEXED]
        return (*metas, *(name for name in data if leaf_type(schema, name) is not None))
    usable = [
        field.name
        for field in schema
        if has_range(field.type) and field.name not in (*META_COLUMNS, OPERATION)
    ]
    return (*metas, *usable[:columns_max])


def leaf_type(schema: pa.Schema, column: str) -> pa.DataType | None:
    """Return the type of a column, by its dotted name; None if it has no range or is not there."""
    kind = column_type(schema, column)
    return kind if kind is not None and has_range(kind) else None


def column_type(schema: pa.Schema, column: str) -> pa.DataType | None:
    """Return the type of a column, by its dotted name; None if it is not there."""
    kind: pa.DataType | None = None
    for place, name in enumerate(column.split(".")):
        if place == 0:
            if name not in schema.names:
                return None
            kind = schema.field(name).type
        elif kind is not None and pa.types.is_struct(kind) and kind.get_field_index(name) >= 0:
            kind = kind.field(name).type
        else:
            return None
    return kind


def load_ranges(
    storage: Storage, files: Sequence[DataFile], columns: Sequence[str], schema: pa.Schema
) -> list[tuple[DataFile, Sequence[ColumnRange]]]:
    """Return files with the ranges of some columns in each, in the order of the columns.

    Args:
        schema: the table's data columns, whose types the rows of logs take on.

    Raises:
        CorruptTableError: a file is missing or damaged.
    """
    leaves, logged = _Leaves(columns), LogColumns(columns, schema)

    def ranges_of(file: DataFile) -> tuple[DataFile, Sequence[ColumnRange]]:
        if isinstance(file, BaseFile):
            with open_base_file(storage, file) as reader:
                return file, ranges_of_base_file(reader, leaves)
        return file, ranges_of_log(read_data_blocks(storage, file), logged)

    return storage.at_once(ranges_of, files)


class _Leaf(NamedTuple):
    """Where a footer has a column."""

    column: str
    place: int
    type: pa.DataType


class _Leaves:
    """Finds columns in footers. Files mostly have the columns of the file before, so it is kept
    where these were: to look them up takes longer than to read all their statistics."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        # In one piece, for several threads look for columns.
        self._last: tuple[pa.Schema, list[_Leaf]] | None = None

    def of_file(self, reader: BaseFileReader) -> list[_Leaf]:
        """Return those of the columns that a file has."""
        last = self._last
        if last is not None and reader.schema.equals(last[0]):
            return last[1]
        names = reader.footer.schema
        places = {names.column(at).path: at for at in range(len(names))}
        typed = [(column, leaf_type(reader.schema, column)) for column in self._columns]
        found = [
            _Leaf(column, places[column], kind)
            for column, kind in typed
            if kind is not None and column in places
        ]
        self._last = reader.schema, found
        return found


def ranges_of_base_file(
    reader: BaseFileReader, columns: Sequence[str] | _Leaves
) -> list[ColumnRange]:
    """Return the ranges of those columns that a base file has.

    Raises:
        CorruptTableError: statistics are malformed, or a column without them cannot be read.
    """
    with reader.naming_damage():
        return _ranges_of_footer(reader, columns)


def _ranges_of_footer(
    reader: BaseFileReader, columns: Sequence[str] | _Leaves
) -> list[ColumnRange]:
    leaves = columns if isinstance(columns, _Leaves) else _Leaves(columns)
    footer, nans = reader.footer, reader.nan_columns()
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    found = []
    for column, place, kind in leaves.of_file(reader):
        pieces = [_range_of_chunk(column, kind, group.column(place)) for group in groups]
        total = reduce(_joined, pieces) if pieces else _empty(column, kind)
        is_told = nans is not None or not pa.types.is_floating(kind)
        if not is_told or not all(piece.is_known for piece in pieces):
            read = _range_of_rows(column, kind, reader)
            total = total._replace(
                type=read.type, low=read.low, high=read.high, null_count=read.null_count
            )
        elif nans is not None and column in nans:
            total = total._replace(high=math.nan)
        found.append(total)
    return found


class LogColumns:
    """Columns of a table, by their types in it, which rows of logs take on."""

    def __init__(self, columns: Sequence[str], schema: pa.Schema) -> None:
        known = schema_with_meta_columns(schema)
        typed = [(column, leaf_type(known, column)) for column in columns]
        self.types = {column: kind for column, kind in typed if kind is not None}
        self.leaves = _Leaves(list(self.types))


def ranges_of_log(blocks: Sequence[tuple[LogBlock, str]], columns: LogColumns) -> list[ColumnRange]:
    """Return the ranges of columns over the rows of a log, given as blocks with their path.

    Rows of an older schema lack columns, which are null then; a partial row says nothing of them.

    Raises:
        CorruptTableError: a block is malformed.
        UnsupportedError: a column has values that its type in the table has not.
    """
    pieces = [_ranges_of_block(block, path, columns) for block, path in blocks]
    found = []
    for column, kind in columns.types.items():
        total = reduce(_joined, (piece[column] for piece in pieces), _empty(column, kind))
        found.append(total if total.value_count else _empty(column, pa.null()))
    return found


def _ranges_of_block(block: LogBlock, path: str, columns: LogColumns) -> dict[str, ColumnRange]:
    found = _told_by_footer(block, path, columns) if block.type is BlockType.PARQUET_DATA else {}
    rest = {column: kind for column, kind in columns.types.items() if column not in found}
    if rest:
        part = decode_part(block, {column.split(".")[0] for column in rest}, path=path)
        assert isinstance(part, DataPart)
        found |= {column: _range_of_part(column, kind, part) for column, kind in rest.items()}
    return found


def _told_by_footer(block: LogBlock, path: str, columns: LogColumns) -> dict[str, ColumnRange]:
    """Return the ranges of the columns that a block has as the table has them, or has not."""
    try:
        with open_rows(block, path=path) as reader:
            found = ranges_of_base_file(reader, columns.leaves)
            held, count = frozenset(reader.schema.names), reader.row_count
    except CorruptTableError:
        return {}  # Whoever decodes it says which block it is.
    told = {
        one.column: one._replace(size_bytes=0, uncompressed_bytes=0)
        for one in found
        if one.type == columns.types[one.column]
    }
    absent = {
        column: _of_absent(column, kind, count, is_partial=is_partial_block(block))
        for column, kind in columns.types.items()
        if column.split(".")[0] not in held
    }
    return told | absent


def join_ranges(ranges: Sequence[ColumnRange], schema: pa.Schema) -> list[ColumnRange]:
    """Return one range for each column, over all files; counts and sizes are added up.

    Files of an older schema have narrower numbers: the range has the type of the table, if values
    of theirs can be told in it. It has that type without values, too: Hudi takes the type of the
    newest record for the bounds of all.
    """
    known = schema_with_meta_columns(schema)
    by_column: dict[str, list[ColumnRange]] = {}
    for each in ranges:
        by_column.setdefault(each.column, []).append(each)
    joined = []
    for column, some in by_column.items():
        kind = leaf_type(known, column) or some[0].type
        widened = [_widened(each, kind) for each in some]
        joined.append(reduce(_joined, widened))
    return joined


def _range_of_chunk(column: str, kind: pa.DataType, chunk: pq.ColumnChunkMetaData) -> ColumnRange:
    statistics = chunk.statistics
    low: RawBound | None = None
    high: RawBound | None = None
    # Without a count of nulls none is taken for null, so that the column is read.
    null_count = 0
    if statistics is not None:
        if statistics.has_null_count:
            null_count = statistics.null_count
        if statistics.has_min_max and statistics.has_null_count:
            low = _raw_of_statistic(statistics.min_raw, kind)
            high = _raw_of_statistic(statistics.max_raw, kind)
    if low is None or high is None:
        low = high = None
    return ColumnRange(
        column,
        kind,
        low,
        high,
        chunk.num_values,
        null_count,
        chunk.total_compressed_size,
        chunk.total_uncompressed_size,
    )


def _raw_of_statistic(raw: RawBound, kind: pa.DataType) -> RawBound | None:
    if isinstance(raw, bytes):
        if pa.types.is_decimal(kind):
            return int.from_bytes(raw, "big", signed=True)
        if pa.types.is_string(kind):
            try:
                raw.decode()
            except UnicodeDecodeError:
                # Some writers cut long texts short, also within a character.
                return None
    return raw


def _range_of_rows(column: str, kind: pa.DataType, reader: BaseFileReader) -> ColumnRange:
    top = column.split(".")[0]
    pieces = [
        _range_of_values(column, _leaf(batch.column(top), batch.schema.field(top).type, column))
        for batch in reader.iter_batches([top])
    ]
    kinds = {piece.type for piece in pieces}
    # Legacy timestamps of nanoseconds are read as microseconds.
    return reduce(_joined, pieces, _empty(column, kinds.pop() if len(kinds) == 1 else kind))


def _range_of_part(column: str, kind: pa.DataType, part: DataPart) -> ColumnRange:
    top = column.split(".")[0]
    count = part.rows.num_rows
    if top not in part.rows.column_names:
        return _of_absent(column, kind, count, is_partial=part.is_partial)
    values = _leaf(part.rows[top].combine_chunks(), part.rows.schema.field(top).type, column)
    if values is None:
        return _of_absent(column, kind, count, is_partial=False)
    if values.type != kind:
        try:
            values = values.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            # Bounds that are left out would let other engines skip the file.
            raise UnsupportedError(
                f"Column {column} is {kind} in the table, and {values.type} in a log of instant "
                f"{part.instant_time} with values that are none: {error}. There can be no "
                "statistics of it; compact the file group, or leave the column out of them",
                instant=part.instant_time,
            ) from error
    return _range_of_values(column, values)


def _of_absent(column: str, kind: pa.DataType, count: int, *, is_partial: bool) -> ColumnRange:
    """Return the range of a column that rows lack: they have it as null, or say nothing of it."""
    known = 0 if is_partial else count
    return _empty(column, kind)._replace(value_count=known, null_count=known)


def _range_of_values(column: str, values: pa.Array | None) -> ColumnRange:
    if values is None:
        return _empty(column, pa.null())
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    found = pc.min_max(values)
    low, high = raw_of(found["min"], values.type), raw_of(found["max"], values.type)
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        high = math.nan
    return ColumnRange(column, values.type, low, high, len(values), values.null_count)


def raw_of(bound: pa.Scalar, kind: pa.DataType) -> RawBound | None:
    """Return a bound as Parquet stores it."""
    if not bound.is_valid:
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        data: bytes = bound.as_buffer().to_pybytes()
        return data
    if pa.types.is_decimal(kind):
        return int.from_bytes(
            decimal_matrix(pa.array([bound], kind))[0].tobytes(), "little", signed=True
        )
    if pa.types.is_temporal(kind):
        number: int = bound.value
        return number
    value: RawBound = bound.as_py()
    return value


def _leaf(values: pa.Array | None, kind: pa.DataType, column: str) -> pa.Array | None:
    """Return a column inside of structs; None if an inner one is not there."""
    for name in column.split(".")[1:]:
        if values is None or not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        # Nulls of the struct are nulls of what is inside.
        values = pc.struct_field(values, name)
        kind = values.type
    return values


def _joined(one: ColumnRange, other: ColumnRange) -> ColumnRange:
    is_known = one.is_known and other.is_known
    lows = [each.low for each in (one, other) if each.low is not None]
    highs = [each.high for each in (one, other) if each.high is not None]
    return ColumnRange(
        one.column,
        one.type,
        min(lows, key=_by_size) if lows and is_known else None,
        max(highs, key=_by_size) if highs and is_known else None,
        one.value_count + other.value_count,
        one.null_count + other.null_count,
        one.size_bytes + other.size_bytes,
        one.uncompressed_bytes + other.uncompressed_bytes,
    )


def _by_size(raw: RawBound) -> tuple[bool, RawBound]:
    """Return what bounds are compared by: NaN, the only value unlike itself, is the largest."""
    return raw != raw, raw


def _widened(one: ColumnRange, kind: pa.DataType) -> ColumnRange:
    if one.type == kind or not one.has_bounds:
        return one._replace(type=kind)
    if pa.types.is_integer(one.type) and pa.types.is_integer(kind):
        return one._replace(type=kind)
    if pa.types.is_decimal(one.type) and pa.types.is_decimal(kind):
        if one.type.scale == kind.scale:
            return one._replace(type=kind)
    elif _is_number(one.type) and pa.types.is_floating(kind):
        assert one.low is not None
        assert one.high is not None
        return one._replace(type=kind, low=float(one.low), high=float(one.high))
    return one._replace(type=kind, low=None, high=None)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _empty(column: str, kind: pa.DataType) -> ColumnRange:
    return ColumnRange(column, kind, None, None, 0, 0)


def has_range(kind: pa.DataType) -> bool:
    """Whether values of a type have an order, so that there are statistics of them."""
    return bool(
        pa.types.is_boolean(kind)
        or kind in _NUMBERS
        or pa.types.is_decimal128(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


_NUMBERS = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
