"""`make demo`: it ends well, shows what it promises, or says what differs.

`make test` runs it short and without the writer that needs Java; the whole of it is `long`, and so
is the proof that its checks can fail: a defect is planted in every process, and it must be found.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from tests.support.scripts import load_script

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "demo.py"
PLANTED = ROOT / "tests" / "support" / "planted"
ROWS = pa.table({"id": ["a", "b"], "city": ["sf", "la"], "fare": [1.0, 2.0], "ts": [1, 1]})


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script as a module; those beside it are its own and are forgotten again."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(SCRIPT.parent)
    yield load_script(SCRIPT)
    for name in [name for name in sys.modules if name.startswith("demo_") and name not in before]:
        del sys.modules[name]


def run_demo(
    folder: Path, *arguments: str, planted: str | None = None
) -> subprocess.CompletedProcess[str]:
    home = folder / "home"
    home.mkdir()
    # FORCE_COLOR is what some CI systems set; the text must be plain all the same.
    environment = {**os.environ, "HOME": str(home), "FORCE_COLOR": "1"}
    if planted is not None:
        paths = [str(PLANTED), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment |= {"PYTHONPATH": os.pathsep.join(paths), "HEADWATER_PLANTED": planted}
    return subprocess.run(
        [sys.executable, SCRIPT, "--output", folder / "output", *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--short", "--no-spark"), id="short"),
        pytest.param((), id="whole", marks=pytest.mark.long),
    ],
)
def test_the_demo_runs_to_its_end_in_plain_text(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ran = run_demo(tmp_path, *arguments)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    promised = [
        *(f"Act {number}: " for number in range(1, 8)),
        "RFC-66",
        "RFC-79",
        "RFC-45",
        "RFC-56",
        "cancellable clustering",
        "acknowledged batches say",
        "killed, with 4 files written and no commit",
        "was rolled back by services, its 4 files are gone",
        "is aborted, and its files are gone",
        "before it wrote a file",
        "after a late batch, older than all others",
        "restored; 1 commits were taken back",
        "hudi-rs reads the same",
        "every index says what the files say",
        "fsck --deep finds nothing",
        "nobody had a lock",
        "Everything was as expected",
        "timeline.svg",
        "What to try next",
    ]
    assert [part for part in promised if part not in ran.stdout] == []
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f]", ran.stdout) == []
    pictures = [tmp_path / "output" / f"timeline.{suffix}" for suffix in ("svg", "png")]
    assert all(picture.stat().st_size > 0 for picture in pictures)
    assert {path.name for path in tmp_path.iterdir()} == {"home", "output"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ("cancellation", "Whether the clustering was cancelled: expected True, found False"),
        ("rollback", "whose writer was killed: expected []"),
        ("merge", "A row after a late batch, older than all others: expected"),
    ],
)
def test_a_planted_defect_is_found(tmp_path: Path, planted: str, found: str) -> None:
    ran = run_demo(tmp_path, "--short", "--no-spark", planted=planted)
    assert ran.returncode == 1, ran.stdout
    assert found in ran.stderr


def test_rows_that_differ_are_named(demo: ModuleType) -> None:
    demo.compare("of the table", ROWS, ROWS)
    other = ROWS.set_column(2, "fare", pa.array([1.0, 3.0]))
    with pytest.raises(demo.Differs, match=r"A row of the table: .*3\.0.*2\.0"):
        demo.compare("of the table", ROWS, other)
    with pytest.raises(demo.Differs, match="number of rows of the table: expected 1"):
        demo.compare("of the table", ROWS, ROWS.slice(1))


def test_of_every_key_the_largest_ordering_value_is_expected(demo: ModuleType) -> None:
    rows = importlib.import_module("demo_rows")
    first, second = rows.Batch(1, 1, 30), rows.Batch(2, 1, 30)
    found = {row["id"]: row for row in rows.expected([second, first], 30).to_pylist()}
    newer = {row["id"]: row for row in second.rows().to_pylist()}
    older = {row["id"]: row for row in first.rows().to_pylist()}
    assert newer.keys() - older.keys()
    assert older.keys() - newer.keys()
    assert found == {**older, **newer}


def test_a_process_that_ends_by_itself_ends_the_demo_with_what_it_said(
    demo: ModuleType, tmp_path: Path
) -> None:
    site = demo.Site(demo.Screen(), tmp_path / "no table", tmp_path, 12)
    with site:
        site.start("arrow-1")
        with pytest.raises(demo.Failed, match=r"arrow-1 ended by itself(.|\n)*no table"):
            site.until("arrow-1", "ready")


def test_a_folder_that_is_no_table_is_not_deleted(demo: ModuleType, tmp_path: Path) -> None:
    mine = tmp_path / "trips" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("not a table")
    with pytest.raises(SystemExit, match="choose another --output"):
        demo.table_folder(tmp_path)
    assert mine.read_text() == "not a table"


def test_where_hudi_is_not_to_be_had_the_demo_says_so_and_goes_on(
    demo: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("HUDI_SPARK_BUNDLE", raising=False)
    with demo.opened_hudi(demo.Screen(), tmp_path / "trips", 12) as hudi:
        assert hudi is None
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("The demo goes on without Apache Hudi.")
    assert "make hudi" in line
