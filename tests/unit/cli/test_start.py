"""Commands start at once, say how far they are, and end cleanly.

They load only what they need: modules are counted, not seconds.
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import TextColumn
from tests.support.tables import a_table
from tests.unit.cli.conftest import Run

from headwater.cli.commands import lock
from headwater.cli.progress import LateProgress

LOADED = """
import sys
from headwater.cli.main import main

code = main(sys.argv[1:])
print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
sys.exit(code)
"""
HEAVY = {"duckdb", "hudi", "kazoo", "matplotlib", "polars", "pyspark", "py4j"}
SERVERS_AND_SQL = {"sqlglot", "starlette", "uvicorn"}
ARROW = {"fastavro", "numpy", "obstore", "pandas", "pyarrow"}


def loaded_by(*arguments: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True
    )
    return set(ran.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["service", "compact", "--help"], ["--version"]])
def test_what_needs_no_table_does_not_even_load_arrow(arguments: list[str]) -> None:
    assert loaded_by(*arguments) & (HEAVY | SERVERS_AND_SQL | ARROW) == set()


def test_looking_at_a_table_loads_no_spark_no_server_and_no_parser(tmp_path: Path) -> None:
    table = a_table(tmp_path).with_commits(1).create()
    assert loaded_by("table", "describe", table.uri) & (HEAVY | SERVERS_AND_SQL) == set()


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
