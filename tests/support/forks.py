"""Running a few statements in a forked child."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_a_child(call: Callable[[], T]) -> T:
    """Return what `call` returns in a child of this process, which ends then."""
    source, target = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with os.fdopen(target, "wb") as sink:
                pickle.dump(call(), sink)
            code = 0
        finally:
            os._exit(code)
    os.close(target)
    with os.fdopen(source, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, "the child failed"
    found: T = pickle.loads(data)
    return found
