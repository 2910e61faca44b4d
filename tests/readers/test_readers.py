"""Every table that we write, as readers without a session of Spark find it.

The same test with the readers that need one: `tests/spark/test_reader_on_spark.py`, and
`tests/hudi/test_reader_of_hudi.py` for Apache Hudi.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.readers.histories import HISTORIES
from tests.readers.history import check_history, recorded
from tests.readers.readers import ArrowReader, HudiRsReader, Reader

READERS: dict[str, Reader] = {"arrow": ArrowReader(), "hudi-rs": HudiRsReader()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("histories")


@pytest.mark.parametrize(
    ("history", "reader"),
    [
        pytest.param(history.name, reader, marks=[pytest.mark.long] * history.is_long)
        for history in HISTORIES.values()
        for reader in READERS
    ],
)
def test_a_reader_finds_what_was_written(folder: Path, history: str, reader: str) -> None:
    if reader == "hudi-rs":
        pytest.importorskip("hudi", reason="hudi-rs is not installed")
    check_history(READERS[reader], recorded(history, folder))
