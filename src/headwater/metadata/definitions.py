"""The definitions of a table's indexes: what a new one says.

Column statistics, the record index and every secondary index have one. The list of files,
partition statistics and bloom filters need none: there is nothing to choose about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from headwater.arrow.meta_columns import META_COLUMNS, OPERATION
from headwater.config.metadata import MetadataConfig
from headwater.config.option import problem_list
from headwater.config.table import TableConfig
from headwater.config.table_options import IndexType
from headwater.errors import ErrorKind, InvalidInputError
from headwater.format.metadata.index_definitions import (
    IndexDefinition,
    IndexVersion,
)
from headwater.metadata.column_ranges import column_type, has_range, indexed_columns
from headwater.metadata.partition_kinds import RECORD_INDEX, PartitionKind, kind_of
from headwater.metadata.row_keys import has_secondary_text

_COLUMNS_LISTED_MAX = 32
"""How many columns an error offers; some tables have thousands."""


def define_index(
    name: str,
    schema: pa.Schema,
    *,
    config: TableConfig,
    metadata: MetadataConfig,
    columns: Sequence[str] = (),
) -> IndexDefinition | None:
    """Return the definition of a new index; None if its kind has none.

    Every way to create an index comes here, so that all of them refuse the same.

    Args:
        name: that of its partition in the metadata table.
        schema: the table's data columns.
        columns: those of a secondary index, which must have one, or of column statistics.

    Raises:
        InvalidInputError: kind INVALID_INDEX; it cannot be on these columns.
    """
    match kind_of(name):
        case PartitionKind.COLUMN_STATS:
            named = columns or metadata.stats_columns
            _check_columns(name, named, schema, has_range, "which has no order")
            return IndexDefinition(
                index_name=name,
                index_type=name,
                index_function=name,
                source_fields=indexed_columns(
                    schema,
                    named=named,
                    columns_max=metadata.stats_columns_max,
                    has_meta_fields=config.has_meta_fields,
                ),
                version=IndexVersion.V2,
            )
        case PartitionKind.RECORD_INDEX:
            is_partitioned = is_partitioned_index(name, config)
            return IndexDefinition(
                index_name=name,
                index_type=name,
                index_options={"isPartitioned": str(is_partitioned).lower()},
                version=IndexVersion.V1,
            )
        case PartitionKind.SECONDARY_INDEX:
            if len(columns) != 1:
                raise InvalidInputError(
                    f"The secondary index {name} is on one column, but {len(columns)} were named",
                    kind=ErrorKind.INVALID_INDEX,
                )
            _check_columns(
                name,
                columns,
                schema,
                has_secondary_text,
                "whose values have no text that all engines agree on",
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


def columns_again(
    definitions: Mapping[str, IndexDefinition], names: Iterable[str]
) -> dict[str, list[str]]:
    """Return the columns to name when indexes are created again as they are, by index."""
    columns = {
        name: [field for field in definitions[name].source_fields if field not in META_COLUMNS]
        for name in names
        if name in definitions
    }
    return {name: fields for name, fields in columns.items() if fields}


def is_partitioned_index(name: str, config: TableConfig) -> bool:
    """Whether a new index keeps file groups of its own for each partition of the table."""
    return name == RECORD_INDEX and config.index_type is IndexType.RECORD_LEVEL_INDEX


def _check_columns(
    name: str,
    columns: Sequence[str],
    schema: pa.Schema,
    is_possible: Callable[[pa.DataType], bool],
    reason: str,
) -> None:
    leaves = dict(_leaves(schema))
    problems = []
    for place, column in enumerate(columns):
        kind = column_type(schema, column)
        if column in columns[:place]:
            problems.append(f"{column!r} is named twice")
        elif column in (*META_COLUMNS, OPERATION):
            problems.append(f"{column!r} is a meta column, which nobody can choose")
        elif kind is None:
            alike = [other for other in leaves if other.lower() == column.lower()]
            advice = f" (did you mean {alike[0]!r}?)" if alike else ""
            problems.append(f"there is no column {column!r}{advice}")
        elif not is_possible(kind):
            problems.append(f"{column!r} has the type {kind}, {reason}")
    if problems:
        possible = [column for column, kind in leaves.items() if is_possible(kind)]
        more = len(possible) - _COLUMNS_LISTED_MAX
        raise InvalidInputError(
            problem_list(f"There can be no index {name} on these columns", problems)
            + ". Possible are "
            + (", ".join(possible[:_COLUMNS_LISTED_MAX]) or "none")
            + (f" and {more} more" if more > 0 else ""),
            kind=ErrorKind.INVALID_INDEX,
        )


def _leaves(fields: Iterable[pa.Field], path: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Give the columns that are no structs, under their dotted names."""
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, f"{path}{field.name}.")
        else:
            yield f"{path}{field.name}", field.type
