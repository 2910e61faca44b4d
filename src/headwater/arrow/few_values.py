"""Arrays of a few Python values, made of buffers.

For the first array that it makes of Python values pyarrow imports pandas, where that is installed.
It takes as long as all that a process needs to open a small table and to read it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def binary_of(values: Sequence[bytes]) -> pa.BinaryArray:
    """Return values, less than 2 GiB of them, as an array."""
    return _made_of(values, pa.binary())


def text_of(values: Sequence[bytes]) -> pa.StringArray:
    """Return values that are known to be UTF-8 as an array of text."""
    return _made_of(values, pa.string())


def _made_of(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)
