"""Names of columns that no table may have."""

from __future__ import annotations

OWN_PREFIX = "__headwater_"
"""What columns begin with that rows have on their way to a file."""
