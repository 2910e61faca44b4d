"""The jobs of docs/guide/from-hudi.md, for whoever runs them: ours, or Hudi itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import headwater as hw

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "from-hudi.md"
_BLOCK = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)

Answer = list[list[Any]]


def job_blocks() -> list[str]:
    """Return the jobs, which go on from each other and leave what they read in `rows`."""
    return _BLOCK.findall(GUIDE.read_text(encoding="utf-8"))


def answers_of(blocks: list[str], spark: SparkSession, path: str) -> list[Answer]:
    """Run the jobs with our own data source; return the rows of each, in order."""
    hw.register(spark)
    names: dict[str, Any] = {"spark": spark, "path": path, "hw": hw}
    answers = []
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
        answers.append(sorted(list(row) for row in names["rows"]))
    return answers


def hudi_script(blocks: list[str]) -> str:
    """Return the jobs with the one word changed, for `HudiPeer.run`; they leave all answers."""
    ours = "\nanswers.append(sorted(list(row) for row in rows))\n".join([*blocks, ""])
    theirs = re.sub(r"hw\.sql\(\s*spark,\s*", "spark.sql(", ours)
    theirs = theirs.replace('"headwater"', '"hudi"').replace("USING headwater", "USING hudi")
    return f"answers = []\n{theirs}\nresult = answers\n"
