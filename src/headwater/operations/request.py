"""What a write is asked to do, and what is refused before anything begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.arrow.input_schema import stored_schema
from headwater.arrow.meta_columns import META_COLUMNS
from headwater.arrow.schema_evolution import evolve_schema
from headwater.config.files import (
    BULK_INSERT_SORT_COLUMNS,
    INSERT_DUPLICATES,
    DuplicatePolicy,
    FileConfig,
)
from headwater.config.table import TableConfig
from headwater.config.table_options import (
    CDC_ENABLED,
    GLOBAL_INDEXES,
    LOOKUP_INDEXES,
    POPULATE_META_FIELDS,
    IndexType,
    MergeMode,
)
from headwater.engine.engine import Rows
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError
from headwater.format.parquet.nesting import check_nesting
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import IndexedView
from headwater.metadata.writer import check_indexes_supported
from headwater.model.column_names import OWN_PREFIX
from headwater.operations.plan import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """What to write."""

    operation: Operation
    columns: pa.Schema | None
    """The columns of the rows; None for an operation that brings none."""
    is_partial: bool = False
    partitions: tuple[str, ...] = ()
    """What DELETE_PARTITIONS removes, and OVERWRITE_PARTITIONS besides those that rows go to."""
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    reads_table: bool = False
    """Whether the rows are made of rows that the table held: see `RowsOfTable`."""
    precondition: Callable[[], None] | None = None
    """Called under the table lock before the commit; what it raises gives the write up. For who
    writes a thing only if the table does not have it yet."""


@dataclass(frozen=True, slots=True)
class RowsOfTable:
    """Rows that are made of what the table holds as of the snapshot of their own write.

    So whoever changes their file groups after that is found by the conflict check, and the rows are
    made again of what the other left (INV-95).
    """

    make: Callable[[IndexedView], Rows]


def check_features(config: TableConfig) -> None:
    """Refuse a table with what each write has to keep up to date and this release does not."""
    check_indexes_supported(config)
    if config.is_cdc_enabled:
        raise UnsupportedError(
            f"Table {config.name} has {CDC_ENABLED.key}=true, so each write has to leave change "
            "logs, which this release reads but does not write",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )
    if not config.has_meta_fields:
        raise UnsupportedError(
            f"Table {config.name} has {POPULATE_META_FIELDS.key}=false, which this release reads "
            "but cannot write",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )


def check_request(config: TableConfig, request: WriteRequest, files: FileConfig) -> None:
    names = () if request.columns is None else request.columns.names
    if own := [name for name in names if name.startswith(OWN_PREFIX)]:
        raise InvalidInputError(
            f"Rows for table {config.name} have the column {own[0]}; names that begin with "
            f"{OWN_PREFIX} are Headwater's own. Rename it, or leave it out"
        )
    if (
        request.operation is Operation.BULK_INSERT
        and config.record_key_fields
        and files.duplicates is not DuplicatePolicy.NONE
    ):
        raise UnsupportedError(
            f"A bulk insert does not look for keys that table {config.name} has, as "
            f"{INSERT_DUPLICATES.key}={files.duplicates} wants it to. Use insert",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )
    if config.index_type not in (IndexType.BUCKET, *LOOKUP_INDEXES, None):
        raise UnsupportedError(
            f"Table {config.name} has a {config.index_type} index, which this release reads but "
            "cannot write through"
        )
    if (
        config.index_type in GLOBAL_INDEXES
        and config.partition_columns
        and request.operation is Operation.OVERWRITE_PARTITIONS
    ):
        raise UnsupportedError(
            f"Table {config.name} has an index in which a key is there once, and a row that "
            "replaces a partition may have the key of a record in another one. Delete the "
            "partitions and upsert the rows, or overwrite the whole table",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )
    needs_key = request.operation in (Operation.UPSERT, Operation.DELETE)
    if needs_key and not config.record_key_fields:
        raise InvalidInputError(
            f"Table {config.name} has no record key, so {request.operation.lower()} cannot tell "
            "records apart. Use insert or bulk_insert, or create the table with record_key"
        )


def schema_after(view: TableView, request: WriteRequest, files: FileConfig) -> pa.Schema:
    """Return the table's data columns after the write."""
    before = view.schema()
    if view.internal_schema is not None:
        raise UnsupportedError(
            f"Table {view.config.name} evolves on read (hoodie.schema.on.read.enable), so each "
            "write has to say the ids of columns, which this release reads past but does not write",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )
    if request.columns is None or request.operation is Operation.DELETE:
        return before
    data = pa.schema([column for column in request.columns if column.name not in META_COLUMNS])
    written = stored_schema(data, before)
    after = evolve_schema(before, written, allows_loss=files.allows_lossy_widening)
    check_nesting(after)
    check_deciding_columns(view.config, data)
    if request.is_partial:
        for column in data:
            _check_whole(column.type, after.field(column.name).type, column.name)
    return after


def columns_of_rows(
    config: TableConfig, schema: pa.Schema, request: WriteRequest, files: FileConfig
) -> pa.Schema:
    """Return what rows are brought to before anything is made of them.

    A partial write keeps to the columns it has. Of a delete only keys and partitions are looked at;
    they take on the types that an upsert of them would have, or they would be other keys.

    Args:
        schema: the table's data columns after the write.

    Raises:
        InvalidInputError: a key or partition column of a delete is missing, or cannot be that of
            the table.
    """
    if request.columns is None:
        return schema
    if request.operation is not Operation.DELETE:
        names = request.columns.names if request.is_partial else schema.names
        return pa.schema([column for column in schema if column.name in names])
    deciding = (*config.record_key_fields, *config.partition_columns)
    _check_present([("key or partition path", deciding)], config, request.columns)
    tops = {name for path in deciding for name in (path, path.split(".")[0])}
    written = stored_schema(pa.schema([one for one in request.columns if one.name in tops]), schema)
    known = [one for one in schema if one.name in written.names]
    before = pa.schema([_as_given(one, written.field(one.name).type) for one in known])
    return evolve_schema(before, written, allows_loss=files.allows_lossy_widening)


def _as_given(stored: pa.Field, written: pa.DataType) -> pa.Field:
    """Return a column with those fields alone that rows give: a key needs no others."""
    if not (pa.types.is_struct(stored.type) and pa.types.is_struct(written)):
        return stored
    given = {part.name: part.type for part in written}
    parts = [_as_given(part, given[part.name]) for part in stored.type if part.name in given]
    return stored.with_type(pa.struct(parts))


def _check_whole(written: pa.DataType, stored: pa.DataType, path: str) -> None:
    """Refuse a part of a struct in a partial write: a column is written as a whole or not at all.

    Its other fields would become null, where those of the table's columns that are not given stay.
    """
    if not (pa.types.is_struct(written) and pa.types.is_struct(stored)):
        return
    given = {part.name: part.type for part in written}
    for part in stored:
        inner = f"{path}.{part.name}"
        if part.name not in given:
            raise InvalidInputError(
                f"The rows of a partial write have column {path} without its field {inner}, which "
                "would become null. Give all fields of the column, or leave the column out"
            )
        _check_whole(given[part.name], part.type, inner)


def check_deciding_columns(config: TableConfig, columns: pa.Schema) -> None:
    """Refuse rows without a column that says where they belong or whether they win.

    Null would be a partition of its own, and an ordering value that loses to all others.

    Raises:
        InvalidInputError
    """
    roles = [("key or partition path", (*config.record_key_fields, *config.partition_columns))]
    if config.merge_mode is MergeMode.EVENT_TIME_ORDERING:
        roles.append(("ordering", config.ordering_fields))
    _check_present(roles, config, columns)


def _check_present(
    roles: Sequence[tuple[str, Sequence[str]]], config: TableConfig, columns: pa.Schema
) -> None:
    for role, paths in roles:
        for path in paths:
            if path not in columns.names and path.split(".")[0] not in columns.names:
                raise InvalidInputError(
                    f"Column {path} is part of the {role} of table {config.name}, but the rows "
                    f"have the columns {', '.join(columns.names)}. Add the column"
                )


def check_sort_columns(files: FileConfig, request: WriteRequest, schema: pa.Schema) -> None:
    unknown = [name for name in files.sort_columns if name not in schema.names]
    if unknown and request.operation is Operation.BULK_INSERT:
        raise InvalidInputError(
            f"{BULK_INSERT_SORT_COLUMNS.key} names {', '.join(unknown)}, but the columns are "
            f"{', '.join(schema.names)}"
        )
