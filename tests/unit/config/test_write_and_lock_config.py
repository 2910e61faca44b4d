"""The typed configs of writers and locks."""

from __future__ import annotations

import pytest

from headwater.config.lock import LockConfig
from headwater.config.option import OptionAliasWarning
from headwater.config.write import ConcurrencyMode, WriteConfig
from headwater.errors import InvalidInputError

EVERYTHING_ABOUT_WRITING = WriteConfig(
    concurrency_mode=ConcurrencyMode.NON_BLOCKING,
    heartbeat_interval_ms=5_000,
    heartbeat_tolerable_misses=7,
    writer_id="loader-3",
)


def test_no_options_give_hudis_defaults() -> None:
    config = WriteConfig.from_options({})
    assert config == WriteConfig()
    assert config.concurrency_mode is ConcurrencyMode.SINGLE_WRITER
    assert config.heartbeat_interval_ms == 60_000
    assert config.heartbeat_tolerable_misses == 2
    assert config.writer_id is None
    assert LockConfig.from_options({}) == LockConfig()


@pytest.mark.parametrize("config", [WriteConfig(), EVERYTHING_ABOUT_WRITING])
def test_write_config_survives_its_options(config: WriteConfig) -> None:
    assert WriteConfig.from_options(config.to_options()) == config


def test_only_the_single_writer_is_alone() -> None:
    assert [mode for mode in ConcurrencyMode if not mode.is_multi_writer] == [
        ConcurrencyMode.SINGLE_WRITER
    ]


def test_keys_of_other_subjects_are_left_alone() -> None:
    assert WriteConfig.from_options({"hoodie.table.name": "t", "anything": "x"}) == WriteConfig()


def test_write_problems_come_in_one_error() -> None:
    with pytest.raises(InvalidInputError) as caught:
        WriteConfig.from_options(
            {
                "hoodie.write.concurrency.mode": "many",
                "hoodie.client.heartbeat.tolerable.misses": "0",
                "headwater.writer.id": "  ",
            }
        )
    for key in ("concurrency.mode", "tolerable.misses", "headwater.writer.id"):
        assert key in str(caught.value)


def test_every_lock_option_reaches_its_field() -> None:
    config = LockConfig.from_options(
        {
            "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
            "hoodie.write.lock.provider": "zookeeper",
            "hoodie.write.lock.wait_time_ms": "1000",
            "hoodie.write.lock.filesystem.path": "locks",
            "hoodie.write.lock.filesystem.expire": "3",
            "hoodie.write.lock.storage.validity.timeout.secs": "100",
            "hoodie.write.lock.storage.renew.interval.secs": "10",
            "hoodie.write.lock.zookeeper.url": "zk",
            "hoodie.write.lock.zookeeper.port": "2181",
            "hoodie.write.lock.zookeeper.base_path": "/hudi",
            "hoodie.write.lock.zookeeper.lock_key": "t",
            "hoodie.write.lock.zookeeper.session_timeout_ms": "7",
            "hoodie.write.lock.zookeeper.connection_timeout_ms": "8",
        }
    )
    assert config == LockConfig(
        provider="zookeeper",
        concurrency_mode=ConcurrencyMode.OPTIMISTIC,
        acquire_timeout_ms=1_000,
        filesystem_path="locks",
        filesystem_expire_ms=180_000,
        storage_validity_ms=100_000,
        storage_renew_ms=10_000,
        zookeeper_url="zk",
        zookeeper_port=2181,
        zookeeper_base_path="/hudi",
        zookeeper_lock_key="t",
        zookeeper_session_timeout_ms=7,
        zookeeper_connection_timeout_ms=8,
    )


def test_the_older_name_of_the_renewal_interval_works() -> None:
    with pytest.warns(OptionAliasWarning):
        config = LockConfig.from_options({"hoodie.write.lock.storage.heartbeat.poll.secs": "9"})
    assert config.storage_renew_ms == 9_000


def test_a_storage_lock_outlives_ten_renewals() -> None:
    with pytest.raises(
        InvalidInputError, match=r"validity\.timeout\.secs \(299\) must be at least"
    ):
        LockConfig.from_options(
            {
                "hoodie.write.lock.storage.validity.timeout.secs": "299",
                "hoodie.write.lock.storage.renew.interval.secs": "30",
            }
        )


@pytest.mark.parametrize(
    ("stated", "validity_ms", "renew_ms"),
    [
        ({}, 30_000, 3_000),
        ({"hoodie.write.lock.storage.renew.interval.secs": "9"}, 90_000, 9_000),
        ({"hoodie.write.lock.storage.renew.interval.secs": "1"}, 30_000, 1_000),
        ({"hoodie.write.lock.storage.validity.timeout.secs": "300"}, 300_000, 3_000),
        ({"hoodie.write.lock.storage.validity.timeout.secs": "10"}, 10_000, 1_000),
    ],
)
def test_either_setting_of_a_storage_lock_makes_the_other_fit(
    stated: dict[str, str], validity_ms: int, renew_ms: int
) -> None:
    config = LockConfig.from_options(stated)
    assert (config.storage_validity_ms, config.storage_renew_ms) == (validity_ms, renew_ms)
