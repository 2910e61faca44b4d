"""`make demo` at a small scale: it ends well, shows what it promises, or says what differs."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "demo.py"
ROWS = pa.table({"id": ["a", "b"], "city": ["sf", "la"], "fare": [1.0, 2.0], "ts": [1, 1]})

pytest.importorskip("rich", reason="rich of the dev group is not installed")


@pytest.fixture
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("headwater_demo", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_demo_runs_to_its_end_in_plain_text(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the pictures extra is not installed")
    home = tmp_path / "home"
    home.mkdir()
    output = tmp_path / "output"
    ran = subprocess.run(
        [sys.executable, SCRIPT, "--rows", "1000", "--output", output],
        # FORCE_COLOR is what some CI systems set; the text must be plain all the same.
        env={**os.environ, "HOME": str(home), "FORCE_COLOR": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    promised = [
        "read the table: 960 rows as expected",
        "600 rows as expected",
        "read what was written after the second batch",
        "100 updates and 40 deletes as expected",
        "the late row lost",
        "BULK_INSERT",
        "city=tokyo",
        "41 files, 8 base and 33 log",
        "Everything was as expected.",
        "timeline.svg",
        "timeline.png",
        "What to try next",
    ]
    if importlib.util.find_spec("hudi") is not None:
        promised.append("hudi-rs: all 960 rows equal ours")
    assert [part for part in promised if part not in ran.stdout] == []
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f]", ran.stdout) == []
    assert len(re.findall(r"^ *\d+\.\d s  \(\+ *\d+\.\d s\)  ", ran.stdout, re.MULTILINE)) >= 14
    assert (output / "timeline.svg").stat().st_size > 0
    assert (output / "timeline.png").stat().st_size > 0
    assert {path.name for path in tmp_path.iterdir()} == {"home", "output"}


def test_rows_that_differ_are_named(demo: ModuleType) -> None:
    demo.check_rows("of the table", ROWS, ROWS)
    other = ROWS.set_column(2, "fare", pa.array([1.0, 3.0]))
    with pytest.raises(demo.Differs, match=r"A row of the table differs: .*3\.0.*2\.0"):
        demo.check_rows("of the table", ROWS, other)
    with pytest.raises(demo.Differs, match=r"number of rows of the table differs: expected 1"):
        demo.check_rows("of the table", ROWS, ROWS.slice(1))


def test_a_difference_ends_the_demo_with_a_sentence(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differ(*_: object) -> None:
        demo.check_equal("The number of changes by kind", {"u": 1}, {"u": 2})

    monkeypatch.setattr(demo, "run", differ)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--output", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        demo.main()
    # A text as the code makes Python print it and exit with 1.
    assert ended.value.code == (
        "The demo failed. The number of changes by kind differs: expected {'u': 2}, found {'u': 1}."
    )


def test_without_hudi_rs_one_line_says_so(
    demo: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "hudi", None)
    demo.check_with_hudi_rs(demo.Screen(), tmp_path, ROWS)
    (line,) = capsys.readouterr().out.splitlines()
    assert "hudi-rs: not installed, so nothing was compared" in line


def test_a_folder_that_is_no_table_is_not_deleted(demo: ModuleType, tmp_path: Path) -> None:
    mine = tmp_path / "trips" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("not a table")
    with pytest.raises(SystemExit, match="choose another --output"):
        demo.table_folder(tmp_path)
    assert mine.read_text() == "not a table"
