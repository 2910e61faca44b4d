"""Where the definitions of a table's indexes are, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.config.table import TableConfig
from headwater.errors import CorruptTableError, ErrorKind, NotFoundError
from headwater.format.metadata.index_definitions import (
    UNDEFINED_INDEXES,
    IndexDefinition,
    parse_index_definitions,
)
from headwater.kernel.layout import INDEX_DEFINITIONS
from headwater.seams.storage import Storage


def definitions_path(config: TableConfig) -> str:
    """Return the path of the definitions, relative to the table's base."""
    return config.index_defs_path or INDEX_DEFINITIONS


def load_index_definitions(storage: Storage, config: TableConfig) -> Mapping[str, IndexDefinition]:
    """Return the definitions by partition of the metadata table; a table may have none.

    Raises:
        CorruptTableError: kind CORRUPT_METADATA_TABLE; the file is damaged or lost, or an index of
            a table of version 9 has no version.
    """
    path = definitions_path(config)
    try:
        data = storage.read(path)
    except NotFoundError as error:
        defined = defined_indexes(config)
        if config.index_defs_path is None or not defined:
            return {}
        # Written before table config says where it is. Without it keys would be looked for, and
        # told, where the index does not have them.
        raise CorruptTableError(
            f"{path} is lost, which defines the indexes {', '.join(sorted(defined))}. Put it back "
            "from a copy, or drop these indexes and create them again",
            kind=ErrorKind.CORRUPT_METADATA_TABLE,
            path=path,
            table=storage.uri,
        ) from error
    return parse_index_definitions(data, table_version=config.version, path=path)


def defined_indexes(config: TableConfig) -> frozenset[str]:
    """Return the indexes, in use or being built, that nobody can use without the definitions."""
    names = {*config.metadata_partitions, *config.metadata_partitions_inflight}
    return frozenset(names - UNDEFINED_INDEXES)
