"""N-194: Ctrl-C, or whatever else raises in the main thread, at any place of any operation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).with_name("interrupted_job.py")
STEPS = 60


@pytest.mark.parametrize("fenced", [True, False], ids=["journal", "lock"])
def test_n_194_who_is_interrupted_leaves_nothing_at_work(tmp_path: Path, *, fenced: bool) -> None:
    assert interrupts(tmp_path, fenced, 1, STEPS, False) > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("fenced", [True, False], ids=["journal", "lock"])
def test_n_194_many_times_and_by_any_exception(tmp_path: Path, seed: int, *, fenced: bool) -> None:
    assert interrupts(tmp_path, fenced, seed, 300, True) > 0


def interrupts(*arguments: object) -> int:
    """Run a job; return how often it was interrupted."""
    command = [sys.executable, str(JOB), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    return int(done.stdout.split()[-2])
