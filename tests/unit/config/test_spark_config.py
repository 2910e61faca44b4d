"""Options about Spark."""

from __future__ import annotations

import pytest

from headwater.config.spark import SparkConfig
from headwater.errors import InvalidInputError


def test_workers_are_warmed_unless_somebody_says_otherwise() -> None:
    assert SparkConfig.from_options({}).warms_workers
    assert not SparkConfig.from_options({"headwater.spark.warm.workers": "false"}).warms_workers


def test_a_malformed_value_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"headwater\.spark\.warm\.workers"):
        SparkConfig.from_options({"headwater.spark.warm.workers": "maybe"})
