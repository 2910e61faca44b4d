"""The garbage collector of this process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Look for no garbage cycles meanwhile, in this and all other threads.

    For the short making of very many objects that all stay: every few hundred of them the collector
    would look through those before, which takes up to a third of the time. Reading what they are
    made of may be part of it; calling others' code may not.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
