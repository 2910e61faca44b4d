"""The typed config of how plans run, and how they end without a result."""

from __future__ import annotations

import pytest

from headwater.config.plans import CANCEL_POLL_INTERVAL, GUARD, ROLLBACK_DELAY, PlanConfig
from headwater.config.registry import check_options
from headwater.errors import ErrorKind, InvalidInputError


def test_without_options_an_execution_looks_every_five_seconds_and_plans_get_an_hour() -> None:
    config = PlanConfig.from_options({})
    assert config == PlanConfig()
    assert config.is_guarded
    assert (config.poll_interval_ms, config.rollback_delay_ms) == (5_000, 3_600_000)


@pytest.mark.parametrize(
    "config", [PlanConfig(), PlanConfig(is_guarded=False, poll_interval_ms=1, rollback_delay_ms=0)]
)
def test_plan_config_survives_its_options(config: PlanConfig) -> None:
    options = check_options(config.to_options()).known
    assert PlanConfig.from_options(options) == config


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (CANCEL_POLL_INTERVAL.key, "0"),
        (CANCEL_POLL_INTERVAL.key, "soon"),
        (GUARD.key, "maybe"),
        (ROLLBACK_DELAY.key, "-1"),
        (ROLLBACK_DELAY.key, "1.5"),
    ],
)
def test_a_malformed_value_is_named(key: str, text: str) -> None:
    with pytest.raises(InvalidInputError, match=key) as caught:
        check_options({key: text})
    assert caught.value.kind is ErrorKind.INVALID_OPTION
