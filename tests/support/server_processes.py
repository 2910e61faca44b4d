"""Servers that tests run on loopback, each in a process of its own for as long as its block."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_SECONDS_MAX = 300.0
STOP_SECONDS_MAX = 60.0
# The shell ends the server when its standard input ends: also when the test process was killed.
RUN_UNTIL_INPUT_ENDS = '"$@" & cat > /dev/null; kill -9 $!; wait $!'


class CannotRunServer(Exception):
    """Something that a server needs is missing on this machine; the message says what."""


def find_java() -> str:
    java = shutil.which("java")
    if java is None:
        raise CannotRunServer("there is no java on the path")
    return java


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[None]:
    """Run a server in the folder of its log."""
    with log.open("wb") as said:
        server = subprocess.Popen(
            ["sh", "-c", RUN_UNTIL_INPUT_ENDS, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
        )
    try:
        yield
    finally:
        assert server.stdin is not None
        server.stdin.close()
        server.wait(STOP_SECONDS_MAX)


def answers(is_serving: Callable[[], bool]) -> bool:
    """Wait until a server serves; False if it never does."""
    give_up_s = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < give_up_s:
        try:
            if is_serving():
                return True
        except OSError:
            pass
        time.sleep(0.05)
    return False


def is_open(port: int) -> bool:
    """Whether something listens there; raises OSError if not."""
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
