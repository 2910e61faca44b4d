"""Which file groups hold the records that a query asks for by key or by an indexed column.

    record index       equality, or IN, on all fields of the record key
    secondary index    equality, or IN, on its column; it tells record keys, the record index tells
                       where they are

Both hold for the newest view alone: they tell where records are now. And the record index knows
one place of each key. So it is asked only where a key is in one place: in a table whose writers
look keys up in the whole table, and in a copy-on-write one with a bucket index and no partitions.
(With logs it may know too little: what Hudi 1.2 adds to the logs of a bucket, it does not add to
the record index, N-134.) One that is kept apart by partitions knows one place for each of them, and
is asked for all, in a table whose writers look keys up in it. A table of another engine does not
say how its writers look keys up, and may hold a key twice; whoever opens it with the option
`hoodie.index.type=RECORD_INDEX` says that it does not.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pyarrow as pa

from headwater.arrow.keys import KeyGenerator
from headwater.arrow.meta_columns import RECORD_KEY
from headwater.config.table import TableConfig
from headwater.config.table_options import GLOBAL_INDEXES, IndexType, TableType
from headwater.errors import CorruptTableError, InvalidInputError, UnsupportedError
from headwater.kernel.table_config import with_chosen_index
from headwater.metadata.partition_kinds import RECORD_INDEX, SECONDARY_INDEX_PREFIX
from headwater.metadata.record_lookup import find_locations, find_record_keys
from headwater.metadata.row_keys import secondary_text
from headwater.metadata.table import MetadataTable
from headwater.metadata.view import IndexedView
from headwater.model.files import FileGroupId
from headwater.queries.predicate import Condition, Predicate
from headwater.queries.pruning import key_rows

log = logging.getLogger(__name__)

RECORDS_MAX = 100_000
"""Records that a value of a secondary index may have; with more of them most files are read."""


def located_groups(
    view: IndexedView, where: Predicate, schema: pa.Schema, options: Mapping[str, str]
) -> frozenset[FileGroupId] | None:
    """Return the file groups that may hold rows which satisfy a condition; None: no index tells.

    Args:
        view: the newest view of the table.
        where: bound to the columns.
        schema: the table's data columns.
        options: those that the table was opened with.
    """
    config = with_chosen_index(view.config, options)
    table = view.metadata_table
    if table is None or not view.has_index(RECORD_INDEX):
        return None
    definition = table.definitions.get(RECORD_INDEX)
    is_partitioned = definition is not None and definition.is_partitioned
    if not (_has_keys_by_partition(config) if is_partitioned else _has_unique_keys(config)):
        return None
    try:
        keys = _record_keys(view.config, where, schema)
        if keys is None:
            keys = _secondary_keys(view, table, where, schema)
        return None if keys is None else _groups_of(table, keys)
    except CorruptTableError as error:
        # Less would be read than there is, so everything is.
        log.warning("index not used table=%s reason=%s", view.config.name, error)
        return None


def _has_unique_keys(config: TableConfig) -> bool:
    if config.index_type is IndexType.BUCKET:
        return not config.partition_columns and config.table_type is TableType.COPY_ON_WRITE
    return config.index_type in GLOBAL_INDEXES


def _has_keys_by_partition(config: TableConfig) -> bool:
    return config.index_type is IndexType.RECORD_LEVEL_INDEX


def _record_keys(config: TableConfig, where: Predicate, schema: pa.Schema) -> pa.StringArray | None:
    """Return the keys of all records that can satisfy a predicate; None if it names none."""
    for condition in where.conditions:
        if condition.column == RECORD_KEY and condition.is_equality:
            return pa.array(condition.literals, pa.string())
    if not config.record_key_fields:
        return None
    rows = key_rows(where.conditions, config.record_key_fields, schema)
    if rows is None:
        return None
    try:
        return KeyGenerator.from_config(config).record_keys(rows).cast(pa.string())
    except (InvalidInputError, UnsupportedError):
        return None


def _secondary_keys(
    view: IndexedView, table: MetadataTable, where: Predicate, schema: pa.Schema
) -> pa.StringArray | None:
    """Return the keys of the records with the values that a predicate names, by any index."""
    asked = {each.column: each for each in where.conditions if each.is_equality}
    for name, definition in sorted(table.definitions.items()):
        column = definition.source_fields[0] if len(definition.source_fields) == 1 else None
        if not name.startswith(SECONDARY_INDEX_PREFIX) or column not in asked:
            continue
        texts = _texts(asked[column], schema)
        if texts is not None and view.has_index(name):
            keys = find_record_keys(table, name, texts)
            return keys if len(keys) <= RECORDS_MAX else None
    return None


def _texts(condition: Condition, schema: pa.Schema) -> list[str | None] | None:
    """Return the values of a condition as a secondary index has them; None if it has other ones."""
    kind = schema.field(condition.column).type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date32(kind)):
        # One number has several texts, and engines differ on those of times.
        return None
    try:
        values = pa.array(condition.literals, kind)
        texts: list[str | None] = secondary_text(values, condition.column).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, InvalidInputError):
        return None
    return texts


def _groups_of(table: MetadataTable, keys: pa.StringArray) -> frozenset[FileGroupId]:
    if not len(keys):
        return frozenset()
    found = find_locations(table, keys)
    partitions = found["partition_path"].to_pylist()
    return frozenset(map(FileGroupId, partitions, found["file_id"].to_pylist()))
