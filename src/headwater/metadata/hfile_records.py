"""Records of an HFile of the metadata table, be it a base file or a block of a log.

A file that got the content of another one is whole by all its checksums. Its folder is the
partition that it belongs to, and every record says of what type it is, so a file of another
partition is found out: taken as it is, it would say that nothing is known of any key.
"""

from __future__ import annotations

import pyarrow as pa

from headwater.format.avro.binary import MalformedAvroError
from headwater.format.hfile.blocks import corrupt
from headwater.format.hfile.reader import HFile, HFileEntries
from headwater.format.metadata.records import read_record_start
from headwater.format.metadata.schema import as_current
from headwater.metadata.partition_kinds import FILES, partition_of, record_types
from headwater.metadata.records import MetadataRecords


def records_of_hfile(file: HFile, held: HFileEntries) -> MetadataRecords:
    """Return what was read of a file, as records of the current schema.

    Raises:
        CorruptTableError: a record is malformed, or the file is one of another partition.
    """
    try:
        # One writer wrote all of it, so one record tells.
        sample = held.values[:1] if len(held.values) else file.first_values()[:1]
        types = {read_record_start(value)[0] for value in sample.to_pylist()}
        values = as_current(held.values, file.schema)
    except MalformedAvroError as error:
        raise corrupt(file.path, f"a record is malformed ({error})") from error
    partition = partition_of(file.path)
    if not types and partition == FILES:
        raise corrupt(file.path, "it is empty, and every table has a list of its partitions")
    if not types <= record_types(partition):
        raise corrupt(file.path, f"it has records of type {types.pop()}, as no {partition} has")
    return MetadataRecords(held.keys, values, pa.nulls(0, pa.string()))
