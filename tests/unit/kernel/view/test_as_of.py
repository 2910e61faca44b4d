"""Times in queries."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pandas as pd
import pytest

from headwater.errors import ErrorKind, InvalidInputError
from headwater.kernel.view.as_of import parse_as_of


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("20240131093000123", "20240131093000123"),
        ("00000000000000000", "00000000000000000"),
        ("20240131093000", "20240131093000999"),
        ("2024-01-31 09:30:00.123", "20240131093000123"),
        ("2024-01-31 09:30:00.000", "20240131093000000"),
        ("2024-01-31 09:30:00", "20240131093000999"),
        ("2024-01-31", "20240131000000000"),
        ("2024-01-31T09:30:00", "20240131093000999"),
        ("2024-01-31T09:30:00.5", "20240131093000500"),
        ("2024-01-31T09:30:00.123456", "20240131093000123"),
        ("2024-01-31T09:30:00Z", "20240131093000999"),
        ("2024-01-31T09:30:00.123+01:00", "20240131083000123"),
        ("2024-01-31 00:30:00.000+0100", "20240130233000000"),
    ],
)
def test_the_forms_of_hudi_and_iso(text: str, time: str) -> None:
    assert parse_as_of(text) == time


def test_a_datetime_is_its_millisecond() -> None:
    plain = datetime(2024, 1, 31, 9, 30, 0, 123_999)
    assert parse_as_of(plain) == "20240131093000123"
    assert parse_as_of(plain, is_utc=False) == "20240131093000123"
    zone = timezone(timedelta(hours=2))
    assert parse_as_of(plain.replace(tzinfo=zone)) == "20240131073000123"
    here = plain.replace(tzinfo=zone).astimezone()
    assert parse_as_of(here, is_utc=False) == here.strftime("%Y%m%d%H%M%S") + "123"


@pytest.mark.parametrize(
    "given",
    [
        "",
        "now",
        "2024",
        "2024-02-30",
        "2024-1-31 ",
        "2024/01/31",
        "20240231093000",
        "2024-01-31T09:30",
        "2024-02-31T09:30:00Z",
        "2024-01-31T09:30:00 Z",
        "2024-01-31 9:30:000",
        "2024-01-31 25:30:00",
        "2024-01-31 09:30:00,123",
        "2024-01-31 09:30:00.12x",
        "2024013109300012",
        "9999-12-31T23:59:59-05:00",
        "0001-01-01T00:00:00+05:00",
        pd.NaT,
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
        "٢٠٢٤٠١٣١٠٩٣٠٠٠١٢٣",
    ],
)
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="A time to query as of is") as caught:
        parse_as_of(given)
    assert caught.value.kind is ErrorKind.INVALID_INSTANT_TIME
