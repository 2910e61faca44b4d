"""Every table that we write, as our reader on Spark finds it; see `tests/readers`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.readers.histories import HISTORIES
from tests.readers.history import check_history, recorded
from tests.readers.readers import SparkReader


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(name, marks=[pytest.mark.long] * (not history.is_on_spark))
        for name, history in HISTORIES.items()
    ],
)
@pytest.mark.some(28)
def test_spark_finds_what_was_written(spark: SparkSession, tmp_path: Path, history: str) -> None:
    check_history(SparkReader(), recorded(history, tmp_path))
