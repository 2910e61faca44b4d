"""What a test needs to drive a write by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.context import TableContext
from headwater.table import Table


@pytest.fixture
def target_of() -> Callable[[Table], TableContext]:
    """Return a function from a table to what `run_write` takes."""

    def target_of(table: Table) -> TableContext:
        return table.context

    return target_of
