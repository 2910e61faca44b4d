"""The jobs of the guide for people who come from Hudi run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.from_hudi import answers_of, job_blocks

EXPECTED_COUNTS = (5, 5, 6, 6, 5, 4, 3, 2)
"""How many rows there are after each of the jobs up to the read-optimised query."""


@pytest.mark.long  # A minute of jobs, one after the other.
def test_the_jobs_of_the_guide_run(spark: SparkSession, tmp_path: Path) -> None:
    blocks = job_blocks()
    answers = answers_of(blocks, spark, str(tmp_path / "trips"))
    assert len(answers) == len(blocks)
    counts = [len(answer) for answer in answers]
    assert tuple(counts[: len(EXPECTED_COUNTS)]) == EXPECTED_COUNTS
    assert answers[1] != answers[0]
    assert ["334e26e9", 19.1, "san_francisco"] in answers[3]  # Its row was dropped, not merged.
    assert answers[-1] == [["a", 25.0, "sf"], ["c", 30.0, "ny"], ["d", 40.0, "la"]]
