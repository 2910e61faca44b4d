"""What `make test-all` and its like say about suites, and that their page is up to date."""

from __future__ import annotations

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.scripts import load_script

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
PASSED = "==== 8234 passed, 7 skipped in 400.63s (0:06:40) ===="


suites = load_script(ROOT / "scripts" / "suites.py")


def a_record(passed: int = 1) -> dict[str, object]:
    return {
        "passed_at": "2026-01-01 02:03",
        "commit": "0123abcde",
        "is_changed": True,
        "passed": passed,
        "skipped": 2,
        "seconds": 3,
        "cores": 2,
        "python": "3.11.7",
        "spark": "4.1.0",
    }


def test_the_page_shows_the_records() -> None:
    records, page = suites.load_records()
    assert page == suites.render_page(records), "make docs writes it again"
    assert records
    for suite in records:
        recipe = re.search(rf"^{suite}:.*\n(\t.*\n)*\t@.*\$\(RECORDED\)", MAKEFILE, re.MULTILINE)
        assert recipe is not None, f"make {suite} records nothing"


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        (["1 passed in another test", PASSED], (8234, 7)),
        (["==== 129 passed in 1.00s ====", ""], (129, 0)),
        (["3 passed, 1 skipped in 0.72s"], (3, 1)),
        (["==== 40 skipped in 1.00s ===="], (0, 40)),
        (["", "312 jobs, 0 bad"], (312, 0)),
        (["anything else, 3 passed"], (0, 0)),
    ],
)
def test_counts_are_those_of_the_closing_line(output: list[str], counts: tuple[int, int]) -> None:
    assert suites.parse_counts(output) == counts


def test_the_slowest_tests_of_all_come_first() -> None:
    lines = [f"{number}.25s call     tests/a.py::test_{number}" for number in range(12)]
    shown = suites.slowest(["10.11s setup    tests/b.py::test", "3.00s is no test", *lines])
    assert shown[:3] == [lines[11], lines[10], "10.11s setup    tests/b.py::test"]
    assert len(shown) == 10


def test_suites_that_end_together_are_all_recorded(tmp_path: Path) -> None:
    records, page = tmp_path / "suites.json", tmp_path / "suites.md"

    def add(number: int) -> None:
        suites.add_record(f"suite-{number % 10}", a_record(number), records=records, page=page)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(40)))
    known = json.loads(records.read_text())
    assert sorted(known) == [f"suite-{number}" for number in range(10)]
    assert page.read_text() == suites.render_page(known)
    assert "| `make suite-3` | 2026-01-01 02:03 | 0123abcde+ |" in page.read_text()


def run_python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("code", "expected", "is_recorded"),
    [
        (f"print('{PASSED}')", 0, True),
        (f"print('{PASSED}'); raise SystemExit(1)", 1, False),
        ("print('==== 40 skipped in 1.00s ====')", 0, False),
    ],
    ids=["passes", "fails", "skips all"],
)
def test_only_what_passes_is_recorded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    code: str,
    expected: int,
    is_recorded: bool,
) -> None:
    added: dict[str, dict[str, object]] = {}
    monkeypatch.setattr(suites, "add_record", added.__setitem__)
    assert suites.main(["record", "unit", *run_python(code)]) == expected
    assert "====" in capfd.readouterr().out
    assert list(added) == ["unit"] * is_recorded
    if is_recorded:
        assert added["unit"].keys() == a_record().keys()
        assert (added["unit"]["passed"], added["unit"]["skipped"]) == (8234, 7)


@pytest.fixture
def make(tmp_path: Path) -> str:
    """A make of two targets, one that passes and one that fails."""
    program = tmp_path / "make.py"
    program.write_text(
        "import sys\n"
        "target = sys.argv[-1]\n"
        "print(f'0.50s call     tests/test_{target}.py::test')\n"
        f"print('{PASSED}' if target == 'good' else '=== 1 failed, 2 passed in 1s ===')\n"
        "sys.exit(target != 'good')\n"
    )
    return f"{sys.executable} {program}"


def test_side_by_side_every_line_tells_whose_it_is(
    make: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suites.main(["beside", make, "good", "bad"]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert f"good | {PASSED}" in shown
    assert "bad  | 0.50s call     tests/test_bad.py::test" in shown
    assert shown[-2:] == [
        "good  8234 passed, 7 skipped in 400.63s (0:06:40)",
        "bad   FAILED: 1 failed, 2 passed in 1s",
    ]
    assert suites.main(["beside", make, "good"]) == 0


def test_all_goes_on_after_a_failure_and_lists_it(
    make: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert suites.main(["all", make, "bad", "good"]) == 1
    *_, bad, good = capfd.readouterr().out.splitlines()
    assert bad.split()[:2] == ["FAILED", "bad"]
    assert good.split()[:2] == ["passed", "good"]
    assert suites.main(["all", make, "good"]) == 0


def test_no_words_are_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert suites.main(["beside", "make"]) == 2
    assert "suites.py beside MAKE TARGET" in capsys.readouterr().err
