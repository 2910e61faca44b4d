"""Times and sizes as people write them: `10s`, `5 min`, `128 MB`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_AMOUNT = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([A-Za-z]*)\s*", re.ASCII)
_MILLISECONDS: Mapping[str, int] = MappingProxyType(
    {
        "ms": 1,
        "s": 1000,
        "min": 60_000,
        "m": 60_000,
        "h": 3_600_000,
        "d": 86_400_000,
    }
)
_BYTES: Mapping[str, int] = MappingProxyType(
    {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
)


def parse_duration_ms(text: str) -> int:
    """Return a time such as `10s` in milliseconds.

    Raises:
        ValueError: the text is none.
    """
    return _amount(text, _MILLISECONDS, "a time such as 500ms, 10s, 5min, 2h or 1d")


def parse_size_bytes(text: str) -> int:
    """Return a size such as `128 MB` in bytes.

    Raises:
        ValueError: the text is none.
    """
    return _amount(text, _BYTES, "a size such as 512 KB, 128 MB or 1 GB")


def _amount(text: str, units: Mapping[str, int], expectation: str) -> int:
    found = _AMOUNT.fullmatch(text)
    unit = None if found is None else units.get(found[2].lower())
    if found is None or unit is None:
        raise ValueError(f"expected {expectation}, got {text!r}")
    return int(float(found[1]) * unit)
