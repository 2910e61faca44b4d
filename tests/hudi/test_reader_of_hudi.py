"""Every table that we write, as Apache Hudi reads it; see `tests/readers`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.readers.histories import HISTORIES
from tests.readers.history import check_history, recorded
from tests.readers.readers import HudiReader
from tests.support.beside_hudi import YES, shows
from tests.support.hudi_peer import HudiPeer


@pytest.mark.parametrize("history", HISTORIES)
@shows("copy-on-write and merge-on-read, every operation", they_read=YES)
def test_hudi_finds_what_was_written(hudi: HudiPeer, tmp_path: Path, history: str) -> None:
    check_history(HudiReader(hudi), recorded(history, tmp_path))


@pytest.mark.parametrize("history", HISTORIES)
def test_hudi_finds_what_was_written_to_fenced_tables(
    hudi: HudiPeer, tmp_path: Path, history: str
) -> None:
    check_history(HudiReader(hudi), recorded(history, tmp_path, is_fenced=True))
