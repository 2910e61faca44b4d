"""Fetching columns of data files with few requests and few bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import ErrorKind, NotFoundError, Retry
from headwater.kernel.timeline.history.archived_files import HistoryFile
from headwater.kernel.timeline.history.rows import (
    decode_portions,
    decode_table,
    open_data_file,
)
from headwater.seams.storage import Storage

WHOLE_READ_BYTES_MAX = 1024 * 1024
"""Files up to this size are read whole, all at once. An instant takes a hundred bytes or so, which
makes it most of them. Of a larger one only the columns wanted are fetched."""

_TAIL_BYTES = 64 * 1024
"""More than a usual footer, so that one request finds the columns."""


def load_columns(
    storage: Storage, folder: str, files: Sequence[HistoryFile], columns: Sequence[str]
) -> list[pa.Table]:
    """Read some columns of each of `files`.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND; a file was cleaned away. Look at the manifest again.
        CorruptTableError: a file is damaged.
    """
    small = [file for file in files if file.size_bytes <= WHOLE_READ_BYTES_MAX]
    whole = dict(zip(small, load_files(storage, folder, small), strict=True))
    tables = []
    for file in files:
        path = f"{folder}/{file.name}"
        data = whole.get(file) or _load_sparse(storage, path, file.size_bytes, columns)
        tables.append(decode_table(data, path, columns))
    return tables


def load_portions(
    storage: Storage, folder: str, file: HistoryFile, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Read some columns of one file, and give its rows in portions; else as `load_columns`."""
    path = f"{folder}/{file.name}"
    if file.size_bytes <= WHOLE_READ_BYTES_MAX:
        (data,) = load_files(storage, folder, [file])
        return decode_portions(data, path, columns)
    return decode_portions(_load_sparse(storage, path, file.size_bytes, columns), path, columns)


def load_files(storage: Storage, folder: str, files: Sequence[HistoryFile]) -> list[bytes]:
    """Read whole data files.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND; a file was cleaned away. Look at the manifest again.
    """
    paths = [f"{folder}/{file.name}" for file in files]
    found = []
    for path, data in zip(paths, storage.read_many(paths) if paths else (), strict=True):
        if data is None:
            raise _vanished(path)
        found.append(data)
    return found


def _load_sparse(storage: Storage, path: str, size_bytes: int, columns: Sequence[str]) -> bytearray:
    """Return a file in which everything but the footer and `columns` is zero."""
    sparse = bytearray(size_bytes)
    _fill(storage, path, sparse, max(0, size_bytes - _TAIL_BYTES), size_bytes)
    footer_start = size_bytes - 8 - int.from_bytes(sparse[-8:-4], "little")
    if 0 <= footer_start < size_bytes - _TAIL_BYTES:
        _fill(storage, path, sparse, footer_start, size_bytes - _TAIL_BYTES)
    for start, end in _spans(open_data_file(sparse, path).metadata, columns):
        _fill(storage, path, sparse, start, end)
    return sparse


def _spans(metadata: pq.FileMetaData, columns: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Give the bytes of `columns` in each row group; what lies side by side is one span."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = [group.column(index) for index in range(group.num_columns)]
        span = None
        for chunk in chunks:
            if chunk.path_in_schema not in columns:
                continue
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            end = start + chunk.total_compressed_size
            if span is not None and span[1] != start:
                yield span
                span = None
            span = (span[0] if span else start, end)
        if span is not None:
            yield span


def _fill(storage: Storage, path: str, sparse: bytearray, start: int, end: int) -> None:
    try:
        data = storage.read_range(path, start, end - start)
    except NotFoundError as error:
        raise _vanished(path) from error
    sparse[start : start + len(data)] = data


def _vanished(path: str) -> NotFoundError:
    return NotFoundError(
        f"{path} of the archived timeline is gone: it was merged into another file after its "
        "manifest was read. Load the archived timeline again",
        kind=ErrorKind.INSTANT_NOT_FOUND,
        retry=Retry.FRESH_VIEW,
        path=path,
    )
