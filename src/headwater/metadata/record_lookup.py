"""Where records are, by the record index and secondary indexes of the metadata table.

An answer may name too much and never too little: a location may be one where the record was once,
so whoever reads there checks the rows, and a location whose file group is not there any more counts
as none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.metadata.records import decode_record_locations
from headwater.metadata.index_keys import (
    partition_path_of,
    secondary_prefix,
    split_secondary_keys,
)
from headwater.metadata.partition_kinds import RECORD_INDEX
from headwater.metadata.table import MetadataTable


def find_locations(
    table: MetadataTable, keys: pa.StringArray, *, data_partition: str | None = None
) -> pa.Table:
    """Return the locations of those of some record keys that are known.

    The columns are `key`, `partition_path` and `file_id`. An index that is kept apart by partitions
    of the table may know a key in several; `data_partition` names the one that is asked.

    Raises:
        CorruptTableError: kind CORRUPT_METADATA_TABLE.
    """
    entries = table.look_up(RECORD_INDEX, keys, data_partition=data_partition)
    try:
        found = decode_record_locations(entries.values)
    except MalformedAvroError as error:
        raise _corrupt(RECORD_INDEX, error) from error
    encoded = found["partition_path"].combine_chunks().dictionary_encode()
    paths = pa.array([partition_path_of(name) for name in encoded.dictionary.to_pylist()])
    partitions = pa.DictionaryArray.from_arrays(encoded.indices, paths.cast(pa.string()))
    return pa.table(
        {"key": entries.keys, "partition_path": partitions, "file_id": found["file_id"]}
    )


def find_locations_by_partition(
    table: MetadataTable, keys: Mapping[str, pa.StringArray]
) -> pa.Table:
    """Return the locations of record keys by an index that is kept apart by partitions.

    Args:
        keys: by the partitions of the table in which they are looked for.

    Raises:
        CorruptTableError: kind CORRUPT_METADATA_TABLE.
    """
    known = table.data_partitions(RECORD_INDEX)
    found = [
        find_locations(table, some, data_partition=partition)
        for partition, some in keys.items()
        if partition in known
    ]
    plain = pa.schema([(name, pa.string()) for name in ("key", "partition_path", "file_id")])
    return pa.concat_tables([plain.empty_table(), *(one.cast(plain) for one in found)])


def find_record_keys(
    table: MetadataTable, partition: str, values: Iterable[str | None]
) -> pa.StringArray:
    """Return the keys of the records that have one of some values, by a secondary index.

    Args:
        values: the texts of the values in the index; None for null.

    Raises:
        CorruptTableError: kind CORRUPT_METADATA_TABLE.
    """
    found = [table.scan(partition, secondary_prefix(value)).keys for value in values]
    keys = pa.chunked_array(found, pa.string()).combine_chunks()
    try:
        _, records = split_secondary_keys(keys)
    except InvalidInputError as error:
        raise _corrupt(partition, error) from error
    return records.unique()


def _corrupt(partition: str, error: Exception) -> CorruptTableError:
    return CorruptTableError(
        f"An entry of the index {partition} is damaged: {error}. Drop the index and create it "
        "again",
        kind=ErrorKind.CORRUPT_METADATA_TABLE,
    )
