"""Rows of JSON, an object a line. A line that is none costs its row alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError
from headwater.ingest.bad_rows import BadRow
from headwater.ingest.formats.json_nesting import from_plain, plain_type
from headwater.ingest.formats.reading import Reading, naming_damage
from headwater.ingest.rows import SourceRows, made

_CHUNK_BYTES = 4 << 20
_LINE_BYTES_MAX = 64 << 20
_LINE = "line"
_BAD_ROW = re.compile(r" in row ([0-9]{1,9})$")
_OBJECT = r"(?s)^\s*\{.*\}\s*$"
_BOM = b"\xef\xbb\xbf"
"""What some programs of Windows begin a file with; it is no part of the first line."""
_NO_OBJECT = "The line does not begin with { and end with }"


def read_json(file: BinaryIO, reading: Reading) -> Iterator[SourceRows]:
    """Give the rows of a file.

    Raises:
        InvalidInputError: it is damaged; what came before is good.
    """
    with naming_damage("JSON"):
        first = 1
        for chunk in _chunks(file):
            lines = _lines_of(chunk)
            yield from parse_lines(lines, _numbers(first, len(lines)), reading)
            first += len(lines)


def parse_lines(lines: pa.Array, positions: pa.Array, reading: Reading) -> Iterator[SourceRows]:
    """Give the rows of JSON objects; empty lines are none."""
    is_there = pc.greater(pc.binary_length(lines), 0)
    lines, positions = lines.filter(is_there), positions.filter(is_there)
    # An object may not go over two lines, or rows and lines would be out of step.
    is_object = pc.match_substring_regex(lines, _OBJECT)
    is_none = pc.invert(is_object)
    for line, place in zip(lines.filter(is_none), positions.filter(is_none), strict=True):
        reading.bad.add(BadRow(reading.origin, place.as_py(), _NO_OBJECT, _text(line)))
    given = SourceRows(
        pa.record_batch([lines.filter(is_object)], names=[_LINE]),
        reading.origin,
        positions.filter(is_object),
    )
    if not given.rows.num_rows:
        return
    found = made(given, _Parser(reading).parse, reading.bad, _raw)
    if found is not None:
        part, result = found
        yield part.replaced_by(result)


class _Parser:
    """Parses many lines at once."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._schema = pa.schema(
            [pa.field(field.name, _parsed_as(field.type)) for field in reading.columns]
        )

    def parse(self, given: pa.RecordBatch) -> pa.RecordBatch:
        """Return a row for each line.

        Raises:
            pa.ArrowInvalid, InvalidInputError: one of them is no object of these columns.
        """
        import pyarrow.json as pajson

        lines = given.column(_LINE).cast(pa.string())
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        data = pc.binary_join(whole, "\n")[0].as_buffer()
        try:
            parsed = pajson.read_json(
                pa.BufferReader(data),
                read_options=pajson.ReadOptions(use_threads=False, block_size=data.size + 1),
                parse_options=pajson.ParseOptions(
                    explicit_schema=self._schema, unexpected_field_behavior="ignore"
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            told = _BAD_ROW.search(str(error))
            at = None if told is None else int(told[1])
            raise InvalidInputError(str(error), row=at) from error
        if parsed.num_rows != len(lines):
            raise InvalidInputError("The line has more than one object")
        (rows,) = parsed.combine_chunks().to_batches()
        return self._reading.as_columns(_nested(rows, self._reading.columns))


def _nested(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return rows whose structs, arrays and maps have the types that are wanted."""
    arrays = [
        from_plain(array, field.type) if pa.types.is_nested(field.type) else array
        for array, field in zip(rows.columns, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=columns.names)


def _parsed_as(kind: pa.DataType) -> pa.DataType:
    """Return what Arrow parses values of a type as: times as text, which is cast as SQL does."""
    is_text = pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_binary(kind)
    return pa.string() if is_text else plain_type(kind)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Give the bytes of whole lines, some at a time."""
    rest = file.read(len(_BOM)).removeprefix(_BOM)
    while read := file.read(_CHUNK_BYTES):
        rest += read
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[: end - 1]
            rest = rest[end:]
        elif len(rest) > _LINE_BYTES_MAX:
            raise InvalidInputError(f"It has a line of more than {_LINE_BYTES_MAX} bytes")
    if rest:
        yield rest


def _lines_of(chunk: bytes) -> pa.Array:
    whole = pa.array([chunk], pa.large_binary())
    lines = pc.split_pattern(whole, pattern=b"\n").flatten()
    trimmed = pc.replace_substring_regex(lines, pattern=rb"^\s+$", replacement=b"")
    return trimmed.cast(pa.binary())


def _numbers(first: int, count: int) -> pa.Array:
    return pa.array(range(first, first + count), pa.int64())


def _raw(line: pa.RecordBatch) -> str:
    return _text(line.column(_LINE)[0])


def _text(line: pa.Scalar) -> str:
    data: bytes = line.as_py()
    return data.decode(errors="replace")
