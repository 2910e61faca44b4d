"""Commands that are watched: logs, a port and a file, for as long as they run."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.support.collecting import total
from tests.support.tables import a_table

from headwater.cli.main import main
from headwater.seams.meters import is_listening
from headwater.telemetry.serve import MetricsServer


def test_a_command_logs_counts_and_ends_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = a_table(tmp_path).with_commits(1).create()
    (tmp_path / "rows.csv").write_text("id,city,value\nz,sf,1\n")
    metrics = tmp_path / "m.prom"
    words = ["--log-format", "json", "--metrics-port", "0", "--metrics-file", str(metrics)]
    assert main([*words, "table", "write", table.uri, str(tmp_path / "rows.csv")]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("Metrics are at http://127.0.0.1:")
    (line,) = [json.loads(one) for one in said if one.startswith("{")]
    assert line["message"].startswith("write committed")
    assert line["table"] == table.uri
    assert total(metrics.read_text(), "headwater_commits_total", outcome="ok") == 1
    assert not is_listening()
    assert logging.getLogger("headwater").handlers == []
    assert logging.getLogger("headwater").propagate


def test_metrics_of_a_command_that_fails_are_written_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = tmp_path / "m.prom"
    assert main(["--metrics-file", str(metrics), "service", "clean", str(tmp_path / "no")]) != 0
    assert "headwater_storage_requests_total{" in metrics.read_text()
    assert not is_listening()
    assert main(["--metrics-file", str(tmp_path / "no" / "m"), "explain", "conflict.early"]) == 0
    assert "Cannot write metrics" in capsys.readouterr().err
    assert not is_listening()


def test_the_loop_of_services_answers_while_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(tmp_path).with_commits(2).create()
    answers: list[str] = []

    def stop_serving(server: MetricsServer) -> None:
        with urlopen(server.url) as answer:
            answers.append(answer.read().decode())
        stop(server)

    stop = MetricsServer.stop
    monkeypatch.setattr(MetricsServer, "stop", stop_serving)
    words = ["service", "run", table.uri, "--rounds", "1", "--every", "0.1", "--metrics-port", "0"]
    assert main(words) == 0
    (text,) = answers
    runs = "headwater_service_duration_seconds_count"
    assert total(text, runs, table=table.uri, service="clean", outcome="ok") == 1
    assert total(text, runs, table=table.uri, service="archive") == 1
    assert not is_listening()
