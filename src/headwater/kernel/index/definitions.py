"""The definitions of a table's indexes: what a new one says, and where they are.

Column statistics, the record index and every secondary index have one. The list of files,
partition statistics and bloom filters need none: there is nothing to choose about them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from headwater.config.table import TableConfig
from headwater.errors import ErrorKind, InvalidInputError, NotFoundError
from headwater.kernel.format.index_definitions import (
    IndexDefinition,
    IndexVersion,
    parse_index_definitions,
)
from headwater.kernel.index.column_ranges import COLUMNS_MAX, indexed_columns, leaf_type
from headwater.kernel.index.partition_kinds import PartitionKind, kind_of
from headwater.kernel.layout import HOODIE
from headwater.seams.storage import Storage

INDEX_DEFINITIONS = f"{HOODIE}/.index_defs/index.json"


def definitions_path(config: TableConfig) -> str:
    """Return the path of the definitions, relative to the table's base."""
    return config.index_defs_path or INDEX_DEFINITIONS


def load_index_definitions(storage: Storage, config: TableConfig) -> Mapping[str, IndexDefinition]:
    """Return the definitions by partition of the metadata table; a table may have none.

    Raises:
        CorruptTableError: kind CORRUPT_METADATA_TABLE; the file is damaged, or an index of a table
            of version 9 has no version.
    """
    path = definitions_path(config)
    try:
        data = storage.read(path)
    except NotFoundError:
        return {}
    return parse_index_definitions(data, table_version=config.version, path=path)


def define_index(
    name: str,
    schema: pa.Schema,
    *,
    columns: Sequence[str] = (),
    columns_max: int = COLUMNS_MAX,
    has_meta_fields: bool = True,
    is_partitioned: bool = False,
) -> IndexDefinition | None:
    """Return the definition of a new index; None if its kind has none.

    Args:
        name: that of its partition in the metadata table.
        schema: the table's data columns.
        columns: those of a secondary index, which must have one, or of column statistics.
        is_partitioned: whether a record index is kept apart by partitions of the table.

    Raises:
        InvalidInputError: kind INVALID_INDEX; there is no such index, or no such column.
    """
    unknown = [column for column in columns if leaf_type(schema, column) is None]
    if unknown:
        raise InvalidInputError(
            f"The index {name} is to be over {', '.join(unknown)}, which the table does not have, "
            f"or of a type that has no order. It has {', '.join(schema.names)}",
            kind=ErrorKind.INVALID_INDEX,
        )
    match kind_of(name):
        case PartitionKind.COLUMN_STATS:
            return IndexDefinition(
                index_name=name,
                index_type=name,
                index_function=name,
                source_fields=indexed_columns(
                    schema,
                    named=columns,
                    columns_max=columns_max,
                    has_meta_fields=has_meta_fields,
                ),
                version=IndexVersion.V2,
            )
        case PartitionKind.RECORD_INDEX:
            return IndexDefinition(
                index_name=name,
                index_type=name,
                index_options={"isPartitioned": str(is_partitioned).lower()},
                version=IndexVersion.V1,
            )
        case PartitionKind.SECONDARY_INDEX:
            if len(columns) != 1:
                raise InvalidInputError(
                    f"The secondary index {name} needs one column, got {len(columns)}: pass "
                    "columns=[...]",
                    kind=ErrorKind.INVALID_INDEX,
                )
            return IndexDefinition(
                index_name=name,
                index_type="secondary_index",
                index_function="identity",
                source_fields=tuple(columns),
                version=IndexVersion.V2,
            )
        case _:
            return None
