"""Commands start at once, say how far they are, and end cleanly.

They load only what they need: modules are counted, not seconds.
"""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from rich.console import Console
from rich.progress import TextColumn
from tests.support.commands import all_commands
from tests.support.tables import a_table
from tests.unit.cli.conftest import Run

from headwater.cli.commands import lock
from headwater.cli.start import LOOKING
from headwater.cli.terminal_progress import LateProgress

LOADED = """
import sys
from headwater.cli.start import start

code = start()
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""
HEAVY = {"duckdb", "hudi", "kazoo", "matplotlib", "polars", "pyspark", "py4j"}
SERVERS_AND_SQL = {"asyncio", "http", "obstore", "sqlglot", "starlette", "uvicorn"}
ARROW = {"fastavro", "numpy", "pandas", "pyarrow"}
WRITING = {"headwater.operations.write", "headwater.services", "headwater.statements"}
INDEXES = {"headwater.metadata.table", "headwater.slice"}
PROTOCOL = {"headwater.kernel.txn.transaction", "headwater.kernel.view"}


def loaded_by(*arguments: str) -> set[str]:
    """Return what a process of a command has loaded when it ends: modules, and their packages."""
    ran = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True
    )
    return set(ran.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["service", "compact", "--help"], ["--version"]])
def test_what_needs_no_table_does_not_even_load_arrow(arguments: list[str]) -> None:
    assert loaded_by(*arguments) & (HEAVY | SERVERS_AND_SQL | ARROW | {"rich"}) == set()


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> str:
    return a_table(tmp_path_factory.mktemp("looked")).with_commits(1).create().uri


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        ("table describe", WRITING),
        ("table history", WRITING | INDEXES),
        ("lock show", WRITING | INDEXES | PROTOCOL | {"pyarrow.compute"}),
        ("heartbeat list", WRITING | INDEXES | PROTOCOL | {"pyarrow.compute"}),
        ("plan list", WRITING | INDEXES),
        ("lock show --output json", {"rich"}),
    ],
)
def test_looking_at_a_table_loads_what_the_question_needs(
    looked_at: str, command: str, unneeded: set[str]
) -> None:
    noun, verb, *rest = command.split()
    loaded = loaded_by(noun, verb, looked_at, *rest)
    assert loaded & (HEAVY | SERVERS_AND_SQL | {"pandas"} | unneeded) == set()


def test_a_table_is_read_without_what_writes_it(looked_at: str) -> None:
    """A function of the user's may merge rows there, so pandas is left alone."""
    loaded = loaded_by("table", "read", looked_at)
    assert loaded & (HEAVY | SERVERS_AND_SQL | WRITING) == set()


def test_a_few_rows_are_read_in_a_program_without_loading_pandas(looked_at: str) -> None:
    program = (
        "import sys, headwater as hw; table = hw.open_table(sys.argv[1]);"
        "print(table.read_arrow().num_rows > 0, *sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, looked_at], capture_output=True, text=True, check=True
    )
    has_rows, *loaded = ran.stdout.split()
    assert has_rows == "True"
    assert set(loaded) & (HEAVY | {"pandas"}) == set()


def test_what_only_looks_is_a_command() -> None:
    assert set(all_commands()) >= LOOKING


def test_the_package_alone_loads_no_arrow() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import headwater, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(ran.stdout.split()) & (HEAVY | SERVERS_AND_SQL | ARROW) == set()


@pytest.mark.parametrize(("shown_after_s", "is_shown"), [(0.0, True), (3600.0, False)])
def test_work_that_ends_at_once_shows_nothing(shown_after_s: float, is_shown: bool) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    column = TextColumn("{task.description}")
    with LateProgress(column, console=console, shown_after_s=shown_after_s) as shown:
        shown.add_task("compacting", total=None)
        shown.refresh()
    assert ("compacting" in screen.getvalue()) is is_shown


def test_ctrl_c_ends_with_a_sentence_and_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lock, "open_given_table", interrupted)
    code, out, err = run("lock", "show", "somewhere")
    assert (code, out) == (130, "")
    assert err.startswith("Stopped. What was being written is not visible")


def test_shells_are_told_what_can_follow(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """As a shell asks for it, with `--install-completion` or `--show-completion` before."""
    monkeypatch.setenv("_HEADWATER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "headwater service comp")
    monkeypatch.setenv("COMP_CWORD", "2")
    _, out, _ = run()
    assert out.split() == ["compact"]
