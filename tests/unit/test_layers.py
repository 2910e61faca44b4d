"""The contracts on imports notice what they are there for: each is broken on purpose."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLANTED = {
    "imports point down only": ("slice/reader.py", "headwater.operations.plan"),
    "inside the kernel too": ("kernel/timeline/active.py", "headwater.kernel.txn.steps"),
    "services do not import each other, but what they share": (
        "services/clean.py",
        "headwater.services.archive",
    ),
    "the format knows no storage": ("format/properties.py", "headwater.seams.storage"),
    "only one room knows Spark": ("operations/write.py", "pyspark.sql"),
    "no product code imports the simulator": ("queries/pruning.py", "headwater.testing.faults"),
}


def broken_contracts(folder: Path) -> list[str]:
    checked = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.partition(" BROKEN") for line in checked.stdout.splitlines()]
    broken = [name for name, is_broken, _ in lines if is_broken]
    assert (checked.returncode != 0) == bool(broken), checked.stdout + checked.stderr
    return broken


@pytest.mark.long
@pytest.mark.parametrize("contract", PLANTED)
def test_a_broken_contract_is_named(tmp_path: Path, contract: str) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    assert broken_contracts(tmp_path) == []
    where, what = PLANTED[contract]
    with (tmp_path / "src/headwater" / where).open("a") as module:
        module.write(f"\nimport {what}\n")
    assert contract in broken_contracts(tmp_path)


def test_every_contract_has_one_that_breaks_it() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    contracts = text.partition("[tool.importlinter]")[2]
    names = [line.partition('"')[2][:-1] for line in contracts.splitlines() if "name = " in line]
    assert names == list(PLANTED)
