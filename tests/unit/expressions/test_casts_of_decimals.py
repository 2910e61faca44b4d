"""Decimals beside floating point numbers: the double that is nearest to them counts."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from headwater.queries.row_filter import filter_rows
from headwater.queries.text_filter import filter_of

ROWS = pa.RecordBatch.from_pydict(
    {
        "d": pa.array([1.2, 1.3, 0.7], pa.float64()),
        "p": pa.array([Decimal("1.2"), Decimal("1.1"), Decimal("0.7")], pa.decimal128(10, 1)),
    }
)


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("d = 1.2", [1.2]),
        ("d != 1.2", [1.3, 0.7]),
        ("d IN (1.2, 1.3)", [1.2, 1.3]),
        ("d = p", [1.2, 0.7]),
    ],
)
def test_a_decimal_is_the_double_nearest_to_it(where: str, kept: list[float]) -> None:
    assert filter_rows(ROWS, filter_of(where, ROWS.schema))["d"].to_pylist() == kept
