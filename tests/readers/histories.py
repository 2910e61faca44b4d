"""All histories: whoever imports this has them registered."""

from __future__ import annotations

from tests.readers import columns, merges, rewrites, writes
from tests.readers.history import HISTORIES

__all__ = ["HISTORIES", "columns", "merges", "rewrites", "writes"]
