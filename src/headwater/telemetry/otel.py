"""Metrics and spans for OpenTelemetry, which is an extra: `pip install "headwater[otel]"`.

Where they go is up to the providers that the application has set up; this module configures none
and exports nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.errors import ErrorKind, InvalidInputError
from headwater.seams.meters import (
    Counter,
    Gauge,
    Histogram,
    Labels,
    Metric,
    listen,
    stop_listening,
)
from headwater.seams.metrics import METRICS
from headwater.seams.spans import Attributes, trace_with

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

_NAME = "headwater"


def use_opentelemetry(
    *, meter_provider: MeterProvider | None = None, tracer_provider: TracerProvider | None = None
) -> Callable[[], None]:
    """Bring metrics and spans of this process to OpenTelemetry.

    Requests to local disks are counted for tables that are opened from now on, all else at once.

    Args:
        meter_provider: where metrics go; by default the provider that is set globally.
        tracer_provider: where spans go; by default the provider that is set globally.

    Returns:
        A function that ends it.

    Raises:
        InvalidInputError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise InvalidInputError(
            'OpenTelemetry is not installed. Run `pip install "headwater[otel]"`',
            kind=ErrorKind.INVALID_OPTION,
        ) from error
    listener = _Instruments(metrics.get_meter(_NAME, meter_provider=meter_provider))
    listen(listener)
    trace_with(_Spans(trace.get_tracer(_NAME, tracer_provider=tracer_provider)))

    def end() -> None:
        stop_listening(listener)
        trace_with(None)

    return end


class _Instruments:
    """Every metric as an instrument of a meter."""

    def __init__(self, meter: Meter) -> None:
        self._made: dict[Metric, Any] = {metric: _instrument(meter, metric) for metric in METRICS}

    def add(self, metric: Counter, amount: float, labels: Labels) -> None:
        self._made[metric].add(amount, _attributes(metric, labels))

    def record(self, metric: Histogram, value: float, labels: Labels) -> None:
        self._made[metric].record(value, _attributes(metric, labels))

    def set(self, metric: Gauge, value: float, labels: Labels) -> None:
        self._made[metric].set(value, _attributes(metric, labels))


def _instrument(meter: Meter, metric: Metric) -> Any:
    match metric:
        case Counter():
            return meter.create_counter(metric.name, metric.unit, metric.help)
        case Histogram():
            return meter.create_histogram(
                metric.name,
                metric.unit,
                metric.help,
                explicit_bucket_boundaries_advisory=metric.bounds,
            )
        case _:
            return meter.create_gauge(metric.name, metric.unit, metric.help)


def _attributes(metric: Metric, labels: Labels) -> dict[str, str]:
    return dict(zip(metric.labels, labels, strict=True))


class _Spans:
    """Spans of a tracer, with the names of ours in front."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def span(self, name: str, attributes: Attributes) -> Iterator[None]:
        # It notes an error that leaves the block by itself.
        with self._tracer.start_as_current_span(f"{_NAME}.{name}", attributes=_named(attributes)):
            yield

    def note(self, attributes: Attributes) -> None:
        from opentelemetry import trace

        trace.get_current_span().set_attributes(_named(attributes))


def _named(attributes: Attributes) -> dict[str, str | int]:
    return {f"{_NAME}.{key}": value for key, value in attributes.items()}
