"""Parts of statements are found in their text, and nothing else of it changes."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from headwater.spark_sql.original import Edit, Original


def parsed(text: str) -> exp.Expr:
    return sqlglot.parse_one(text, read="spark")


INSERTED = (
    ("INSERT INTO t SELECT  to_char(d,'y') ;", "SELECT  to_char(d,'y')"),
    ("INSERT INTO t (a, values) (SELECT 1, 2)", "(SELECT 1, 2)"),
    ("INSERT INTO t ((SELECT 1) UNION (SELECT 2)) -- end", "((SELECT 1) UNION (SELECT 2))"),
    ("INSERT INTO t PARTITION (c = NULL, d) SELECT 1", "SELECT 1"),
    ("INSERT OVERWRITE TABLE t VALUES (1, 'it''s')", "VALUES (1, 'it''s')"),
    ("INSERT INTO t BY NAME WITH q AS (SELECT 1) SELECT 2", "WITH q AS (SELECT 1) SELECT 2"),
    ("INSERT INTO t FROM m SELECT id", "FROM m SELECT id"),
    ("WITH q AS (SELECT 1) INSERT INTO t VALUES (2)", "WITH q AS (SELECT 1) (VALUES (2))"),
    (
        "CREATE TABLE t USING headwater PARTITIONED BY (a) LOCATION '/x' "
        "TBLPROPERTIES (k = 'as select') COMMENT 'from' AS (SELECT 1)",
        "(SELECT 1)",
    ),
    ("CREATE TABLE t (a INT) USING headwater AS VALUES (1)", "VALUES (1)"),
)


@pytest.mark.parametrize(("statement", "query"), INSERTED)
def test_the_query_of_a_statement_is_its_own_text(statement: str, query: str) -> None:
    assert Original(statement).query(parsed(statement).expression, []) == query


MERGED = (
    ("s AS x ON t.id = x.id", "s AS x"),
    ("(SELECT * FROM a JOIN b USING (id) JOIN c ON b.id = c.id) x ON x.id = t.id", None),
    ("s TIMESTAMP AS OF '2020-01-01' ON s.id = t.id", "s TIMESTAMP AS OF '2020-01-01'"),
)


@pytest.mark.parametrize(("source", "expected"), MERGED)
def test_the_source_of_a_merge_is_its_own_text(source: str, expected: str | None) -> None:
    statement = f"MERGE INTO t USING {source} WHEN MATCHED THEN DELETE"
    found = Original(statement).query(parsed(statement).args["using"], [])
    assert found == f"SELECT * FROM {expected or source.partition(' ON x.id')[0]}"


def test_only_what_is_edited_changes() -> None:
    text = "SELECT 'm' AS `m`, -- m\n m.a FROM m"
    place = text.rindex("m")
    edits = [Edit(place, place + 1, "view AS m")]
    assert Original(text).query(parsed(text), edits) == f"{text[:-1]}view AS m"


CONDITIONS = (
    ("SELECT 1 FROM m WHERE a = 1 AND b BETWEEN 2 AND 3", "a = 1 AND b BETWEEN 2 AND 3"),
    ("SELECT 1 FROM m WHERE /* no */ a = 1 -- and b\n GROUP BY a", "a = 1"),
    ("SELECT 1 FROM (SELECT a FROM m WHERE (a IN (1, 2)))", "(a IN (1, 2))"),
    ("FROM m SELECT a WHERE a = 1", "a = 1"),
    ("SELECT 1 FROM m WHERE a = 'WHERE' UNION SELECT 2", "a = 'WHERE'"),
    ("SELECT 1 FROM m WHERE limit > 3", None),
    ("SELECT 1 FROM m WHERE EXISTS (SELECT TRUE WHERE a = 1)", None),
    ("SELECT 1 FROM m WHERE TRUE", None),
)


@pytest.mark.parametrize(("statement", "condition"), CONDITIONS)
def test_a_condition_is_found_or_nothing(statement: str, condition: str | None) -> None:
    where = parsed(statement).find(exp.Where)
    assert where is not None
    found = Original(statement).condition(where)
    assert found == (None if condition is None else (statement.index(condition), condition))
