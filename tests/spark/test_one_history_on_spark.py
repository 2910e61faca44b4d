"""One history has one answer through the doors of Spark as well (INV-87).

The machine is that of `tests/unit/test_one_history.py`, with its model. Its copy-on-write table is
written by DataFrames handed to the table and read by `t.read`, its merge-on-read table is written
and read by `format("headwater")`, and the one beside which services run stays with Arrow.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.unit.test_one_history import KINDS, Kind, TwinMachine, run_machine

from headwater.spark.schemas import frame_schema_of
from headwater.table import Table

FORMAT = "headwater"
OPERATION = "hoodie.datasource.write.operation"


class Door:
    """A table whose rows come and go as DataFrames; for the rest it is the table."""

    def __init__(self, table: Table, spark: SparkSession) -> None:
        self._table = table
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def frame(self, rows: pa.Table) -> DataFrame:
        # In one part: among equals of a batch the last one counts, and parts have no order.
        return self._spark.createDataFrame(rows, frame_schema_of(rows.schema)).coalesce(1)

    def upsert(self, rows: pa.Table, *, partial: bool = False) -> Any:
        return self._table.upsert(self.frame(rows), partial=partial)

    def insert(self, rows: pa.Table) -> Any:
        return self._table.insert(self.frame(rows))

    def bulk_insert(self, rows: pa.Table) -> Any:
        return self._table.bulk_insert(self.frame(rows))

    def delete(self, keys: pa.Table) -> Any:
        return self._table.delete(self.frame(keys))

    def overwrite(self, rows: pa.Table) -> Any:
        return self._table.overwrite(self.frame(rows))

    def read_arrow(self, where: str | None = None, as_of: str | None = None) -> pa.Table:
        return self._table.read(where=where, as_of=as_of, spark=self._spark).toArrow()

    def changes_arrow(
        self, after: str | None, until: str | None = None, *, cdc: bool = False
    ) -> pa.Table:
        return self._table.changes(after, until, cdc=cdc, spark=self._spark).toArrow()


class SourceDoor(Door):
    """The same by the data source, where it has the operation."""

    def upsert(self, rows: pa.Table, *, partial: bool = False) -> Any:
        if partial:
            return super().upsert(rows, partial=True)
        return self._save(rows, "upsert")

    def insert(self, rows: pa.Table) -> Any:
        return self._save(rows, "insert")

    def bulk_insert(self, rows: pa.Table) -> Any:
        return self._save(rows, "bulk_insert")

    def delete(self, keys: pa.Table) -> Any:
        return self._save(keys, "delete")

    def overwrite(self, rows: pa.Table) -> Any:
        return self._save(rows, "upsert", mode="overwrite")

    def read_arrow(self, where: str | None = None, as_of: str | None = None) -> pa.Table:
        options = {} if as_of is None else {"as.of.instant": as_of}
        found = self._spark.read.format(FORMAT).options(**options).load(self._table.uri)
        return (found if where is None else found.where(where)).toArrow()

    def _save(self, rows: pa.Table, operation: str, mode: str = "append") -> Any:
        written = self.frame(rows).write.format(FORMAT).options(**self._table.context.options)
        written.option(OPERATION, operation).mode(mode).save(self._table.uri)
        last = self._table.context.load_timeline().completed[-1]
        return SimpleNamespace(completion_time=last.completion_time)


class SparkMachine(TwinMachine):
    spark: SparkSession
    lock_provider = "filesystem"  # Spark plans and commits in two processes.

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        cow, mor, serviced = self.tables
        doors = [Door(cow, self.spark), SourceDoor(mor, self.spark), serviced]
        self.tables = cast(list[Table], doors)


@pytest.mark.long
@pytest.mark.parametrize("name", ["bucket", "simple", "record_index that moves"])
def test_inv_87_a_history_has_one_answer_on_spark(spark: SparkSession, name: str) -> None:
    SparkMachine.spark = spark
    run_machine(KINDS[name], examples=2, steps=10, machine=SparkMachine)
