"""The blocks of the quick start that are for Spark run, in the session that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

GUIDES = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block, id=f"{page.stem}:{number}")
    for page in sorted(GUIDES.rglob("*.md"))
    for number, block in enumerate(BLOCK.findall(page.read_text()), start=1)
    if "SparkSession" in block
]


def test_there_are_blocks_to_run() -> None:
    assert BLOCKS


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_for_spark_runs(block: str, spark: SparkSession) -> None:
    assert ".stop()" not in block, "the session is that of all tests"
    exec(compile(block, "block", "exec"), {"__name__": "__main__"})
