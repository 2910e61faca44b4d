"""The typed config of markers."""

from __future__ import annotations

import pytest

from headwater.config.markers import MarkerConfig, MarkerType
from headwater.config.option import HarmlessOptionWarning
from headwater.config.registry import check_options
from headwater.errors import ErrorKind, InvalidInputError

EVERYTHING = MarkerConfig(type=MarkerType.TIMELINE_SERVER_BASED, batch_files=3, port=4_040)


def test_no_options_give_direct_markers() -> None:
    config = MarkerConfig.from_options({})
    assert config == MarkerConfig()
    assert config.type is MarkerType.DIRECT
    assert (config.batch_files, config.port) == (20, 0)


@pytest.mark.parametrize("config", [MarkerConfig(), EVERYTHING])
def test_marker_config_survives_its_options(config: MarkerConfig) -> None:
    assert MarkerConfig.from_options(config.to_options()) == config


def test_hudis_names_and_spellings_are_known() -> None:
    given = {
        "hoodie.write.markers.type": "timeline_server_based",
        "hoodie.markers.timeline_server_based.batch.num_threads": 3,
        "hoodie.embed.timeline.server.port": "4040",
    }
    assert MarkerConfig.from_options(check_options(given).known) == EVERYTHING


def test_an_interval_that_nothing_waits_for_is_not_taken_in_silence() -> None:
    with pytest.warns(HarmlessOptionWarning, match="interval_ms"):
        check_options({"hoodie.markers.timeline_server_based.batch.interval_ms": "50"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.write.markers.type", "TELEPATHIC"),
        ("hoodie.markers.timeline_server_based.batch.num_threads", "0"),
        ("hoodie.embed.timeline.server.port", "-1"),
        ("hoodie.embed.timeline.server.port", "65536"),
    ],
)
def test_values_that_make_no_sense_are_named(key: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match=key) as caught:
        check_options({key: value})
    assert caught.value.kind is ErrorKind.INVALID_OPTION
