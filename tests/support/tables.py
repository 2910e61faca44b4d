"""Tables for tests, each in one sentence.

    table = a_table(tmp_path, partition_by="city").with_options(KEEP_TWO).with_commits(3).create()

What a test does not say is small and fast: the columns of `TRIPS`, the first column as record key,
no waiting for the disk. Arguments are those of `headwater.create_table`, by its names. A builder is
a value: a file may keep one with what its tests have in common, and each test goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import headwater as hw
from headwater.arrow.spark_schema import schema_from_ddl
from headwater.kernel.journal.storage import JournaledStorage
from headwater.kernel.table_config import update_table_config
from headwater.table import Table

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"

FAST = {"headwater.storage.fsync": "false"}
"""Nothing in a test has to survive a power cut, and forcing files out is half of the time."""

FENCED = {"headwater.timeline.fenced": "true"}
LOCKED = {"headwater.timeline.fenced": "false"}

_usual: ContextVar[Mapping[str, str]] = ContextVar("_usual", default=FAST)

Rows = Callable[..., pa.Table]

columns = schema_from_ddl
"""Columns in Spark's DDL: `columns("id string not null, fare long")`."""


def rows_of(schema: pa.Schema, **usual: Any) -> Rows:
    """Return a function from tuples to rows of a schema.

    A tuple may be short: a column that it lacks has its usual value, or is null.
    """

    def rows(*values: tuple[Any, ...]) -> pa.Table:
        defaults = tuple(usual.get(name) for name in schema.names)
        whole = [(*value, *defaults[len(value) :]) for value in values]
        given = zip(*whole, strict=True) if whole else [()] * len(schema)
        arrays = [pa.array(one, field.type) for one, field in zip(given, schema, strict=True)]
        return pa.table(arrays, schema=schema)

    return rows


TRIPS = columns("id string not null, city string, value long")
trips = rows_of(TRIPS)

NUMBERS = columns("id string, value long, ts long")


def numbers(ids: str, value: int) -> pa.Table:
    """Return a row for each letter, with a value that is its ordering value, too."""
    return pa.table({"id": list(ids), "value": [value] * len(ids), "ts": [value] * len(ids)})


@dataclass(frozen=True)
class TableBuilder:
    """What table to make, and what is written to it first. See `a_table`."""

    path: Path | str
    schema: pa.Schema
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]
    writes: tuple[Callable[[Table], object], ...] = ()

    def having(
        self, schema: pa.Schema | str | None = None, options: Any = None, **arguments: Any
    ) -> TableBuilder:
        """Return a builder with more arguments of `create_table`, or others."""
        return replace(
            self.with_options(options or {}),
            schema=columns(schema) if isinstance(schema, str) else schema or self.schema,
            arguments={**self.arguments, **arguments},
        )

    def with_options(self, options: Mapping[str, Any]) -> TableBuilder:
        return replace(self, options={**self.options, **options})

    def with_upserts(self, *batches: pa.Table) -> TableBuilder:
        """Let a table begin with an upsert of each batch."""
        return self._then(*(lambda table, rows=rows: table.upsert(rows) for rows in batches))

    def with_commits(self, count: int) -> TableBuilder:
        """Let a table of trips begin with commits: each updates `a` and adds a row in `ny`."""
        return self.with_upserts(
            *(trips(("a", "sf", number), (f"n{number}", "ny", number)) for number in range(count))
        )

    def create(self) -> Table:
        table = hw.create_table(
            self.path, schema=self.schema, options=self.options, **self.arguments
        )
        for write in self.writes:
            write(table)
        return table

    def _then(self, *writes: Callable[[Table], object]) -> TableBuilder:
        return replace(self, writes=(*self.writes, *writes))


def a_table(folder: Path, schema: pa.Schema | str = TRIPS, **arguments: Any) -> TableBuilder:
    """Return the builder of a table `trips` in a folder.

    Args:
        schema: its columns, which may be DDL.
        arguments: of `create_table`; options among them come on top of `FAST`.
    """
    return table_at(folder / "trips", schema, **arguments)


def table_at(path: Path | str, schema: pa.Schema | str = TRIPS, **arguments: Any) -> TableBuilder:
    """Return the builder of a table with a path that the test chooses."""
    schema = columns(schema) if isinstance(schema, str) else schema
    builder = TableBuilder(path, schema, {"record_key": schema.names[0]}, _usual.get())
    return builder.having(**arguments)


@contextmanager
def tables_with(options: Mapping[str, str]) -> Iterator[None]:
    """Give options to what builders make that begin here, unless they say otherwise."""
    before = _usual.set({**FAST, **options})
    try:
        yield
    finally:
        _usual.reset(before)


def with_properties(table: Table, changes: Mapping[str, str]) -> Table:
    """Return the table with a config that stock Hudi can create and `create_table` cannot."""
    locks, storage = table.context.components.locks, table.storage
    if isinstance(storage, JournaledStorage):
        storage = storage.stored  # As before the first decision.
    update_table_config(storage, locks, table.context.clock, changes, lock_timeout_ms=1_000)
    return hw.open_table(table.uri, table.context.options)
