"""Indexes that do not say what the files say."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.compute as pc

from headwater.context import TableContext
from headwater.errors import CorruptTableError
from headwater.inspect.damage.problem import BUILD_AGAIN, Problem, Repair
from headwater.inspect.validate_metadata import STALE, validate_metadata
from headwater.kernel.index_definitions import definitions_path, load_index_definitions
from headwater.kernel.layout import METADATA


def of_indexes(table: TableContext) -> Iterator[Problem]:
    config = table.load_config()
    if config.metadata_partitions and not table.storage.list_tree(METADATA):
        yield Problem(
            check="indexes",
            subject=METADATA,
            problem="table config names indexes, and there is no metadata table",
            at_stake="no rows: reads list storage",
            advice=BUILD_AGAIN,
            repair=Repair.BUILD_INDEXES,
        )
        return
    try:
        if config.index_defs_path is not None:
            load_index_definitions(table.storage, config)
    except CorruptTableError as error:
        yield Problem(
            check="indexes",
            subject=definitions_path(config),
            problem=error.message,
            at_stake="no rows: reads do without the indexes. Writes are refused",
            advice="put the file back from a copy, or drop the indexes and build them again",
            repair=Repair.BUILD_INDEXES,
        )
        return
    found = validate_metadata(table.reload())
    # An index may name more than there is; readers look at the rows.
    for row in found.filter(pc.not_equal(found["problem"], STALE)).to_pylist():
        detail = f"{row['problem']}: {row['key']}"
        told = {name: row[name] for name in ("held", "expected") if row.get(name)}
        detail += "".join(f", {name} {value}" for name, value in told.items())
        yield Problem(
            check="indexes",
            subject=row["partition"],
            problem=detail,
            at_stake="rows that reads find by this index",
            advice=BUILD_AGAIN,
            repair=Repair.BUILD_INDEXES,
        )
