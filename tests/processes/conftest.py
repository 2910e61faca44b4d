"""Processes that do not survive the test that starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest


@pytest.fixture
def start_process() -> Iterator[Callable[[Sequence[str]], subprocess.Popen[bytes]]]:
    """Return a function that starts a process, whose messages can be read from it.

    Whatever becomes of the test, the process is killed and waited for, and its pipe closed.
    """
    with ExitStack() as stack:

        def start(command: Sequence[str]) -> subprocess.Popen[bytes]:
            # Jobs find what tests share, wherever pytest was told to.
            paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            process = stack.enter_context(
                subprocess.Popen(command, stderr=subprocess.PIPE, env=paths)
            )
            stack.callback(process.kill)
            return process

        yield start
