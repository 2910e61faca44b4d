"""Lines of logs: what they are about, as text and as JSON, and what they do not show."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables import a_table, trips

import headwater as hw
from headwater.errors import InvalidInputError
from headwater.seams.clock import SystemClock
from headwater.seams.log_context import Subject, about, note, subject
from headwater.seams.parallel_map import parallel_map

log = logging.getLogger("headwater.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where our logs go; afterwards all is as it was."""
    ours = logging.getLogger("headwater")
    before = (ours.handlers[:], ours.level, ours.propagate)
    yield io.StringIO()
    ours.handlers[:], ours.propagate = before[0], before[2]
    ours.setLevel(before[1])


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_fields_of_a_message_and_its_subject_are_fields_of_the_line(stream: io.StringIO) -> None:
    hw.configure_logging(json=True, stream=stream)
    with about(table="/t", instant="20260101000000000", attempt=2):
        log.info("rollback scheduled rollback=%s files=%d share=%.1f 100%%", "x y", 3, 0.5)
    log.warning("nothing is known")
    first, second = lines(stream)
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "INFO",
        "logger": "headwater.test",
        "message": "rollback scheduled rollback=x y files=3 share=0.5 100%",
        "table": "/t",
        "instant": "20260101000000000",
        "attempt": 2,
        "rollback": "x y",
        "files": 3,
        "share": 0.5,
    }
    assert set(second) == {"time", "level", "logger", "message"}


def test_what_a_message_says_itself_counts_more_than_the_subject(stream: io.StringIO) -> None:
    hw.configure_logging(json=True, stream=stream)
    with about(table="/t", instant="1", attempt=2):
        log.info("plan left alone instant=%s level=%s", "9", "high")
    (line,) = lines(stream)
    assert line["instant"] == "9"
    assert line["level"] == "INFO"


def test_text_ends_with_what_the_message_does_not_say(stream: io.StringIO) -> None:
    hw.configure_logging(stream=stream)
    with about(table="/t", instant="1", attempt=2):
        log.info("plan left alone instant=%s", "9")
    assert stream.getvalue().endswith(
        "INFO headwater.test: plan left alone instant=9 table=/t attempt=2\n"
    )


@pytest.mark.parametrize("as_json", [True, False])
def test_secrets_of_urls_are_not_shown(stream: io.StringIO, as_json: bool) -> None:
    hw.configure_logging(json=as_json, stream=stream)
    try:
        raise ValueError("https://user:hunter2@host/x?sig=hunter2")
    except ValueError:
        log.exception("failed url=%s", "https://user:hunter2@host/x?sig=hunter2")
    assert "failed url=https://***@host/x?***" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_configured_again_it_replaces_its_own_and_no_others(stream: io.StringIO) -> None:
    theirs = logging.NullHandler()
    logging.getLogger("headwater").addHandler(theirs)
    hw.configure_logging(json=True, stream=stream)
    hw.configure_logging(json=True, level="warning", stream=stream)
    log.info("not shown")
    log.warning("shown once")
    assert [line["message"] for line in lines(stream)] == ["shown once"]
    assert theirs in logging.getLogger("headwater").handlers
    with pytest.raises(InvalidInputError, match="There is no level 'loud'"):
        hw.configure_logging(level="loud")


def test_every_line_of_a_write_and_a_service_says_what_it_is_about(
    tmp_path: Path, stream: io.StringIO
) -> None:
    hw.configure_logging(json=True, level="DEBUG", stream=stream)
    table = a_table(tmp_path).create()
    done = table.upsert(trips(("a", "sf", 1)))
    written = [line for line in lines(stream) if line.get("table") == table.uri]
    (committed,) = [line for line in written if line["message"].startswith("write committed")]
    assert (committed["instant"], committed["attempt"]) == (done.instant, 1)
    assert (committed["operation"], committed["rows"]) == ("UPSERT", 1)
    table.upsert(trips(("b", "sf", 1), ("c", "ny", 1)))
    plan = table.services.schedule_clustering("id", cancellable=True)
    assert plan is not None
    table.services.request_cancel(plan)
    table.services.execute_abort(plan)
    (aborted,) = [line for line in lines(stream) if line["message"].startswith("plan aborted")]
    assert (aborted["table"], aborted["instant"], aborted["attempt"]) == (table.uri, plan, 2)
    assert subject() == Subject()


def test_threads_of_seams_know_what_they_are_about() -> None:
    seen: list[Subject] = []
    clock = SystemClock()

    def look(_: object = None) -> bool:
        seen.append(subject())
        return False

    with about(table="/t"):
        note(instant="1", attempt=3)
        parallel_map(look, [1, 2], width=2)
        clock.every_ms(1, look, "looks").cancel()
        timer = clock.every_ms(1, look, "looks")
    while len(seen) < 3:
        clock.sleep_ms(1)
    timer.cancel()
    assert set(seen) == {Subject("/t", "1", 3)}
    assert subject() == Subject()


def test_a_subject_ends_with_its_block_and_nobody_notes_outside_of_one() -> None:
    note(instant="1", attempt=1)
    assert subject() == Subject()
    with about(table="/t", instant="1", attempt=1):
        with about(table="/t", instant="2"):
            assert subject() == Subject("/t", "2", 0)
        with about(table="/u"):
            assert subject() == Subject("/u")
        with about():
            assert subject() == Subject("/t", "1", 1)
        assert subject() == Subject("/t", "1", 1)
