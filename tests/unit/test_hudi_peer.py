"""The peer that runs Apache Hudi for tests, with a process in its place that ends when told.

Tests beside Hudi kill its process at any time. A peer that cannot bear that ends the thread that
drives it, and a soak goes on without Hudi.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.hudi_peer import Bundle, HudiEndedError, HudiError, HudiPeer

READY = """echo '{"ok": "3.5"}'"""
TAKE_A_QUESTION = "read -r question"


def bundle(folder: Path, *lines: str) -> Bundle:
    """Return a bundle whose interpreter is a script of the shell."""
    script = folder / "session.sh"
    script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    script.chmod(0o755)
    return Bundle(folder / "no.jar", script)


def wait_until_ended(peer: HudiPeer) -> None:
    os.waitid(os.P_PID, peer.pid, os.WEXITED | os.WNOWAIT)


def is_gone(pid: int) -> bool:
    """Whether it was waited for; what nobody waited for still takes signals."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_process_that_ended_between_two_calls(tmp_path: Path) -> None:
    with HudiPeer(bundle(tmp_path, READY)) as peer:
        wait_until_ended(peer)
        with pytest.raises(HudiEndedError, match="process ended"):
            peer.execute("SELECT 1")
    assert is_gone(peer.pid)
    assert not peer.log.parent.exists()


def test_a_process_that_ended_while_nobody_asked(tmp_path: Path) -> None:
    with HudiPeer(bundle(tmp_path, READY)) as peer:
        wait_until_ended(peer)
    assert is_gone(peer.pid)


@pytest.mark.parametrize("said", ["", """printf '{"o'"""], ids=["nothing", "half an answer"])
def test_a_process_that_ended_in_a_call(tmp_path: Path, said: str) -> None:
    ending = bundle(tmp_path, READY, TAKE_A_QUESTION, "echo why it ended >&2", said)
    with (
        HudiPeer(ending) as peer,
        pytest.raises(HudiEndedError, match="why it ended"),
    ):
        peer.execute("SELECT 1")
    assert is_gone(peer.pid)


def test_a_process_that_ended_before_it_was_ready(tmp_path: Path) -> None:
    with pytest.raises(HudiEndedError, match="no Java"):
        HudiPeer(bundle(tmp_path, "echo no Java >&2"))


def test_a_failed_call_is_no_end(tmp_path: Path) -> None:
    failing = bundle(tmp_path, READY, TAKE_A_QUESTION, """echo '{"error": "no table"}'""", "cat")
    with HudiPeer(failing) as peer, pytest.raises(HudiError, match="no table") as failure:
        peer.execute("SELECT 1")
    assert not isinstance(failure.value, HudiEndedError)
