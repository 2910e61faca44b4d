"""The record keys of data files, read alone."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa

from headwater.arrow.meta_columns import RECORD_KEY
from headwater.errors import CorruptTableError, ErrorKind
from headwater.files.base_files import open_base_file
from headwater.files.log_files import read_data_parts
from headwater.format.parquet.base_file import read_base_file
from headwater.model.files import BaseFile, DataFile, LogFile
from headwater.seams.storage import Storage

_WHOLE_BYTES_MAX = 1024 * 1024
"""A smaller file is read in one call, its footer and all."""


def load_record_keys(storage: Storage, files: Sequence[DataFile]) -> list[pa.ChunkedArray | None]:
    """Return the record keys of each of some files, in the order of its rows.

    None stands for a file that is gone: its rows were written elsewhere, and it was cleaned.

    Raises:
        CorruptTableError: a file is damaged.
    """
    small = [f for f in files if isinstance(f, BaseFile) and 0 < f.size_bytes <= _WHOLE_BYTES_MAX]
    paths = [file.path for file in small]
    contents = dict(zip(paths, storage.read_many(paths), strict=True))
    return [_load(storage, file, contents.get(file.path)) for file in files]


def _load(storage: Storage, file: DataFile, content: bytes | None) -> pa.ChunkedArray | None:
    try:
        if isinstance(file, LogFile):
            parts = read_data_parts(storage, file, {RECORD_KEY})
            return pa.chunked_array([part.record_keys for part in parts], pa.string())
        with (
            open_base_file(storage, file)
            if content is None
            else read_base_file(io.BytesIO(content), file.path)
        ) as reader:
            return reader.read([RECORD_KEY])[RECORD_KEY].cast(pa.string())
    except CorruptTableError as error:
        if error.kind is not ErrorKind.MISSING_DATA_FILE:
            raise
        return None
