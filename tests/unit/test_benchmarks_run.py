"""Every benchmark runs to its end, at sizes that say nothing: figures are none of the tests'."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALLEST = {
    "early_conflict": ["--quick"],
    "index": ["--quick"],
    "merge": ["--rows", "20000", "--log-rows", "2000", "--turns", "1"],
    "profiles": ["--rows", "20000"],
    "read": ["--rows", "20000", "--turns", "1"],
    "scale": ["--files", "1000", "--turns", "1"],
    "services": ["--rows", "20000", "--batch", "4000", "--turns", "1"],
    "stores": ["--delay-ms", "1", "--seconds", "1", "--writers", "2"],
    "timeline": ["--instants", "200", "--repeat", "1"],
    "write": ["--rows", "20000", "--batch", "4000", "--turns", "1"],
    "writers": ["--seconds", "1", "--writers", "1", "2"],
}
PARTS = {"check", "scale_model", "slow_line", "spark_bench", "targets"}
"""What others call, or what runs those above."""


def test_each_one_is_here() -> None:
    found = {file.stem for file in (ROOT / "benchmarks").glob("*.py")}
    parts = {name for name in found if name.startswith(("hudi_", "index_"))} | PARTS
    assert found - parts == set(SMALLEST)


@pytest.mark.long
@pytest.mark.parametrize("name", SMALLEST)
def test_it_ends_well(name: str) -> None:
    done = subprocess.run(
        [sys.executable, f"benchmarks/{name}.py", *SMALLEST[name]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
