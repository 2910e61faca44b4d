"""How a command is watched from outside: the format of its logs, and its metrics."""

from __future__ import annotations

from enum import StrEnum, unique
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import say
from headwater.errors import StorageError

if TYPE_CHECKING:
    from headwater.telemetry.collected import Collected


@unique
class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


LogLines = Annotated[
    LogFormat | None,
    typer.Option(
        "--log-format", help="Log to standard error what is done, as text or a JSON object a line."
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65535,
        help="Answer Prometheus at http://127.0.0.1:PORT/metrics while the command runs; 0 for "
        "any port that is free.",
    ),
]
MetricsFile = Annotated[
    str | None,
    typer.Option(
        "--metrics-file",
        metavar="FILE",
        help="Write the metrics of the command to a file when it ends, as Prometheus reads them.",
    ),
]


def observe(
    context: typer.Context,
    *,
    log_format: LogFormat | None = None,
    metrics_port: int | None = None,
    metrics_file: str | None = None,
) -> None:
    """Begin to log and to count as the command line asks, until the command has ended."""
    # Imported by who asks: other commands start without a server.
    if log_format is not None:
        from headwater.telemetry.logs import configure_logging

        context.call_on_close(configure_logging(json=log_format is LogFormat.JSON))
    if metrics_port is not None:
        from headwater.telemetry.serve import serve_metrics

        server = serve_metrics(metrics_port)
        context.call_on_close(server.stop)
        say(f"Metrics are at {server.url}")
    if metrics_file is not None:
        from headwater.seams.meters import listen, stop_listening
        from headwater.telemetry.collected import Collected

        collected = Collected()
        listen(collected)
        context.call_on_close(lambda: stop_listening(collected))
        context.call_on_close(partial(_write, collected, metrics_file))


def _write(collected: Collected, path: str) -> None:
    from headwater.telemetry.collected import write_text

    try:
        write_text(collected, path)
    except StorageError as error:
        # What the command did stands, so its exit code says nothing of this.
        say(str(error))
