"""SELECT of each row by itself: which columns it makes, under which names."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from tests.support.tables import columns

from headwater.errors import InvalidInputError
from headwater.expressions.select import Select, compile_select

SCHEMA = columns("id string, Value long, `a b` int, at timestamp, s struct<x: int>")
ROWS = pa.RecordBatch.from_pylist(
    [
        {"id": "a", "Value": 1, "a b": 5, "at": datetime(2024, 1, 2, tzinfo=UTC), "s": {"x": 7}},
        {"id": "b", "Value": None, "a b": 6, "at": None, "s": None},
    ],
    schema=SCHEMA,
)


def select(text: str) -> Select:
    return compile_select(text, SCHEMA, "source", now=datetime(2024, 5, 6, 7, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT id FROM source", [{"id": "a"}, {"id": "b"}]),
        ("select ID, value FROM Source", [{"ID": "a", "value": 1}, {"ID": "b", "value": None}]),
        ("SELECT `a b` + 1 AS n FROM source WHERE value IS NULL", [{"n": 7}]),
        ("SELECT q.id, q.s.x AS x FROM source AS q WHERE q.s.x = 7", [{"id": "a", "x": 7}]),
        ("SELECT source.id FROM source WHERE id = 'b'", [{"id": "b"}]),
        ("SELECT id, current_date AS d FROM source WHERE false", []),
        ("SELECT year(now()) AS y FROM source", [{"y": 2024}, {"y": 2024}]),
        (
            "SELECT * EXCEPT (at, s, VALUE), 1 AS one FROM source WHERE id = 'a'",
            [{"id": "a", "a b": 5, "one": 1}],
        ),
    ],
)
def test_rows(text: str, rows: list[dict[str, object]]) -> None:
    assert select(text).run(ROWS).to_pylist() == rows


def test_a_star_is_all_columns_in_their_order() -> None:
    assert select("SELECT * FROM source").run(ROWS).to_pylist() == ROWS.to_pylist()
    assert select("SELECT t.*, 1 AS one FROM source t").schema.names == [*SCHEMA.names, "one"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("SELECT", "FROM source"),
        ("SELECT id", "selects FROM source"),
        ("SELECT id FROM (SELECT 1)", "selects FROM source"),
        ("SELECT id FROM db.source", "selects FROM source"),
        ("WITH source AS (SELECT 1) SELECT * FROM source", "without with"),
        ("SELECT id FROM source ORDER BY id", "without order"),
        ("SELECT id FROM source, source AS other", "without joins"),
        ("SELECT id FROM source WHERE id", "not a condition"),
        ("SELECT id FROM source WHERE id IN (SELECT id FROM source)", "IN takes a list"),
        ("SELECT row_number() OVER (ORDER BY id) AS n FROM source", "cannot be evaluated"),
        ("SELECT max(id) AS id FROM source", "cannot be evaluated"),
        ("SELECT *, id FROM source", "comes twice"),
        ("SELECT id FROM source; DROP TABLE t", "position"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        select(text)
    assert problem in caught.value.message
