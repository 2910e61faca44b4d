"""Commands start at once: they load only what they need. Modules are counted, not seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.tables import a_table

LOADED = """
import sys
from headwater.cli.main import main

code = main(sys.argv[1:])
print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
sys.exit(code)
"""
HEAVY = {"duckdb", "hudi", "kazoo", "matplotlib", "polars", "pyspark", "py4j"}
SERVERS_AND_SQL = {"sqlglot", "starlette", "uvicorn"}
ARROW = {"fastavro", "numpy", "obstore", "pandas", "pyarrow"}


def loaded_by(*arguments: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True
    )
    return set(ran.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["service", "compact", "--help"], ["--version"]])
def test_what_needs_no_table_does_not_even_load_arrow(arguments: list[str]) -> None:
    assert loaded_by(*arguments) & (HEAVY | SERVERS_AND_SQL | ARROW) == set()


def test_looking_at_a_table_loads_no_spark_no_server_and_no_parser(tmp_path: Path) -> None:
    table = a_table(tmp_path).with_commits(1).create()
    assert loaded_by("table", "describe", table.uri) & (HEAVY | SERVERS_AND_SQL) == set()
