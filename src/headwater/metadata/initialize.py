"""The indexes that a table begins with: what its options ask for, all of them empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from headwater.config.metadata import METADATA_ENABLE, MetadataConfig
from headwater.config.table import TableConfig
from headwater.config.table_options import INDEX_TYPE, RECORD_INDEXES, IndexType
from headwater.errors import ErrorKind, InvalidInputError
from headwater.format.avro.schema import parse_avro_schema
from headwater.format.metadata.index_definitions import encode_index_definitions
from headwater.kernel.layout import INDEX_DEFINITIONS, PROPERTIES
from headwater.metadata.bootstrap import create_metadata_table
from headwater.metadata.definitions import (
    define_index,
    is_partitioned_index,
)
from headwater.metadata.partition_kinds import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
)
from headwater.seams.storage import Storage


def with_first_indexes(config: TableConfig, metadata: MetadataConfig) -> TableConfig:
    """Return the config of a new table that says which indexes it has.

    Raises:
        InvalidInputError: kind INVALID_OPTION; records are to be found by an index that the table
            is not to have.
    """
    if _needs_record_index(config) and not metadata.is_enabled:
        raise InvalidInputError(
            f"{INDEX_TYPE.key}={config.index_type} needs the metadata table, but "
            f"{METADATA_ENABLE.key} is false. Choose another index, or leave it on",
            kind=ErrorKind.INVALID_OPTION,
        )
    names = tuple(sorted(wanted_indexes(config, metadata)))
    has_definitions = bool({COLUMN_STATS, RECORD_INDEX} & set(names))
    changed = replace(
        config,
        metadata_partitions=names,
        index_defs_path=INDEX_DEFINITIONS if has_definitions else config.index_defs_path,
    )
    return TableConfig.from_properties(changed.to_properties(), path=PROPERTIES)


def create_first_indexes(storage: Storage, config: TableConfig, metadata: MetadataConfig) -> None:
    """Create the indexes of a table that does not exist yet, by its config.

    Of several creators all write the same, and one that dies leaves no table: what makes it one is
    its config, which comes afterwards.

    Raises:
        InvalidInputError: kind INVALID_INDEX; statistics cannot be of the columns that are named.
            Nothing is written then.
    """
    names = config.metadata_partitions
    if not names:
        return
    schema = parse_avro_schema(config.create_schema) if config.create_schema else pa.schema([])
    definitions = {
        name: define_index(
            name,
            schema,
            config=config,
            metadata=metadata,
        )
        for name in names
    }
    defined = {name: each for name, each in definitions.items() if each is not None}
    if defined:
        storage.put(INDEX_DEFINITIONS, encode_index_definitions(defined))
    # The list of files is the first, as in tables of stock Hudi.
    in_order = sorted(names, key=lambda name: (name != FILES, name))
    # One that is kept apart by partitions has no file groups as long as there are no partitions.
    groups = [
        (name, 0 if is_partitioned_index(name, config) else metadata.groups_of(name))
        for name in in_order
    ]
    create_metadata_table(storage, config, groups)


def wanted_indexes(config: TableConfig, metadata: MetadataConfig) -> Iterator[str]:
    """Give the indexes that options ask for."""
    if not metadata.is_enabled:
        return
    yield FILES
    if metadata.has_column_stats:
        yield COLUMN_STATS
        if metadata.has_partition_stats and config.partition_fields:
            yield PARTITION_STATS
    if metadata.has_bloom_filters:
        yield BLOOM_FILTERS
    if metadata.has_record_index or _needs_record_index(config):
        yield RECORD_INDEX


def _needs_record_index(config: TableConfig) -> bool:
    return config.index_type in (*RECORD_INDEXES, IndexType.RECORD_LEVEL_INDEX)
