"""Headwater: many writers and services on one Apache Hudi table."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwater.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    CorruptTableError,
    ErrorKind,
    FencedError,
    HeadwaterError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    Retry,
    StorageError,
    UnsupportedError,
)
from headwater.seams.worker_python import offer_interpreter

if TYPE_CHECKING:
    from headwater.scan import Scan
    from headwater.spark.data_source import register
    from headwater.spark_sql.run import sql
    from headwater.table import Table, create_table, open_table, upgrade_table
    from headwater.telemetry.logs import configure_logging
    from headwater.telemetry.otel import use_opentelemetry
    from headwater.telemetry.serve import serve_metrics

    __version__: str

__all__ = [
    "AlreadyExistsError",
    "CommitUnknownError",
    "ConflictError",
    "CorruptTableError",
    "ErrorKind",
    "FencedError",
    "HeadwaterError",
    "InternalError",
    "InvalidInputError",
    "NotFoundError",
    "Retry",
    "Scan",
    "StorageError",
    "Table",
    "UnsupportedError",
    "__version__",
    "configure_logging",
    "create_table",
    "open_table",
    "register",
    "serve_metrics",
    "sql",
    "upgrade_table",
    "use_opentelemetry",
]

# Found when first asked for: a Python worker of Spark, and the kernel under the simulator, import
# this package without the facade, and work on Arrow needs no Spark.
_FACADE = {
    "Scan": "headwater.scan",
    "Table": "headwater.table",
    "configure_logging": "headwater.telemetry.logs",
    "create_table": "headwater.table",
    "open_table": "headwater.table",
    "register": "headwater.spark.data_source",
    "serve_metrics": "headwater.telemetry.serve",
    "sql": "headwater.spark_sql.run",
    "upgrade_table": "headwater.table",
    "use_opentelemetry": "headwater.telemetry.otel",
}

# Before anybody starts Spark, which asks the environment once.
offer_interpreter()


def __getattr__(name: str) -> Any:
    if name in _FACADE:
        return getattr(import_module(_FACADE[name]), name)
    if name == "__version__":
        # Looked up on disk, which takes longer than all the rest.
        return import_module("importlib.metadata").version("headwater")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
