"""A new object gathered in memory, for stores that take an object in one piece.

Object stores create conditionally only what arrives in a single request, so the bytes of one data
file are held until they are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import BinaryIO


@contextmanager
def buffered_output(publish: Callable[[bytes], None]) -> Iterator[BinaryIO]:
    """Give a file to write to; `publish` what it holds if the block ends without an exception."""
    sink = BytesIO()
    yield sink
    publish(sink.getvalue())
