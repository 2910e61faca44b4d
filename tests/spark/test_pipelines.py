"""Declarative pipelines of Spark with tables of ours as sources and sinks: the example runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
ENDED_WITHIN_S = 1500


def run_pipeline(folder: Path, tables: Path) -> None:
    binaries = Path(sys.executable).parent
    done = subprocess.run(
        [str(binaries / "spark-pipelines"), "run", "--spec", "spark-pipeline.yml"],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TABLES": str(tables),
        },
        capture_output=True,
        text=True,
        timeout=ENDED_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_the_example_runs_and_goes_on_where_it_was(tmp_path: Path) -> None:
    folder, tables = tmp_path / "pipeline", tmp_path / "tables"
    shutil.copytree(EXAMPLE, folder)
    spec = folder / "spark-pipeline.yml"
    storage = (tmp_path / "storage").as_uri()
    spec.write_text(re.sub("^storage: .*", f"storage: {storage}", spec.read_text(), flags=re.M))
    trips = hw.create_table(
        tables / "trips", schema="id string, ts bigint, fare double", record_key="id"
    )
    trips.upsert(pa.table({"id": ["a", "b"], "ts": [1, 1], "fare": [10.0, 20.0]}))
    run_pipeline(folder, tables)
    trips.upsert(pa.table({"id": ["b", "c"], "ts": [2, 2], "fare": [30.0, 40.0]}))
    run_pipeline(folder, tables)
    found = hw.open_table(tables / "fares").read_arrow().sort_by("id")
    assert found["id"].to_pylist() == ["a", "b", "c"]
    assert found["earned"].to_pylist() == [8.0, 24.0, 32.0]
    assert len(hw.open_table(tables / "fares").history()) == 2
