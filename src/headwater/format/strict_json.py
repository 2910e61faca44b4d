"""JSON that somebody else wrote: whatever is wrong with it is a `ValueError`."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def load_json(data: bytes | str) -> Any:
    """Parse JSON, without the numbers that are none in JSON: no field of ours takes them.

    Raises:
        ValueError: it is no JSON, or is nested deeper than Python's stack.
    """
    try:
        return json.loads(data, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number
