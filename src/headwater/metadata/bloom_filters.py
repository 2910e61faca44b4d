"""Records of `bloom_filters`: the filter over the record keys of each base file.

They come from the footers. A base file without a filter, as tables have them whose own index does
without, gets one from its keys: other engines expect every base file in the index.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import pyarrow as pa

from headwater.arrow.meta_columns import RECORD_KEY
from headwater.files.base_files import open_base_file
from headwater.format.bloom import KEYS_MAX, BloomFilterBuilder
from headwater.format.metadata.records import encode_bloom_filters
from headwater.metadata.index_keys import bloom_filter_keys
from headwater.metadata.records import MetadataRecords
from headwater.model.files import BaseFile
from headwater.seams.storage import Storage


class FileFilter(NamedTuple):
    """A base file and its filter, as the base64 text of format rule 6.2."""

    file: BaseFile
    type_code: str
    text: str


def load_filter(storage: Storage, file: BaseFile) -> FileFilter | None:
    """Load the filter of a base file; None if its rows have no record keys.

    Raises:
        CorruptTableError: the file is missing or damaged.
    """
    with open_base_file(storage, file) as reader:
        stored = reader.bloom_text()
        if stored is not None:
            return FileFilter(file, *stored)
        if RECORD_KEY not in reader.schema.names:
            return None
        keys_per_row = max(1, reader.row_count)
        builder = BloomFilterBuilder(
            keys_per_row=keys_per_row, keys_max=max(keys_per_row, KEYS_MAX)
        )
        for batch in reader.iter_batches([RECORD_KEY]):
            builder.add(batch.column(0))
    built = builder.build()
    return FileFilter(file, built.type, built.to_text())


def bloom_filter_records(filters: Sequence[FileFilter]) -> MetadataRecords:
    """Return the entries of some base files, with the times of the instants that wrote them."""
    keys: list[pa.StringArray] = []
    values: list[pa.BinaryArray] = []
    for one in filters:
        file = one.file
        keys.append(_keys([file]))
        values.append(
            encode_bloom_filters(
                pa.array([one.text.encode()], pa.binary()), one.type_code, file.instant_time
            )
        )
    return _entries(keys, values)


def removed_blooms(files: Collection[BaseFile]) -> MetadataRecords:
    """Return the entries by which base files are forgotten."""
    by_time: dict[str, list[BaseFile]] = {}
    for file in files:
        by_time.setdefault(file.instant_time, []).append(file)
    keys = [_keys(some) for some in by_time.values()]
    values = [
        encode_bloom_filters(pa.array([b""] * len(some), pa.binary()), "", time, is_deleted=True)
        for time, some in by_time.items()
    ]
    return _entries(keys, values)


def _keys(files: Sequence[BaseFile]) -> pa.StringArray:
    return bloom_filter_keys(
        pa.array([file.partition for file in files], pa.string()),
        pa.array([file.name for file in files], pa.string()),
    )


def _entries(keys: list[pa.StringArray], values: list[pa.BinaryArray]) -> MetadataRecords:
    if not keys:
        return MetadataRecords.none()
    return MetadataRecords(
        pa.concat_arrays(keys), pa.concat_arrays(values), pa.array([], pa.string())
    )
