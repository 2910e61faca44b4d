"""Rows of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from headwater.ingest.formats.reading import BATCH_ROWS, Reading, fitted, naming_damage, numbered
from headwater.ingest.rows import SourceRows


def read_parquet(file: BinaryIO, reading: Reading) -> Iterator[SourceRows]:
    """Give the rows of a file.

    Raises:
        InvalidInputError: it is damaged; what came before is good.
    """
    import pyarrow.parquet as pq

    with naming_damage("Parquet"):
        opened = pq.ParquetFile(file)
        names = reading.present(opened.schema_arrow)
        first = 1
        for batch in opened.iter_batches(BATCH_ROWS, columns=names):
            rows = numbered(batch, reading.origin, first)
            first += batch.num_rows
            yield from fitted(rows, reading)
