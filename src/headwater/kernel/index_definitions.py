"""Where the definitions of a table's indexes are, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.config.table import TableConfig
from headwater.errors import NotFoundError
from headwater.format.metadata.index_definitions import IndexDefinition, parse_index_definitions
from headwater.kernel.layout import INDEX_DEFINITIONS
from headwater.seams.storage import Storage


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
