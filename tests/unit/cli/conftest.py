"""A small table, and a function that runs commands on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.cli.main import main

Run = Callable[..., tuple[int, str, str]]
Ask = Callable[..., Any]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("fare", pa.int32()),
    ]
)


def rows(fares: dict[str, int]) -> pa.Table:
    values = [{"id": key, "city": key[:2], "fare": fare} for key, fare in fares.items()]
    return pa.Table.from_pylist(values, schema=SCHEMA)


def make_table(path: Path, table_type: str) -> hw.Table:
    made = hw.create_table(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        buckets=1,
        options={"headwater.storage.fsync": "false"},
    )
    made.insert(rows({"sf-a": 1, "ny-a": 2}))
    made.upsert(rows({"sf-a": 3}))
    return made


@pytest.fixture
def table(tmp_path: Path) -> hw.Table:
    """Two partitions of one file group each; a copy-on-write table with two commits."""
    return make_table(tmp_path / "trips", "COPY_ON_WRITE")


@pytest.fixture
def logged(tmp_path: Path) -> hw.Table:
    """The same, merge-on-read, with a log file to compact."""
    return make_table(tmp_path / "logged", "MERGE_ON_READ")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command; it gives exit code, output and messages."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def ask(run: Run) -> Ask:
    """Return a function that runs a command that succeeds, and gives what its JSON says."""

    def call(*arguments: str) -> Any:
        code, out, err = run(*arguments, "--output", "json")
        assert code == 0, err
        return json.loads(out)

    return call
