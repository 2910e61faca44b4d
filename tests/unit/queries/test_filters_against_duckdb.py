"""Random filters: DuckDB is the judge of each row's truth value, and of the rows that are read."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from tests.support.random_filters import ROW_COUNT, SCHEMA, Filters, rows_of

import headwater as hw
from headwater.expressions.compile import compile_condition
from headwater.expressions.evaluate import evaluate
from headwater.expressions.scope import Scope
from headwater.table import Table


class Judge:
    def __init__(self, rows: pa.Table) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.register("rows_given", rows)
        self._connection.execute("CREATE TABLE judged AS SELECT * FROM rows_given")

    def truth(self, where: str) -> list[bool | None]:
        found = self._connection.execute(f"SELECT ({where}) FROM judged ORDER BY id").fetchall()
        return [truth for (truth,) in found]


def tables_with(rows: pa.Table, folder: Path) -> list[Table]:
    """Return tables of both types with these rows, some of them updated."""
    tables = []
    for kind, index in (("COPY_ON_WRITE", "simple"), ("MERGE_ON_READ", "bucket")):
        table = hw.create_table(
            folder / kind,
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            table_type=kind,
            index=index,
            buckets=2 if index == "bucket" else None,
            options={"hoodie.metadata.index.column.stats.enable": "true"},
        )
        older = rows.set_column(2, "i", pa.array([99] * rows.num_rows, pa.int32()))
        table.upsert(older)
        table.upsert(rows.slice(0, ROW_COUNT // 2))
        table.upsert(rows.slice(ROW_COUNT // 2))
        tables.append(table)
    return tables


def check_filters(seed: int, count: int, folder: Path, *, every: int) -> None:
    numbers = random.Random(seed)
    rows = rows_of(numbers)
    judge, filters = Judge(rows), Filters(numbers)
    tables = tables_with(rows, folder)
    ids = rows["id"].to_pylist()
    for number in range(count):
        where = filters.condition()
        expected = judge.truth(where)
        found = evaluate(compile_condition(where, Scope(SCHEMA)), rows).to_pylist()
        assert found == expected, where
        if number % every == 0:
            wanted = [key for key, holds in zip(ids, expected, strict=True) if holds]
            for table in tables:
                read = table.read_arrow(columns=["id"], where=where)
                assert sorted(read["id"].to_pylist()) == wanted, where


def test_two_hundred_filters_have_the_answers_of_duckdb(tmp_path: Path) -> None:
    check_filters(17, 200, tmp_path, every=5)


@pytest.mark.long
def test_two_thousand_filters_have_the_answers_of_duckdb(tmp_path: Path) -> None:
    check_filters(18, 2_000, tmp_path, every=1)
