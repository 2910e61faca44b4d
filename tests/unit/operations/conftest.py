"""What a test needs to drive a write by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.config.detection import DetectionConfig
from headwater.operations.write import WriteTarget
from headwater.table import Table


@pytest.fixture
def target_of() -> Callable[[Table], WriteTarget]:
    """Return a function from a table to what `run_write` takes."""

    def target_of(table: Table) -> WriteTarget:
        return WriteTarget(
            components=table.components,
            config=table.config,
            write_config=table.write_config,
            files=table.file_config,
            storage_options=table.options.known,
            lock_timeout_ms=table.lock_config.acquire_timeout_ms,
            detection=DetectionConfig.from_options(table.options.known),
            lock_config=table.lock_config,
        )

    return target_of
