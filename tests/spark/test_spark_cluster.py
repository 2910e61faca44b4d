"""A short look at a standalone cluster; `make test-cluster` runs all of these tests there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WRITES = Path(__file__).with_name("test_spark_writes.py")
SHORT = "test_partial_update_keeps_other_columns"


@pytest.mark.skipif(
    os.environ.get("HEADWATER_TEST_SPARK") == "standalone", reason="all tests run on the cluster"
)
def test_a_table_is_written_and_read_by_a_cluster() -> None:
    # A process of its own: there is one Spark context in each.
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{WRITES}::{SHORT}"],
        env={**os.environ, "HEADWATER_TEST_SPARK": "standalone"},
        cwd=WRITES.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert "1 passed" in ran.stdout
