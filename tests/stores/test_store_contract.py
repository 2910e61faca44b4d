"""The behaviour suite of storages, on servers of other projects."""

from __future__ import annotations

from tests.unit.contracts.test_storage import *  # noqa: F403
