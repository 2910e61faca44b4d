"""What the tables of most histories have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from tests.readers.readers import Untried
from tests.support.tables import COW, MOR, TableBuilder, a_table, columns, rows_of
from tests.support.two_readers import read_with_meta_columns

from headwater.table import Table

SCHEMA = columns("id string not null, city string, zone string, ts long, fare int, note string")
rows = rows_of(SCHEMA)

TYPES = {"cow": COW, "mor": MOR}
ORDERINGS = {"commit-time": None, "event-time": "ts"}


class Files(NamedTuple):
    """Which files a history of writes makes."""

    table_type: str
    block_format: str
    first: str
    """The first write."""
    is_logs_alone: bool = False
    """Whether file groups start as logs, as those of non-blocking writers do."""

    def on(self, path: Path, schema: pa.Schema = SCHEMA, **arguments: Any) -> TableBuilder:
        return (
            a_table(path, schema, table_type=self.table_type, **arguments)
            .with_options({"hoodie.logfile.data.block.format": self.block_format})
            .with_options(NON_BLOCKING if self.is_logs_alone else {})
        )


NON_BLOCKING = {
    "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
    "hoodie.write.lock.provider": "in_process",
}
LOGS_ALONE = {
    "parquet-logs": Files(MOR, "parquet", "insert", is_logs_alone=True),
    "avro-logs": Files(MOR, "avro", "insert", is_logs_alone=True),
}
ON_BASE = {
    "base-files": Files(COW, "parquet", "insert"),
    "parquet-logs-on-base": Files(MOR, "parquet", "insert"),
    "avro-logs-on-base": Files(MOR, "avro", "bulk_insert"),
}
FILES = {**LOGS_ALONE, **ON_BASE}
NOT_TRIED = {"hudi": Untried("nobody has run it against Apache Hudi yet")}


def found_in(table: Table, column: str, by: str = "id") -> dict[Any, Any]:
    """Return a column of a table by another, as we read it."""
    found = read_with_meta_columns(table)
    return dict(zip(found[by].to_pylist(), found[column].to_pylist(), strict=True))
