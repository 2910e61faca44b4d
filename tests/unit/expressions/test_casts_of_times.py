"""Texts as days and times of day: what Spark answers, text by text."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headwater.errors import InvalidInputError
from headwater.expressions.casts import cast_values, try_cast_values
from headwater.queries.row_filter import filter_rows
from headwater.queries.text_filter import filter_of

LOCAL, MOMENT = pa.timestamp("us"), pa.timestamp("us", "UTC")
DAY = datetime(2020, 1, 2)
NEW_YEAR = datetime(2020, 1, 1)
TIME = datetime(2020, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("text", "local", "hours_off"),
    [
        ("2020", NEW_YEAR, 0),
        ("2020-01", NEW_YEAR, 0),
        ("2020-1", NEW_YEAR, 0),
        ("2020-01-02", DAY, 0),
        ("2020-1-2", DAY, 0),
        ("2020-01-02 03", datetime(2020, 1, 2, 3), 0),
        ("2020-01-02 03:04", datetime(2020, 1, 2, 3, 4), 0),
        ("2020-01-02 3:4:5", TIME, 0),
        ("2020-1-2T3:4:5Z", TIME, 0),
        ("2020-01-02 03:04:05.1234567", TIME.replace(microsecond=123456), 0),
        ("2020-01-02T03:04:05.123456789Z", TIME.replace(microsecond=123456), 0),
        ("2020-01-02 03:04:05-02", TIME, -2),
        ("2020-01-02 03:04:05 -02:00", TIME, -2),
        ("2020-01-02 03:04:05+0200", TIME, 2),
        ("2020-01-02 03:04:05+2:00", TIME, 2),
        ("2020-01-02 03:04:05 UTC", TIME, 0),
    ],
)
def test_a_text_is_the_time_that_spark_takes_it_for(
    text: str, local: datetime, hours_off: int
) -> None:
    texts = pa.array([text, None, "2020-01-02 00:00:00"])
    assert cast_values(texts, LOCAL, "UTC").to_pylist() == [local, None, DAY]
    assert cast_values(texts, pa.date32(), "UTC").to_pylist() == [local.date(), None, DAY.date()]
    moment = cast_values(texts, MOMENT, "UTC")[0].as_py()
    away = local.replace(tzinfo=UTC) - moment
    assert away.total_seconds() == hours_off * 3_600


@pytest.mark.parametrize(
    "text", ["2020-01-02-02", "2020-01-02Z", "2020-01-02UTC", "2020-13-01", "20200102", "202"]
)
@pytest.mark.parametrize("kind", [LOCAL, MOMENT, pa.date32()], ids=str)
def test_a_text_that_is_no_time_to_spark_is_none_here(text: str, kind: pa.DataType) -> None:
    texts = pa.array([text, "2020-01-02"])
    assert try_cast_values(texts, kind, "UTC").is_valid().to_pylist() == [False, True]
    with pytest.raises(InvalidInputError, match="TRY_CAST"):
        cast_values(texts, kind, "UTC")


@pytest.mark.parametrize(
    "where", ["t >= '2020-01-02'", "TRY_CAST(x AS TIMESTAMP_NTZ) = t", "t = '2020-1-2'"]
)
def test_a_day_alone_is_a_time_without_a_zone(where: str) -> None:
    rows = pa.RecordBatch.from_pydict(
        {"t": pa.array([DAY, NEW_YEAR], LOCAL), "x": ["2020-01-02", "no time"]}
    )
    assert filter_rows(rows, filter_of(where, rows.schema))["t"].to_pylist() == [DAY]
