"""Random conditions that mean the same to Spark, to DuckDB and to us, and rows to try them on.

Where the others differ (rounding casts, 32-bit floats beside decimals, division by zero) no
condition is made.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

ROW_COUNT = 240
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("name", pa.string()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("inner_part", pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))])),
    ]
)
NAMES = ["", "a", "ab", "abc", "B", "b%", "b_c", "Zürich", "zz", "é"]
Make = Callable[[], str]


def rows_of(numbers: random.Random) -> pa.Table:
    def maybe(value: Any) -> Any:
        return None if numbers.random() < 0.15 else value

    doubles = [0.0, -0.0, 1.5, -2.25, 3.0, 1e10, float("nan"), float("inf"), float("-inf")]
    rows = [
        {
            "id": f"k{number:03d}",
            "city": numbers.choice(["sf", "la", "ny"]),
            "i": maybe(numbers.randint(-5, 5)),
            "l": maybe(numbers.choice([0, 1, 2, 7, -7, 2**40, -(2**40)])),
            "d": maybe(numbers.choice(doubles)),
            "price": maybe(Decimal(numbers.randint(-300, 300)) / 100),
            "name": maybe(numbers.choice(NAMES)),
            "flag": maybe(numbers.random() < 0.5),
            "day": maybe(date(2024, 1, 28) + timedelta(days=numbers.randint(0, 8))),
            "ts": maybe(
                datetime(2024, 1, 31, 22, tzinfo=UTC) + timedelta(minutes=numbers.randint(0, 240))
            ),
            "inner_part": maybe(
                {
                    "x": maybe(numbers.randint(0, 3)),
                    "y": maybe({"z": maybe(numbers.choice(NAMES))}),
                }
            ),
        }
        for number in range(ROW_COUNT)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


class Filters:
    """Makes random conditions that mean the same to Spark and to DuckDB."""

    def __init__(self, numbers: random.Random) -> None:
        self._numbers = numbers

    def condition(self, depth: int = 3) -> str:
        kind = self._numbers.random() if depth else 0.0
        if kind < 0.35:
            return self._leaf()
        if kind < 0.6:
            return f"({self.condition(depth - 1)} AND {self.condition(depth - 1)})"
        if kind < 0.85:
            return f"({self.condition(depth - 1)} OR {self.condition(depth - 1)})"
        if kind < 0.95:
            return f"NOT ({self.condition(depth - 1)})"
        test = self._numbers.choice(["TRUE", "FALSE", "NOT TRUE", "NULL", "NOT NULL"])
        return f"({self.condition(depth - 1)}) IS {test}"

    def _leaf(self) -> str:
        value, literal = self._numbers.choice(self._sorts())
        match self._numbers.randint(0, 6):
            case 0 | 1 | 2:
                sign = self._numbers.choice(["=", "!=", "<>", "<", "<=", ">", ">="])
                sides = [value(), literal() if self._numbers.random() < 0.8 else value()]
                if self._numbers.random() < 0.2:
                    sides.reverse()
                return f"{sides[0]} {sign} {sides[1]}"
            case 3:
                listed = [literal() for _ in range(self._numbers.randint(1, 4))]
                if self._numbers.random() < 0.2:
                    listed.append("NULL")
                word = self._numbers.choice(["IN", "NOT IN"])
                return f"{value()} {word} ({', '.join(listed)})"
            case 4:
                word = self._numbers.choice(["BETWEEN", "NOT BETWEEN"])
                return f"{value()} {word} {literal()} AND {literal()}"
            case 5:
                return self._numbers.choice(
                    [
                        f"{value()} IS {self._numbers.choice(['', 'NOT '])}NULL",
                        f"{value()} IS {self._numbers.choice(['', 'NOT '])}DISTINCT FROM "
                        f"{literal()}",
                    ]
                )
            case _:
                return self._of_text()

    def _of_text(self) -> str:
        pattern = "".join(
            self._numbers.choice(["%", "_", "a", "b", "B", "z", "ü"])
            for _ in range(self._numbers.randint(1, 4))
        )
        word = self._numbers.choice(["LIKE", "NOT LIKE", "ILIKE"])
        return self._numbers.choice(
            [f"{self._text()} {word} '{pattern}'", "flag", f"length({self._text()}) = 2"]
        )

    def _sorts(self) -> list[tuple[Make, Make]]:
        """Return ways to make a value, each with one for literals that go with it."""
        return [
            (self._whole_number, self._number),
            (self._double, self._number),
            (self._price, self._number),
            (self._text, lambda: f"'{self._numbers.choice(NAMES)}'"),
            (lambda: "city", lambda: f"'{self._numbers.choice(['sf', 'la', 'x'])}'"),
            (lambda: "id", lambda: f"'k{self._numbers.randint(0, ROW_COUNT):03d}'"),
            (lambda: self._numbers.choice(["day", "cast(ts AS date)"]), self._day),
            (lambda: "ts", self._moment),
        ]

    def _whole_number(self) -> str:
        return self._numbers.choice(
            [
                "i",
                "l",
                "i",
                "inner_part.x",
                "i + 1",
                "i * 2 - l % 3",
                "-i",
                "abs(i)",
                "coalesce(i, l, 3)",
                "CASE WHEN flag THEN i WHEN l > 0 THEN 2 END",
                "cast(i AS bigint)",
                "year(day) - 2023",
                "nullif(i, 2)",
            ]
        )

    def _double(self) -> str:
        return self._numbers.choice(["d", "d", "i / 2", "d + i", "cast(i AS double)"])

    def _price(self) -> str:
        return self._numbers.choice(["price", "price + 1", "price * 2", "cast(i AS decimal(5, 1))"])

    def _text(self) -> str:
        return self._numbers.choice(
            [
                "name",
                "name",
                "inner_part.y.z",
                "lower(name)",
                "name || 'b'",
                "coalesce(name, city)",
                "cast(i AS string)",
                "trim(name)",
            ]
        )

    def _number(self) -> str:
        return self._numbers.choice(
            [
                str(self._numbers.randint(-6, 6)),
                f"{self._numbers.randint(-300, 300) / 100:.2f}",
                f"{self._numbers.randint(-4, 4) / 2}e0",
                "1099511627776",
                "0.5",
            ]
        )

    def _day(self) -> str:
        text = date(2024, 1, 28) + timedelta(days=self._numbers.randint(0, 8))
        return self._numbers.choice([f"DATE '{text}'", f"'{text}'"])

    def _moment(self) -> str:
        moment = datetime(2024, 1, 31, 22) + timedelta(minutes=self._numbers.randint(0, 240))
        text = moment.isoformat(sep=" ")
        return self._numbers.choice(
            [f"TIMESTAMP '{text}'", f"'{text}'", f"'{text}+00:00'", f"DATE '{moment.date()}'"]
        )
