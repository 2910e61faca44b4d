"""The results of services as rows that people read."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def summary_of(result: Any) -> dict[str, Any]:
    """Return a result, which is a dataclass, as one row; of files and file groups how many."""
    row: dict[str, Any] = {}
    for field in fields(result):
        value = getattr(result, field.name)
        if isinstance(value, tuple):
            row[field.name] = len(value)
        else:
            row[field.name] = value if value is None or isinstance(value, int) else str(value)
    return row
