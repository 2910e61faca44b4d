"""Base files, opened through storage, and the bloom filters of new ones."""

from __future__ import annotations

from headwater.config.files import FileConfig
from headwater.config.table import TableConfig
from headwater.config.table_options import BLOOM_INDEXES
from headwater.errors import CorruptTableError, ErrorKind, NotFoundError, UnsupportedError
from headwater.format.bloom import BloomFilterBuilder
from headwater.format.parquet.base_file import BaseFileReader, read_base_file
from headwater.model.files import BaseFile
from headwater.seams.storage import Storage


def open_base_file(storage: Storage, file: BaseFile, *, verifies: bool = True) -> BaseFileReader:
    """Open a base file of a completed instant; the caller closes the reader.

    Args:
        verifies: whether checksums are compared, as far as the file has them.

    Raises:
        CorruptTableError: the file is missing, or is no Parquet file.
        UnsupportedError: by its name it is none.
    """
    if file.extension != "parquet":
        raise UnsupportedError(
            f"The base file {storage.uri}/{file.path} is one of the format "
            f"{file.extension.upper()}, and this release reads Parquet alone. Nothing is damaged: "
            "read the table with Apache Hudi, and write its rows into one with "
            "hoodie.table.base.file.format=PARQUET",
            path=file.path,
        )
    try:
        source = storage.open_input(file.path, file.size_bytes or None)
        return read_base_file(source, file.path, verifies=verifies)
    except NotFoundError as error:
        raise CorruptTableError(
            f"The base file {storage.uri}/{file.path} of a completed instant does not exist. "
            "If a clean ran meanwhile, read again; otherwise restore it from a copy",
            kind=ErrorKind.MISSING_DATA_FILE,
            path=file.path,
        ) from error


def new_bloom_filter(
    config: TableConfig, files: FileConfig, row_count_max: int
) -> BloomFilterBuilder | None:
    """Return an empty filter for a file of that many rows, if the table's index wants one."""
    if config.index_type not in BLOOM_INDEXES:
        return None
    keys_per_row = files.bloom_keys or max(1, row_count_max)
    return BloomFilterBuilder(
        keys_per_row=keys_per_row,
        false_positive_rate=files.bloom_false_positive_rate,
        keys_max=max(keys_per_row, files.bloom_keys_max),
    )
