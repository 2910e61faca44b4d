"""Days and times as text, whatever their year: Python's own types know the years 1 to 9999."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def time_text(scalar: pa.Scalar) -> str:
    """Return a day or a timestamp, which is not null, in the form of ISO 8601."""
    unit = "D" if pa.types.is_date32(scalar.type) else scalar.type.unit
    return str(np.array(scalar.value, f"datetime64[{unit}]"))
