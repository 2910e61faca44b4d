"""Options of early conflict detection, under the names that Hudi released and that RFC-56 has."""

from __future__ import annotations

import pytest

from headwater.config.detection import (
    DETECTION_STRATEGY,
    DetectionConfig,
    DetectionStrategy,
)
from headwater.config.option import OptionAliasWarning
from headwater.config.registry import check_options
from headwater.errors import ErrorKind, InvalidInputError

RELEASED = "hoodie.write.concurrency."
RFC = "hoodie.write.lock.early.conflict."
SERVICE = {"hoodie.write.markers.type": "TIMELINE_SERVER_BASED"}


def test_by_default_it_is_on_and_looks_at_commits_too() -> None:
    config = DetectionConfig.from_options({})
    assert config == DetectionConfig()
    assert config.is_enabled
    assert config.checks_commits
    assert config.strategy is DetectionStrategy.DIRECT
    assert DetectionConfig.from_options(SERVICE).strategy is DetectionStrategy.ASYNC


def test_the_released_names() -> None:
    options = {
        f"{RELEASED}early.conflict.detection.enable": "false",
        f"{RELEASED}early.conflict.detection.strategy": "bloom_async",
        f"{RELEASED}early.conflict.check.commit.conflict": "false",
        f"{RELEASED}async.conflict.detector.initial_delay_ms": "10",
        f"{RELEASED}async.conflict.detector.period_ms": "20",
        **SERVICE,
    }
    assert DetectionConfig.from_options(check_options(options).known) == DetectionConfig(
        is_enabled=False,
        strategy=DetectionStrategy.BLOOM_ASYNC,
        checks_commits=False,
        delay_ms=10,
        period_ms=20,
    )


def test_the_names_of_the_rfc() -> None:
    options = {
        f"{RFC}detection.enable": "false",
        f"{RFC}detection.strategy": "async",
        f"{RFC}check.commit": "false",
        f"{RFC}async.checker.batch.interval": "10",
        f"{RFC}async.checker.period": "20",
        **SERVICE,
    }
    with pytest.warns(OptionAliasWarning):
        checked = check_options(options)
    assert DetectionConfig.from_options(checked.known) == DetectionConfig(
        is_enabled=False,
        strategy=DetectionStrategy.ASYNC,
        checks_commits=False,
        delay_ms=10,
        period_ms=20,
    )
    assert {option.find(options) is not None for option in DetectionConfig.options()} == {True}


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("direct", DetectionStrategy.DIRECT),
        ("Transaction_Direct", DetectionStrategy.TRANSACTION_DIRECT),
        ("SimpleDirectMarkerBasedDetectionStrategy", DetectionStrategy.DIRECT),
        (
            "org.apache.hudi.table.marker.SimpleTransactionDirectMarkerBasedDetectionStrategy",
            DetectionStrategy.TRANSACTION_DIRECT,
        ),
        (
            "BloomDirectMarkerBasedEarlyConflictDetectionStrategy",
            DetectionStrategy.BLOOM_DIRECT,
        ),
        (
            "org.apache.hudi.timeline.service.handlers.marker."
            "AsyncTimelineServerBasedDetectionStrategy",
            DetectionStrategy.ASYNC,
        ),
        ("AsyncTimelineMarkerEarlyConflictDetectionStrategy", DetectionStrategy.ASYNC),
        ("BloomAsyncTimelineMarkerEarlyConflictDetectionStrategy", DetectionStrategy.BLOOM_ASYNC),
    ],
)
def test_a_strategy_by_any_of_its_names(text: str, strategy: DetectionStrategy) -> None:
    assert DETECTION_STRATEGY.parse(text) is strategy


@pytest.mark.parametrize("text", ["", "zookeeper", "com.example.DirectStrategy"])
def test_other_strategies_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="bloom_direct, async"):
        DETECTION_STRATEGY.parse(text)


@pytest.mark.parametrize("strategy", list(DetectionStrategy))
def test_a_strategy_must_fit_the_markers(strategy: DetectionStrategy) -> None:
    chosen = {DETECTION_STRATEGY.key: str(strategy)}
    fitting = {"hoodie.write.markers.type": str(strategy.markers)}
    assert DetectionConfig.from_options({**chosen, **fitting}).strategy is strategy
    other = {} if fitting["hoodie.write.markers.type"] != "DIRECT" else SERVICE
    with pytest.raises(InvalidInputError, match=r"needs hoodie\.write\.markers\.type") as caught:
        check_options({**chosen, **other})
    assert caught.value.kind is ErrorKind.INVALID_OPTION


@pytest.mark.parametrize(
    "provider",
    ["in_process", "org.apache.hudi.client.transaction.lock.InProcessLockProvider"],
)
def test_locks_of_file_groups_must_reach_beyond_a_process(provider: str) -> None:
    options = {
        DETECTION_STRATEGY.key: "transaction_direct",
        "hoodie.write.lock.provider": provider,
    }
    with pytest.raises(InvalidInputError, match="tasks in other processes"):
        check_options(options)
