"""What tests of several rooms need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.dying import Killed, dying_storage

from headwater.seams.storage import Storage


@pytest.fixture
def dying() -> Callable[[Storage, int], Any]:
    """Return a function that wraps storage, so that its user dies after so many writes."""
    return dying_storage


@pytest.fixture
def killed() -> type[BaseException]:
    """What the user of dying storage dies of."""
    return Killed
