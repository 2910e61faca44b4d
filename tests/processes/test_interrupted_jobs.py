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
    command = [sys.executable, str(JOB), str(tmp_path), str(fenced), "1", str(STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    assert int(done.stdout.split()[-2]) > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("fenced", [True, False], ids=["journal", "lock"])
def test_n_194_many_times(tmp_path: Path, seed: int, *, fenced: bool) -> None:
    command = [sys.executable, str(JOB), str(tmp_path), str(fenced), str(seed), "300"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
