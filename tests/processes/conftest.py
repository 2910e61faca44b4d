"""Processes that do not survive the test that starts them."""

from __future__ import annotations

import subprocess
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
            process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE))
            stack.callback(process.kill)
            return process

        yield start
