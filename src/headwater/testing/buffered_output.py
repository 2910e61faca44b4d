"""A new object gathered in memory, for storages that keep their objects there."""

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
