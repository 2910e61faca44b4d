"""The table that a statement changes: its columns, which may be set, and how rows are written.

1. load the columns, and compile the statement to them;
2. start a write, whose view is the snapshot that the statement reads;
3. find rows in that view, by everything that may skip files, and make new ones of them;
4. write these and commit, or start again at 1 if another writer was faster.

Rows are read from the very snapshot that the conflict check goes by, so a statement and a write
that changed the same file groups in between never both commit, under non-blocking control neither
(INV-95). A crash leaves what a crash of any other write leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.merge_rule import MergeMode, MergeRule, PartialUpdate, merge_rule_of
from headwater.arrow.meta_columns import META_COLUMNS
from headwater.config.table_options import GLOBAL_INDEXES, TableType
from headwater.context import TableContext
from headwater.engine.engine import Route, RowsTask
from headwater.engine.inline import run_as_one_task
from headwater.errors import ConflictError, ErrorKind, InvalidInputError, UnsupportedError
from headwater.expressions.evaluate import compare_values
from headwater.expressions.nodes import Function
from headwater.expressions.scope import match_name
from headwater.metadata.view import IndexedView, view_of
from headwater.model.commit import Commit
from headwater.operations.concurrency import check_partial_write
from headwater.operations.plan import Operation
from headwater.operations.request import RowsOfTable, WriteRequest
from headwater.operations.retry import write_with_retries
from headwater.operations.tasks.leaving import IS_LEAVING
from headwater.queries.predicate import Predicate
from headwater.queries.slice_query import read_slices
from headwater.queries.snapshot import ReadRequest, plan_snapshot
from headwater.seams.network import LOOPBACK

R = TypeVar("R")

_COLUMN_CHANGES_MAX = 10
"""Nobody adds columns that often; who does is told."""


class StatementRows:
    """Rows that are made while they are written, once."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._schema = schema
        self._batches = batches

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def driver_host(self) -> str:
        return LOOPBACK

    def held(self) -> None:
        return None

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        return run_as_one_task(self._batches, route, task)


@dataclass(frozen=True)
class Target:
    """A table as of the beginning of a statement."""

    table: TableContext
    schema: pa.Schema
    """The data columns."""
    zone: str
    now: datetime
    """When the statement began, for whatever in it asks for the time."""

    @classmethod
    def of(cls, table: TableContext, zone: str, now: datetime) -> Target:
        """Load what a statement has to know of a table.

        Raises:
            InvalidInputError: the table has no record key.
        """
        if not table.config.record_key_fields:
            raise InvalidInputError(
                f"Table {table.config.name} has no record key, so a statement cannot tell its "
                "records apart. Create the table with record_key"
            )
        return cls(table, view_of(table).schema(), zone, now)

    @property
    def rule(self) -> MergeRule:
        return merge_rule_of(self.table.config, custom=self.table.merge_function)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return _tops(self.table.config.record_key_fields)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return _tops(self.table.config.partition_columns)

    @property
    def deciding_columns(self) -> tuple[str, ...]:
        """Those without which a row cannot be written."""
        ordering = _tops(self.table.config.ordering_fields) if self.rule.merges_by_ordering else ()
        return tuple(dict.fromkeys((*self.key_columns, *self.partition_columns, *ordering)))

    @property
    def moves_records(self) -> bool:
        """Whether a record goes to the partition that its new row names."""
        index = self.table.config.index_type
        return index in GLOBAL_INDEXES and self.table.file_config.moves_records(index)

    def fields(self, names: Collection[str]) -> pa.Schema:
        """Return some columns, in the order of the table."""
        return pa.schema([field for field in self.schema if field.name in names])

    def column(self, name: str) -> pa.Field:
        """Return the column that a statement sets.

        Raises:
            InvalidInputError: there is none, or it may not be set.
        """
        try:
            found = match_name(name, self.schema.names)
        except LookupError as error:
            raise InvalidInputError(f"The column to set is ambiguous: {error}") from error
        if found is None or found in META_COLUMNS:
            raise InvalidInputError(
                f"Table {self.table.config.name} has no column {name} to set; it has "
                f"{', '.join(self.schema.names)}. A struct is set as a whole"
            )
        return self.schema.field(found)

    def check_updates(self) -> None:
        """Refuse updates of a table whose merge function has the last word on every value.

        Raises:
            UnsupportedError: kind UNSUPPORTED_OPTION.
        """
        if self.rule.mode is MergeMode.CUSTOM:
            raise UnsupportedError(
                f"Table {self.table.config.name} has merge mode CUSTOM: its merge function decides "
                "what becomes of the values that an update sets. Upsert rows for it instead",
                kind=ErrorKind.UNSUPPORTED_OPTION,
            )

    def writes_partially(self) -> bool:
        """Whether columns that an update does not set need not be written."""
        if self.table.config.table_type is not TableType.MERGE_ON_READ:
            return False
        try:
            check_partial_write(self.table.config, self.rule, self.table.write_config)
        except (InvalidInputError, UnsupportedError):
            return False
        return True

    def read(
        self,
        view: IndexedView,
        columns: Collection[str],
        where: str | None = None,
        known: Predicate | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Give some columns of the rows of a view that satisfy a condition.

        Args:
            known: what else is known of the rows that are wanted. Others may be left out.
        """
        names = tuple(field.name for field in self.fields(columns))
        plan = plan_snapshot(
            self.table,
            ReadRequest(
                columns=names,
                where=where,
                known=known or Predicate(),
                zone=self.zone,
                now=self.now,
                is_filtered=True,
            ),
            view,
        )
        with closing(read_slices(plan.query, list(plan.slices))) as batches:
            yield from batches

    def write(
        self,
        operation: Operation,
        columns: pa.Schema,
        make: Callable[[IndexedView], Iterator[pa.RecordBatch]],
        *,
        is_partial: bool = False,
    ) -> Commit:
        """Write rows that are made of what the table holds, again after each conflict.

        Raises: see `operations.write.run_write`.
        """

        def rows_of(view: IndexedView) -> StatementRows:
            self._check_columns(view)
            return StatementRows(columns, make(view))

        data = pa.schema([field for field in columns if field.name != IS_LEAVING])
        request = WriteRequest(
            operation=operation, columns=data, is_partial=is_partial, reads_table=True
        )
        return write_with_retries(self.table, request, RowsOfTable(rows_of))

    def _check_columns(self, view: IndexedView) -> None:
        if not view.schema().equals(self.schema):
            raise ConflictError(
                f"The columns of table {self.table.config.name} changed while a statement began. "
                "Nothing was committed; run the statement again",
                kind=ErrorKind.COLUMNS_CHANGED,
            )

    def check_new_rows(
        self, old: pa.RecordBatch, new: pa.RecordBatch, assigned: Collection[str]
    ) -> None:
        """Refuse what an update cannot do to records: new keys, or values that would lose.

        Raises:
            InvalidInputError: see the messages.
        """
        name = self.table.config.name
        for column in self.key_columns:
            if column in assigned and _differs(old.column(column), new.column(column)):
                raise InvalidInputError(
                    f"An update of table {name} gives records another {column}, which is part of "
                    "their key. Delete the records and insert new ones"
                )
        for column in self.partition_columns:
            is_new = column in assigned and _differs(old.column(column), new.column(column))
            if is_new and not self.moves_records:
                raise InvalidInputError(
                    f"An update of table {name} gives records another {column}, by which the table "
                    "is partitioned, and its index does not move records. Delete them and insert "
                    "new ones"
                )
        self._check_ordering(old, new, assigned)
        if self.rule.partial is PartialUpdate.IGNORE_DEFAULTS:
            for column in assigned:
                if new.column(column).null_count > old.column(column).null_count:
                    raise InvalidInputError(
                        f"An update sets {column} to null, which table {name} takes for a value "
                        "that was not given: the older one would stay"
                    )

    def _check_ordering(
        self, old: pa.RecordBatch, new: pa.RecordBatch, assigned: Collection[str]
    ) -> None:
        """Refuse ordering values that are smaller than those of the records to update."""
        fields = self.table.config.ordering_fields if self.rule.merges_by_ordering else ()
        touched = [column for column in _tops(fields) if column in assigned]
        if not touched:
            return
        if len(fields) > 1 or touched[0] != fields[0]:
            raise InvalidInputError(
                f"Columns {', '.join(fields)} order the records of table "
                f"{self.table.config.name} together; an update cannot set one of them"
            )
        before, after = old.column(touched[0]), new.column(touched[0])
        loses = pc.and_(
            pc.fill_null(compare_values(Function.LESS, after, before), True), pc.is_valid(before)
        )
        if pc.any(loses, min_count=0).as_py():
            raise InvalidInputError(
                f"An update of table {self.table.config.name} makes {touched[0]} smaller, by which "
                "the newest version of a record is told: the older version would stay"
            )


def run_statement(table: TableContext, zone: str, run: Callable[[Target], Commit]) -> Commit:
    """Run a statement, again if another writer changed the table's columns while it began."""
    tries, now = 0, table.moment()
    while True:
        try:
            return run(Target.of(table, zone, now))
        except ConflictError as conflict:
            tries += 1
            if conflict.kind is not ErrorKind.COLUMNS_CHANGED or tries > _COLUMN_CHANGES_MAX:
                raise


def replaced(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    """Return rows with other values in a column."""
    number = batch.schema.get_field_index(name)
    return batch.set_column(number, batch.schema.field(number), values)


def _tops(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path.split(".")[0] for path in paths))


def _differs(one: pa.Array, other: pa.Array) -> bool:
    if pa.types.is_nested(one.type):
        return not one.equals(other)
    same = pc.or_(
        pc.fill_null(compare_values(Function.EQUAL, one, other), False),
        pc.and_(pc.is_null(one), pc.is_null(other)),
    )
    return not pc.all(same, min_count=0).as_py()
