"""The text for Prometheus: names, values, buckets, and bounds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.collecting import collecting, total

from headwater.errors import StorageError
from headwater.seams import metrics
from headwater.seams.meters import (
    Counter,
    Gauge,
    Histogram,
    Labels,
    is_listening,
    listen,
    stop_listening,
    timed,
)
from headwater.telemetry import collected as room
from headwater.telemetry.collected import Collected, prometheus_name, series_names, write_text


def test_names_are_those_of_opentelemetrys_exporters() -> None:
    assert prometheus_name(metrics.COMMITS) == "headwater_commits_total"
    assert prometheus_name(metrics.WRITTEN) == "headwater_written_bytes_total"
    assert prometheus_name(metrics.PENDING_AGE) == "headwater_pending_age_seconds"
    assert series_names(metrics.LOCK_WAIT)[0] == "headwater_lock_wait_seconds_bucket"


def test_every_name_is_there_once_and_says_what_it_is() -> None:
    names = [metric.name for metric in metrics.METRICS]
    assert len(names) == len(set(names)) > 15
    for metric in metrics.METRICS:
        assert metric.name.startswith("headwater.")
        assert metric.help.endswith(".")
        # What is measured by blocks ends with its outcome.
        assert isinstance(metric, Counter | Gauge | Histogram)


def test_counters_add_gauges_forget_and_text_is_escaped() -> None:
    kept = Collected()
    kept.add(metrics.REDONE_ROWS, 2, ('a"b\\c\nd',))
    kept.add(metrics.REDONE_ROWS, 12_345_678_901, ('a"b\\c\nd',))
    kept.set(metrics.INDEX_LAG, 7, ("t",))
    kept.set(metrics.INDEX_LAG, 3, ("t",))
    text = kept.text()
    assert 'headwater_redone_rows_total{table="a\\"b\\\\c\\nd"} 12345678903\n' in text
    assert 'headwater_index_lag{table="t"} 3\n' in text
    assert "# TYPE headwater_index_lag gauge\n" in text


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    kept = Collected()
    for value in (0.001, 0.0011, 4.0, 9_999.0):
        kept.record(metrics.LOCK_WAIT, value, ("t", "ok"))
    text = kept.text()
    name = "headwater_lock_wait_seconds"
    assert total(text, f"{name}_bucket", le="0.001") == 1
    assert total(text, f"{name}_bucket", le="0.005") == 2
    assert total(text, f"{name}_bucket", le="1800") == 3
    assert total(text, f"{name}_bucket", le="+Inf") == 4
    assert total(text, f"{name}_count") == 4
    assert total(text, f"{name}_sum") == pytest.approx(10_003.0021)


def test_labels_without_end_do_not_take_memory_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "_SERIES_MAX", 3)
    kept = Collected()
    for number in range(10):
        kept.add(metrics.LAPSED, 1, (f"t{number}",))
    text = kept.text()
    assert total(text, "headwater_heartbeats_lapsed_total") == 10
    assert total(text, "headwater_heartbeats_lapsed_total", table="others") == 7


def test_nobody_is_told_and_no_clock_is_read_unless_somebody_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not is_listening()
    with monkeypatch.context() as patched:
        patched.setattr("headwater.seams.meters.seconds", lambda: pytest.fail("a clock is read"))
        with timed(metrics.LOCK_WAIT, "t"):
            metrics.COMMITS.add(1, "t", "UPSERT", "single_writer", "ok")
    with collecting() as kept:
        with timed(metrics.LOCK_WAIT, "t"):
            pass
        assert total(kept.text(), "headwater_lock_wait_seconds_count", outcome="ok") == 1
        assert total(kept.text(), "headwater_commits_total") == 0
    assert not is_listening()


def test_a_file_is_written_whole_or_the_error_names_it(tmp_path: Path) -> None:
    kept = Collected()
    kept.add(metrics.LAPSED, 1, ("t",))
    write_text(kept, str(tmp_path / "m.prom"))
    assert (tmp_path / "m.prom").read_text() == kept.text()
    assert [path.name for path in tmp_path.iterdir()] == ["m.prom"]
    with pytest.raises(StorageError, match=r"Cannot write metrics to .*nowhere"):
        write_text(kept, str(tmp_path / "nowhere" / "m.prom"))


class Broken:
    """A listener that fails."""

    def add(self, metric: Counter, amount: float, labels: Labels) -> None:
        raise OSError("the exporter is gone")

    record = set = add


def test_a_listener_that_fails_does_not_fail_what_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = Broken()
    listen(broken)  # type: ignore[arg-type]
    try:
        with collecting() as kept:
            metrics.LAPSED.add(1, "t")
            metrics.INDEX_LAG.set(1, "t")
            with timed(metrics.LOCK_WAIT, "t"):
                pass
            assert total(kept.text(), "headwater_heartbeats_lapsed_total") == 1
    finally:
        stop_listening(broken)  # type: ignore[arg-type]
    assert len(caplog.records) == 3
    assert "metric is lost metric=headwater.heartbeats.lapsed" in caplog.text
