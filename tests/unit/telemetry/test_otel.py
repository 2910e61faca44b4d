"""Metrics and spans as OpenTelemetry's own SDK receives them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.tables import LOCKED, MOR, a_table, trips

import headwater as hw
from headwater.errors import InvalidInputError
from headwater.seams.meters import is_listening
from headwater.seams.metrics import METRICS, STORAGE_REQUESTS


class Sdk:
    def __init__(self) -> None:
        self.reader, self.spans = InMemoryMetricReader(), InMemorySpanExporter()
        self.meters = MeterProvider([self.reader])
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))

    def points(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def finished(self) -> list[ReadableSpan]:
        return list(self.spans.get_finished_spans())


@pytest.fixture
def sdk() -> Iterator[Sdk]:
    made = Sdk()
    end = hw.use_opentelemetry(meter_provider=made.meters, tracer_provider=made.tracers)
    yield made
    end()
    assert not is_listening()


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_write_is_a_span_with_its_parts_below(tmp_path: Path, sdk: Sdk) -> None:
    table = a_table(tmp_path).create()
    done = table.upsert(trips(("a", "sf", 1)))
    spans = {span.name: span for span in sdk.finished()}
    assert list(spans) == ["headwater.plan", "headwater.tasks", "headwater.commit",
                           "headwater.write"]  # fmt: skip
    root = spans["headwater.write"]
    assert root.parent is None
    for name in ("headwater.plan", "headwater.tasks", "headwater.commit"):
        parent = spans[name].parent
        assert parent is not None
        assert parent.span_id == root.context.span_id
    for span in spans.values():
        attributes = attributes_of(span)
        assert attributes["headwater.table"] == table.uri
        assert attributes["headwater.instant"] == done.instant
        assert attributes["headwater.attempt"] == 1
    assert attributes_of(root)["headwater.operation"] == "UPSERT"


def test_a_service_is_a_span_that_knows_its_instant(tmp_path: Path, sdk: Sdk) -> None:
    table = a_table(tmp_path, table_type=MOR, buckets=1).with_commits(3).create()
    sdk.spans.clear()
    done = table.services.compact()
    assert done is not None
    services = [span for span in sdk.finished() if span.name == "headwater.service"]
    (service,) = services
    assert attributes_of(service) == {
        "headwater.table": table.uri,
        "headwater.service": "compaction",
        "headwater.instant": done.instant,
        "headwater.attempt": 1,
    }


def test_an_error_is_noted_in_the_span(tmp_path: Path, sdk: Sdk) -> None:
    table = a_table(tmp_path).create()
    with pytest.raises(InvalidInputError):
        table.upsert(trips((None, "sf", 1)))
    with pytest.raises(InvalidInputError):
        table.services.cluster("20200101000000000x")
    failed = [span for span in sdk.finished() if not span.status.is_ok]
    assert "headwater.service" in {span.name for span in failed}


def test_metrics_have_the_names_units_and_bounds_of_the_declarations(
    tmp_path: Path, sdk: Sdk
) -> None:
    table = a_table(tmp_path, options=LOCKED).with_commits(2).create()
    points = sdk.points()
    assert points.keys() <= {metric.name for metric in METRICS}
    (commits,) = points["headwater.commits"]
    assert commits.value == 2
    assert dict(commits.attributes) == {
        "table": table.uri,
        "operation": "UPSERT",
        "mode": "single_writer",
        "outcome": "ok",
    }
    (waits,) = points["headwater.lock.wait"]
    assert waits.count == 4
    assert waits.explicit_bounds[0] == 0.001
    assert STORAGE_REQUESTS.name in points
    assert {dict(point.attributes)["action"] for point in points["headwater.pending"]} >= {"clean"}


def test_without_the_extra_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(InvalidInputError, match=r"headwater\[otel\]"):
        hw.use_opentelemetry()
    assert not is_listening()
