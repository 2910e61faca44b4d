"""From what somebody asks for to what a plan says: names, columns, file groups, definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from headwater.config.metadata import MetadataConfig
from headwater.config.table import TableConfig
from headwater.errors import (
    AlreadyExistsError,
    ErrorKind,
    InvalidInputError,
    UnsupportedError,
)
from headwater.format.metadata.index_definitions import IndexDefinition
from headwater.kernel.txn.index_plan import PlannedIndex
from headwater.metadata.definitions import define_index, is_partitioned_index
from headwater.metadata.index_content import encode_definition
from headwater.metadata.partition_kinds import (
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    PartitionKind,
    kind_of,
)

Columns = Sequence[str] | Mapping[str, Sequence[str]] | None

_ORDER = (FILES, COLUMN_STATS, PARTITION_STATS, "bloom_filters", RECORD_INDEX)
"""What others need comes first; secondary indexes come last."""


def plan_indexes(
    names: str | Sequence[str],
    columns: Columns,
    *,
    config: TableConfig,
    schema: pa.Schema,
    metadata: MetadataConfig,
    definitions: Mapping[str, IndexDefinition],
    record_count: int,
) -> list[PlannedIndex]:
    """Return what to build, in order; `files` is among it, which every other needs.

    Args:
        columns: those of the index that has columns, or a mapping from index to columns.
        schema: the table's data columns.
        record_count: about how many records there are.

    Raises:
        InvalidInputError: kind INVALID_INDEX; there is no such index or column, or another index
            is needed first.
        UnsupportedError: Hudi has this index, this release has not.
        AlreadyExistsError: kind INDEX_EXISTS; the table has the index with other columns.
    """
    wanted = list(dict.fromkeys([names] if isinstance(names, str) else names))
    if not wanted:
        raise _invalid("No index was named")
    for name in wanted:
        _check_name(name)
    chosen = _columns_by_index(wanted, columns)
    _check_needs(wanted, config)
    if FILES not in wanted:
        wanted.append(FILES)  # Whether the table has it is decided when the plan is requested.
    planned = []
    for name in sorted(wanted, key=_rank):
        definition = define_index(
            name, schema, config=config, metadata=metadata, columns=chosen.get(name, ())
        )
        if name in config.metadata_partitions:
            _check_same(name, chosen.get(name), definition, definitions.get(name))
        planned.append(
            PlannedIndex(
                partition=name,
                # One that is kept apart gets its file groups as it gets partitions.
                group_count=0
                if is_partitioned_index(name, config)
                else metadata.groups_of(name, record_count=record_count),
                definition="" if definition is None else encode_definition(definition),
            )
        )
    return planned


def _rank(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _check_name(name: str) -> None:
    try:
        kind = kind_of(name)
    except InvalidInputError as error:
        raise _invalid(error.message) from None
    if kind is PartitionKind.EXPRESSION_INDEX:
        raise UnsupportedError(f"{name}: expression indexes cannot be built by this release")
    if kind is PartitionKind.SECONDARY_INDEX and name == "secondary_index_":
        raise _invalid("A secondary index needs a name: secondary_index_<name>")


def _columns_by_index(wanted: Sequence[str], columns: Columns) -> dict[str, tuple[str, ...]]:
    if columns is None:
        return {}
    if isinstance(columns, Mapping):
        unknown = columns.keys() - set(wanted)
        if unknown:
            raise _invalid(f"Columns were given for {sorted(unknown)}, which no index is named")
        chosen = {name: _named(columns[name]) for name in columns}
    else:
        with_columns = [name for name in wanted if _has_columns(name)]
        if len(with_columns) != 1:
            raise _invalid(
                "Columns are given as a list for one index, or as a mapping from index to columns; "
                f"of those named {with_columns or 'none'} have columns"
            )
        chosen = {with_columns[0]: _named(columns)}
    for name in chosen:
        if not _has_columns(name):
            raise _invalid(f"The index {name} has no columns to choose")
    return chosen


def _named(columns: Sequence[str]) -> tuple[str, ...]:
    named = () if isinstance(columns, str) else tuple(columns)
    if isinstance(columns, str) or not all(isinstance(column, str) for column in named):
        raise _invalid(f"columns must be a list of columns, got {columns!r}")
    return named


def _has_columns(name: str) -> bool:
    return kind_of(name) in (PartitionKind.COLUMN_STATS, PartitionKind.SECONDARY_INDEX)


def _check_needs(wanted: Sequence[str], config: TableConfig) -> None:
    there = {*wanted, *config.metadata_partitions}
    for name in wanted:
        kind = kind_of(name)
        if kind is PartitionKind.SECONDARY_INDEX and RECORD_INDEX not in there:
            raise _invalid(
                f"{name} leads to record keys, so the table needs {RECORD_INDEX} too. Create that "
                "one first, or both at once"
            )
        if kind is PartitionKind.PARTITION_STATS and COLUMN_STATS not in there:
            raise _invalid(
                f"{name} is about the columns of {COLUMN_STATS}. Create that one first, or both"
            )
        if kind is PartitionKind.PARTITION_STATS and not config.partition_fields:
            raise _invalid(f"Table {config.name} is not partitioned, so it has no {name}")


def _check_same(
    name: str,
    columns: tuple[str, ...] | None,
    wanted: IndexDefinition | None,
    known: IndexDefinition | None,
) -> None:
    """Refuse to take an index on other columns for the one that was asked for."""
    if columns is None or wanted is None or known is None:
        return
    if wanted.source_fields != known.source_fields:
        raise AlreadyExistsError(
            f"The table has the index {name} on {', '.join(known.source_fields)}, not on "
            f"{', '.join(wanted.source_fields)}. Nothing was changed; drop it first",
            kind=ErrorKind.INDEX_EXISTS,
        )


def _invalid(problem: str) -> InvalidInputError:
    return InvalidInputError(problem, kind=ErrorKind.INVALID_INDEX)
