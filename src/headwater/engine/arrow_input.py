"""Rows of the Arrow world as a write takes them: whatever speaks Arrow's C interface.

What is in memory already is written from there. A stream is read once and may be endless for all
we know, yet a write that lost against another is done again with the same rows: so what does not
fit into a bound is laid aside on local disk first, a batch at a time.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from headwater.arrow.input_schema import check_values, normalise_rows
from headwater.engine.engine import Route, Rows, RowsTask
from headwater.engine.inline import InlineRows, run_as_one_task
from headwater.errors import InvalidInputError
from headwater.seams.network import LOOPBACK
from headwater.seams.system_errors import naming_scratch, scratch_error

if TYPE_CHECKING:
    import pyarrow.dataset as ds

R = TypeVar("R")
Table = TypeVar("Table", pa.RecordBatch, pa.Table)
Columns = Callable[[], pa.Schema]


class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class _ArrowArray(Protocol):
    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...


AnyArrow: TypeAlias = (
    "_ArrowStream | _ArrowArray | pa.Table | pa.RecordBatch | pa.RecordBatchReader "
    "| ds.Dataset | ds.Scanner"
)
"""Rows of the Arrow world; pandas and Polars frames and DuckDB relations are streams."""

BATCH_ROWS = 65_536
"""Rows that are read back from disk at a time."""


@contextmanager
def opened_arrow_rows(
    given: Any, memory_bytes: int, columns_of_table: Columns | None = None
) -> Iterator[Rows]:
    """Give rows in the form that a write takes, for as long as the block runs.

    Args:
        given: a pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, a pandas or
            Polars frame, a DuckDB relation, or anything else with `__arrow_c_stream__` or
            `__arrow_c_array__`.
        memory_bytes: how much of a stream is held in memory.
        columns_of_table: asked for the columns of the table where rows do not say enough.

    Raises:
        InvalidInputError: rows of another type, a column that comes twice or cannot be stored, a
            value that is not of its column's type.
    """
    table = _in_memory(given, columns_of_table)
    if table is not None:
        yield InlineRows(_taken(table))
        return
    with ExitStack() as stack:
        reader = stack.enter_context(_reader_of(given))
        batches = (_taken(batch) for batch in reader)
        schema = normalise_rows(reader.schema.empty_table()).schema
        held, size_bytes = list[pa.RecordBatch](), 0
        for batch in batches:
            held.append(batch)
            size_bytes += batch.nbytes
            if size_bytes > memory_bytes:
                break
        else:
            yield InlineRows(pa.Table.from_batches(held, schema))
            return
        with naming_scratch():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-rows-"))
        rows = SpooledRows(os.path.join(folder, "rows.arrow"), schema)
        rows.fill(chain(_drained(held), batches))
        yield rows


def arrow_table_of(given: Any, columns_of_table: Columns | None = None) -> pa.Table:
    """Load rows into memory, with the types that tables store; see `opened_arrow_rows`."""
    table = _in_memory(given, columns_of_table)
    if table is None:
        with _reader_of(given) as reader:
            table = reader.read_all()
    return _taken(table)


class SpooledRows:
    """Rows in a file of this machine, read as often as need be."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def driver_host(self) -> str:
        return LOOPBACK

    def held(self) -> None:
        return None

    def fill(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Write rows to the file."""
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        theirs: list[OSError] = []
        try:
            with (
                pa.OSFile(self._path, "wb") as sink,
                pa.ipc.new_stream(sink, self._schema, options=options) as writer,
            ):
                for batch in _noting(batches, theirs):
                    for start in range(0, batch.num_rows, BATCH_ROWS):
                        writer.write_batch(batch.slice(start, BATCH_ROWS))
        except OSError as error:
            if theirs:  # Where the rows come from is not ours to explain.
                raise
            raise scratch_error(error) from error

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        return run_as_one_task(self._batches(), route, task)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with (
            naming_scratch(),
            pa.OSFile(self._path, "rb") as source,
            pa.ipc.open_stream(source) as reader,
        ):
            yield from reader


def _taken(rows: Table) -> Table:
    """Return rows that a write can take, which whoever made them is not believed about."""
    taken = normalise_rows(rows)
    check_values(taken)
    return taken


def _in_memory(given: Any, columns_of_table: Columns | None) -> pa.Table | None:
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    pandas = sys.modules.get("pandas")  # Who gives a frame has loaded it; nobody else has to.
    if pandas is not None and isinstance(given, pandas.DataFrame):
        maps = _maps_among(given, columns_of_table)
        return _imported(partial(_table_of_frame, maps=maps), given)
    if not hasattr(given, "__arrow_c_stream__") and hasattr(given, "__arrow_c_array__"):
        return pa.Table.from_batches([_imported(pa.record_batch, given)])
    return None


def _maps_among(frame: Any, columns_of_table: Columns | None) -> dict[str, pa.DataType]:
    """Return the columns of a pandas frame that are maps in the table.

    Of those whose values are structs, fields that are new would get lost.
    """
    if columns_of_table is None or not frame.columns.is_unique:
        return {}
    unclear = {name for name in frame.columns if _is_unclear(frame[name])}
    return {
        field.name: field.type
        for field in (columns_of_table() if unclear else ())
        if field.name in unclear
        and pa.types.is_map(field.type)
        and not pa.types.is_nested(field.type.item_type)
    }


def _is_unclear(column: Any) -> bool:
    """Whether a pandas column has lists or dicts, which maps are there."""
    if column.dtype != object or column.empty:
        return False
    return isinstance(column.iloc[column.notna().to_numpy().argmax()], list | dict)


def _table_of_frame(frame: Any, maps: Mapping[str, pa.DataType]) -> pa.Table:
    """Return a pandas frame as rows; levels of its index that have names are columns, too.

    `set_index` and `groupby` make them of columns, which a write would else take for missing ones.
    """
    if not frame.columns.is_unique:
        raise pa.ArrowInvalid("a column comes twice")
    names = [name for name in frame.index.names if name is not None and name not in frame.columns]
    if names:
        frame = frame.reset_index(
            [place for place, name in enumerate(frame.index.names) if name in names]
        )
    plain = frame.drop(columns=[*maps]) if maps else frame  # It copies.
    rows = pa.Table.from_pandas(plain, preserve_index=False)
    for name, kind in maps.items():
        rows = rows.append_column(name, pa.chunked_array([frame[name]], kind))
    return rows


def _imported(take: Callable[[Any], R], given: Any) -> R:
    """Return what speaks Arrow's C interface as rows, which not all of its values are."""
    try:
        return take(given)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidInputError(
            f"{type(given).__name__} cannot be taken as rows: {error}. Give a table, a batch "
            "or structs with a field for each column"
        ) from error


def _reader_of(given: Any) -> pa.RecordBatchReader:
    if isinstance(given, pa.RecordBatchReader):
        return given
    # Who gives a dataset has loaded them, and with them pandas; nobody else has to.
    datasets = sys.modules.get("pyarrow.dataset")
    if datasets is not None and isinstance(given, datasets.Dataset):
        return given.scanner().to_reader()
    if datasets is not None and isinstance(given, datasets.Scanner):
        return given.to_reader()
    if hasattr(given, "__arrow_c_stream__"):
        return _imported(pa.RecordBatchReader.from_stream, given)
    if _package_of(given) == "polars" and hasattr(given, "collect_batches"):
        return _lazy_frame_reader(given)
    raise InvalidInputError(
        "Rows are a Spark DataFrame, or anything with Arrow's C stream or array interface: a "
        "pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, a pandas or Polars "
        f"frame, a DuckDB relation; got {type(given).__name__}. Of a list of dicts, "
        "pyarrow.Table.from_pylist makes a Table"
    )


def _lazy_frame_reader(frame: Any) -> pa.RecordBatchReader:
    """Read a lazy frame of Polars a batch at a time."""
    schema = frame.collect_schema().to_frame(eager=True).to_arrow().schema
    batches = (
        batch.cast(schema)
        for some in frame.collect_batches()
        for batch in some.to_arrow().to_batches()
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def _package_of(given: Any) -> str:
    return type(given).__module__.partition(".")[0]


def _drained(held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give what was held, and let go of it."""
    held.reverse()
    while held:
        yield held.pop()


def _noting(batches: Iterator[pa.RecordBatch], raised: list[OSError]) -> Iterator[pa.RecordBatch]:
    """Give batches, and note what whoever gives them raises."""
    try:
        yield from batches
    except OSError as error:
        raised.append(error)
        raise
