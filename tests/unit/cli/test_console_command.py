"""`headwater console` as a process: it prints the address, serves, and ends by Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.support.console_client import ConsoleClient
from tests.support.tables import a_table
from tests.unit.cli.conftest import Run

import headwater as hw


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal(table: hw.Table, tmp_path: Path, end: signal.Signals) -> None:
    """Also in the background of a shell, where Ctrl-C's is ignored unless asked for."""
    other = a_table(tmp_path / "other").create()
    arguments = ["console", table.uri, other.uri, "--output", "json"]
    command = [sys.executable, "-m", "headwater.cli.start", *arguments]
    ignoring = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=ignoring
    ) as process:
        assert process.stdout is not None
        document = ""
        while not document.endswith("}\n"):
            line = process.stdout.readline()
            assert line, document
            document += line
        told = json.loads(document)
        address, _, token = told["url"].partition("/#token=")
        client = ConsoleClient(int(address.rpartition(":")[2]))
        assert client.ask("/api/tables", token="x" * 64).status == 401
        answer = client.ask("/api/tables", token=token).json
        assert [one["uri"] for one in answer["tables"]] == told["tables"] == [table.uri, other.uri]
        process.send_signal(end)
    assert process.returncode == 0


def test_a_token_may_be_given_in_a_file(run: Run, table: hw.Table, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef0123456789abcdef\n")
    arguments = ["console", table.uri, "--seconds", "0", "--token-file", str(file)]
    code, out, _ = run(*arguments)
    assert code == 0
    assert "#token=0123456789abcdef0123456789abcdef" in out
    file.write_text("guess me")
    code, _, err = run(*arguments)
    assert code == 2
    assert "at least 32 characters" in err
    file.unlink()
    code, _, err = run(*arguments)
    assert code == 2
    assert "cannot be read" in err


def test_it_warns_where_others_can_listen(run: Run, table: hw.Table) -> None:
    nowhere = "192.0.2.1"  # An address for examples, which no machine has.
    code, _, err = run("console", table.uri, "--seconds", "0", "--host", nowhere)
    assert code == 2
    assert "no TLS" in err
    assert "Cannot listen" in err
    code, _, err = run("console", table.uri, "--seconds", "0")
    assert (code, err) == (0, "")
