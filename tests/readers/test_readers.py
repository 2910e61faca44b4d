"""Every table that we write, as we and hudi-rs find it, without a session of Spark.

The same test with the readers that need one: `tests/spark/test_reader_on_spark.py`, and
`tests/hudi/test_reader_of_hudi.py` for Apache Hudi.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.readers.histories import HISTORIES
from tests.readers.history import check_history, recorded
from tests.readers.readers import HudiRsReader

from headwater.kernel.journal.storage import JournaledStorage
from headwater.table import Table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("histories")


PARAMETERS = pytest.mark.parametrize(
    "history",
    [
        pytest.param(history.name, marks=[pytest.mark.long] * history.is_long)
        for history in HISTORIES.values()
    ],
)


@PARAMETERS
@pytest.mark.some(28)
def test_hudi_rs_finds_what_was_written(folder: Path, history: str) -> None:
    steps = recorded(history, folder)  # Which says itself what our own reader must find.
    pytest.importorskip("hudi", reason="hudi-rs is not installed")
    check_history(HudiRsReader(), steps)


@PARAMETERS
@pytest.mark.some(10)
def test_hudi_rs_finds_what_was_written_to_fenced_tables(folder: Path, history: str) -> None:
    steps = recorded(history, folder, is_fenced=True)
    assert all(is_fenced(recording.open()) for recording in steps)
    pytest.importorskip("hudi", reason="hudi-rs is not installed")
    check_history(HudiRsReader(), steps)


def is_fenced(table: Table) -> bool:
    return table.config.is_fenced and isinstance(table.storage, JournaledStorage)
