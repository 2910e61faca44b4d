"""Rows as people have them, and which engine writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from headwater.config.files import FileConfig
from headwater.engine.engine import Rows
from headwater.engine.inline import InlineRows
from headwater.errors import InvalidInputError
from headwater.kernel.arrow.input_schema import normalise_rows

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame

AnyRows: TypeAlias = "DataFrame | pa.Table | pa.RecordBatch | pandas.DataFrame"


def rows_of(given: Any, files: FileConfig) -> Rows:
    """Return the rows in the form that a write takes.

    Raises:
        InvalidInputError: rows of another type.
    """
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        return InlineRows(normalise_rows(given))
    module = type(given).__module__.partition(".")[0]
    if module == "pandas":
        return InlineRows(normalise_rows(pa.Table.from_pandas(given, preserve_index=False)))
    raise InvalidInputError(
        f"Rows are a Spark DataFrame, a pyarrow Table or RecordBatch, or a pandas DataFrame; got "
        f"{type(given).__name__}"
    )
