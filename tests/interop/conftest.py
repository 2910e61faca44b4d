"""Tables that other engines wrote, unpacked once per run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from zipfile import ZipFile

import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures"


@pytest.fixture(scope="session")
def hudi_table(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from the name of a fixture to the base path of the table.

    Tables are shared by all tests of a run: copy one before changing it.
    """
    if not FIXTURES.is_dir():
        pytest.skip("the shared folder with Hudi's tables is not beside the project")

    @cache
    def unpack(name: str) -> Path:
        folder = tmp_path_factory.mktemp("hudi")
        with ZipFile(FIXTURES / f"{name}.zip") as archive:
            archive.extractall(folder)
        return folder / name

    return unpack
