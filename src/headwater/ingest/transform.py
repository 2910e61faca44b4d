"""From rows of the source to rows of the target: the job's SELECT, the target's types and keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from headwater.config.table import TableConfig
from headwater.errors import InvalidInputError
from headwater.expressions.scope import match_name
from headwater.expressions.select import Select, compile_select
from headwater.expressions.sql_types import is_assignable
from headwater.ingest.formats.reading import cast_column
from headwater.operations.key_check import check_held_keys

SOURCE = "source"
"""What the rows are called in SQL."""


@dataclass(frozen=True, slots=True)
class Transform:
    """What is done to each row."""

    select: Select | None
    columns: pa.Schema
    """The columns of the target that rows have afterwards."""
    names: tuple[str, ...]
    """What they are called before."""
    config: TableConfig
    zone: str

    def run(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as the target takes them.

        Raises:
            InvalidInputError: a value does not fit, or a row has no key.
        """
        if self.select is not None:
            rows = self.select.run(rows)
        arrays = [
            cast_column(rows.column(name), field, self.zone)
            for name, field in zip(self.names, self.columns, strict=True)
        ]
        for field, array in zip(self.columns, arrays, strict=True):
            if not field.nullable and array.null_count:
                raise InvalidInputError(f"Column {field.name} is null, and takes no null")
        made = pa.RecordBatch.from_arrays(arrays, schema=self.columns)
        check_held_keys(self.config, [made])
        return made


def compile_transform(
    select: str | None,
    source: pa.Schema,
    target: pa.Schema,
    config: TableConfig,
    zone: str,
    now: datetime,
) -> Transform:
    """Return what makes rows of the source rows of the target.

    Raises:
        InvalidInputError: the SELECT cannot be evaluated, or its columns are not the target's.
    """
    compiled = None
    if select is not None:
        compiled = compile_select(select, source, SOURCE, zone, now)
        source = compiled.schema
    pairs = [(name, match_name(name, target.names)) for name in source.names]
    unknown = [name for name, meant in pairs if meant is None]
    if unknown:
        raise InvalidInputError(
            f"Table {config.name} has no column {', '.join(unknown)}; its columns are "
            f"{', '.join(target.names)}. Select the columns that it has, or add the others to it"
        )
    found = [(name, target.field(meant)) for name, meant in pairs if meant is not None]
    for name, field in found:
        _check_assignable(name, source.field(name).type, field.type)
    return Transform(
        compiled, pa.schema([field for _, field in found]), tuple(n for n, _ in found), config, zone
    )


def _check_assignable(name: str, found: pa.DataType, wanted: pa.DataType) -> None:
    both_nested = pa.types.is_nested(found) and pa.types.is_nested(wanted)
    if not (both_nested or is_assignable(found, wanted)):
        raise InvalidInputError(
            f"Column {name} of the source is of type {found} and the target's of type {wanted}. "
            f"Cast it: SELECT CAST({name} AS ...) AS {name}"
        )
