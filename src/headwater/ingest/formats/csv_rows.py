"""Rows of CSV files: read as text, then converted, so that a bad value costs its row alone.

A row is known by its number among the rows of the file, without the header and empty lines; a
quoted value may go over several lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from headwater.errors import InvalidInputError
from headwater.ingest.bad_rows import BadRow
from headwater.ingest.formats.reading import Reading, fitted, naming_damage
from headwater.ingest.rows import SourceRows

_BLOCK_BYTES = 4 << 20


def read_csv(file: BinaryIO, reading: Reading) -> Iterator[SourceRows]:
    """Give the rows of a file.

    Raises:
        InvalidInputError: it is damaged; what came before is good.
    """
    refused: list[int] = []
    unsaid: list[BadRow] = []

    def refuse(row: Any) -> str:
        number = row.number - (1 if reading.has_header else 0)
        refused.append(number)
        what = f"It has {row.actual_columns} values, and there are {row.expected_columns} columns"
        unsaid.append(BadRow(reading.origin, number, what, row.text))
        return "skip"

    def say_refused() -> None:
        for row in unsaid:  # Here, because Arrow does not pass on what `refuse` raises.
            reading.bad.add(row)
        unsaid.clear()

    with naming_damage("CSV"), _naming_long_rows():
        opened = _opened(file, reading, refuse)
        names, good = reading.present(opened.schema), 0
        for batch in opened:
            say_refused()
            rows = batch.select(names)
            positions = _positions(good, batch.num_rows, refused)
            good += batch.num_rows
            yield from fitted(SourceRows(rows, reading.origin, positions), reading)
        say_refused()


@contextmanager
def _naming_long_rows() -> Iterator[None]:
    """Say what is most often wrong where no row ends."""
    try:
        yield
    except pa.ArrowInvalid as error:
        if "straddling" not in str(error):
            raise
        raise InvalidInputError(
            "It cannot be read as CSV: a quotation mark is not closed, or a row is longer than "
            f"{_BLOCK_BYTES >> 20} MB"
        ) from error


def _opened(file: BinaryIO, reading: Reading, refuse: Any) -> Any:
    import pyarrow.csv as pacsv

    names = reading.columns.names
    return pacsv.open_csv(
        file,
        # One thread: with several the rows that are refused have no numbers.
        read_options=pacsv.ReadOptions(
            use_threads=False,
            block_size=_BLOCK_BYTES,
            column_names=None if reading.has_header else names,
        ),
        parse_options=pacsv.ParseOptions(
            delimiter=reading.delimiter, newlines_in_values=True, invalid_row_handler=refuse
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            check_utf8=False,  # What is none costs its row alone: `fitted` looks.
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )


def _positions(good: int, count: int, refused: list[int]) -> pa.Array:
    """Return the numbers of the next rows, of which `good` came before, without those refused."""
    last = good + count + len(refused)
    numbers = np.setdiff1d(np.arange(1, last + 1), np.array(refused, np.int64))
    return pa.array(numbers[good : good + count], pa.int64())
